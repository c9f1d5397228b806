package outbox

import "time"

// About describes a process and its databases.
type About struct {
	Version     string           `json:"version"`
	Go          string           `json:"go"` // the version of Go it was built with
	Mode        Mode             `json:"mode"`
	ReadOnly    bool             `json:"read_only"`
	Ready       bool             `json:"ready"`
	Reasons     []string         `json:"reasons"` // why it is not ready
	Databases   []DatabaseInfo   `json:"databases"`
	Projections []ProjectionInfo `json:"projections"`
	Settings    []Setting        `json:"settings"` // without secrets
	Cost        CostReport       `json:"cost"`
	Request     Arrival          `json:"request" redact:"-"` // this request as it arrived
}

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

// CostReport is the console overhead of a process since its start.
type CostReport struct {
	Requests       int64   `json:"requests"`        // answered, including refused ones
	RequestSeconds float64 `json:"request_seconds"` // total from the first byte read to the last written
	Reads          int64   `json:"reads"`           // read transactions
	ReadSeconds    float64 `json:"read_seconds"`    // total
	Statements     int64   `json:"statements"`      // in those transactions
	Shared         int64   `json:"shared"`          // times that a snapshot taken for another request was reused
	Taken          int64   `json:"taken"`           // times that a snapshot was taken
}
