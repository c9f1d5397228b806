package outbox

import "time"

// DatabaseInfo describes one of the two databases as it is.
type DatabaseInfo struct {
	Name       string      `json:"name" api:"enum=journal projections" redact:"-"` // journal or projections
	Engine     string      `json:"engine"`                                         // sqlite or postgres, with its version
	Place      string      `json:"place"`                                          // a path, or a URL without secrets
	Bytes      int64       `json:"bytes"`                                          // on disk, with the log that was not folded in yet
	Settings   []Setting   `json:"settings"`
	Migrations []Migration `json:"migrations"` // in order of their versions
}

// Setting is a value that was chosen, by its name.
type Setting struct {
	Name  string `json:"name" redact:"-"`
	Value string `json:"value"`
	Given bool   `json:"given"` // somebody set it; false for a default
}

// Migration is one step of a database's schema.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name" redact:"-"`
	AppliedAt *time.Time `json:"applied_at"` // nil when it has not been applied
}

// CostReport is what looking at the system has cost since its process started.
type CostReport struct {
	Requests       int64   `json:"requests"`        // answered, those that were refused included
	RequestSeconds float64 `json:"request_seconds"` // from the first byte read to the last written, in all
	Reads          int64   `json:"reads"`           // reading transactions
	ReadSeconds    float64 `json:"read_seconds"`    // in all
	Statements     int64   `json:"statements"`      // in those
	Shared         int64   `json:"shared"`          // times that a snapshot taken for somebody else was good enough
	Taken          int64   `json:"taken"`           // times that one had to be taken
}
