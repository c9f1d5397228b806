package store

import (
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect is everything in which the two databases differ. All other SQL is
// one text for both.
type dialect struct {
	name       string
	driver     string // name in database/sql
	begin      string // starts a writing transaction
	forUpdate  string // row lock suffix of a select that is followed by an update
	skipLocked string // like forUpdate, for claims: rows others hold are passed over
	tables     string // counts the tables named $1
	writers    int    // writing connections

	// locked reports contention: nothing is wrong with the statement, and
	// the same transaction may succeed later.
	locked func(error) bool
	// fatal reports an error after which the transaction is no longer what
	// it was: rolled back by the database, or not to be trusted.
	fatal func(error) bool
}

var sqliteDialect = &dialect{
	name:    "sqlite",
	driver:  "sqlite",
	begin:   "begin immediate",
	tables:  `select count(*) from sqlite_master where type = 'table' and name = $1`,
	writers: 1,
	locked: func(err error) bool {
		return sqliteCode(err) == sqlite3.SQLITE_BUSY || sqliteCode(err) == sqlite3.SQLITE_LOCKED
	},
	fatal: func(err error) bool {
		var e *sqlite.Error
		if !errors.As(err, &e) {
			// A context that ended interrupts the statement, and SQLite
			// answers an interrupted write by rolling everything back.
			return true
		}
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_RANGE:
			return false
		}
		return true
	},
}

// sqliteCode is the primary result code of err, or 0 when SQLite did not speak.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code() & 0xff
}
