package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// follower reads all events by position, as a publisher does.
type follower struct {
	positions []int64
	last      int64
	reads     *atomic.Int64
}

// follow reads until it has seen everything that existed when done was closed.
func (w *follower) follow(s *fixture, done <-chan struct{}) {
	for ended := false; ; {
		select {
		case <-done:
			ended = true
		default:
		}
		events, err := s.EventsFrom(s.Ctx, w.last, 1+rand.IntN(9))
		if err != nil {
			s.TB.Errorf("read after %d: %v", w.last, err)
			return
		}
		for _, e := range events {
			must.Hold(s.TB, e.Position > w.last, "position %d comes after %d", e.Position, w.last)
			w.last = e.Position
			w.positions = append(w.positions, e.Position)
		}
		w.reads.Add(1)
		if ended && len(events) == 0 {
			return
		}
	}
}

// appends appends to the store until done is closed. Every third append is refused after it has
// consumed a position.
func (f *fixture) appends(campaign string, done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		events := []outbox.Event{storetest.Event(campaign, "counted"), storetest.Event(campaign, "counted")}
		if i%3 == 0 {
			events[1].Seq = 1 << 40
		}
		_, err := f.Append(f.Ctx, store.Append{Events: events})
		must.Hold(f.TB, i%3 == 0 == errors.Is(err, outbox.ErrConflict) && (i%3 == 0 || err == nil), "append to %s: got error %v", campaign, err)
	}
}

// held appends events one by one, as another process would, but slowly: each transaction pauses
// after drawing its position until others have read on, and every other one is rolled back.
func (f *fixture) held(campaign string, times int, reads *atomic.Int64) {
	conn := storetest.Connect(f.TB, f.Pair.Journal)
	begin := f.BeginAppendText()
	for seq := range times {
		if _, err := conn.PgConn().Exec(f.Ctx, begin).ReadAll(); err != nil {
			f.TB.Errorf("begin: %v", err)
			return
		}
		storetest.Run(f.TB, conn, fmt.Sprintf(`
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ('%s', %d, '%[2]d', 'counted', 1, 1, '', '', '', '', '', '', '', '', '{}', '{}', '{}', '', '')`, campaign, seq+1))
		// After two more reads a reader has had the chance to pass it.
		before := reads.Load()
		storetest.Eventually(f.TB, "somebody to read", func() bool { return reads.Load() >= before+2 || f.TB.Failed() })
		storetest.Run(f.TB, conn, []string{`rollback`, `commit`}[seq%2])
	}
}

// Positions are drawn in one order and become visible in another. A reader in order of position
// must still see every event.
func TestPositions_neverAppearBelowOneThatWasRead(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	var reads atomic.Int64
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	writers.Go(func() { f.appends("a", done) })
	writers.Go(func() { other.appends("b", done) })
	followers := []*follower{{reads: &reads}, {reads: &reads}}
	for i, s := range []*fixture{f, other} {
		readers.Go(func() { followers[i].follow(s, done) })
	}
	if dbtest.Postgres() {
		var slow sync.WaitGroup
		slow.Go(func() { f.held("held-1", 6, &reads) })
		slow.Go(func() { f.held("held-2", 6, &reads) })
		slow.Wait()
	} else {
		storetest.Eventually(f.TB, "somebody to read", func() bool { return reads.Load() > 50 })
	}
	close(done)
	writers.Wait()
	readers.Wait()
	for i, w := range followers {
		w.follow(f, done)
		want := storetest.Column[int64](t, f.JournalDB, `select position from events order by position`)
		must.Same(t, w.positions, want, "follower", i+1)
	}
}

func TestEventsFrom_readsAllCampaignsInTheOrderOfPositions(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("b", 2)
	f.AppendN("a", 1)
	f.AppendN("b", 2)
	for limit := 1; limit <= 6; limit++ {
		var got []string
		for after, more := int64(0), true; more; {
			events := must.Get(f.EventsFrom(f.Ctx, after, limit)).Or(t)
			for _, e := range events {
				got, after = append(got, fmt.Sprint(e.CampaignID, e.Seq)), e.Position
			}
			more = len(events) > 0
			must.Hold(t, len(events) <= limit, "limit %d: %d events", limit, len(events))
		}
		must.Equal(t, strings.Join(got, " "), "b1 b2 a1 b3 b4", "limit", limit)
	}
}

func TestPostgresEventsFrom_holdsBackWhatComesAfterAnAppendUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	conn := storetest.Connect(f.TB, f.Pair.Journal)
	must.Get(conn.PgConn().Exec(f.Ctx, f.BeginAppendText()).ReadAll()).Or(t)
	storetest.Run(f.TB, conn, `select nextval(pg_get_serial_sequence('events', 'position'))`)
	f.AppendN("b", 1)
	read := func() (n int) {
		events := must.Get(f.EventsFrom(f.Ctx, 0, 10)).Or(t)
		return len(events)
	}
	must.Equal(t, read(), 2, "read", "events")
	storetest.Run(f.TB, conn, `commit`)
	must.Equal(t, read(), 3, "read", "events")
}
