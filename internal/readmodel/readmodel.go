// Package readmodel is the projections database: the rows that projections make of events, each
// campaign's watermark, which projections do not follow it, and how replayed rows are built
// beside the live ones and swapped in. It does not depend on a journal.
package readmodel

import "github.com/outboxweb/outboxweb/internal/sqldb"

// Options configure the projections database for a process. All are required.
type Options struct {
	Now    func() int64 // in microseconds
	Refuse func() error // returns the reason why rows may not be swapped here; nil where they may
}

// Database is the projections database: the rows of the projections and each campaign's
// watermark.
//
// It is safe for concurrent use, by several processes too.
type Database struct {
	*sqldb.DB
	options   Options
	onAdvance func(reached map[string]int64)
	lineage   lineage
}

// New wraps an open database.
func New(db *sqldb.DB, o Options) *Database {
	d := &Database{DB: db, options: o, onAdvance: func(map[string]int64) {}}
	if db != nil {
		db.OnConnect(d.compare)
	}
	return d
}

// OnAdvance registers a function that is called after each commit with the advanced watermarks.
// It must not be called once the database is in use.
func (d *Database) OnAdvance(announce func(reached map[string]int64)) { d.onAdvance = announce }
