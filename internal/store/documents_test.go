package store_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func large(o *store.Options) { o.MaxPayload = 32 << 20 }

func TestEventWithin_leavesOutDocumentsOverTheLimitAndTellsHowLongTheyAre(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := storetest.Event("a", "counted")
	e.Payload, e.Tags, e.Metadata = []byte(`{"text":"ééééé"}`), []byte(`{"k":"v"}`), []byte(`{"deep":{"er":[1,2,3]}}`)
	f.MustAppend(e)
	want := outbox.Sizes{Payload: int64(len(e.Payload)), Tags: int64(len(e.Tags)), Metadata: int64(len(e.Metadata))}
	for _, limit := range []int64{-1, 0, want.Tags, want.Payload - 1, want.Payload, want.Metadata, 1 << 40} {
		d, err := f.EventWithin(f.Ctx, "a", 1, limit)
		must.Need(t, err == nil && d.Sizes == want, "limit %d: %+v, %v, want the sizes %+v", limit, d.Sizes, err, want)
		for _, part := range []outbox.Part{outbox.PartPayload, outbox.PartTags, outbox.PartMetadata} {
			shown := ""
			if want.Of(part) <= limit {
				shown = string(e.Document(part))
			}
			must.Equal(t, string(d.Event.Document(part)), shown, "limit", limit, part, "is")
		}
		must.Hold(t, d.Event.EventHash != "" && d.Event.EventType == "counted" && d.RowStatus == outbox.Pending, "limit %d: %+v", limit, d)
	}
	refused(t, storetest.No(f.EventWithin(f.Ctx, "a", 2, 0)), outbox.ErrNotFound, "no event 2")
	refused(t, storetest.No(f.EventWithin(f.Ctx, "nobody", 1, 0)), outbox.ErrNotFound, `there is no campaign "nobody"`)
}

func TestEventWithin_findsCausesInTheSameCampaignAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	named := func(campaign, id, correlation, causation string) outbox.Event {
		e := storetest.Event(campaign, "counted")
		e.EventID, e.CorrelationID, e.CausationID = id, correlation, causation
		return e
	}
	f.MustAppend(named("a", "first", "", ""), named("a", "second", "first", "first"), named("a", "third", "first", "second"),
		named("a", "fourth", "elsewhere", "nothing"), named("b", "elsewhere", "third", ""))
	for seq, want := range map[int64][2]int64{1: {}, 2: {1, 1}, 3: {1, 2}, 4: {}} {
		d, err := f.EventWithin(f.Ctx, "a", seq, 0)
		got := [2]int64{d.CorrelationSeq, d.CausationSeq}
		must.Hold(t, err == nil && got == want, "event %d: %v, %v, want %v", seq, got, err, want)
	}
}

func TestDocument_isExactlyWhatIsStored(t *testing.T) {
	t.Parallel()
	f := open(t)
	e := storetest.Event("a", "counted")
	e.Payload, e.Tags, e.Metadata = []byte(`{"n":9007199254740993,"e":1e400,"z":-0,"a":1,"a":2}`), []byte(`{"k":"v"}`), []byte(`{"m":"\u202e"}`)
	f.MustAppend(e)
	for _, part := range []outbox.Part{outbox.PartPayload, outbox.PartTags, outbox.PartMetadata} {
		text, hash, err := f.Document(f.Ctx, "a", 1, part)
		must.Hold(t, err == nil && text == string(e.Document(part)) && len(hash) == 64, "%s is %s with hash %q, %v", part, text, hash, err)
	}
	_, _, err := f.Document(f.Ctx, "a", 2, outbox.PartPayload)
	refused(t, err, outbox.ErrNotFound, "no event 2")
	_, _, err = f.Document(f.Ctx, "a", 1, "envelope")
	refused(t, err, outbox.ErrInvalid, "envelope")
}

func TestEventLines_tellWhichEventsHaveARow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("a", 2)
	f.Drain()
	f.AppendN("a", 4)
	f.Kill("a")
	f.AppendN("b", 9)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 5`)
	lines := must.Get(f.EventLines(f.Ctx, "a", 2, 100)).Or(t)
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%d %s %s", l.Seq, l.EventType, l.RowStatus))
		must.Hold(t, !l.OccurredAt.IsZero(), "event %d occurred at no time", l.Seq)
	}
	must.Equal(t, got, []string{"2 counted ", "3 counted dead", "4 counted pending", "5 counted ", "6 counted pending"})
}

func TestRow_knowsItsNeighbours(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 10)
	f.AppendN("b", 1)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq in (1, 2, 5)`)
	for seq, want := range map[int64][2]int64{3: {0, 4}, 4: {3, 6}, 6: {4, 7}, 10: {9, 0}} {
		d := f.MustRow("a", seq)
		must.Equal(t, [2]int64{d.Previous, d.Next}, want, "row", seq, "stands between")
		var queue []int64
		for _, r := range d.Queue {
			queue = append(queue, r.Seq)
		}
		must.Equal(t, queue, []int64{3, 4, 6, 7, 8, 9})
	}
	d := f.MustRow("b", 1)
	must.Hold(t, d.Previous == 0 && d.Next == 0 && len(d.Queue) == 1 && d.Queue[0].IsHead, "alone: %+v", d)
}

// The page of a row whose payload is large reads nothing of it.
func TestRowWithin_doesNotReadALargePayload(t *testing.T) {
	f := open(t, large) // not parallel: it counts allocations
	e := storetest.Event("a", "counted")
	e.Payload = []byte(`{"text":"` + strings.Repeat("x", 8<<20) + `"}`)
	f.MustAppend(e)
	read := func() outbox.RowDetail {
		return must.Get(f.RowWithin(f.Ctx, "a", 1, 64<<10)).Or(t)
	}
	read()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := read()
	lines, err := f.EventLines(f.Ctx, "a", 1, 20)
	runtime.ReadMemStats(&after)
	must.Hold(t, err == nil && len(lines) == 1 && d.Event.Payload == nil && d.Sizes.Payload == int64(len(e.Payload)) && d.Event.EventHash != "", "%d lines, %d bytes of payload, %+v, %v", len(lines), len(d.Event.Payload), d.Sizes, err)
	allocated := after.TotalAlloc - before.TotalAlloc
	must.Hold(t, allocated <= 1<<20, "%d bytes were allocated", allocated)
	whole, err := f.Row(f.Ctx, "a", 1)
	must.Hold(t, err == nil && string(whole.Event.Payload) == string(e.Payload), "the whole payload has %d bytes, %v", len(whole.Event.Payload), err)
}

func TestEvents_pagesEndAtTheLimitAndEarlyWhereEventsAreLarge(t *testing.T) {
	t.Parallel()
	f := open(t, large)
	for _, mega := range []int{0, 0, 0, 0, 17, 0, 0, 0} {
		e := storetest.Event("a", "counted")
		e.Payload = []byte(`{"text":"` + strings.Repeat("x", mega<<20) + `"}`)
		f.MustAppend(e)
	}
	var pages [][]int64
	for after, more := int64(0), true; more; {
		page := must.Get(f.Events(f.Ctx, "a", after, 3)).Or(t)
		var seqs []int64
		for _, e := range page.Items {
			seqs = append(seqs, e.Seq)
		}
		pages, more = append(pages, seqs), page.NextCursor != nil
		must.Hold(t, page.Partial == (more && len(seqs) < 3), "page %v: partial is %t, the cursor %v", seqs, page.Partial, page.NextCursor)
		if more {
			must.OK(t, json.Unmarshal([]byte(*page.NextCursor), &after))
		}
	}
	must.Equal(t, pages, [][]int64{{1, 2, 3}, {4}, {5}, {6, 7, 8}})
}
