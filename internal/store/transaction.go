package store

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// lockKeys is the class of the advisory locks of idempotency keys.
const lockKeys = 0x6f757463

// Database is one of the two databases.
type Database struct{ *sqldb.DB }

// Tx is a transaction on one of the two databases.
type Tx struct{ *sqldb.Tx }

// Write runs fn in one writing transaction; see sqldb.DB.Write.
func (d *Database) Write(ctx context.Context, fn func(*Tx) error) error {
	return d.DB.Write(ctx, func(t *sqldb.Tx) error { return fn(&Tx{t}) })
}

// WriteFrom is Write for a transaction that begins in another way.
func (d *Database) WriteFrom(ctx context.Context, begin sqldb.Begin, fn func(*Tx) error) error {
	return d.DB.WriteFrom(ctx, begin, func(t *sqldb.Tx) error { return fn(&Tx{t}) })
}

// Read runs fn on one consistent snapshot; see sqldb.DB.Read.
func (d *Database) Read(ctx context.Context, fn func(*Tx) error) error {
	return d.DB.Read(ctx, func(t *sqldb.Tx) error { return fn(&Tx{t}) })
}

// Reading is sqldb.Reading on the journal.
func Reading[R any](ctx context.Context, s *Store, what string, read func(*Tx) (R, error)) (R, error) {
	return sqldb.Reading(ctx, s.journal, what, read)
}
