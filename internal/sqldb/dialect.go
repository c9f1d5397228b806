package sqldb

import "database/sql"

// Dialect is the differences between the two databases beyond their links. All other SQL is
// shared.
type Dialect struct {
	name        string
	ForUpdate   string // row lock suffix of a select before an update
	skipLocked  string // like ForUpdate, for claims: locked rows are skipped
	CountTables string // query that counts the tables named $1

	// OneWriter is true when one transaction writes at a time, so that rows it reads are never
	// locked by another. Otherwise there are many writers, in this process and in others, possibly
	// on other machines.
	OneWriter bool
	// Pipelines is true when the statements of a batch are sent together: batching saves round
	// trips, and an error is known only after the batch was sent.
	Pipelines bool
	// Typed is true when a value must have its column's type, except a text, which converts to any.
	Typed bool
	// TempTables is true when a Private is temporary tables beside the live ones, so that one
	// statement can copy rows between them.
	TempTables bool

	snapshot sql.IsolationLevel // of a snapshot transaction
	writers  int                // writing connections

	// Queries for the database's version and its size in bytes. Its settings are queried too.
	version, size string
	settings      []described
	readers       int // reading connections
}
