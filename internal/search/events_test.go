package search_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// eventPager reads one page of a search at a cursor, as positions.
func (f *fixture) eventPager(filter search.EventFilter) storetest.Pager {
	return func(cursor string) event.Page[string] {
		filter.Cursor = cursor
		page, err := f.Search.Events(f.Ctx, filter)
		must.Need(f.TB, err == nil, "%+v: %v", filter, err)
		return storetest.Keyed(page.Page, func(e search.EventHit) string { return fmt.Sprint(e.Position) })
	}
}

// journal reads all events in order of position.
func (f *fixture) journal() []event.Event {
	return must.Get(f.EventsFrom(f.Ctx, 0, 100_000)).Or(f.TB)
}

// randomEvent is an event with few different values, so that filters match several.
func randomEvent(r *rand.Rand) event.Event {
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	e := event.Event{CampaignID: pick("a", "b", "c"), EventType: pick("order.placed", "order.paid", "seat.taken"),
		EntityType: pick("order", "seat", ""), EntityID: pick("17", "18", ""), ActorType: pick("user", "system"), ActorID: pick("ana", "ben", ""),
		RequestID: pick("r-1", "r-2", "", ""), SessionID: pick("s-1", ""), Tags: []byte(pick(`{}`, `{"seat":"1"}`, `{"seat":"1","show":"x"}`)),
		Payload: []byte(pick(`{"amount":1}`, `{"note":"caf\u00e9"}`, `{"note":"rain"}`))}
	return e
}

func randomFilter(r *rand.Rand, began, ended time.Time) search.EventFilter {
	maybe := func(texts ...string) string {
		if r.IntN(3) > 0 {
			return ""
		}
		return texts[r.IntN(len(texts))]
	}
	f := search.EventFilter{CampaignID: maybe("a", "b", "none"), EventType: maybe("order.placed", "seat.taken"), EntityType: maybe("order", "seat"),
		EntityID: maybe("17", "18"), ActorID: maybe("ana"), ActorType: maybe("user"), RequestID: maybe("r-1"), SessionID: maybe("s-1"),
		Tag: maybe("seat=1", "show=x", "seat=2"), Q: maybe("rain", "café", "17", "nowhere"), Reverse: r.IntN(2) == 0, Limit: 1 + r.IntN(7)}
	span := ended.Sub(began)
	if r.IntN(2) == 0 {
		f.Since = began.Add(time.Duration(r.Int64N(int64(span))))
	}
	if r.IntN(2) == 0 {
		f.Until = began.Add(time.Duration(r.Int64N(int64(span))))
	}
	f.Time = []string{"", "", "occurred"}[r.IntN(3)]
	if f.Validate() != nil {
		f.Until = time.Time{}
	}
	return f
}

// The clock steps back and forth while the journal is written, by less than the tolerance in all.
func TestEvents_findsWhatAFilterSelects(t *testing.T) {
	f := open(t)
	r := rand.New(rand.NewPCG(7, 7))
	began := f.Clock.Now()
	ahead := false
	for range 400 {
		e := randomEvent(r)
		if r.IntN(4) == 0 {
			e.OccurredAt = began.Add(time.Duration(r.IntN(400)) * time.Minute)
		}
		f.MustAppend(e)
		switch step := r.IntN(20); {
		case step == 0 && ahead:
			f.Clock.Advance(-9 * time.Minute)
			ahead = false
		case step == 0:
			f.Clock.Advance(9 * time.Minute)
			ahead = true
		default:
			f.Clock.Advance(time.Duration(r.IntN(120)) * time.Second)
		}
	}
	all := f.journal()
	ended := f.Clock.Now()
	filters := []search.EventFilter{{Limit: 7}, {EventID: all[17].EventID}, {EventID: "nobody"}}
	for range 150 {
		filters = append(filters, randomFilter(r, began, ended))
	}
	for _, filter := range filters {
		want := []string{}
		for _, e := range all {
			if matches := filter.Match(); matches == nil || matches(e) {
				want = append(want, fmt.Sprint(e.Position))
			}
		}
		if !filter.Reverse {
			slices.Reverse(want)
		}
		must.Equal(t, f.eventPager(filter).BothWays(t, fmt.Sprintf("%+v", filter)), want, filter)
	}
}

func TestEvents_losesAndRepeatsNothingWhileEventsAreAppended(t *testing.T) {
	f := open(t)
	f.AppendN("a", 120)
	for _, filter := range []search.EventFilter{{Limit: 7}, {CampaignID: "a", Limit: 7}, {Q: "amount", Limit: 7}, {EventType: "counted", Limit: 7}} {
		before := f.journal()
		read := f.eventPager(filter)
		got := storetest.Items(read.Follow(t, read(""), storetest.Forward, func() { f.AppendN("a", 3) }))
		want := []string{}
		for _, e := range slices.Backward(before) {
			if matches := filter.Match(); matches == nil || matches(e) {
				want = append(want, fmt.Sprint(e.Position))
			}
		}
		must.Equal(t, got, want, filter)
	}
}

func TestEvents_saysHowFarItLooked(t *testing.T) {
	f := open(t)
	f.AppendN("a", 20)
	all := f.journal()
	head := all[len(all)-1].Position
	look := func(filter search.EventFilter) search.FoundEvents {
		return must.Get(f.Search.Events(f.Ctx, filter)).Or(t)
	}
	none := look(search.EventFilter{Q: "nowhere"})
	want := (search.EventsLooked{By: "position", First: head, Last: 1, Back: all[0].RecordedAt})
	must.Hold(t, none.Looked == want && none.NextCursor == nil, "a search without a hit: %+v, want %+v and nothing to continue", none.Looked, want)
	occurred := look(search.EventFilter{Since: all[0].RecordedAt, Until: all[0].RecordedAt.Add(time.Hour), Time: "occurred"}).Looked
	must.Hold(t, occurred.First == head && occurred.Last == 1, "by when events occurred, where nothing tells which can match: %+v", occurred)
	first := look(search.EventFilter{Q: "amount", Limit: 5})
	must.Hold(t, first.Looked.First == head && first.Looked.Last == all[15].Position && first.NextCursor != nil, "the first page: %+v", first.Looked)
	second := look(search.EventFilter{Q: "amount", Limit: 5, Cursor: *first.NextCursor})
	must.Hold(t, second.Looked.First == first.Looked.Last-1 && second.Looked.Last == all[10].Position, "the page after it: %+v", second.Looked)
	campaign := look(search.EventFilter{CampaignID: "a", Limit: 5}).Looked
	must.Hold(t, campaign.Exact && campaign.By == "seq" && campaign.First == 20 && campaign.Last == 16, "one campaign: %+v", campaign)
	nobody := look(search.EventFilter{CampaignID: "nobody"})
	must.Hold(t, len(nobody.Items) == 0 && nobody.NextCursor == nil, "a campaign that does not exist: %+v", nobody)
}

// Whoever may not read a secret must not find out about it piece by piece, nor whole.
func TestEvents_redactedValuesAreNotFound(t *testing.T) {
	f := open(t)
	const secret = "hunter2hunter2"
	const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	f.MustAppend(event.Event{CampaignID: "a", EventType: "user.made", EntityType: "user", EntityID: token, RequestID: token, ActorID: token, EventID: token,
		Tags: []byte(`{"password":"` + secret + `","seat":"1"}`), Metadata: []byte(`{"api_key":"` + secret + `"}`),
		Payload: []byte(`{"name":"ben","password":"` + secret + `","esc":"\u0070assword=` + secret + `"}`)})
	shown := redact.Builtin()
	must.Need(t, shown.Text(token) != token, "the test's token is not redacted")
	found := func(filter search.EventFilter) search.FoundEvents {
		return must.Get(f.Search.Events(f.Ctx, filter)).Or(t)
	}
	guesses := []search.EventFilter{{EntityID: token}, {RequestID: token}, {ActorID: token}, {EventID: token}, {Tag: "password=" + secret}}
	for n := 1; n <= len(secret); n++ {
		guesses = append(guesses, search.EventFilter{Q: secret[:n]}, search.EventFilter{Q: `password":"` + secret[:n]}, search.EventFilter{Q: secret[len(secret)-n:]})
	}
	for n := 4; n <= len(token); n++ {
		guesses = append(guesses, search.EventFilter{Q: token[:n]})
	}
	for _, guess := range guesses {
		visible := guess.Q != "" && strings.Contains("user.made user ben name password api_key seat esc 1 a", guess.Q)
		must.Hold(t, visible || len(found(guess).Items) > 0, "%+v finds nothing without redaction: the guess is wrong", guess)
		guess.Shown = shown
		must.Hold(t, visible || len(found(guess).Items) == 0, "found by what is hidden: %+v", guess)
	}
	for _, open := range []search.EventFilter{{Q: "ben"}, {Q: "[redacted]"}, {Tag: "seat=1"}, {EntityType: "user"}, {EventType: "user.made"}} {
		open.Shown = shown
		page := found(open)
		must.Need(t, len(page.Items) == 1, "%+v finds %d events, want the one", open, len(page.Items))
		text := page.Items[0].Excerpt + string(page.Items[0].Tags)
		must.Hold(t, !strings.Contains(text, secret), "shown: %s", text)
	}
	hiding := must.Get(redact.New(redact.Config{HidePayloads: true})).Or(t)
	for _, guess := range []search.EventFilter{{Q: "ben"}, {Tag: "seat=1"}} {
		guess.Shown = hiding
		must.Hold(t, len(found(guess).Items) == 0, "found in a hidden document: %+v", guess)
	}
	hidden := found(search.EventFilter{EntityType: "user", Shown: hiding}).Items
	must.Hold(t, len(hidden) == 1 && hidden[0].Excerpt == "" && hidden[0].Tags == nil, "with payloads hidden: %+v", hidden)
}

// A clock that steps back more than the tolerance is the limit that the documentation names; less
// than it, the edges of a range are exact.
func TestEvents_edgesOfARangeAreExact(t *testing.T) {
	f := open(t)
	start := f.Clock.Now()
	for _, minute := range []time.Duration{0, 5, 14, 4, 13, 5, 6} { // a clock that is nine minutes ahead now and then
		f.Clock.Advance(start.Add(minute * time.Minute).Sub(f.Clock.Now()))
		f.MustAppend(storetest.Event("a", "counted"))
	}
	count := func(since, until time.Duration) int {
		page := must.Get(f.Search.Events(f.Ctx, search.EventFilter{Since: start.Add(since), Until: start.Add(until)})).Or(t)
		return len(page.Items)
	}
	for _, one := range []struct {
		since, until time.Duration
		want         int
	}{
		{5 * time.Minute, 5*time.Minute + time.Microsecond, 2},
		{4 * time.Minute, 6 * time.Minute, 3},
		{5*time.Minute + time.Microsecond, 13 * time.Minute, 1},
		{13 * time.Minute, 15 * time.Minute, 2},
		{15 * time.Minute, time.Hour, 0},
		{-time.Hour, time.Hour, 7},
		{-time.Hour, 0, 0},
	} {
		must.Equal(t, count(one.since, one.until), one.want, "from", one.since, "to", one.until, "events")
	}
}

func TestEvents_tellHowFarTheyGot(t *testing.T) {
	f := open(t)
	f.AppendN("a s", 2)
	f.Drain()
	f.DeadHead() // event 3 of a
	f.AppendN("c", 1)
	f.Fail("boom", "c")
	f.AppendN("b", 1)
	page := must.Get(f.Search.Events(f.Ctx, search.EventFilter{Reverse: true})).Or(t)
	var got []string
	for _, e := range page.Items {
		got = append(got, fmt.Sprintf("%s %d %s", e.CampaignID, e.Seq, e.StateText()))
	}
	want := []string{"a 1 applied", "a 2 applied", "s 1 applied", "s 2 applied", "a 3 dead", "a 4 waiting behind event 3", "a 5 waiting behind event 3", "c 1 failed", "b 1 waiting"}
	must.Equal(t, got, want)
	f.MustSkip("a", 3)
	page = must.Get(f.Search.Events(f.Ctx, search.EventFilter{CampaignID: "a", Reverse: true})).Or(t)
	must.Equal(t, page.Items[2].StateText(), "skipped", "a skipped event")
}

// The settled position comes with the first page of a search that a condition can repeat.
func TestEvents_saysTheSettledPosition(t *testing.T) {
	f := open(t)
	for i := range 3 {
		f.MustAppend(storetest.Tagged("c", "name.taken", "name", fmt.Sprint("n-", i)))
	}
	page, err := f.Search.Events(f.Ctx, search.EventFilter{Tag: "name=n-1", EventType: "name.taken", Settled: true})
	must.Hold(t, err == nil && page.Position != nil && *page.Position == 3 && len(page.Items) == 1, "%+v, %v", page, err)
	page, err = f.Search.Events(f.Ctx, search.EventFilter{})
	must.Hold(t, err == nil && page.Position == nil, "not asked for it: %+v, %v", page.Position, err)
	hiding := must.Get(redact.New(redact.Config{HidePayloads: true})).Or(t)
	for _, filter := range []search.EventFilter{
		{Q: "x"}, {Since: time.Now()}, {Until: time.Now()}, {Cursor: "x"}, {Tag: "name=n-1", Shown: hiding},
	} {
		filter.Settled = true
		refused(t, storetest.No(f.Search.Events(f.Ctx, filter)), event.ErrInvalid)
	}
}
