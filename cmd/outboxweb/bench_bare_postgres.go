package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// drainBare drains a backlog with the given number of loops and returns the time it took.
func (g *postgresGround) drainBare(ctx context.Context, d databases, loops int) (took time.Duration, err error) {
	texts := newBareSQL(d.journalSchema(g)+".", d.projectionsSchema(g)+".")
	all := make([]*bareLoop, loops)
	for i := range all {
		var journal, projections *pgx.Conn
		if journal, err = g.journal.connect(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, disconnect(journal)) }()
		if projections, err = g.projections.connect(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, disconnect(projections)) }()
		all[i] = &bareLoop{texts, postgresBare{journal}, postgresBare{projections}}
	}
	return drainWith(ctx, all)
}

// postgresBare is a bareDB that sends each transaction as one pipelined batch.
type postgresBare struct{ conn *pgx.Conn }

func (p postgresBare) within(ctx context.Context, fn func(bareTx) error) error {
	b := new(bareBatch)
	b.Queue("begin isolation level read committed")
	if err := fn(b); err != nil {
		return err
	}
	b.Queue("commit")
	return p.conn.SendBatch(ctx, &b.Batch).Close()
}

// bareBatch is a bareTx that queues its statements.
type bareBatch struct{ pgx.Batch }

func (b *bareBatch) exec(want int64, query string, args ...any) error {
	b.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
		if want >= 0 && tag.RowsAffected() != want {
			return fmt.Errorf("%q changed %d rows, not %d", query, tag.RowsAffected(), want)
		}
		return nil
	})
	return nil
}

func (b *bareBatch) each(scan func(bareRow) error, query string, args ...any) error {
	b.Queue(query, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return nil
}
