package sqldb

import (
	"database/sql"

	"github.com/pressly/goose/v3"
)

// Dialect is everything in which the two databases differ beyond their links.
// All other SQL is one text for both.
type Dialect struct {
	name        string
	goose       goose.Dialect
	ForUpdate   string // row lock suffix of a select that is followed by an update
	skipLocked  string // like ForUpdate, for claims: rows others hold are passed over
	CountTables string // counts the tables named $1

	// OneWriter is true when one transaction writes at a time: none meets
	// another, and what it reads nobody else has locked. Otherwise many do, of
	// this process and of others, perhaps on other machines.
	OneWriter bool
	// Pipelines is true when the statements of a batch travel together, so that
	// it pays to gather them, and an error is known only once they have.
	Pipelines bool
	// Typed is true when a value must be of its column's type, which a text
	// always is.
	Typed bool
	// TempTables is true when a Private is temporary tables beside the live ones,
	// so that one statement can copy rows from one to the other.
	TempTables bool

	snapshot sql.IsolationLevel // of a transaction that sees one state
	writers  int                // writing connections

	// What a database tells of itself: its version, its size in bytes, and how
	// it is set.
	version, size string
	settings      []described
	readers       int // reading connections
}
