package store_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestJournal_keepsEveryFieldAcrossReopening(t *testing.T) {
	f := own(t)
	given := event.Event{
		CampaignID: "ü%'\u00a0", EventID: "e-1", EventType: "character.created",
		OccurredAt: time.Date(1969, 7, 20, 22, 17, 40, 123456789, time.FixedZone("", 2*3600)),
		ActorType:  "participant", ActorID: "p-1", EntityType: "character", EntityID: "ch-3",
		SessionID: "s", RequestID: "r", CorrelationID: "co", CausationID: "ca",
		Tags: []byte(`{"wallet_id":"w-1"}`), Metadata: []byte(`{"v": 2}`), Payload: []byte(`{"n": 9007199254740993}`),
	}
	stands := f.MustAppend(given)[0]
	f.Close()
	got := must.Get(f.beside().Event(f.Ctx, given.CampaignID, 1)).Or(t)
	want := given
	want.Seq, want.Position, want.RecordedAt = 1, stands.Position, began
	want.OccurredAt = time.Date(1969, 7, 20, 20, 17, 40, 123456000, time.UTC)
	want.Metadata, want.Payload = []byte(`{"v":2}`), []byte(`{"n":9007199254740993}`)
	want.EventHash = want.ContentHash()
	want.ChainHash = event.NextChainHash("", 1, want.EventHash)
	must.Equal(t, got, want, "stored event")
}

func TestJournal_refusesUpdateDeleteAndTruncate(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	f.Unchanged(func() {
		queries := []string{`update events set payload = '{}' where seq = 1`, `delete from events where seq = 2`}
		if dbtest.Postgres() {
			queries = append(queries, `truncate events cascade`)
		}
		for _, query := range queries {
			_, err := f.JournalDB.Exec(query)
			must.Hold(t, err != nil && strings.Contains(err.Error(), "append-only"), "%s: got error %v", query, err)
		}
		_, err := f.JournalDB.Exec(`update events set position = 99 where seq = 1`)
		must.Hold(t, err != nil, "an event was moved")
	})
}

func TestEvents_outsideTheJournalAreEmptyOrNotFound(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	for _, after := range []int64{3, 4, 1000, math.MaxInt64} {
		page, err := f.Events(f.Ctx, "a", after, 2)
		must.Hold(t, err == nil && len(page.Items) == 0 && page.NextCursor == nil, "after %d: %+v, %v", after, page, err)
	}
	for _, after := range []int64{-1, -1000, math.MinInt64} {
		page, err := f.Events(f.Ctx, "a", after, 2)
		must.Hold(t, err == nil && len(page.Items) == 2 && page.NextCursor != nil, "after %d: %+v, %v", after, page, err)
	}
	refused(t, storetest.No(f.Events(f.Ctx, "b", 0, 0)), event.ErrNotFound, `there is no campaign "b"`)
	refused(t, storetest.No(f.Event(f.Ctx, "b", 1)), event.ErrNotFound, `there is no campaign "b"`)
	refused(t, storetest.No(f.Event(f.Ctx, "a", 4)), event.ErrNotFound, "no event 4", "last one is 3")
}

func TestRegisterEventTypes_keepsWhatIsNotNamed(t *testing.T) {
	f := own(t)
	register := func(intents map[string]event.Intent) error { return f.RegisterEventTypes(f.Ctx, intents) }
	must.OK(t, register(map[string]event.Intent{"noted": event.IntentAuditOnly, "counted": event.IntentProjection}))
	f.Unchanged(func() {
		f.Clock.Advance(time.Hour)
		must.OK(t, register(map[string]event.Intent{"noted": event.IntentAuditOnly}))
		refused(t, register(map[string]event.Intent{"new": event.IntentAuditOnly, "noted": "perhaps"}), event.ErrInvalid, `"perhaps"`, `"noted"`)
	})
	must.OK(t, register(map[string]event.Intent{"noted": event.IntentProjection, "rolled": event.IntentAuditOnly}))
	got, err := f.EventTypes(f.Ctx)
	want := map[string]event.Intent{"noted": event.IntentProjection, "rolled": event.IntentAuditOnly}
	must.Equal(t, got, want, "intents", err)
	f.AppendN("a", 1)
	_, auditOnly, err := f.Load(f.Ctx, []store.Range{f.ClaimOne(one, 10).Range()}, 1<<30)
	must.Equal(t, auditOnly, map[string]bool{"rolled": true}, "for the audit alone", err)
}

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
		limit := 1 + rand.IntN(9)
		events, err := s.EventsFrom(s.Ctx, w.last, limit)
		if err != nil || len(events) > limit {
			s.TB.Errorf("read %d after %d: %d, %v", limit, w.last, len(events), err)
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

// appends appends to the store until done is closed. Every third append is refused after it has consumed a position.
func (f *fixture) appends(campaign string, done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		events := []event.Event{storetest.Event(campaign, "counted"), storetest.Event(campaign, "counted")}
		if i%3 == 0 {
			events[1].Seq = 1 << 40
		}
		_, err := f.Append(f.Ctx, store.Append{Events: events})
		must.Hold(f.TB, i%3 == 0 == errors.Is(err, event.ErrConflict) && (i%3 == 0 || err == nil), "append to %s: got error %v", campaign, err)
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
		must.Eventually(f.TB, "somebody to read", func() bool { return reads.Load() >= before+2 || f.TB.Failed() })
		storetest.Run(f.TB, conn, []string{`rollback`, `commit`}[seq%2])
	}
}

// Positions are drawn in one order and become visible in another. A reader in order of position must still see every event.
func TestPositions_neverAppearBelowOneThatWasRead(t *testing.T) {
	f := own(t)
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
		must.Eventually(f.TB, "somebody to read", func() bool { return reads.Load() > 50 })
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

func TestPostgresEventsFrom_holdsBackWhatComesAfterAnAppendUnderWay(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	conn := storetest.Connect(f.TB, f.Pair.Journal)
	must.Get(conn.PgConn().Exec(f.Ctx, f.BeginAppendText()).ReadAll()).Or(t)
	storetest.Run(f.TB, conn, `select nextval(pg_get_serial_sequence('events', 'position'))`)
	f.AppendN("b", 1)
	read := func() (n int) { events := must.Get(f.EventsFrom(f.Ctx, 0, 10)).Or(t); return len(events) }
	must.Equal(t, read(), 2, "read", "events")
	storetest.Run(f.TB, conn, `commit`)
	must.Equal(t, read(), 3, "read", "events")
}

func TestReplay_waitsForTheWaveUnderWay(t *testing.T) {
	f := own(t, func(o *store.Options) { o.Patience = must.Patience })
	f.AppendN("a", 3)
	f.LoseRows("a", "seq = 3")
	c := f.ClaimOne(one, 2)
	replayed := make(chan campaign.Repaired)
	go func() {
		got, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
		must.Hold(t, err == nil, "replay: %v", err)
		replayed <- got
	}()
	f.Works(one, c, 2)
	must.Equal(t, <-replayed, campaign.Repaired{Campaigns: 1, Inserted: 1}, "replayed")
	f.Sound()
}

func TestReplay_clearsADivergenceThatIsMended(t *testing.T) {
	f := own(t)
	f.Applied("a", 2)
	f.AppendN("a", 2)
	hash := storetest.Texts(t, f.ProjectionsDB, `select applied_hash from projection_watermarks`)[0]
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
	f.ExecProjections(`update projection_watermarks set applied_hash = $1`, hash)
	f.must(f.ReplayCampaign(f.Ctx, ana(""), "a"))
	f.DrainsSoundly()
}

func TestReplay_givesFailedAndDeadRowsNothingAndGapsTheirRows(t *testing.T) {
	f := own(t)
	f.DeadHead()
	f.Exec(`delete from projection_apply_outbox where seq = 3`)
	f.Exec(`update campaigns set pending = 1`)
	must.Equal(t, must.Get(f.ReplayCampaign(f.Ctx, ana(""), "a")).Or(t), campaign.Repaired{Campaigns: 1, Inserted: 1}, "replayed")
	f.Is("a", "applied 0 of 3, head 1 dead, 2 pending, 1 dead")
	f.Sound()
}

// Load reads the texts of an event as one column. The result is the same event as from any
// other reader, whatever its texts contain, even if they were changed without the store.
func TestLoad_readsEventsAsTheyAre(t *testing.T) {
	f := own(t, func(o *store.Options) { o.MaxPayload = 2 << 20 })
	full := storetest.Event("a", "noted")
	full.ActorType, full.ActorID, full.EntityType, full.EntityID = "person", "ana 'ü'", "seat", "7"
	full.SessionID, full.RequestID, full.CorrelationID, full.CausationID = "s", "r", "cor", "cau"
	full.Tags, full.Metadata = []byte(`{"seat":"7"}`), []byte(`{"a":[1,2],"b":"\u001f"}`)
	full.Payload = []byte(`{"n":1}`)
	large := storetest.Event("a", "noted")
	large.Payload = []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)
	odd := storetest.Event("a", "noted")
	odd.ActorID = "someone"
	f.MustAppend(full, storetest.Event("a", "plain"), odd, large)
	f.Tamper(`update events set actor_id = $1 where seq = 3`, "some\x1fone")

	loaded, _, err := f.Load(f.Ctx, []store.Range{{CampaignID: "a", First: 1, Last: 4}}, 8<<20)
	must.Need(t, err == nil && len(loaded) == 1 && !loaded[0].Partial, "loaded %+v, %v", loaded, err)
	var want []event.Event
	for seq := range int64(4) {
		e := must.Get(f.Event(f.Ctx, "a", seq+1)).Or(t)
		e.Altered = false // set only where an event is shown
		want = append(want, e)
	}
	if !reflect.DeepEqual(want, loaded[0].Events) { // cmp compares documents byte by byte
		t.Errorf("want -, got +\n%s", cmp.Diff(want, loaded[0].Events))
	}
}
