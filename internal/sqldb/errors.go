package sqldb

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Wrapf says before err what was attempted; no error stays none.
func Wrapf(err error, attempted string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(attempted, args...), err)
}

// Outage reports whether err concerns the database as a whole, such as a failing disk or a
// read-only file, whatever the statement was. Running out of memory for a statement does not.
func Outage(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOTADB:
		return true
	}
	code := pgCode(err)
	return len(code) == 5 && (code[:2] == "53" || code[:2] == "58" || code == "25006")
}

// Permanent reports whether an event that failed with err can never succeed with the same
// version of its projection: a value of the event cannot be bound or has the wrong type, or the
// statement itself is invalid. A failure that depends on rows or on the state of the
// database, such as a table that was dropped, is not permanent.
func Permanent(err error) bool {
	if errors.Is(err, event.ErrUnboundValue) {
		return true
	}
	if malformed, ok := errors.AsType[malformedError](err); ok {
		return !strings.Contains(malformed.Error(), "no such table")
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return slices.Contains([]int{sqlite3.SQLITE_CONSTRAINT_NOTNULL, sqlite3.SQLITE_CONSTRAINT_DATATYPE, sqlite3.SQLITE_MISMATCH}, e.Code())
	}
	switch code := pgCode(err); {
	case code == "":
		return false
	case code == "42501", code == "42P01", code == "42P05": // a privilege may be granted; a dropped table is made again; behind a pooler another session may have taken a statement's name
		return false
	default:
		return code == "23502" || code[:2] == "22" || code[:2] == "42"
	}
}

// malformedError is SQLite's refusal to prepare a statement, for example with an unknown table.
type malformedError struct{ error }

func (e malformedError) Unwrap() error { return e.error }

// markMalformed marks err when SQLite refuses the statement itself. SQLite uses one code for
// that and for errors while a statement runs, so the statement is prepared again to tell them
// apart.
func (l *sqliteLink) markMalformed(query string, err error) error {
	if sqliteCode(err) != sqlite3.SQLITE_ERROR || sqliteCode(l.prepare(query)) != sqlite3.SQLITE_ERROR {
		return err
	}
	return malformedError{err}
}
