package publishing_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
)

var published = flag.Int("published", 0, "events that concurrent appenders write while they are published; 0 is 4,000, in a short run 2,000, in a soak 40,000")

// Positions are allocated in one order and become visible in another. The receiver nevertheless
// gets every event, in the order of positions.
func TestRelay_skipsNothingOfConcurrentAppends(t *testing.T) {
	t.Parallel()
	f := open(t, live)
	r := receivers{"tight": {}}
	sub := subscriptionOf("everything", "tight", everyEvent)
	sub.PollInterval = time.Millisecond
	deliver(t, f, r.config(f, "one", sub))
	each := cmp.Or(*published, size.Of(2_000, 4_000, 40_000)) / 8
	var appenders sync.WaitGroup
	for i := range 8 {
		appenders.Go(func() { f.appendWithRefusals(t, fmt.Sprintf("c-%d", i), each) })
	}
	done := make(chan struct{})
	var rollbacks sync.WaitGroup
	if dbtest.Postgres() {
		for range 2 {
			rollbacks.Go(func() { f.rollBack(t, done) })
		}
	}
	appenders.Wait()
	close(done)
	rollbacks.Wait()
	var want []int64
	rows := must.Get(f.JournalDB.Query(`select position from events order by position`)).Or(t)
	defer rows.Close()
	for rows.Next() {
		var position int64
		must.OK(t, rows.Scan(&position))
		want = append(want, position)
	}
	must.Need(t, len(want) >= 8*each, "only %d events were appended", len(want))
	f.mustStandAt(t, sub.SubscriptionName, want[len(want)-1])
	got := r["tight"].got()
	must.Same(t, got, want, "what was delivered")
	must.Hold(t, !dbtest.Postgres() || want[len(want)-1] != int64(len(want)), "no append was rolled back after it had drawn a position")
}

// appendWithRefusals appends n events, a few at a time, and in between some
// that are refused.
func (f *fixture) appendWithRefusals(tb testing.TB, campaign string, n int) {
	for left, i := n, 0; left > 0; i++ {
		events := notes(campaign, min(left, 1+i%20))
		if i%3 == 0 {
			refused := append(slices.Clone(events), noted(campaign))
			refused[len(refused)-1].Seq = 1 << 40
			if _, err := f.Append(context.Background(), store.Append{Events: refused}); !errors.Is(err, outbox.ErrConflict) {
				tb.Errorf("append to %s with a wrong seq: %v", campaign, err)
				return
			}
		}
		if _, err := f.Append(context.Background(), store.Append{Events: events}); err != nil {
			tb.Errorf("append to %s: %v", campaign, err)
			return
		}
		left -= len(events)
	}
}

// rollBack appends as other programs would, in transactions that each allocate a position, stay
// open for a while, and roll back.
func (f *fixture) rollBack(tb testing.TB, done <-chan struct{}) {
	var schema string
	if err := f.JournalDB.QueryRow(`select current_schema()`).Scan(&schema); err != nil {
		tb.Error(err)
		return
	}
	h := fnv.New32a()
	h.Write([]byte(schema))
	for {
		select {
		case <-done:
			return
		default:
		}
		tx, err := f.JournalDB.Begin()
		if err != nil {
			tb.Error(err)
			return
		}
		_, err = tx.Exec(`select pg_advisory_xact_lock_shared($1, $2)`, 0x6f757462, int32(h.Sum32()))
		if err == nil {
			_, err = tx.Exec(`
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ('rolled back', 1, '1', 'noted', 1, 1, '', '', '', '', '', '', '', '', '{}', '{}', '{}', '', '')`)
		}
		if err == nil {
			_, err = tx.Exec(`select count(*) from events`)
		}
		if err := errors.Join(err, tx.Rollback()); err != nil {
			tb.Error(err)
			return
		}
	}
}
