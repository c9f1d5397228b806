package database

// Connections is a process's connections to a database for one use.
type Connections struct {
	Database string // journal or projections
	Use      string // write or read
	InUse    int
	Idle     int // open, and not in use
	Waiting  int // transactions waiting for one
	Limit    int
}
