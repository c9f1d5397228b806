package database

import "time"

// DatabaseInfo describes one of the two databases.
type DatabaseInfo struct {
	Name       string      `json:"name" api:"enum=journal projections" redact:"-"` // journal or projections
	Engine     string      `json:"engine"`                                         // sqlite or postgres, with version
	Place      string      `json:"place"`                                          // a path, or a URL without secrets
	Bytes      int64       `json:"bytes"`                                          // on disk, including the log not yet checkpointed
	Settings   []Setting   `json:"settings"`
	Migrations []Migration `json:"migrations"` // in order of their versions
}

// Setting is a named configuration value.
type Setting struct {
	Name  string `json:"name" redact:"-"`
	Value string `json:"value"`
	Given bool   `json:"given"` // set explicitly; false for a default
}

// Migration is one step of a database's schema.
type Migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name" redact:"-"`
	AppliedAt *time.Time `json:"applied_at"` // nil if not applied
}
