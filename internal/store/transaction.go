package store

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Classes of advisory locks.
const (
	lockKeys = 0x6f757463 // idempotency keys
)

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
