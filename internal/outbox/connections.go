package outbox

// Connections are how many connections a process has to a database for one use.
type Connections struct {
	Database string // journal or projections
	Use      string // write or read
	InUse    int
	Idle     int // open, and not in use
	Waiting  int // transactions that wait for one
	Limit    int
}
