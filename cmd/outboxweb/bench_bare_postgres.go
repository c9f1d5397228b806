package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// drainBare drains a backlog with so many loops and returns how long that
// took.
func (g *postgresGround) drainBare(ctx context.Context, d databases, loops int) (took time.Duration, err error) {
	texts := newBareSQL(d.journalSchema(g)+".", d.projectionsSchema(g)+".")
	if _, err := g.projections.conn.Exec(ctx, texts.table); err != nil {
		return 0, err
	}
	plan, err := planOnPostgres(ctx, g.journal.conn, texts)
	if err != nil {
		return 0, err
	}
	all := make([]bareLoop, loops)
	for i := range all {
		l := &postgresBare{bareSQL: texts}
		if l.journal, err = g.journal.connect(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, disconnect(l.journal)) }()
		if l.projections, err = g.projections.connect(ctx); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, disconnect(l.projections)) }()
		all[i] = l
	}
	return plan.run(ctx, all)
}

func planOnPostgres(ctx context.Context, conn *pgx.Conn, texts *bareSQL) (*barePlan, error) {
	rows, err := conn.Query(ctx, texts.backlog, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	plan := new(barePlan)
	var campaign string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&campaign, &last}, func() error {
		plan.add(campaign, last)
		return nil
	})
	return plan, err
}

// postgresBare is a bareLoop with connections of its own.
type postgresBare struct {
	*bareSQL
	journal, projections *pgx.Conn
}

// bareBatch is a transaction that travels as one.
type bareBatch struct{ pgx.Batch }

func newBareBatch() *bareBatch {
	b := new(bareBatch)
	b.Queue("begin isolation level read committed")
	return b
}

// exec queues a statement that must change want rows.
func (b *bareBatch) exec(want int64, query string, args ...any) {
	b.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != want {
			return fmt.Errorf("%q changed %d rows, not %d", query, tag.RowsAffected(), want)
		}
		return nil
	})
}

func (b *bareBatch) commit(ctx context.Context, conn *pgx.Conn) error {
	b.Queue("commit")
	return conn.SendBatch(ctx, &b.Batch).Close()
}

func (l *postgresBare) take(ctx context.Context, w *bareWave, now int64) error {
	b := newBareBatch()
	for i := range w.spans {
		s := &w.spans[i]
		b.exec(s.rows(), l.mark, s.campaign, s.first, s.last, now)
		b.Queue(l.load, s.campaign, s.first, s.last).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := s.scan(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	return b.commit(ctx, l.journal)
}

func (l *postgresBare) apply(ctx context.Context, w *bareWave, now int64) error {
	b := newBareBatch()
	for _, s := range w.spans {
		if s.first == 1 {
			b.exec(1, l.start, s.campaign, now)
		}
		b.exec(1, l.advance, s.campaign, s.first-1, s.last, s.events[len(s.events)-1].chain, now)
		for i := range s.events {
			b.exec(1, l.upsert, s.campaign, s.events[i].entity, s.events[i].amount, s.events[i].seq)
		}
	}
	return b.commit(ctx, l.projections)
}

func (l *postgresBare) settle(ctx context.Context, w *bareWave) error {
	b := newBareBatch()
	for _, s := range w.spans {
		b.exec(s.rows(), l.remove, s.campaign, s.first, s.last)
	}
	return b.commit(ctx, l.journal)
}
