package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestEventsMatching_returnsEachOnceInPages(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 10 {
		f.MustAppend(storetest.Tagged(fmt.Sprintf("c-%d", i%3), []string{"name.taken", "name.freed", "noted"}[i%3], "name", []string{"ana", "bo"}[i%2]))
	}
	items := []outbox.ConditionItem{storetest.Item("", "name", "ana"), storetest.Item("name.taken"), storetest.Item("", "campaign_id", "c-1")}
	want := []int64{1, 2, 3, 4, 5, 7, 8, 9, 10} // position 6 is noted of bo
	for _, limit := range []int{1, 4, 9, 11} {
		var got []int64
		after, calls := int64(0), 0
		for more := true; more; calls++ {
			m, err := f.EventsMatching(f.Ctx, items, after, limit)
			if err != nil || len(m.Events) > limit || more && calls > 12 {
				t.Fatal(m, err)
			}
			for _, e := range m.Events {
				got = append(got, e.Position)
				must.Hold(t, len(e.Payload) != 0, "an event has no payload")
			}
			after, more = m.Position, m.More
		}
		must.Hold(t, slices.Equal(got, want) && after == 10, "limit %d: got %v up to %d", limit, got, after)
	}
	m, err := f.EventsMatching(f.Ctx, []outbox.ConditionItem{storetest.Item("", "name", "cy")}, 0, 5)
	must.Hold(t, err == nil && len(m.Events) == 0 && m.Position == 10 && !m.More, "%+v, %v", m, err)
	for _, c := range []struct {
		items []outbox.ConditionItem
		after int64
	}{{nil, 0}, {items, 11}, {items, -1}} {
		_, err := f.EventsMatching(f.Ctx, c.items, c.after, 5)
		must.Hold(t, errors.Is(err, outbox.ErrInvalid), "%v after %d: %v", c.items, c.after, err)
	}
}

// won is an append that was accepted, and what its client had read.
type won struct {
	name     string
	events   []int64
	position int64
}

// Clients read the events of a name and then append the next version of it on a condition, while
// appends without a condition change the names too. Whoever is accepted has seen every event of the
// name before its own, so no version has two winners.
func TestEventsMatching_isAllThatAnAcceptedAppendDependsOn(t *testing.T) {
	t.Parallel()
	f := open(t)
	stores := []*fixture{f, f.beside()}
	const names, clients, rounds = 2, 4, 10
	wins := make([][]won, clients)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for round := range rounds {
				wins[client] = append(wins[client], stores[client%2].takes(fmt.Sprintf("c-%d", client), fmt.Sprint("name-", (client+round)%names)))
			}
		})
	}
	for i := range 2 {
		all.Go(func() { stores[i].changes(fmt.Sprint("other-", i), names) })
	}
	all.Wait()
	versions := map[string]int64{}
	for _, w := range slices.Concat(wins...) {
		before := storetest.Column[int64](t, f.JournalDB, `select position from event_tags where name = 'name' and value = $1 and position < $2 order by position`, w.name, w.position)
		must.Same(t, before, w.events, w.name, "was changed at", w.position, "by a client that had seen", len(w.events), "of", len(before), "events")
		version := fmt.Sprint(w.name, " after ", len(w.events))
		must.Equal(t, versions[version], 0, "the other winner of", version)
		versions[version] = w.position
	}
	must.Equal(t, len(versions), clients*rounds, "versions were won")
}

// takes reads the events of a name and appends one on the condition that there are no others, until
// that is accepted.
func (f *fixture) takes(campaign, name string) won {
	items := []outbox.ConditionItem{storetest.Item("", "name", name)}
	for {
		m, err := f.EventsMatching(f.Ctx, items, 0, 10_000)
		if err == nil {
			var done []store.Appended
			done, err = f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Tagged(campaign, "name.changed", "name", name)},
				Condition: &outbox.AppendCondition{AfterPosition: m.Position, Items: items}})
			if err == nil {
				w := won{name: name, position: done[0].Position}
				for _, e := range m.Events {
					w.events = append(w.events, e.Position)
				}
				return w
			}
		}
		if !errors.Is(err, outbox.ErrConflict) && !errors.Is(err, outbox.ErrBusy) {
			f.TB.Errorf("%s: %v", name, err)
			return won{}
		}
	}
}

// changes appends events of the names without a condition.
func (f *fixture) changes(campaign string, names int) {
	for n := range 60 {
		if _, err := f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Tagged(campaign, "name.changed", "name", fmt.Sprint("name-", n%names))}}); err != nil {
			f.TB.Errorf("change: %v", err)
			return
		}
	}
}

// An append that is open below the last visible event may still add an event that matches.
func TestPostgresEventsMatching_waitsForWhatIsOpenBelow(t *testing.T) {
	t.Parallel()
	f := open(t)
	end := f.begun(`{"seat":"1"}`)
	f.AppendN("a", 1)
	items := []outbox.ConditionItem{storetest.Item("", "seat", "1")}
	m, err := f.EventsMatching(f.Ctx, items, 0, 10)
	must.Hold(t, errors.Is(err, outbox.ErrBusy), "%+v, %v while an append is open", m, err)
	end("commit")
	m, err = f.EventsMatching(f.Ctx, items, 0, 10)
	must.Hold(t, err == nil && len(m.Events) == 1 && m.Position == 2, "%+v, %v", m, err)
}
