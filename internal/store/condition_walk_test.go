package store_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

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
	t.Parallel()
	f := open(t)
	f.untouchedJournal(1, 20_040, `{}`)
	_, err := f.AppendUnless(storetest.Event("a", "counted"), 0, storetest.Item("", "entity_id", "e-1"))
	must.Equal(t, refused(t, err, outbox.ErrInvalid, "more than 20000 events after position 0", "item 1", "add an event type").Field, "condition.items[0]", "the refusal is about")
	for _, c := range []struct {
		after int64
		item  outbox.ConditionItem
	}{
		{1000, storetest.Item("", "entity_id", "e-1")}, {0, storetest.Item("", "entity_id", "e-1", "seat", "1")}, {0, storetest.Item("other", "entity_id", "e-1")},
		{0, storetest.Item("", "entity_id", "e-1", "campaign_id", "a")},
	} {
		_, err := f.AppendUnless(storetest.Event("b", "counted"), c.after, c.item)
		must.Hold(t, err == nil, "%+v: %v", c, err)
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
	_, err = f.AppendUnless(storetest.Event("b", "noted"), 0, storetest.Item("", "show", "x", "seat", "1"))
	must.Hold(t, err == nil, "%v", err)
}

// The rarest tag determines what is read, across several pages.
func TestCondition_findsTheOneAmongMany(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.untouchedJournal(1, 5000, `{"show":"x","seat":"1"}`)
	for range 5 { // several pages of events with only one of two common tags
		f.later(50, "show", "y", "color", "red")
	}
	f.MustAppend(storetest.Tagged("a", "seat.taken", "show", "x", "seat", "2", "row", "7", "color", "red"))
	found := f.Number(`select max(position) from events`)
	f.later(300, "show", "x", "seat", "1")
	for _, i := range []outbox.ConditionItem{
		storetest.Item("", "show", "x", "seat", "2"), storetest.Item("seat.taken", "show", "x"), storetest.Item("", "show", "x", "row", "7"), storetest.Item("seat.taken other", "seat", "2"), storetest.Item("seat.taken"),
		storetest.Item("", "show", "x", "campaign_id", "a"), storetest.Item("", "show", "x", "color", "red"),
	} {
		_, err := f.AppendUnless(storetest.Event("b", "counted"), 0, i)
		blockedBy(t, err, found)
	}
	_, err := f.AppendUnless(storetest.Event("b", "counted"), 0, storetest.Item("noted", "show", "x", "seat", "1"))
	must.Hold(t, err == nil, "%v", err)
}

// later appends n more events with tags.
func (f *fixture) later(n int, tags ...string) {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = storetest.Tagged("y", "counted", tags...)
	}
	f.MustAppend(events...)
}
