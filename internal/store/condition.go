package store

import (
	"fmt"
	"slices"
	"sort"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Limits on the cost of a search for conflicting events, since appends wait for it: an entry
// passed over costs 1, an event read costs readCost.
const (
	searchBudget = 200_000
	readCost     = 10
	countShare   = 10   // this many counted entries cost 1
	countLimit   = 1000 // paths are first compared by length up to this
)

// search looks for the first event that conflicts with an append, or collects the events that would.
type search struct {
	t      *Tx
	after  int64
	below  int64           // positions from here on no longer matter
	all    *matching       // collects; nil looks for the first
	found  *event.EventRef // at below; nil until one is found
	item   int             // index of the item that found matches
	budget int
}

// checkCondition returns an *event.Refusal: with ErrConflict when an event matches the
// condition, and with ErrInvalid when deciding that would read too much of the journal, or the
// condition's position is beyond the journal's end.
func (t *Tx) checkCondition(c *event.AppendCondition) error {
	if err := t.checkPosition(c.AfterPosition); err != nil {
		return err
	}
	s := &search{t: t, after: c.AfterPosition, below: lastPosition, budget: searchBudget}
	for i := range c.Items {
		if err := s.find(i, &c.Items[i]); err != nil {
			return err
		}
	}
	if s.found == nil {
		return nil
	}
	refusal := event.Conflict("conflicting event %d (%s, campaign %q seq %d): it came after position %d and matches item %d of the condition; read on from there and decide again",
		s.found.Position, s.found.EventType, s.found.CampaignID, s.found.Seq, s.after, s.item+1)
	refusal.BlockingEvent = s.found
	return refusal
}

// checkPosition refuses a position beyond the journal's end: events up to it could never
// conflict.
func (t *Tx) checkPosition(position int64) error {
	if position == 0 {
		return nil
	}
	last, err := t.HeadPosition()
	if err != nil {
		return err
	}
	if position > last {
		return event.Invalid("condition.after_position",
			"after_position is %d, but the journal ends at %d: it belongs to another journal, or to the time before a backup was restored; get the journal's position, read and decide again", position, last)
	}
	return nil
}

// walk reads entries of the journal in order of position: those of a tag, a type, a campaign,
// or all.
type walk struct {
	order   string // the column that it is sorted by
	entries string // the query from its "from" on; parameters are key, from, below and a limit
	key     []any
	from    int64 // the last entry to skip
}

// entry is an event as walks see it.
type entry struct {
	at        int64 // where the walk continues
	position  int64
	eventType string
}

const (
	tagged = `
from event_tags
where name = $1
  and value = $2
  and position > $3
  and position < $4
order by position
limit $5`

	ofType = `
from events
where event_type = $1
  and position > $2
  and position < $3
order by position
limit $4`

	afterSeq = `
from events
where campaign_id = $1
  and seq > $2
  and position < $3
order by seq
limit $4`

	ofAny = `
from events
where position > $1
  and position < $2
order by position
limit $3`
)

// SelectEnvelopes begins a query, for ScanEvent, for all of events but what conditions and
// publishers do not read: metadata, payload and hashes.
var SelectEnvelopes = "\nselect " + EventColumns("", "tags, '', '', '', ''") + "\nfrom events"

// Tag names and values are indexed up to this many characters.
const (
	indexedName  = 100
	indexedValue = 200
)

// TagEntry is the name and value that a tag is indexed by.
func TagEntry(name, value string) (string, string) {
	return cut(name, indexedName), cut(value, indexedValue)
}

// cut is the first limit characters of text.
func cut(text string, limit int) string {
	for i := range text {
		if limit == 0 {
			return text[:i]
		}
		limit--
	}
	return text
}

// find looks for an event of item i below the one found so far.
func (s *search) find(i int, item *event.ConditionItem) error {
	way, err := s.shortest(i, item)
	if err != nil {
		return err
	}
	for _, w := range way {
		if s.all != nil {
			s.all.count, s.all.bytes = 0, 0
		}
		if err := s.walk(w, i, item); err != nil {
			return err
		}
	}
	return nil
}

// shortest is the path over every event of the item with the fewest entries, or one that is
// short enough. A path is several walks where an event may have any of several types, and none
// where no event can match. Paths are counted in growing steps until one of them ends.
func (s *search) shortest(number int, item *event.ConditionItem) ([]walk, error) {
	ways, err := s.paths(item)
	if err != nil {
		return nil, err
	}
	if len(ways) == 1 {
		return ways[0], nil
	}
	for limit := int64(countLimit); ; limit *= 10 {
		best, fewest, err := s.compare(ways, limit)
		switch {
		case err != nil:
			return nil, err
		case fewest == 0:
			return nil, nil
		case fewest < limit || limit >= searchBudget/readCost:
			return best, nil
		}
		if s.budget -= len(ways) * int(limit) / countShare; s.budget < 0 {
			return nil, s.tooMuch(number)
		}
	}
}

// compare is the path with the fewest entries, up to limit, or the first where all have more.
func (s *search) compare(ways [][]walk, limit int64) (best []walk, fewest int64, err error) {
	best, fewest = ways[0], limit
	for _, way := range ways {
		n, err := s.length(way, fewest)
		if err != nil {
			return nil, 0, err
		}
		if n < fewest {
			best, fewest = way, n
		}
		if fewest <= firstEntries {
			break // no other path can be shorter
		}
	}
	return best, fewest, nil
}

// paths are the possible paths over every event of the item, the preferred long one first.
func (s *search) paths(item *event.ConditionItem) (ways [][]walk, err error) {
	for name, value := range item.Tags {
		if !event.EnvelopeTag(name) {
			name, value := TagEntry(name, value)
			key := []any{name, value}
			ways = append(ways, []walk{{"position", tagged, key, s.after}})
		}
	}
	if campaign, given := item.Tags["campaign_id"]; given {
		from, err := s.lastSeqBefore(campaign)
		if err != nil {
			return nil, err
		}
		ways = append(ways, []walk{{"seq", afterSeq, []any{campaign}, from}})
	}
	var types []walk
	for _, name := range item.Types() {
		types = append(types, walk{"position", ofType, []any{name}, s.after})
	}
	if types != nil {
		ways = append(ways, types)
	}
	if ways == nil {
		ways = [][]walk{{{"position", ofAny, nil, s.after}}}
	}
	return ways, nil
}

// lastSeqBefore is the seq of a campaign's last event up to the position after which the search
// starts: within a campaign positions grow with seq.
func (s *search) lastSeqBefore(campaign string) (int64, error) {
	if s.after == 0 {
		return 0, nil
	}
	var last, position int64
	_, err := s.t.One([]any{&last}, `select coalesce(max(seq), 0) from events where campaign_id = $1`, campaign)
	if err != nil {
		return 0, fmt.Errorf("read where campaign %q ends: %w", campaign, err)
	}
	return int64(sort.Search(int(last), func(i int) bool {
		if err == nil {
			_, err = s.t.One([]any{&position}, `select position from events where campaign_id = $1 and seq = $2`, campaign, i+1)
		}
		return position > s.after
	})), err
}

// length counts the entries of a path, up to most.
func (s *search) length(way []walk, most int64) (sum int64, err error) {
	for _, w := range way {
		var n int64
		if _, err := s.t.One([]any{&n}, "select count(*) from (select 1"+w.entries+") n", append(w.key[:len(w.key):len(w.key)], w.from, s.below, most-sum)...); err != nil {
			return 0, fmt.Errorf("count events that may conflict: %w", err)
		}
		if sum += n; sum >= most {
			break
		}
	}
	return sum, nil
}

// Page sizes of a walk: the first is small, since a conflicting event is often the first
// candidate.
const (
	firstEntries = 32
	mostEntries  = 1024
)

// walk reads the entries of a walk until one is an event of the item.
func (s *search) walk(w walk, number int, item *event.ConditionItem) error {
	types := item.Types()
	for limit := firstEntries; ; limit = min(2*limit, mostEntries) {
		page, err := sqldb.All(s.t, func(row sqldb.Row) (e entry, err error) {
			err = row.Scan(&e.at, &e.position, &e.eventType)
			return e, err
		}, "select "+w.order+", position, event_type"+w.entries, append(w.key[:len(w.key):len(w.key)], w.from, s.below, limit)...)
		if err != nil {
			return fmt.Errorf("look for conflicting events: %w", err)
		}
		var candidates []int64
		for _, e := range page {
			if len(types) == 0 || slices.Contains(types, e.eventType) {
				candidates = append(candidates, e.position)
			}
		}
		found, err := s.verify(candidates, number, item)
		if err != nil || found || len(page) < limit {
			return err
		}
		w.from = page[len(page)-1].at
		if s.budget -= len(page) - len(candidates); s.budget < 0 {
			return s.tooMuch(number)
		}
	}
}

// verify reads the events at the positions, in ascending order, until one matches the item: the
// conflicting event.
func (s *search) verify(positions []int64, number int, item *event.ConditionItem) (bool, error) {
	for some := range slices.Chunk(positions, firstEntries) {
		var b sqldb.Batch
		var events []event.Event
		for _, position := range some {
			b.Each(sqldb.Collect(&events, scanEvent), s.selectEvent(), position)
		}
		if err := s.t.RunAll(&b); err != nil {
			return false, fmt.Errorf("read events that may conflict: %w", err)
		}
		for i := range events {
			switch {
			case !item.Matches(&events[i]):
			case s.all != nil:
				if s.all.add(&events[i]) {
					return true, nil
				}
			default:
				ref := events[i].Ref()
				s.found, s.item, s.below = &ref, number, ref.Position
				return true, nil
			}
		}
		if s.budget -= readCost * len(some); s.budget < 0 {
			return false, s.tooMuch(number)
		}
	}
	return false, nil
}

func (s *search) tooMuch(number int) error {
	return event.Invalid(fmt.Sprintf("condition.items[%d]", number),
		"more than %d events after position %d would have to be read to check item %d of the condition; add an event type, a tag or a campaign, or use a later after_position",
		searchBudget/readCost, s.after, number+1)
}
