package store

import (
	"context"

	sqlite3 "modernc.org/sqlite/lib"
)

// Outage reports whether an error is one of the database as a whole, such as a
// disk that fails or a file that may not be written, whatever was asked of it.
// Memory that does not suffice for a statement is that statement's.
func Outage(err error) bool {
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOTADB:
		return true
	}
	code := pgCode(err)
	return len(code) == 5 && (code[:2] == "53" || code[:2] == "58" || code == "25006")
}

// Probe reports why the two databases cannot be used for applying at all: nil
// when a campaign that fails does so for a reason of its own.
func (s *Store) Probe(ctx context.Context) error {
	for _, d := range []*database{s.journal, s.projections} {
		table := "campaigns"
		if d == s.projections {
			table = "projection_watermarks"
		}
		err := d.write(ctx, func(t *tx) error {
			_, err := t.exec("delete from " + table + " where 1 = 0") // which reads no page that may be damaged
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
