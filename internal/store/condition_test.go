package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// blockedBy fails unless err names the event at the position as the conflicting one.
func blockedBy(tb testing.TB, err error, position int64, fragments ...string) {
	r := refused(tb, err, event.ErrConflict, append(fragments, "conflicting event", "read on from there and decide again")...)
	must.Hold(tb, r.BlockingEvent != nil && r.BlockingEvent.Position == position, "in the way is %+v, want the event at %d", r.BlockingEvent, position)
}

func TestCondition_itemsSelectWhatIsInTheWay(t *testing.T) {
	f := own(t)
	long := strings.Repeat("ü", 250)
	journal := []event.Event{
		storetest.Tagged("a", "seat.taken", "seat", "1", "show", "x"),
		storetest.Tagged("b", "seat.freed", "seat", "1", "show", "x"),
		storetest.Tagged("a", "seat.taken", "seat", "2", "show", "y"),
		storetest.Tagged("c", "noted"),
		storetest.Tagged("c", "noted", "text", long+"1", long+"1", "v"),
		storetest.Tagged("c", "noted", "empty", ""),
	}
	journal[3].ActorID, journal[3].SessionID = "p-1", "s-1"
	landed := f.MustAppend(journal...)
	at := func(i int) int64 { return landed[i-1].Position }
	for name, c := range map[string]struct {
		after int // the event after which the condition applies
		items []event.ConditionItem
		event int // the conflicting one; 0 for none
	}{
		"a type nobody has":              {0, []event.ConditionItem{storetest.Item("seat")}, 0},
		"a tag nobody has":               {0, []event.ConditionItem{storetest.Item("", "sea", "1")}, 0},
		"an empty value":                 {0, []event.ConditionItem{storetest.Item("", "empty", "")}, 6},
		"the first of what items find":   {0, []event.ConditionItem{storetest.Item("noted"), storetest.Item("seat.freed"), storetest.Item("", "seat", "2")}, 2},
		"a campaign nobody knows":        {0, []event.ConditionItem{storetest.Item("", "campaign_id", "d")}, 0},
		"a campaign nobody knows, after": {1, []event.ConditionItem{storetest.Item("", "campaign_id", "d")}, 0},
		"an actor and a session":         {0, []event.ConditionItem{storetest.Item("", "actor_id", "p-1", "session_id", "s-1")}, 4},
		"an actor and another session":   {0, []event.ConditionItem{storetest.Item("", "actor_id", "p-1", "session_id", "s")}, 0},
		"the type as a tag":              {0, []event.ConditionItem{storetest.Item("", "event_type", "seat.freed")}, 2},
		"the type twice":                 {0, []event.ConditionItem{storetest.Item("seat.taken", "event_type", "seat.freed")}, 0},
		"a long value":                   {0, []event.ConditionItem{storetest.Item("", "text", long+"1")}, 5},
		"a long value that goes on":      {0, []event.ConditionItem{storetest.Item("", "text", long+"2")}, 0},
		"a long value cut off":           {0, []event.ConditionItem{storetest.Item("", "text", long)}, 0},
		"a long name":                    {0, []event.ConditionItem{storetest.Item("", long+"1", "v")}, 5},
		"a long name that goes on":       {0, []event.ConditionItem{storetest.Item("", long+"2", "v")}, 0},
	} {
		after := int64(0)
		if c.after > 0 {
			after = at(c.after)
		}
		if c.event == 0 {
			f.must(f.AppendUnless(storetest.Event("own", "own"), after, c.items...))
			continue
		}
		f.Unchanged(func() {
			_, err := f.AppendUnless(storetest.Event("own", "own"), after, c.items...)
			e := journal[c.event-1]
			nth := map[bool]string{true: "matches item 2 of the condition"}[len(c.items) > 1]
			blockedBy(t, err, at(c.event), nth, fmt.Sprintf("event %d (%s, campaign %q seq %d)", at(c.event), e.EventType, e.CampaignID, landed[c.event-1].Seq), fmt.Sprintf("after position %d", after))
		})
		must.Need(t, !t.Failed(), "in case %q", name)
	}
	f.Sound()
}

func TestCondition_besideItsOwnEventsARepeatAndAnExpectedSeq(t *testing.T) {
	f := own(t)
	own := storetest.Tagged("a", "seat.taken", "seat", "1")
	taken := &event.AppendCondition{Items: []event.ConditionItem{storetest.Item("seat.taken", "seat", "1")}}
	f.must(f.Append(f.Ctx, store.Append{Events: []event.Event{own, own}, Condition: taken})) // it does not see its own events
	known := own
	known.EventID = "e-1"
	first := must.Get(f.AppendUnless(known, 2, storetest.Item("seat.taken"))).Or(t)
	try := func(expected int64, i event.ConditionItem) error {
		return storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{own}, ExpectedSeq: &expected, Condition: &event.AppendCondition{Items: []event.ConditionItem{i}}}))
	}
	f.Unchanged(func() {
		again, err := f.AppendUnless(known, 2, storetest.Item("seat.taken"))
		must.Hold(t, err == nil && again[0].Existed && again[0].Position == first[0].Position, "the repeat came to %+v, %v", again, err)
		// New events beside a repeat were not decided with knowledge of it.
		taken.AfterPosition = 2
		blockedBy(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{known, own}, Condition: taken})), first[0].Position)
		refused(t, try(1, storetest.Item("other")), event.ErrConflict, "is at seq 3")
		blockedBy(t, try(3, storetest.Item("seat.taken")), 1)
	})
	must.OK(t, try(3, storetest.Item("other")))
	f.Sound()
}

func TestCondition_isJudged(t *testing.T) {
	f := own(t)
	many := slices.Repeat([]event.ConditionItem{storetest.Item("x")}, event.MaxConditionItems+1)
	types := slices.Repeat([]string{"x"}, event.MaxConditionTypes+1)
	tags := map[string]string{}
	for i := range event.MaxConditionTags + 1 {
		tags[fmt.Sprint(i)] = "x"
	}
	for name, c := range map[string]struct {
		after int64
		items []event.ConditionItem
		field string
	}{
		"no items":          {0, nil, "condition.items"},
		"too many items":    {0, many, "condition.items"},
		"too many types":    {0, []event.ConditionItem{{EventTypes: types}}, "condition.items[0].event_types"},
		"too many tags":     {0, []event.ConditionItem{{Tags: tags}}, "condition.items[0].tags"},
		"an empty item":     {0, []event.ConditionItem{storetest.Item("x"), storetest.Item("")}, "condition.items[1]"},
		"negative position": {-1, []event.ConditionItem{storetest.Item("x")}, "condition.after_position"},
		"a pattern":         {0, []event.ConditionItem{storetest.Item("seat.*")}, "condition.items[0].event_types"},
		"an empty type":     {0, []event.ConditionItem{{EventTypes: []string{""}}}, "condition.items[0].event_types"},
		"a type too long":   {0, []event.ConditionItem{storetest.Item(strings.Repeat("x", 201))}, "condition.items[0].event_types"},
		"an empty field":    {0, []event.ConditionItem{storetest.Item("", "actor_id", "")}, "condition.items[0].tags"},
		"a field too long":  {0, []event.ConditionItem{storetest.Item("", "actor_id", strings.Repeat("x", 201))}, "condition.items[0].tags"},
		"a NUL":             {0, []event.ConditionItem{storetest.Item("", "seat", "\x00")}, "condition.items[0].tags"},
		"not UTF-8":         {0, []event.ConditionItem{storetest.Item("", "seat", "\xff")}, "condition.items[0].tags"},
	} {
		f.Unchanged(func() {
			must.Equal(t, refused(t, storetest.No(f.AppendUnless(storetest.Event("a", "counted"), c.after, c.items...)), event.ErrInvalid).Field, c.field, name, "the refusal is about", ")")
		})
	}
}

// A writer with a position of another journal, or of one restored from an older backup, would miss the events up to it.
func TestCondition_refusesAPositionBehindTheEnd(t *testing.T) {
	f := own(t)
	try := func(after int64) error {
		return storetest.No(f.AppendUnless(storetest.Event("b", "noted"), after, storetest.Item("other")))
	}
	is := func(position int64) { must.Equal(t, must.Get(f.Position(f.Ctx)).Or(t), position, "the position") }
	f.Unchanged(func() { refused(t, try(1), event.ErrInvalid, "after_position is 1, but the journal ends at 0"); is(0) })
	f.AppendN("a", 1)
	f.AppendN("c", 1)
	is(2)
	f.Unchanged(func() {
		for _, after := range []int64{3, math.MaxInt64} {
			must.Equal(t, refused(t, try(after), event.ErrInvalid, "the journal ends at 2").Field, "condition.after_position", "the refusal is about")
		}
	})
	must.OK(t, try(2))
}

// Duplicate names, null values and escapes are indexed as they are read.
func TestCondition_readsTagsAsTheyAreWritten(t *testing.T) {
	f := own(t)
	e := storetest.Event("a", "counted")
	e.Tags = []byte(`{"twice":"1","twice":"2","none":null,"esc\u0061pe":"\ud83d\ude00\n\"\\ud800","":"nameless"}`)
	f.MustAppend(e)
	for _, i := range []event.ConditionItem{storetest.Item("", "twice", "2"), storetest.Item("", "none", ""), storetest.Item("", "escape", "😀\n\"\\ud800"), storetest.Item("", "", "nameless")} {
		blockedBy(t, storetest.No(f.AppendUnless(storetest.Event("b", "x"), 0, i)), 1)
	}
	must.OK(t, storetest.No(f.AppendUnless(storetest.Event("b", "x"), 0, storetest.Item("", "twice", "1"))))
	for _, half := range []string{`{"k":"\ud83d"}`, `{"k":"\ud83d\u0061"}`, `{"k":"\ude00\ud83d"}`, `{"\udfff":"v"}`} {
		e.Tags = []byte(half)
		f.Unchanged(func() {
			must.Equal(t, refused(t, storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{e}})), event.ErrInvalid, "half a surrogate pair").Field, "tags", "the refusal is about")
		})
	}
	f.Sound()
}

// begun appends an event in a separate transaction that stays open.
func (f *fixture) begun(tags string) (end func(how string)) {
	conn := storetest.Connect(f.TB, f.Pair.Journal)
	must.Get(conn.PgConn().Exec(f.Ctx, f.BeginAppendText()).ReadAll()).Or(f.TB)
	storetest.Run(f.TB, conn, fmt.Sprintf(`
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
values ('other', 1, '1', 'seat.taken', 1, 1, '', '', '', '', '', '', '', '', '%s', '{}', '{}', '', '')`, tags))
	return func(how string) { storetest.Run(f.TB, conn, how) }
}

func TestPostgresCondition_waitsForAppendsStillOpen(t *testing.T) {
	t.Parallel()
	for how, conflict := range map[string]bool{"commit": true, "rollback": false} {
		for name, i := range map[string]event.ConditionItem{"tag": storetest.Item("", "seat", "1"), "type": storetest.Item("seat.taken"), "campaign": storetest.Item("", "campaign_id", "other")} {
			f := open(t)
			end := f.begun(`{"seat":"1"}`)
			answer := storetest.Begin(func() error { return storetest.No(f.AppendUnless(storetest.Event("a", "counted"), 0, i)) })
			f.AwaitLockWaits(1)
			select {
			case err := <-answer:
				t.Fatalf("%s: answered with %v while the other append was open", name, err)
			default:
			}
			end(how)
			if err := <-answer; conflict {
				blockedBy(t, err, 1, `campaign "other" seq 1`)
			} else {
				must.OK(t, err)
			}
			f.CloseNow()
		}
	}
}

// drawItem draws an item that some events are likely to match.
func drawItem(t *rapid.T) event.ConditionItem {
	i := event.ConditionItem{EventTypes: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 2, rapid.ID[string]).Draw(t, "types"), Tags: drawTags(t)}
	if rapid.IntRange(0, 3).Draw(t, "of a campaign") == 0 {
		i.Tags["campaign_id"] = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "campaign")
	}
	if rapid.IntRange(0, 4).Draw(t, "of an actor") == 0 || len(i.EventTypes)+len(i.Tags) == 0 {
		i.Tags["actor_id"] = rapid.SampledFrom([]string{"m", "n"}).Draw(t, "actor")
	}
	return i
}

func drawTags(t *rapid.T) map[string]string {
	tags := make(map[string]string)
	for _, name := range []string{"k", "l", strings.Repeat("long", 30)} {
		if rapid.Bool().Draw(t, "tagged") {
			tags[name] = rapid.SampledFrom([]string{"", "1", strings.Repeat("☃", 200), strings.Repeat("☃", 200) + "x"}).Draw(t, "value")
		}
	}
	return tags
}

// is decides by the wording of the contract whether an event matches an item.
func is(e event.Event, i event.ConditionItem) bool {
	var tags map[string]string
	if json.Unmarshal(e.Tags, &tags) != nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, map[string]string{"campaign_id": e.CampaignID, "actor_id": e.ActorID})
	for name, want := range i.Tags {
		if got, ok := tags[name]; !ok || got != want {
			return false
		}
	}
	return len(i.EventTypes) == 0 || slices.Contains(i.EventTypes, e.EventType)
}

func TestCondition_holdsAsTheModelSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := open(t)
		defer f.CloseNow()
		var model []event.Event
		for range rapid.IntRange(1, 25).Draw(rt, "appends") {
			e := storetest.Event(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "campaign"), rapid.SampledFrom([]string{"p", "q", "r"}).Draw(rt, "type"))
			e.ActorID, e.Tags = rapid.SampledFrom([]string{"", "m", "n"}).Draw(rt, "actor"), storetest.JSON(drawTags(rt))
			after := int64(0)
			if n := rapid.IntRange(0, len(model)).Draw(rt, "after"); n > 0 {
				after = model[n-1].Position
			}
			items := rapid.SliceOfN(rapid.Custom(drawItem), 1, 3).Draw(rt, "items")
			way := slices.IndexFunc(model, func(e event.Event) bool {
				return e.Position > after && slices.ContainsFunc(items, func(i event.ConditionItem) bool { return is(e, i) })
			})
			got, err := f.AppendUnless(e, after, items...)
			if way >= 0 {
				r, ok := errors.AsType[*event.Refusal](err)
				must.Need(rt, ok && r.BlockingEvent != nil && *r.BlockingEvent == model[way].Ref(), "got error %v, want %+v to be in the way", err, model[way].Ref())
				continue
			}
			must.OK(rt, err)
			e.Position, e.Seq = got[0].Position, got[0].Seq
			model = append(model, e)
		}
	})
}

// untouchedJournal inserts events into campaign x without the store.
func (f *fixture) untouchedJournal(first, last int, tags string) {
	f.Exec(`
with recursive numbers (i) as (select cast($1 as bigint) union all select i + 1 from numbers where i < $2)
insert into events (campaign_id, seq, event_id, event_type, occurred_at, recorded_at, actor_type, actor_id, entity_type, entity_id,
  session_id, request_id, correlation_id, causation_id, tags, metadata, payload, event_hash, chain_hash)
select 'x', i, cast(i as text), 'counted', 1, 1, '', '', '', '', '', '', '', '', $3, '{}', '{}', '', ''
from numbers`, first, last, tags)
}

func TestCondition_refusesToReadAllOfALongJournal(t *testing.T) {
	f := own(t)
	f.untouchedJournal(1, 20_040, `{}`)
	must.Equal(t, refused(t, storetest.No(f.AppendUnless(storetest.Event("a", "counted"), 0, storetest.Item("", "entity_id", "e-1"))), event.ErrInvalid, "more than 20000 events after position 0", "item 1", "add an event type").Field, "condition.items[0]", "the refusal is about")
	for _, c := range []struct {
		after int64
		item  event.ConditionItem
	}{
		{1000, storetest.Item("", "entity_id", "e-1")}, {0, storetest.Item("", "entity_id", "e-1", "seat", "1")}, {0, storetest.Item("other", "entity_id", "e-1")},
		{0, storetest.Item("", "entity_id", "e-1", "campaign_id", "a")},
	} {
		must.OK(t, storetest.No(f.AppendUnless(storetest.Event("b", "counted"), c.after, c.item)))
	}
	if testing.Short() {
		return
	}
	// A path that is short enough is found even if it is long, in any order of the tags.
	f.untouchedJournal(20_041, 40_080, `{"show":"x","hall":"1"}`)
	f.later(1100, "seat", "1", "row", "2")
	for range 5 {
		f.must(f.AppendUnless(storetest.Event("b", "noted"), 0, storetest.Item("", "show", "x", "seat", "1"), storetest.Item("", "hall", "1", "row", "2")))
	}
	f.untouchedJournal(40_081, 50_080, `{"seat":"1"}`)
	must.OK(t, storetest.No(f.AppendUnless(storetest.Event("b", "noted"), 0, storetest.Item("", "show", "x", "seat", "1"))))
}

// The rarest tag determines what is read, across several pages.
func TestCondition_findsTheOneAmongMany(t *testing.T) {
	f := own(t)
	f.untouchedJournal(1, 5000, `{"show":"x","seat":"1"}`)
	for range 5 { // several pages of events with only one of two common tags
		f.later(50, "show", "y", "color", "red")
	}
	f.MustAppend(storetest.Tagged("a", "seat.taken", "show", "x", "seat", "2", "row", "7", "color", "red"))
	found := f.Number(`select max(position) from events`)
	f.later(300, "show", "x", "seat", "1")
	for _, i := range []event.ConditionItem{
		storetest.Item("", "show", "x", "seat", "2"), storetest.Item("seat.taken", "show", "x"), storetest.Item("", "show", "x", "row", "7"), storetest.Item("seat.taken other", "seat", "2"), storetest.Item("seat.taken"),
		storetest.Item("", "show", "x", "campaign_id", "a"), storetest.Item("", "show", "x", "color", "red"),
	} {
		blockedBy(t, storetest.No(f.AppendUnless(storetest.Event("b", "counted"), 0, i)), found)
	}
	must.OK(t, storetest.No(f.AppendUnless(storetest.Event("b", "counted"), 0, storetest.Item("noted", "show", "x", "seat", "1"))))
}

func (f *fixture) later(n int, tags ...string) {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = storetest.Tagged("y", "counted", tags...)
	}
	f.MustAppend(events...)
}
