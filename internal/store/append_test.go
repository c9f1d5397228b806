package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestAppend_givesDenseSeqPerCampaignAndGrowingPosition(t *testing.T) {
	f := own(t)
	given := []event.Event{{CampaignID: "a", EventType: "counted", Payload: []byte(` { } `)}}
	got := append(f.AppendN("a", 2), f.MustAppend(storetest.Event("b", "counted"), given[0], storetest.Event("b", "counted"))...)
	position, text := int64(0), ""
	for _, g := range got {
		must.Hold(t, !g.Existed && len(g.EventID) == 36 && g.Position > position, "appended %+v after position %d", g, position)
		position, text = g.Position, text+fmt.Sprintf(" %s%d", g.CampaignID, g.Seq)
	}
	must.Equal(t, text, " a1 a2 b1 a3 b2", "appended")
	f.RowIs("a", 1, "pending after 0, due in 0s")
	r := f.MustRow("a", 1).Row
	must.Hold(t, r.EnqueuedAt == began && r.IsHead && r.BlockedBehind == 2 && !f.MustRow("a", 2).Row.IsHead, "row is %+v, want a head with two behind it", r)
	e := must.Get(f.Event(f.Ctx, "a", 1)).Or(t)
	must.Hold(t, e.OccurredAt == began && e.RecordedAt == began && string(e.Tags) == "{}" && string(e.Metadata) == "{}", "event is %+v", e)
	e = given[0]
	must.Hold(t, e.EventID == "" && e.OccurredAt.IsZero() && string(e.Payload) == ` { } ` && e.EventHash == "", "the caller's event became %+v", e)
	f.Sound()
}

func TestAppend_repeatedEventIsAnsweredWithTheStoredOne(t *testing.T) {
	f := own(t)
	first := storetest.Event("a", "counted")
	first.EventID = "e-1"
	first.Payload = []byte(`{"big":12345678901234567890123,"nested":{"x":1,"y":[1,2]},"text":"ü"}`)
	first.Tags = []byte(`{"k":"v","l":"w"}`)
	stored := f.MustAppend(first)[0]
	for name, payload := range map[string]string{
		"same":             string(first.Payload),
		"other key order":  `{"text":"ü","nested":{"y":[1,2],"x":1},"big":12345678901234567890123}`,
		"other whitespace": "{ \"big\" : 12345678901234567890123,\n\t\"nested\":{\"x\":1,\"y\":[1, 2]}, \"text\":\"ü\" }",
	} {
		again := first
		again.Payload, again.Tags = []byte(payload), []byte(`{"l":"w", "k":"v"}`)
		f.Clock.Advance(time.Second)
		f.Unchanged(func() {
			got := f.MustAppend(again)[0]
			want := stored
			want.Existed = true
			must.Equal(t, got, want, name)
		})
	}
}

func TestAppend_sameEventIDWithOtherContentIsConflict(t *testing.T) {
	f := own(t)
	first := storetest.Event("a", "counted")
	first.EventID, first.ActorID = "e-1", "p-1"
	first.Payload = []byte(`{"big":12345678901234567890123}`)
	first.OccurredAt = began
	f.MustAppend(first)
	for name, c := range map[string]struct {
		change    func(*event.Event)
		differing string
	}{
		"last digit of a big integer": {func(e *event.Event) { e.Payload = []byte(`{"big":12345678901234567890124}`) }, "payload"},
		"number as text":              {func(e *event.Event) { e.Payload = []byte(`{"big":"12345678901234567890123"}`) }, "payload"},
		"event type":                  {func(e *event.Event) { e.EventType = "other" }, "event_type"},
		"envelope field":              {func(e *event.Event) { e.ActorID = "p-2" }, "actor_id"},
		"time":                        {func(e *event.Event) { e.OccurredAt = began.Add(time.Microsecond) }, "occurred_at"},
		"metadata and tags":           {func(e *event.Event) { e.Metadata, e.Tags = []byte(`{"x":1}`), []byte(`{"x":"1"}`) }, "metadata, tags"},
	} {
		again := first
		c.change(&again)
		f.Unchanged(func() {
			must.Equal(t, refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted"), storetest.Event("b", "counted"), again}})), event.ErrConflict, `event "e-1" of campaign "a"`, "seq 1 with different content ("+c.differing+")").Index, 2, name, "index")
		})
	}
	other := first
	other.CampaignID = "b"
	got := f.MustAppend(other)[0]
	must.Hold(t, !got.Existed && got.Seq == 1, "the id is unique per campaign only, but another campaign got %+v", got)
}

func TestAppend_givenSeqIsCheckedAndNotObeyed(t *testing.T) {
	f := own(t)
	first := storetest.Event("a", "counted")
	first.EventID, first.Seq = "e-1", 1
	f.MustAppend(first)
	for _, seq := range []int64{1, 3, 100} {
		e := storetest.Event("a", "counted")
		e.Seq = seq
		f.Unchanged(func() {
			must.Equal(t, refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{e}})), event.ErrConflict, fmt.Sprintf("seq %d was given", seq), "next seq", "is 2").NextSeq, 2, "the next seq")
		})
	}
	again := first
	again.Seq = 2
	refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{again}})), event.ErrConflict, "at seq 1, not at the given 2")
	again.Seq = 0
	got := f.MustAppend(again)[0]
	must.Hold(t, got.Existed && got.Seq == 1, "repeat without seq is %+v", got)
	f.Unchanged(func() {
		second := storetest.Event("b", "counted")
		second.Seq = 2
		refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{second}})), event.ErrConflict, "seq 2 was given", `campaign "b" is 1`)
	})
}

func TestAppend_expectedSeqMustBeTheHighWater(t *testing.T) {
	f := own(t)
	e := storetest.Event("a", "counted")
	e.EventID = "e-1"
	appendAt := func(expected int64, events ...event.Event) ([]store.Appended, error) {
		return f.Append(f.Ctx, store.Append{Events: events, ExpectedSeq: &expected})
	}
	f.Unchanged(func() {
		refused(t, storetest.No(appendAt(1, e)), event.ErrConflict, `campaign "a" is at seq 0, not at the expected 1`)
	})
	must.OK(t, storetest.No(appendAt(0, e, storetest.Event("a", "counted"))))
	f.Unchanged(func() {
		refused(t, storetest.No(appendAt(0, storetest.Event("a", "counted"))), event.ErrConflict, "is at seq 2, not at the expected 0")
		got, err := appendAt(0, e)
		must.Hold(t, err == nil && got[0].Existed, "a repeat is answered whatever it expected; got %+v, %v", got, err)
		r := refused(t, storetest.No(appendAt(2, storetest.Event("a", "counted"), storetest.Event("b", "counted"))), event.ErrInvalid, "one campaign")
		must.Hold(t, r.Field == "expected_seq" && r.Index == 1, "refusal is about %q of event %d", r.Field, r.Index)
	})
	got, err := appendAt(2, e, storetest.Event("a", "counted"))
	must.Hold(t, err == nil && got[0].Existed && got[1].Seq == 3, "repeat and new event together: %+v, %v", got, err)
	f.Sound()
}

func TestAppend_refusesWhatTheJournalCannotHold(t *testing.T) {
	f := own(t, func(o *store.Options) { o.MaxPayload = 100 })
	object := func(n int) string { return `{"x":"` + strings.Repeat("x", n-8) + `"}` }
	payload, metadata := func(e *event.Event, text string) { e.Payload = []byte(text) }, func(e *event.Event, text string) { e.Metadata = []byte(text) }
	tags, campaign := func(e *event.Event, text string) { e.Tags = []byte(text) }, func(e *event.Event, text string) { e.CampaignID = text }
	at := func(e *event.Event, text string) { e.OccurredAt = must.Get(time.Parse(time.RFC3339, text)).Or(t) }
	for field, c := range map[string]struct {
		set   func(e *event.Event, text string)
		texts []string
	}{
		"payload":        {payload, []string{"{\"x\":\"\xff\"}", "{\"x\":\"\x00\"}", `{"x":"\u0000"}`, `{"x":"\\\u0000"}`, `{"\u0000":1}`, "{\"x\":\"\x01\"}", "", `null`, `[]`, `{"x":`, `{} {}`, object(101)}},
		"metadata":       {metadata, []string{object(101)}},
		"tags":           {tags, []string{`{"x":1}`, `["x"]`}},
		"campaign_id":    {campaign, []string{"", "a\x00b", "a\nb", "a\x7fb", "a\xc3", strings.Repeat("x", 201)}},
		"event_type":     {func(e *event.Event, text string) { e.EventType = text }, []string{"", "a b", "a.*"}},
		"seq":            {func(e *event.Event, _ string) { e.Seq = -1 }, []string{"-1"}},
		"occurred_at":    {at, []string{"9999-12-31T23:00:00-05:00"}},
		"actor_id":       {func(e *event.Event, text string) { e.ActorID = text }, []string{"\xff"}},
		"correlation_id": {func(e *event.Event, text string) { e.CorrelationID = text }, []string{strings.Repeat("x", 201)}},
		"event_id":       {func(e *event.Event, text string) { e.EventID = text }, []string{"a\n"}},
		"entity_id":      {func(e *event.Event, text string) { e.EntityID = text }, []string{"\xed\xa0\x80"}},
	} {
		for _, text := range c.texts {
			e, kind := storetest.Event("a", "counted"), event.ErrInvalid
			if c.set(&e, text); len(text) == 101 {
				kind = event.ErrTooLarge
			}
			f.Unchanged(func() {
				_, err := f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted"), e}})
				r := refused(t, err, kind)
				must.Hold(t, r.Field == field && r.Index == 1 && r.Detail != "", "%q: the refusal is about %q of event %d (%s), want %q of 1", text, r.Field, r.Index, r.Detail, field)
			})
		}
	}
	for _, text := range []string{object(100), `{"x":"\\u0000"}`, `{}`, " {} \n"} {
		e := storetest.Event("ü%'_\u00a0☃", "counted")
		payload(&e, text)
		must.OK(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{e}})))
	}
}

// Appends that share a commit: what refuses one undoes it alone, and a later one sees what was not written yet.
func TestAppend_inAGroup(t *testing.T) {
	f := own(t)
	known, bad := storetest.Event("a", "counted"), storetest.Event("new", "counted")
	known.EventID, bad.Seq = "e-1", 9
	f.MustAppend(known)
	f.Clock.Advance(time.Hour)
	var seen []store.Appended
	fence := func(_ *store.Tx, result []store.Appended) error {
		seen = append(seen, result...)
		return &event.Refusal{Err: event.ErrLeaseLost, Detail: "another process has it"}
	}
	seat := func(n string) event.Event { return storetest.Tagged("s", "seat.taken", "seat", n) }
	unless := func(n string) *event.AppendCondition {
		return &event.AppendCondition{Items: []event.ConditionItem{storetest.Item("", "seat", n)}}
	}
	calls := []struct {
		call store.Append
		seqs string // of what was appended, or the refusal
	}{
		{store.Append{Events: []event.Event{known}}, "a1"},
		{store.Append{Events: []event.Event{storetest.Event("a", "counted"), storetest.Event("b", "counted")}}, "a2 b1"},
		{store.Append{Events: []event.Event{storetest.Event("b", "counted"), bad}}, "seq 9"},
		{store.Append{Events: []event.Event{storetest.Event("b", "counted")}}, "b2"},
		{store.Append{Events: []event.Event{storetest.Event("fenced", "counted")}, Then: fence}, "another process has it"},
		{store.Append{Events: []event.Event{storetest.Event("b", "counted"), seat("1")}}, "b3 s1"},
		{store.Append{Events: []event.Event{seat("1")}, Condition: unless("1")}, `conflicting event 6 (seat.taken, campaign "s" seq 1)`},
		{store.Append{Events: []event.Event{seat("2")}, Condition: unless("2")}, "s2"},
		{store.Append{Events: []event.Event{seat("2")}, Condition: unless("2")}, `conflicting event 7 (seat.taken, campaign "s" seq 2)`},
		{store.Append{Events: []event.Event{seat("3")}, Condition: unless("4")}, "s3"},
	}
	var appends []store.Append
	for _, c := range calls {
		appends = append(appends, c.call)
	}
	results, errs := f.AppendTogether(appends)
	for i, c := range calls {
		var got []string
		for _, a := range results[i] {
			got = append(got, fmt.Sprint(a.CampaignID, a.Seq))
		}
		if errs[i] != nil {
			got = []string{errs[i].Error()}
		}
		text := strings.Join(got, " ")
		must.Hold(t, text == c.seqs || errs[i] != nil && strings.Contains(text, c.seqs), "call %d: %s, want %s", i, text, c.seqs)
	}
	must.Hold(t, len(seen) == 1 && seen[0].Seq == 1 && !seen[0].Existed && results[0][0].Existed, "the fence saw %+v, the known one is %+v", seen, results[0])
	for _, id := range []string{"new", "fenced"} {
		refused(t, storetest.No(f.Campaign(f.Ctx, id)), event.ErrNotFound, `there is no campaign "`+id+`"`)
	}
	f.AppendN("new", 1)
	f.Sound()
}

func TestAppend_smallOnesPassLargeOnes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting []int
		groups  [][]int
	}{
		{[]int{1, 2, 3}, [][]int{{1, 2, 3}}},
		{[]int{400, 400, 400, 1}, [][]int{{400, 400, 1}, {400}}},
		{[]int{10000, 9000, 1, 8000, 2}, [][]int{{10000}, {1, 2}, {9000}, {8000}}},
		{[]int{1, 10000, 2, 9000}, [][]int{{1, 2}, {10000}, {9000}}},
	} {
		must.Equal(t, store.GroupOrder(c.waiting...), c.groups, "of", c.waiting, "the groups")
	}
}

func TestAppend_tellsHowManyEventsItMadeAndWakesTheWorker(t *testing.T) {
	f := own(t)
	var made []int
	woken := 0
	f.OnWork(func() { woken++ })
	f.OnAppend(func(events int, took time.Duration) {
		must.Hold(t, took > 0, "it took %s", took)
		made = append(made, events)
	})
	again, other := storetest.Event("a", "note"), storetest.Event("a", "note")
	again.EventID = "e-1"
	for i, events := range [][]event.Event{{again, other}, {again, other}, {again}} {
		f.must(f.Append(f.Ctx, store.Append{Events: events}))
		must.Hold(t, i != 0 || woken == 1, "woken %d times, want once", woken)
	}
	f.Unchanged(func() {
		bad := storetest.Event("c", "note")
		bad.Seq = 7
		refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{other, storetest.Event("b", "note"), bad}})), event.ErrConflict, "seq 7")
		refused(t, storetest.No(f.Append(f.Ctx, store.Append{})), event.ErrInvalid, "no event")
	})
	must.Equal(t, made, []int{2, 1, 0}, "it tells of", "events")
}

func TestConnections_areCounted(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	seen := 0
	for _, c := range f.Connections() {
		if c.Database != "journal" {
			continue
		}
		seen++
		must.Hold(t, c.InUse == 0 && c.Waiting == 0 && c.Limit >= max(1, c.Idle) && (c.Use != "write" || c.Idle == 1) && (c.Use != "read" || c.Idle >= 1), "after an append: %+v", c)
	}
	must.Equal(t, seen, 2, "connections of", "kinds")
}

// That it gets its row back, whatever is applied, is among the damages of maintenance.
func TestAppend_toACampaignWithAWrongRowOrNoneSaysWhatToDo(t *testing.T) {
	f := own(t)
	f.Applied("a", 3)
	a, b := store.Append{Events: []event.Event{storetest.Event("a", "counted")}}, store.Append{Events: []event.Event{storetest.Event("b", "counted")}}
	f.Exec(`update campaigns set high_water_seq = 2`)
	refused(t, storetest.No(f.Append(f.Ctx, a)), event.ErrConflict, `campaign "a"`, "its last event is 3", "outboxweb check")
	r := refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: append(b.Events[:1:1], a.Events...)})), event.ErrConflict)
	must.Equal(t, r.Index, 1, "the event at fault")
	f.Exec(`delete from campaigns`)
	for _, appends := range [][]store.Append{{a}, {b, a}} {
		_, errs := f.AppendTogether(appends)
		last := len(errs) - 1
		refused(t, errs[last], event.ErrConflict, "gaps --repair")
		must.Hold(t, last == 0 || errs[0] == nil, "an append to another campaign: %v", errs[0])
	}
	f.MustReconcile(campaign.Repaired{Campaigns: 1})
	f.Is("a", "applied 3 of 3")
	f.AppendN("a", 1)
	f.DrainsSoundly()
}

func TestAppendOnce_isAnsweredAlikeAndDoneOnce(t *testing.T) {
	f := own(t)
	there := storetest.Event("a", "counted")
	there.EventID = "e-1"
	f.MustAppend(there)
	events := []event.Event{storetest.Event("a", "counted"), there, storetest.Event("a", "counted")}
	first, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "k", "1"), events...)
	must.Need(t, !repeated && len(first) == 3 && first[0].Seq == 2 && first[1].Existed && first[2].Seq == 3, "the first is answered with %+v, repeated %v", first, repeated)
	f.AppendN("a", 1)
	again, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "k", "1"), events...)
	must.Hold(t, repeated && cmp.Equal(first, again), "the second is answered with %+v, repeated %v", again, repeated)
	_, repeated = f.MustAppendOnce(storetest.UnderKey("bo", "k", "1"), storetest.Event("a", "counted"))
	must.Hold(t, !repeated, "somebody else's key counts")
	_, _, err := f.AppendOnce(f.Ctx, store.Append{Events: events[:1]}, storetest.UnderKey("ana", "k", "2"))
	must.Hold(t, errors.Is(err, event.ErrInvalid), "another request under the key: %v", err)
	must.Equal(t, f.Number(`select count(*) from events`), 5, "the events there")
	refusal := int64(7)
	_, _, err = f.AppendOnce(f.Ctx, store.Append{Events: events[:1], ExpectedSeq: &refusal}, storetest.UnderKey("ana", "free", "1"))
	must.Need(t, errors.Is(err, event.ErrConflict), "%v", err)
	_, repeated = f.MustAppendOnce(storetest.UnderKey("ana", "free", "2"), storetest.Event("a", "counted"))
	must.Hold(t, !repeated, "the refused append has kept its key")
	f.Sound()
}

func TestAppendOnce_ofSeveralProcessesIsDoneOnce(t *testing.T) {
	f := own(t)
	other := f.beside()
	var all sync.WaitGroup
	var first atomic.Int64
	for _, by := range []*fixture{f, other, f, other} {
		all.Go(func() {
			result, repeated, err := by.AppendOnce(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted")}}, storetest.UnderKey("ana", "k", "1"))
			must.Hold(t, err == nil && len(result) == 1 && result[0].Seq == 1, "answered with %+v, %v", result, err)
			if !repeated {
				first.Add(1)
			}
		})
	}
	all.Wait()
	must.Equal(t, first.Load(), 1, "that were the first")
	must.Equal(t, f.Number(`select count(*) from events`), 1, "events")
}
