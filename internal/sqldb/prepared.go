package sqldb

import (
	"maps"
	"slices"
)

// BeginText is the SQL that a transaction begins with.
func (d *DB) BeginText(b Begin) string { return d.begins[b] }

// Prepared lists the statements prepared for writing and for reading, so that their plans can
// be inspected. It waits for running transactions.
func (d *DB) Prepared() (writing, reading []string) {
	return d.writers.prepared(), d.readers.prepared()
}

// Prepared lists the statements that are prepared.
func (p *Private) Prepared() []string { return preparedOn(p.link) }

// prepared lists the statements prepared in any of the sessions.
func (s *sessions) prepared() (queries []string) {
	for range cap(s.free) {
		one, err := s.acquire(background, nil)
		if err != nil {
			return queries
		}
		queries = append(queries, preparedOn(one.link)...)
		defer s.release(one)
	}
	return queries
}

func preparedOn(l link) (queries []string) {
	switch l := l.(type) {
	case *sqliteLink:
		return slices.Collect(maps.Keys(l.stmts))
	case *postgresLink:
		_ = l.each(background, func(row Row) error { // an unreadable list counts as empty
			var query string
			err := row.Scan(&query)
			queries = append(queries, query)
			return err
		}, `select statement from pg_prepared_statements`, nil)
	}
	return queries
}
