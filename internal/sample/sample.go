// Package sample makes up a journal that looks like the work of a game server:
// campaigns with players, characters, sessions and scenes, interleaved in
// global time order. Everything in it is invented; the builtin:campaigns
// projections understand it.
package sample

import (
	"container/heap"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// window is the time before Config.End in which the campaigns are played.
const window = 72 * time.Hour

// smallestPoisoned is the number of events a campaign needs to carry a
// poisonous one: its creation, a seat, and the second seat for one user.
const smallestPoisoned = 3

// Config says what to make up. The same Config gives the same journal.
type Config struct {
	Campaigns int
	Events    int // over all campaigns; at least one each
	Poison    int // campaigns that carry an event that cannot be applied
	Seed      uint64
	End       time.Time // when the last events happen
}

// Validate reports what is wrong with a Config, as an *event.Refusal whose
// Field is the name of the flag at fault.
func (c Config) Validate() error {
	switch {
	case c.Campaigns < 1:
		return event.Invalid("campaigns", "--campaigns must be 1 or more")
	case c.Events < c.Campaigns:
		return event.Invalid("events", "--events %d is too few for %d campaigns; each needs at least one", c.Events, c.Campaigns)
	case c.Poison < 0 || c.Poison > c.Campaigns:
		return event.Invalid("poison", "--poison must lie between 0 and --campaigns (%d)", c.Campaigns)
	case c.Events < c.Campaigns+c.Poison*(smallestPoisoned-1):
		return event.Invalid("events", "--events %d is too few for %d campaigns of which %d carry a poisonous event", c.Events, c.Campaigns, c.Poison)
	}
	return nil
}

// Events yields the journal in global time order, seq and event_id included.
// The Config must be valid. Memory grows with campaigns, not with events.
func Events(c Config) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		tables := newTimeline(c)
		for tables.Len() > 0 {
			next := tables.campaigns[0]
			if !yield(next.event()) {
				return
			}
			if next.seq == int64(next.size) {
				heap.Pop(tables)
				continue
			}
			heap.Fix(tables, 0)
		}
	}
}

// newTimeline seats every campaign at its start, ordered by the time of its
// next event.
func newTimeline(c Config) *timeline {
	sizes := sizes(c)
	poisoned := poisoned(c, sizes)
	t := &timeline{campaigns: make([]*campaign, 0, c.Campaigns)}
	for i, size := range sizes {
		t.campaigns = append(t.campaigns, newCampaign(c, i, size, poisoned[i]))
	}
	heap.Init(t)
	return t
}

// timeline is a heap of campaigns by the time of their next event.
type timeline struct{ campaigns []*campaign }

func (t *timeline) Len() int { return len(t.campaigns) }
func (t *timeline) Less(i, j int) bool {
	a, b := t.campaigns[i], t.campaigns[j]
	if a.at.Equal(b.at) {
		return a.index < b.index
	}
	return a.at.Before(b.at)
}
func (t *timeline) Swap(i, j int) {
	t.campaigns[i], t.campaigns[j] = t.campaigns[j], t.campaigns[i]
}
func (t *timeline) Push(x any) { t.campaigns = append(t.campaigns, x.(*campaign)) }
func (t *timeline) Pop() any {
	last := len(t.campaigns) - 1
	c := t.campaigns[last]
	t.campaigns = t.campaigns[:last]
	return c
}

// sizes deals the events out to campaigns: the largest has many times what the
// median has, as in real journals. They sum to c.Events; each is at least 1.
func sizes(c Config) []int {
	spare := c.Events - c.Campaigns
	weights := make([]float64, c.Campaigns)
	var total float64
	for i := range weights {
		weights[i] = 1 / float64(i+3)
		total += weights[i]
	}
	out := make([]int, c.Campaigns)
	left := spare
	for i, w := range weights {
		share := min(left, int(float64(spare)*w/total))
		out[i] = 1 + share
		left -= share
	}
	out[0] += left
	return out
}

// poisoned picks the campaigns that carry a poisonous event, spread over the
// larger half so that enough rows wait behind each, and makes room for it in
// those that are too small.
func poisoned(c Config, sizes []int) map[int]bool {
	picked := make(map[int]bool, c.Poison)
	stride := max(1, c.Campaigns/(2*max(1, c.Poison)))
	for k := range c.Poison {
		i := k * stride
		picked[i] = true
		for sizes[i] < smallestPoisoned {
			sizes[i]++
			sizes[donor(sizes, picked)]--
		}
	}
	return picked
}

// donor is the campaign that can best spare an event.
func donor(sizes []int, picked map[int]bool) int {
	best, most := 0, -1
	for i, size := range sizes {
		least := 1
		if picked[i] {
			least = smallestPoisoned
		}
		if size-least > most {
			best, most = i, size-least
		}
	}
	return best
}

// object marshals a payload; what is given here always can be.
func object(fields map[string]any) json.RawMessage {
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return raw
}

const idLetters = "abcdefghijklmnopqrstuvwxyz234567"

// id is an identifier of n characters in the manner of the game server's own.
func id(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = idLetters[rng.IntN(len(idLetters))]
	}
	return string(b)
}
