package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// The bare driver is the yardstick of the drain: database/sql with prepared
// statements on one pinned connection a file, both files WAL and
// synchronous=FULL, doing the row operations that applying cannot do without
// and nothing else. Per wave of 1,000 rows: mark them processing by range and
// load their events; upsert one projection row an event and move one watermark
// a campaign; delete the rows by range. Two goroutines take turns, so that one
// applies while the other settles. It claims no leases, keeps no campaign
// rows, checks no hashes, survives no failure.
//
// Its SQL lives here, beside the only thing that uses it, because it measures
// the store from outside.

const bareWave = 1000

const (
	bareMark = `update projection_apply_outbox set status = 'processing', claim_epoch = 1, updated_at = $4
where campaign_id = $1 and seq between $2 and $3 and status = 'pending'`
	bareLoad = `select seq, event_type, occurred_at, entity_id, payload, event_hash, chain_hash
from events where campaign_id = $1 and seq between $2 and $3 order by seq`
	bareUpsert = `insert into bench_tokens (campaign_id, token_id, amount, seq) values ($1, $2, $3, $4)
on conflict (campaign_id, token_id) do update set amount = bench_tokens.amount + excluded.amount, seq = excluded.seq`
	bareAdvance = `update projection_watermarks set applied_seq = $3, applied_hash = $4, updated_at = $5
where campaign_id = $1 and applied_seq = $2`
	bareStart  = `insert into projection_watermarks (campaign_id, updated_at) values ($1, $2) on conflict do nothing`
	bareDelete = `delete from projection_apply_outbox
where campaign_id = $1 and seq between $2 and $3 and status = 'processing' and claim_epoch = 1`
	bareTable = `create table bench_tokens (campaign_id text not null, token_id text not null, amount bigint not null,
seq bigint not null, primary key (campaign_id, token_id))`
)

// bareDB is one file through one connection. mu is held for a transaction.
type bareDB struct {
	mu    sync.Mutex
	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func openBare(ctx context.Context, path string) (*bareDB, error) {
	pool, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &bareDB{pool: pool, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (d *bareDB) close() error {
	for _, stmt := range d.stmts {
		stmt.Close()
	}
	return errors.Join(d.conn.Close(), d.pool.Close())
}

func (d *bareDB) prepared(query string) (*sql.Stmt, error) {
	if stmt, ok := d.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := d.conn.PrepareContext(context.Background(), query)
	d.stmts[query] = stmt
	return stmt, err
}

// exec runs a statement that must change want rows; a negative want is any.
func (d *bareDB) exec(want int64, query string, args ...any) error {
	stmt, err := d.prepared(query)
	if err != nil {
		return err
	}
	result, err := stmt.Exec(args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && want >= 0 && n != want {
		err = fmt.Errorf("%q changed %d rows, not %d", query, n, want)
	}
	return err
}

// within runs fn in a transaction, under the lock.
func (d *bareDB) within(fn func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.exec(-1, "begin immediate"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return errors.Join(err, d.exec(-1, "rollback"))
	}
	return d.exec(-1, "commit")
}

// bareSpan is the part of a wave that belongs to one campaign.
type bareSpan struct {
	campaign    string
	first, last int64
	events      []bareEvent
}

type bareEvent struct {
	seq               int64
	entity            string
	amount            int64
	eventType         string
	occurred          int64
	hash, chain, text string
}

// drainBare drains a copy of a backlog and returns how long that took.
func drainBare(ctx context.Context, journalPath, projectionsPath string) (took time.Duration, err error) {
	journal, err := openBare(ctx, journalPath)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, journal.close()) }()
	projections, err := openBare(ctx, projectionsPath)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, projections.close()) }()
	if err := projections.exec(-1, bareTable); err != nil {
		return 0, err
	}
	waves, err := planBare(ctx, journal)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	err = runBare(ctx, journal, projections, waves)
	return time.Since(start), err
}

// planBare cuts the backlog into waves. A worker has to find its waves by
// claiming; the bare driver is given them.
func planBare(ctx context.Context, journal *bareDB) ([][]bareSpan, error) {
	rows, err := journal.conn.QueryContext(ctx, "select campaign_id, high_water_seq from campaigns order by due_at, campaign_id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var waves [][]bareSpan
	left := int64(0)
	for rows.Next() {
		var id string
		var last int64
		if err := rows.Scan(&id, &last); err != nil {
			return nil, err
		}
		for first := int64(1); first <= last; {
			if left == 0 {
				waves, left = append(waves, nil), bareWave
			}
			n := min(left, last-first+1)
			wave := &waves[len(waves)-1]
			*wave = append(*wave, bareSpan{campaign: id, first: first, last: first + n - 1})
			first, left = first+n, left-n
		}
	}
	return waves, rows.Err()
}

// runBare works off the waves with two goroutines. Each wave is marked and
// applied in order; settling one overlaps with applying the next.
func runBare(ctx context.Context, journal, projections *bareDB, waves [][]bareSpan) error {
	applied := make([]chan struct{}, len(waves)+1)
	for i := range applied {
		applied[i] = make(chan struct{})
	}
	close(applied[0])
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	for worker := range 2 {
		wait.Go(func() {
			for i := worker; i < len(waves) && ctx.Err() == nil; i += 2 {
				if err := bareOne(ctx, journal, projections, waves[i], applied[i]); err != nil {
					cancel(err)
					return
				}
				close(applied[i+1])
				if err := bareSettle(journal, waves[i]); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// bareOne marks, loads and applies one wave, once the one before is applied.
func bareOne(ctx context.Context, journal, projections *bareDB, wave []bareSpan, before <-chan struct{}) error {
	now := time.Now().UnixMicro()
	err := journal.within(func() error {
		for i := range wave {
			s := &wave[i]
			if err := journal.exec(s.last-s.first+1, bareMark, s.campaign, s.first, s.last, now); err != nil {
				return err
			}
			if err := bareEvents(journal, s); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-before:
	case <-ctx.Done():
		return ctx.Err()
	}
	return projections.within(func() error { return bareApply(projections, wave, now) })
}

func bareEvents(journal *bareDB, s *bareSpan) error {
	stmt, err := journal.prepared(bareLoad)
	if err != nil {
		return err
	}
	rows, err := stmt.Query(s.campaign, s.first, s.last)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e bareEvent
		if err := rows.Scan(&e.seq, &e.eventType, &e.occurred, &e.entity, &e.text, &e.hash, &e.chain); err != nil {
			return err
		}
		e.amount = gjson.Get(e.text, "amount").Int()
		s.events = append(s.events, e)
	}
	return rows.Err()
}

func bareApply(projections *bareDB, wave []bareSpan, now int64) error {
	for _, s := range wave {
		if s.first == 1 {
			if err := projections.exec(-1, bareStart, s.campaign, now); err != nil {
				return err
			}
		}
		if err := projections.exec(1, bareAdvance, s.campaign, s.first-1, s.last, s.events[len(s.events)-1].chain, now); err != nil {
			return err
		}
		for i := range s.events {
			if err := projections.exec(1, bareUpsert, s.campaign, s.events[i].entity, s.events[i].amount, s.events[i].seq); err != nil {
				return err
			}
		}
	}
	return nil
}

func bareSettle(journal *bareDB, wave []bareSpan) error {
	return journal.within(func() error {
		for _, s := range wave {
			if err := journal.exec(s.last-s.first+1, bareDelete, s.campaign, s.first, s.last); err != nil {
				return err
			}
		}
		return nil
	})
}
