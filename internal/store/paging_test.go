package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func pager[T any](f *fixture, read func(cursor string) (event.Page[T], error), key func(T) string) storetest.Pager {
	return func(cursor string) event.Page[string] { return storetest.Keyed(must.Get(read(cursor)).Or(f.TB), key) }
}

func (f *fixture) rowPager(filter campaign.RowFilter) storetest.Pager {
	return pager(f, func(cursor string) (event.Page[campaign.Row], error) {
		filter.Cursor = cursor
		return f.Rows(f.Ctx, filter)
	}, rowKey)
}

func (f *fixture) campaignPager(filter campaign.CampaignFilter) storetest.Pager {
	return pager(f, func(cursor string) (event.Page[campaign.Campaign], error) {
		filter.Cursor = cursor
		return f.Campaigns(f.Ctx, filter)
	}, func(c campaign.Campaign) string { return c.CampaignID })
}

func (f *fixture) actPager(filter operator.AuditFilter) storetest.Pager {
	return pager(f, func(cursor string) (event.Page[operator.AuditEntry], error) {
		filter.Cursor = cursor
		return f.AuditLog(f.Ctx, filter)
	}, func(a operator.AuditEntry) string { return fmt.Sprint(a.ID) })
}

// mustList fails unless the pages of a list, and those of its reverse, have these items on the way to its end and back.
func mustList(t *testing.T, name string, want []string, list, reverse storetest.Pager) {
	must.Same(t, list.BothWays(t, name), want, name)
	turned := reverse.BothWays(t, name+", in reverse")
	slices.Reverse(turned)
	must.Same(t, turned, want, name, "in reverse")
}

// churn inserts and deletes rows of a few campaigns without the store, except the spared ones.
func (f *fixture) churn(random *rand.Rand, spared map[string]bool) {
	for range 6 {
		campaign, seq := random.IntN(8), random.IntN(60)
		if spared[fmt.Sprintf("c-%d#%d", campaign, seq)] {
			continue
		}
		f.Exec(fmt.Sprintf(`delete from projection_apply_outbox where campaign_id = 'c-%d' and seq = %d`, campaign, seq))
		if random.IntN(2) == 0 {
			f.outboxRow(campaign, seq, random.IntN(20))
		}
	}
}

func (f *fixture) outboxRow(campaign, seq, due int) {
	f.Exec(fmt.Sprintf(`
insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, enqueued_at, updated_at)
values ('c-%d', %d, 'counted', 'dead', 8, %d, 1, 1)`, campaign, seq, due))
}

func TestPages_showWhatStaysExactlyOnceWhileOthersComeAndGo(t *testing.T) {
	storetest.Each(t, own, map[string]campaign.RowFilter{"by id": {Limit: 7}, "by id, in reverse": {Limit: 7, Reverse: true}, "of a type": {EventType: "counted", Limit: 7},
		"by time": {Status: event.Dead, Limit: 7}, "by time, in reverse": {Status: event.Dead, Limit: 7, Reverse: true}}, func(t *testing.T, f *fixture, filter campaign.RowFilter) {
		random := rand.New(rand.NewPCG(7, 11))
		stays := map[string]bool{}
		for campaign := range 8 {
			f.AppendN(fmt.Sprint("c-", campaign), 1)
			f.Exec(fmt.Sprintf(`delete from projection_apply_outbox where campaign_id = 'c-%d'`, campaign))
			for seq := range 12 {
				f.outboxRow(campaign, seq*5, random.IntN(20))
				stays[fmt.Sprintf("c-%d#%d", campaign, seq*5)] = true
			}
		}
		read := f.rowPager(filter)
		visit := func(from event.Page[string], way func(event.Page[string]) *string) event.Page[string] {
			pages := read.Follow(t, from, way, func() { f.churn(random, stays) })
			seen := map[string]int{}
			for _, key := range storetest.Items(pages) {
				seen[key]++
			}
			for key := range stays {
				must.Equal(t, seen[key], 1, "was shown", "times")
			}
			return pages[len(pages)-1]
		}
		end := visit(read(""), storetest.Forward)
		visit(end, storetest.Backward)
	})
}

func TestPages_backFromTheThirdIsTheSecondWhateverHappensAround(t *testing.T) {
	f := own(t)
	f.AppendN("b", 60)
	read := f.rowPager(campaign.RowFilter{Limit: 10})
	first := read("")
	second := read(*first.NextCursor)
	third := read(*second.NextCursor)
	f.AppendN("a", 25)
	f.AppendN("c", 5)
	f.Exec(`delete from projection_apply_outbox where campaign_id = 'b' and (seq between 3 and 8 or seq between 21 and 24 or seq > 50)`)
	must.Equal(t, read(*third.PrevCursor).Items, second.Items, "back from the third page")
}

func TestPages_endsThatHaveGoneLeadToTheOtherEnd(t *testing.T) {
	f := own(t)
	f.AppendN("a", 30)
	read := f.rowPager(campaign.RowFilter{Limit: 10})
	second := read(*read("").NextCursor)
	f.Exec(`delete from projection_apply_outbox where seq <= 10`)
	before := read(*second.PrevCursor)
	must.Need(t, len(before.Items) == 0 && before.PrevCursor == nil && before.NextCursor != nil, "before all rows is %+v, want an empty page that leads on", before)
	must.Equal(t, read(*before.NextCursor).Items, second.Items, "after it comes")
	f.Exec(`delete from projection_apply_outbox where seq > 20`)
	after := read(*second.NextCursor)
	must.Need(t, len(after.Items) == 0 && after.NextCursor == nil && after.PrevCursor != nil, "after all rows is %+v, want an empty page that leads back", after)
	must.Equal(t, read(*after.PrevCursor).Items, second.Items, "before it comes")
}

func (f *fixture) manyRows(campaign string, first, last int) {
	f.Exec(`
insert into projection_apply_outbox (campaign_id, seq, event_type, next_attempt_at, enqueued_at, updated_at)
with recursive n(i) as (select cast($2 as bigint) union all select i + 1 from n where i < $3)
select $1, i, 'counted', 1, 1, 1 from n`, campaign, first, last)
}

func TestPages_thatLookedEnoughAreFoundGoingBackToo(t *testing.T) {
	f := own(t)
	f.MustAppend(storetest.Event("a", "rare"))
	f.manyRows("a", 2, 6001)
	f.Exec(`update projection_apply_outbox set event_type = 'rare' where seq = 6001`)
	f.manyRows("a", 6002, 6010)
	read := f.rowPager(campaign.RowFilter{EventType: "rare"})
	there := read.Follow(t, read(""), storetest.Forward, storetest.Idle)
	back := read.Follow(t, there[len(there)-1], storetest.Backward, storetest.Idle)
	must.Equal(t, storetest.Items(there), []string{"a#1", "a#6001"}, "there")
	must.Equal(t, storetest.Items(back), []string{"a#6001", "a#1"}, "back")
	must.Hold(t, there[0].Partial && len(there) == 2 && len(back) >= 2 && back[len(back)-1].PrevCursor == nil, "%d pages there, and %d back", len(there), len(back))
	last := read(*there[0].NextCursor)
	before := read(*last.PrevCursor)
	must.Hold(t, before.Partial && len(before.Items) == 0 && before.PrevCursor != nil && before.NextCursor != nil, "going back looked through everything at once: %+v", before)
}

func TestPages_refuseForeignCursors(t *testing.T) {
	f := rowScene(t)
	for range 3 {
		f.MustPause("a b")
		f.must(f.ResumeCampaign(f.Ctx, ana(""), "a b"))
	}
	rows := func(filter campaign.RowFilter) func(string) error {
		return func(cursor string) error {
			filter.Cursor = cursor
			return storetest.No(f.Rows(f.Ctx, filter))
		}
	}
	campaigns := func(sort campaign.CampaignSort) func(string) error {
		return func(cursor string) error {
			return storetest.No(f.Campaigns(f.Ctx, campaign.CampaignFilter{Sort: sort, Cursor: cursor}))
		}
	}
	byID, byDue := f.rowPager(campaign.RowFilter{Limit: 1})(""), f.rowPager(campaign.RowFilter{Limit: 1, Status: event.Dead})("")
	byAge, byLag := f.campaignPager(campaign.CampaignFilter{Limit: 1, Sort: campaign.SortAge})(""), f.campaignPager(campaign.CampaignFilter{Limit: 1, Sort: campaign.SortLag})("")
	acts := f.actPager(operator.AuditFilter{Limit: 1})("")
	for _, c := range []struct {
		name    string
		read    func(cursor string) error
		cursors []string
	}{
		{"rows by id", rows(campaign.RowFilter{}), []string{"!", "eA", "YQBi", *byDue.NextCursor}},
		{"rows in reverse", rows(campaign.RowFilter{Reverse: true}), []string{*byID.NextCursor}},
		{"dead rows by due time", rows(campaign.RowFilter{Status: event.Dead}), []string{"AAA", *byID.NextCursor}},
		{"failed rows by due time", rows(campaign.RowFilter{Status: event.Failed}), []string{*byID.NextCursor}},
		{"campaigns by id", campaigns(""), []string{"!", "eA", "YQBi", "MXgAYQ", "MABhAGI", *byLag.NextCursor}},
		{"campaigns by lag", campaigns(campaign.SortLag), []string{*byAge.NextCursor}},
		{"oldest acts first", func(cursor string) error {
			return storetest.No(f.AuditLog(f.Ctx, operator.AuditFilter{Reverse: true, Cursor: cursor}))
		}, []string{"x", "!!", "MQAy", *acts.NextCursor}},
	} {
		for _, cursor := range c.cursors {
			must.Equal(t, refused(t, c.read(cursor), event.ErrInvalid, "cursor").Field, "cursor", c.name, "the field that the refusal is about")
		}
	}
}

func total(p event.Page[string]) string {
	switch {
	case p.Total == nil:
		return "unknown"
	case p.TotalCapped:
		return fmt.Sprintf("%d+", *p.Total)
	default:
		return fmt.Sprint(*p.Total)
	}
}

func TestTotals_countWhatMatchesUpToABound(t *testing.T) {
	f := rowScene(t)
	f.MustAppend(storetest.Event("many", "rare"))
	f.MustPause("many")
	f.manyRows("many", 2, 6001)
	f.Exec(`update campaigns set pending = 6001 where campaign_id = 'many'`)
	for _, c := range []struct {
		filter campaign.RowFilter
		want   string
	}{
		{campaign.RowFilter{}, "6053"},
		{campaign.RowFilter{Status: event.Dead}, "4"},
		{campaign.RowFilter{Status: event.Pending}, "6040"},
		{campaign.RowFilter{CampaignID: "many"}, "6001"},
		{campaign.RowFilter{CampaignID: "it's", Status: event.Pending}, "3"},
		{campaign.RowFilter{CampaignID: "no such"}, "0"},
		{campaign.RowFilter{EventType: "counted"}, "1000+"},
		{campaign.RowFilter{EventType: "weighed"}, "20+"},
		{campaign.RowFilter{CampaignID: "it's", EventType: "counted"}, "2"},
		{campaign.RowFilter{Status: event.Dead, Q: "disk"}, "4"},
		{campaign.RowFilter{Status: event.Dead, Q: "it's"}, "1"},
		{campaign.RowFilter{Status: event.Dead, Fingerprint: "disk # is full"}, "4"},
		{campaign.RowFilter{Status: event.Failed, Q: "100%"}, "3"},
		{campaign.RowFilter{Status: event.Processing}, "6"},
		{campaign.RowFilter{Status: event.Processing, EventType: "weighed"}, "unknown"},
	} {
		c.filter.Limit = 1
		read := f.rowPager(c.filter)
		page := read("")
		must.Equal(t, total(page), c.want, c.filter, "total")
		if page.NextCursor != nil {
			must.Equal(t, total(read(*page.NextCursor)), c.want, c.filter, "total", "on the second page")
		}
	}
}

func TestInPages_readEverythingOnce(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.AppendN("c-3 c-4", 2)
	f.Kill("c-3", "c-4")
	for i := range 5 {
		f.AppendN(fmt.Sprint("c-", i), 200)
	}
	for _, filter := range []campaign.RowFilter{{}, {Status: event.Dead}, {CampaignID: "c-1"}, {EventType: "none"}, {Limit: 1, Reverse: true}} {
		got, most := []string{}, 0
		for rows, err := range f.RowsInPages(f.Ctx, filter) {
			must.OK(t, err)
			got, most = append(got, keys(rows)...), max(most, len(rows))
		}
		filter.Limit = 200
		must.Same(t, got, storetest.Items(f.rowPager(filter).All(t)), filter)
		must.Hold(t, most <= 500, "%+v: up to %d rows at once", filter, most)
	}
	steps := 0
	for range f.RowsInPages(f.Ctx, campaign.RowFilter{}) {
		if steps++; steps == 2 {
			break
		}
	}
	for _, err := range f.RowsInPages(f.Ctx, campaign.RowFilter{Cursor: "!"}) {
		refused(t, err, event.ErrInvalid, "cursor")
		steps++
	}
	must.Equal(t, steps, 3, "reading took", "steps")
}

func TestEventsMatching_returnsEachOnceInPages(t *testing.T) {
	f := own(t)
	for i := range 10 {
		f.MustAppend(storetest.Tagged(fmt.Sprintf("c-%d", i%3), []string{"name.taken", "name.freed", "noted"}[i%3], "name", []string{"ana", "bo"}[i%2]))
	}
	items := []event.ConditionItem{storetest.Item("", "name", "ana"), storetest.Item("name.taken"), storetest.Item("", "campaign_id", "c-1")}
	want := []int64{1, 2, 3, 4, 5, 7, 8, 9, 10} // position 6 is noted of bo
	for _, limit := range []int{1, 4, 9, 11} {
		var got []int64
		after, calls := int64(0), 0
		for more := true; more; calls++ {
			m, err := f.EventsMatching(f.Ctx, items, after, limit)
			must.Need(t, err == nil && len(m.Events) <= limit && calls <= 12, "call %d: %+v, %v", calls, m, err)
			for _, e := range m.Events {
				got = append(got, e.Position)
				must.Hold(t, len(e.Payload) != 0, "an event has no payload")
			}
			after, more = m.Position, m.More
		}
		must.Hold(t, slices.Equal(got, want) && after == 10, "limit %d: got %v up to %d", limit, got, after)
	}
	m, err := f.EventsMatching(f.Ctx, []event.ConditionItem{storetest.Item("", "name", "cy")}, 0, 5)
	must.Hold(t, err == nil && len(m.Events) == 0 && m.Position == 10 && !m.More, "%+v, %v", m, err)
	for _, c := range []struct {
		items []event.ConditionItem
		after int64
	}{{nil, 0}, {items, 11}, {items, -1}} {
		_, err := f.EventsMatching(f.Ctx, c.items, c.after, 5)
		must.Hold(t, errors.Is(err, event.ErrInvalid), "%v after %d: %v", c.items, c.after, err)
	}
}

// won is an append that was accepted, and what its client had read.
type won struct {
	name     string
	events   []int64
	position int64
}

// Clients read the events of a name and then append the next version of it on a condition, while appends without a condition change the
// names too. Whoever is accepted has seen every event of the name before its own, so no version has two winners.
func TestEventsMatching_isAllThatAnAcceptedAppendDependsOn(t *testing.T) {
	f := own(t)
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

// takes reads the events of a name and appends one on the condition that there are no others, until that is accepted.
func (f *fixture) takes(campaign, name string) won {
	items := []event.ConditionItem{storetest.Item("", "name", name)}
	for {
		m, err := f.EventsMatching(f.Ctx, items, 0, 10_000)
		if err == nil {
			var done []store.Appended
			done, err = f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Tagged(campaign, "name.changed", "name", name)},
				Condition: &event.AppendCondition{AfterPosition: m.Position, Items: items}})
			if err == nil {
				w := won{name: name, position: done[0].Position}
				for _, e := range m.Events {
					w.events = append(w.events, e.Position)
				}
				return w
			}
		}
		if !errors.Is(err, event.ErrConflict) && !errors.Is(err, event.ErrBusy) {
			f.TB.Errorf("%s: %v", name, err)
			return won{}
		}
	}
}

func (f *fixture) changes(campaign string, names int) {
	for n := range 60 {
		_, err := f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Tagged(campaign, "name.changed", "name", fmt.Sprint("name-", n%names))}})
		must.Hold(f.TB, err == nil, "change: %v", err)
	}
}

// An append that is open below the last visible event may still add events to what a writer considers read.
func TestPostgresEventsMatching_waitsForWhatIsOpenBelow(t *testing.T) {
	f := own(t)
	end := f.begun(`{"seat":"1"}`)
	f.AppendN("a", 1)
	items := []event.ConditionItem{storetest.Item("", "seat", "1")}
	m, err := f.EventsMatching(f.Ctx, items, 0, 10)
	must.Hold(t, errors.Is(err, event.ErrBusy), "%+v, %v while an append is open", m, err)
	_, err = f.Position(f.Ctx)
	must.Hold(t, errors.Is(err, event.ErrBusy), "the position is told while an append is open: %v", err)
	end("commit")
	m, err = f.EventsMatching(f.Ctx, items, 0, 10)
	must.Hold(t, err == nil && len(m.Events) == 1 && m.Position == 2, "%+v, %v", m, err)
	must.Equal(t, must.Get(f.Position(f.Ctx)).Or(t), 2, "the position")
	blockedBy(t, storetest.No(f.AppendUnless(storetest.Event("b", "counted"), 0, items...)), 1)
}
