package campaign

import "time"

// Definition is a version of a projection as an instance loaded it.
type Definition struct {
	Projection string
	Version    string
	Number     int64  // among the projection's versions, from 1 in the order of their first load
	Previous   string // the version loaded before; empty for the first
	LoadedAt   time.Time
	Host       string
	File       RehearsalFile // empty for a projection in Go, and for one loaded by an older outboxweb
}

// ProjectionDetail is a projection with how its definition was last changed, and what is kept of it.
type ProjectionDetail struct {
	ProjectionInfo
	// the last load of another version of the definition; null if no other one is known
	LastChange *DefinitionChange `json:"last_change" api:"nullable"`
	// its versions, the one loaded last first, at most 10; those that are kept can be rehearsed and compared with
	Versions []LoadedVersion `json:"versions"`
}

// DefinitionChange is the load of another version of a projection's definition.
type DefinitionChange struct {
	LoadedAt time.Time `json:"loaded_at"`
	Host     string    `json:"host"`
	Version  string    `json:"version" redact:"-"`
	Previous string    `json:"previous" redact:"-"` // the version before
	Again    bool      `json:"again"`               // the version had been loaded before, too
	Kept     bool      `json:"kept"`                // the text of the version before is kept, and can be rehearsed
	Added    int64     `json:"added"`               // lines
	Removed  int64     `json:"removed"`             // lines
	Diff     string    `json:"diff" redact:"-"`     // what changed, as a unified diff; empty if not both texts are kept
	Cut      bool      `json:"cut"`                 // the diff has more lines
}

// RehearsalFile is a changed projection file.
type RehearsalFile struct {
	Name string `json:"name" validate:"required,id" redact:"-"`
	Text string `json:"text" validate:"required" redact:"-"`
}
