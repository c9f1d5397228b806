package store_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestJournal_keepsEveryFieldAcrossReopening(t *testing.T) {
	t.Parallel()
	f := open(t)
	given := outbox.Event{
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
	want.ChainHash = outbox.NextChainHash("", 1, want.EventHash)
	must.Equal(t, got, want, "stored event")
}

func TestJournal_refusesUpdateDeleteAndTruncate(t *testing.T) {
	t.Parallel()
	f := open(t)
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

func TestJournal_hashesChainPerCampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.AppendN("b", 1)
	f.AppendN("a", 2)
	for _, id := range []string{"a", "b"} {
		page := must.Get(f.Events(f.Ctx, id, 0, 0)).Or(t)
		chain := ""
		for _, e := range page.Items {
			must.Equal(t, e.EventHash, e.ContentHash(), id, e.Seq, "the hash does not cover the content")
			chain = outbox.NextChainHash(chain, e.Seq, e.EventHash)
			must.Hold(t, chain == e.ChainHash, "%s %d: the chain is broken", id, e.Seq)
		}
	}
}

func TestEvents_outsideTheJournalAreEmptyOrNotFound(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	for _, after := range []int64{3, 4, 1000, math.MaxInt64} {
		page, err := f.Events(f.Ctx, "a", after, 2)
		must.Hold(t, err == nil && len(page.Items) == 0 && page.NextCursor == nil, "after %d: %+v, %v", after, page, err)
	}
	for _, after := range []int64{-1, -1000, math.MinInt64} {
		page, err := f.Events(f.Ctx, "a", after, 2)
		must.Hold(t, err == nil && len(page.Items) == 2 && page.NextCursor != nil, "after %d: %+v, %v", after, page, err)
	}
	refused(t, storetest.No(f.Events(f.Ctx, "b", 0, 0)), outbox.ErrNotFound, `there is no campaign "b"`)
	refused(t, storetest.No(f.Event(f.Ctx, "b", 1)), outbox.ErrNotFound, `there is no campaign "b"`)
	refused(t, storetest.No(f.Event(f.Ctx, "a", 4)), outbox.ErrNotFound, "no event 4", "last one is 3")
}

func TestRegisterEventTypes_keepsWhatIsNotNamed(t *testing.T) {
	t.Parallel()
	f := open(t)
	register := func(intents map[string]outbox.Intent) error { return f.RegisterEventTypes(f.Ctx, intents) }
	must.OK(t, register(map[string]outbox.Intent{"noted": outbox.IntentAuditOnly, "counted": outbox.IntentProjection}))
	f.Unchanged(func() {
		f.Clock.Advance(time.Hour)
		must.OK(t, register(map[string]outbox.Intent{"noted": outbox.IntentAuditOnly}))
		refused(t, register(map[string]outbox.Intent{"new": outbox.IntentAuditOnly, "noted": "perhaps"}), outbox.ErrInvalid, `"perhaps"`, `"noted"`)
	})
	must.OK(t, register(map[string]outbox.Intent{"noted": outbox.IntentProjection, "rolled": outbox.IntentAuditOnly}))
	got, err := f.EventTypes(f.Ctx)
	want := map[string]outbox.Intent{"noted": outbox.IntentProjection, "rolled": outbox.IntentAuditOnly}
	diff := cmp.Diff(want, got)
	must.Hold(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
	f.AppendN("a", 1)
	_, auditOnly, err := f.Load(f.Ctx, []store.Range{f.ClaimOne(one, 10).Range()}, 1<<30)
	diff = cmp.Diff(map[string]bool{"rolled": true}, auditOnly)
	must.Hold(t, err == nil && diff == "", "%v (-want +got):\n%s", err, diff)
}
