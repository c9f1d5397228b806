package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// onServer fills two new schemas of the server with a backlog, runs a number of loops on them and returns the time
// they took.
func (b *bench) onServer(ctx context.Context, l backlog, loops int, run runner) (took time.Duration, err error) {
	admin, err := pgx.Connect(ctx, b.server)
	if err != nil {
		return 0, err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	prefix := fmt.Sprintf("outboxweb_bare_%d_", time.Now().UnixNano())
	journal, projections := prefix+"journal", prefix+"projections"
	for _, schema := range []string{journal, projections} {
		if _, err := admin.Exec(ctx, "create schema "+schema); err != nil {
			return 0, err
		}
		defer func() {
			_, left := admin.Exec(context.WithoutCancel(ctx), "drop schema "+schema+" cascade")
			err = errors.Join(err, left)
		}()
	}
	mark := "?"
	if strings.Contains(b.server, "?") {
		mark = "&"
	}
	if err := b.fill(ctx, b.server+mark+"search_path="+journal, b.server+mark+"search_path="+projections, l); err != nil {
		return 0, err
	}
	texts := newBareSQL(journal+".", projections+".")
	all := make([]*bareLoop, loops)
	for i := range all {
		var conns [2]*pgx.Conn
		for j := range conns {
			if conns[j], err = pgx.Connect(ctx, b.server); err != nil {
				return 0, err
			}
			defer conns[j].Close(context.WithoutCancel(ctx))
		}
		all[i] = &bareLoop{texts, postgresBare{conns[0]}, postgresBare{conns[1]}}
	}
	return run(ctx, all)
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
