package store

import (
	"database/sql"

	"github.com/pressly/goose/v3"
)

// dialect is everything in which the two databases differ beyond their links.
// All other SQL is one text for both.
type dialect struct {
	name       string
	goose      goose.Dialect
	forUpdate  string // row lock suffix of a select that is followed by an update
	skipLocked string // like forUpdate, for claims: rows others hold are passed over
	tables     string // counts the tables named $1

	// claimStep is how many due campaigns a claim reads, and locks, at first.
	claimStep int
	// several is true when several connections write at once, of this
	// process and of others, perhaps on other machines.
	several  bool
	snapshot sql.IsolationLevel // of a transaction that sees one state
	writers  int                // writing connections

	// What a database tells of itself: its version, its size in bytes, and how
	// it is set.
	version, size string
	settings      []described
	readers       int // reading connections
}
