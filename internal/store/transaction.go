package store

import (
	"context"

	"outboxweb/internal/sqldb"
)

// The classes of locks.
const (
	lockKeys    = 0x6f757463 // idempotency keys
	lockRuns    = 0x6f757472 // admission of runs
	lockInstall = 0x6f757469 // installing projections
)

// database is one of the two databases.
type database struct{ *sqldb.DB }

// tx is a transaction on one of the two databases.
type tx struct{ *sqldb.Tx }

func (d *database) write(ctx context.Context, fn func(*tx) error) error {
	return d.DB.Write(ctx, func(t *sqldb.Tx) error { return fn(&tx{t}) })
}

// writeFrom is write for a transaction that begins in a way of its own.
func (d *database) writeFrom(ctx context.Context, begin sqldb.Begin, fn func(*tx) error) error {
	return d.DB.WriteFrom(ctx, begin, func(t *sqldb.Tx) error { return fn(&tx{t}) })
}

func (d *database) read(ctx context.Context, fn func(*tx) error) error {
	return d.DB.Read(ctx, func(t *sqldb.Tx) error { return fn(&tx{t}) })
}
