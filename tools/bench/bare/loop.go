package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
)

// The bare driver is the baseline of the drain: it does only the row operations that applying
// needs. Per wave of 1,000 rows: mark them processing by range and load their events; upsert one
// projection row per event and move one watermark per campaign; delete the rows by range. Each loop
// works on its own waves, so that one applies while another settles. It claims no leases, keeps no
// campaign rows, checks no hashes and survives no failure.
//
// On SQLite it is database/sql with prepared statements on one pinned connection per file, both
// files WAL and synchronous=FULL. On PostgreSQL it is pgx itself: each loop has a connection to
// each database and sends a wave's statements, prepared, as one pipelined batch, read committed, as
// durable as the server makes it.
//
// Its SQL lives here rather than in the store because it measures the store from outside.

const bareWaveRows = 1000

// bareSQL holds the statements for databases whose tables share a prefix.
type bareSQL struct {
	event, row, end                                            string
	backlog, mark, load, start, advance, upsert, remove, table string
}

func newBareSQL(journal, projections string) *bareSQL {
	in := strings.NewReplacer("journal.", journal, "projections.", projections).Replace
	return &bareSQL{
		event: in(`insert into journal.events (seq, occurred_at, recorded_at, campaign_id, event_id, event_type, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ($1, $2, $2, $3, $4, 'bench.moved', 'participant', 'p-1', 'token', $5, '', '', '', '', '{}', '{}', $6, $7, $8)`),
		row: in(`insert into journal.projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
values ($1, $2, 'bench.moved', $3, $3, $3)`),
		end:     in(`update journal.campaigns set high_water_seq = $2, chain_hash = $3, pending = pending + $4, updated_at = $5 where campaign_id = $1`),
		backlog: in(`select campaign_id, high_water_seq from journal.campaigns order by due_at, campaign_id`),
		mark: in(`update journal.projection_apply_outbox set status = 'processing', claim_epoch = 1, updated_at = $4
where campaign_id = $1 and seq between $2 and $3 and status = 'pending'`),
		load: in(`select seq, event_type, occurred_at, entity_id, payload, event_hash, chain_hash
from journal.events where campaign_id = $1 and seq between $2 and $3 order by seq`),
		start: in(`insert into projections.projection_watermarks (campaign_id, updated_at) values ($1, $2) on conflict do nothing`),
		advance: in(`update projections.projection_watermarks set applied_seq = $3, applied_hash = $4, updated_at = $5
where campaign_id = $1 and applied_seq = $2`),
		upsert: in(`insert into projections.bench_tokens (campaign_id, token_id, amount, seq) values ($1, $2, $3, $4)
on conflict (campaign_id, token_id) do update set amount = bench_tokens.amount + excluded.amount, seq = excluded.seq`),
		remove: in(`delete from journal.projection_apply_outbox
where campaign_id = $1 and seq between $2 and $3 and status = 'processing' and claim_epoch = 1`),
		table: in(`create table projections.bench_tokens (campaign_id text not null, token_id text not null, amount bigint not null,
seq bigint not null, primary key (campaign_id, token_id))`),
	}
}

// barePlan is a backlog cut into waves. A worker has to find its waves by claiming; the bare driver
// gets them ready-made.
type barePlan struct {
	waves []*bareWave
	left  int64 // rows that fit into the last wave
}

type bareWave struct {
	spans   []bareSpan
	after   <-chan struct{} // closed when the preceding wave is applied, if it has earlier events of a campaign; otherwise nil
	applied chan struct{}
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

// add plans the waves of a campaign whose last event is last.
func (p *barePlan) add(campaign string, last int64) {
	for first := int64(1); first <= last; {
		if p.left == 0 {
			wave := &bareWave{applied: make(chan struct{})}
			if first > 1 {
				wave.after = p.waves[len(p.waves)-1].applied
			}
			p.waves, p.left = append(p.waves, wave), bareWaveRows
		}
		n := min(p.left, last-first+1)
		wave := p.waves[len(p.waves)-1]
		wave.spans = append(wave.spans, bareSpan{campaign: campaign, first: first, last: first + n - 1})
		first, p.left = first+n, p.left-n
	}
}

func (s *bareSpan) rows() int64 { return s.last - s.first + 1 }

// scan reads a row of the load statement.
func (s *bareSpan) scan(row bareRow) error {
	var e bareEvent
	if err := row.Scan(&e.seq, &e.eventType, &e.occurred, &e.entity, &e.text, &e.hash, &e.chain); err != nil {
		return err
	}
	e.amount = gjson.Get(e.text, "amount").Int()
	s.events = append(s.events, e)
	return nil
}

// bareRow is a result row.
type bareRow interface{ Scan(...any) error }

// bareDB is a connection to one of the databases.
type bareDB interface {
	// within runs fn in a transaction. A batching implementation sends the statements after fn
	// returns.
	within(ctx context.Context, fn func(bareTx) error) error
}

// bareTx is a transaction.
type bareTx interface {
	exec(want int64, query string, args ...any) error // exec runs a statement that must change want rows; a negative want allows any number
	each(scan func(bareRow) error, query string, args ...any) error
}

// bareLoop does the row operations of waves, each step in one transaction.
type bareLoop struct {
	*bareSQL
	journal, projections bareDB
}

const bareBatchEvents = 100

// append appends events to a campaign that has one, in batches, and returns the time it took: each is hashed, by
// itself and in a chain, inserted with its row, and the campaign's end is moved with each batch. Nothing is checked.
func (l *bareLoop) append(ctx context.Context, events int) (time.Duration, error) {
	began, chain := time.Now(), ""
	for seq := 2; seq <= events; seq += bareBatchEvents {
		err := l.journal.within(ctx, func(tx bareTx) error {
			now := time.Now().UnixMicro()
			last := min(seq+bareBatchEvents-1, events)
			for n := seq; n <= last; n++ {
				id, entity := fmt.Sprintf("e-%d", n), fmt.Sprintf("t-%d", n%10_000)
				payload := fmt.Sprintf(`{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7},"to":{"x":13,"y":7}}`, n%97)
				hash := hashOf("c-0", id, "bench.moved", "participant", "p-1", "token", entity, payload)
				chain = hashOf(chain, strconv.Itoa(n), hash)
				if err := tx.exec(1, l.event, n, now, "c-0", id, entity, payload, hash, chain); err != nil {
					return err
				}
				if err := tx.exec(1, l.row, "c-0", n, now); err != nil {
					return err
				}
			}
			return tx.exec(1, l.end, "c-0", last, chain, last-seq+1, now)
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func hashOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// runner runs loops and returns the time they took.
type runner = func(context.Context, []*bareLoop) (time.Duration, error)

// drainWith drains the backlog with the given loops and returns the time it took.
func drainWith(ctx context.Context, loops []*bareLoop) (time.Duration, error) {
	one, plan := loops[0], new(barePlan)
	err := one.projections.within(ctx, func(tx bareTx) error { return tx.exec(-1, one.table) })
	if err != nil {
		return 0, err
	}
	err = one.journal.within(ctx, func(tx bareTx) error {
		return tx.each(func(row bareRow) error {
			var campaign string
			var last int64
			err := row.Scan(&campaign, &last)
			plan.add(campaign, last)
			return err
		}, one.backlog)
	})
	if err != nil {
		return 0, err
	}
	return plan.run(ctx, loops)
}

// run drains the waves with the given loops and returns the time it took.
func (p *barePlan) run(ctx context.Context, loops []*bareLoop) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taken atomic.Int64
	var wait sync.WaitGroup
	start := time.Now()
	for _, loop := range loops {
		wait.Go(func() {
			for ctx.Err() == nil {
				next := int(taken.Add(1)) - 1
				if next >= len(p.waves) {
					return
				}
				if err := loop.pass(ctx, p.waves[next]); err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return time.Since(start), context.Cause(ctx)
}

func (l *bareLoop) pass(ctx context.Context, w *bareWave) error {
	now := time.Now().UnixMicro()
	if err := l.claim(ctx, w, now); err != nil {
		return err
	}
	if w.after != nil {
		select {
		case <-w.after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := l.apply(ctx, w, now); err != nil {
		return err
	}
	close(w.applied)
	return l.settle(ctx, w)
}

// claim marks the rows and loads the events.
func (l *bareLoop) claim(ctx context.Context, w *bareWave, now int64) error {
	return l.journal.within(ctx, func(tx bareTx) error {
		for i := range w.spans {
			s := &w.spans[i]
			if err := tx.exec(s.rows(), l.mark, s.campaign, s.first, s.last, now); err != nil {
				return err
			}
			if err := tx.each(s.scan, l.load, s.campaign, s.first, s.last); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *bareLoop) apply(ctx context.Context, w *bareWave, now int64) error {
	return l.projections.within(ctx, func(tx bareTx) error {
		for _, s := range w.spans {
			if s.first == 1 {
				if err := tx.exec(1, l.start, s.campaign, now); err != nil {
					return err
				}
			}
			if err := tx.exec(1, l.advance, s.campaign, s.first-1, s.last, s.events[len(s.events)-1].chain, now); err != nil {
				return err
			}
			for i := range s.events {
				if err := tx.exec(1, l.upsert, s.campaign, s.events[i].entity, s.events[i].amount, s.events[i].seq); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (l *bareLoop) settle(ctx context.Context, w *bareWave) error {
	return l.journal.within(ctx, func(tx bareTx) error {
		for _, s := range w.spans {
			if err := tx.exec(s.rows(), l.remove, s.campaign, s.first, s.last); err != nil {
				return err
			}
		}
		return nil
	})
}
