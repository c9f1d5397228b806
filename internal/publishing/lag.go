package publishing

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// envelopesAtOnce is how many events one statement reads.
const envelopesAtOnce = 2000

// waiting is a subscription's backlog as far as it was examined. capped means that there is more to
// examine.
type waiting struct {
	events int64
	capped bool
	oldest sql.NullInt64 // when the first was recorded
}

type subscriptionState struct {
	*publisherRow
	waiting
	head       int64
	errorEvent *event.EventRef
	failing    sql.NullInt64 // since when, as samples have it
}

func (p *subscriptionState) view(now int64) subscription.Publisher {
	v := p.publisherRow.view(now)
	v.HeadPosition, v.LagEvents, v.LagCapped, v.ErrorEvent = p.head, p.events, p.capped, p.errorEvent
	if p.failing.Valid && p.failing.Int64 >= p.lastPublished.Int64 {
		v.FailingSince = sqldb.AtOrNil(sql.NullInt64{Int64: min(p.failing.Int64, p.lastErrorAt.Int64), Valid: true})
	}
	if p.oldest.Valid {
		v.LagSeconds = max(0, float64(now-p.oldest.Int64)/1e6)
	}
	v.StateAsRead, v.WhyAsRead = v.State(sqldb.At(now)), v.Why(sqldb.At(now))
	return v
}

// Publishers lists all subscriptions by name with their lags, at most a second old. The result is
// shared and must not be changed.
func (pr *Progress) Publishers(ctx context.Context) ([]subscription.Publisher, error) {
	all, err := pr.subs.Get(ctx, func() ([]subscription.Publisher, error) {
		return pr.readPublishers(context.WithoutCancel(ctx))
	})
	return all, sqldb.Wrapf(err, "list publishers")
}

// Page returns a page of what Publishers returns.
func (pr *Progress) Page(ctx context.Context, f subscription.PublisherFilter) (page event.Page[subscription.Publisher], err error) {
	shared, err := pr.Publishers(ctx)
	if err != nil {
		return page, err
	}
	all, now := slices.Clone(shared), sqldb.At(pr.core.Now())
	l := sqldb.List[subscription.Publisher]{Name: "publishers", Low: []any{""}, Key: func(p subscription.Publisher) []any { return []any{f.Key(p, now)} }}
	if f.ByState {
		l.Name = "publishers by state"
		subscription.SortPublishers(all, now)
	}
	return l.Among(all, f.Cursor, f.Limit)
}

func (pr *Progress) readPublishers(ctx context.Context) ([]subscription.Publisher, error) {
	all := []subscription.Publisher{}
	err := pr.read(ctx, func(t *tx) error {
		subs, err := t.subscriptionStates()
		now := pr.core.Now()
		for i := range subs {
			all = append(all, subs[i].view(now))
		}
		return err
	})
	if err != nil {
		return all, err
	}
	return all, pr.addHolders(ctx, all)
}

// addHolders adds what is known of the processes that hold the subscriptions. One that was killed does
// nothing any more, though its leases go on.
func (pr *Progress) addHolders(ctx context.Context, all []subscription.Publisher) error {
	processes, err := pr.core.Processes(ctx)
	if err != nil {
		return err
	}
	now := sqldb.At(pr.core.Now())
	for i := range all {
		p := &all[i]
		if n := slices.IndexFunc(processes, func(s campaign.InstanceState) bool { return p.Lease != nil && s.ID == p.Lease.Owner }); n >= 0 {
			p.Holder = &processes[n]
		}
		if p.HolderGone(now) {
			p.EventsPerSecond, p.NextPollAt = 0, nil
			p.Healthy, p.HealthMessage, p.HealthAt, p.HangingSince = nil, "", nil, nil
		}
		p.StateAsRead, p.WhyAsRead = p.State(now), p.Why(now)
	}
	return nil
}

// Publisher reads a subscription with its lag. A missing one is event.ErrNotFound.
func (pr *Progress) Publisher(ctx context.Context, name operator.SubscriptionName) (v subscription.Publisher, err error) {
	err = pr.read(ctx, func(t *tx) error {
		p, err := t.publisher(name)
		if err != nil {
			return err
		}
		v, err = t.view(p, pr.core.Now())
		return err
	})
	if err != nil {
		return v, err
	}
	one := []subscription.Publisher{v}
	err = pr.addHolders(ctx, one)
	return one[0], err
}

func (t *tx) view(p *publisherRow, now int64) (subscription.Publisher, error) {
	states, err := t.stateOf([]*publisherRow{p})
	if err != nil {
		return subscription.Publisher{}, err
	}
	return states[0].view(now), nil
}

func (t *tx) subscriptionStates() ([]subscriptionState, error) {
	rows, err := t.publishers()
	if err != nil {
		return nil, err
	}
	return t.stateOf(rows)
}

// stateOf adds what the journal tells about subscriptions.
func (t *tx) stateOf(rows []*publisherRow) ([]subscriptionState, error) {
	head, err := t.HeadPosition()
	if err != nil {
		return nil, err
	}
	lags, err := t.lags(rows, head)
	if err != nil {
		return nil, fmt.Errorf("look through the events after the positions of publishers: %w", err)
	}
	states := make([]subscriptionState, len(rows))
	for i, p := range rows {
		states[i] = subscriptionState{publisherRow: p, waiting: lags[i], head: head}
		if states[i].errorEvent, err = t.eventRef(p.errorPosition); err != nil {
			return nil, err
		}
		if p.errors > 0 {
			if _, err := t.One([]any{&states[i].failing}, selectFailing, p.Topic, p.Publisher); err != nil {
				return nil, fmt.Errorf("read since when publisher %s has failed: %w", p.SubscriptionName, err)
			}
		}
	}
	return states, nil
}

// eventRef returns the event at a position; nil if there is none.
func (t *tx) eventRef(position int64) (*event.EventRef, error) {
	if position == 0 {
		return nil, nil
	}
	e := event.EventRef{Position: position}
	found, err := t.One([]any{&e.CampaignID, &e.Seq, &e.EventType}, `select campaign_id, seq, event_type from events where position = $1`, position)
	if err != nil || !found {
		return nil, sqldb.Wrapf(err, "read the event at position %d", position)
	}
	return &e, nil
}

// lags returns the backlog of each of the subscriptions.
func (t *tx) lags(subs []*publisherRow, head int64) ([]waiting, error) {
	lags := make([]waiting, len(subs))
	whole := map[int64]waiting{} // by position, for subscriptions without a match
	var chosen []*lagging
	for i, p := range subs {
		switch {
		case p.position >= head:
		case p.match.All():
			w, known := whole[p.position]
			if !known {
				var err error
				if w, err = t.countAll(p.position, head); err != nil {
					return nil, err
				}
				whole[p.position] = w
			}
			lags[i] = w
		default:
			chosen = append(chosen, &lagging{waiting: &lags[i], position: p.position, match: p.match})
		}
	}
	return lags, t.countChosen(chosen, head)
}

const countEvents = `
select count(*)
from (
  select 1
  from events
  where position between $1 and $2
  order by position
  limit $3
) as e`

// countAll counts the events after a position, up to the lag's window.
func (t *tx) countAll(after, head int64) (w waiting, err error) {
	if _, err = t.One([]any{&w.events}, countEvents, after+1, head, t.looks.window+1); err != nil {
		return w, err
	}
	if w.capped = w.events > t.looks.window; w.capped {
		w.events = t.looks.window
	}
	_, w.oldest.Int64, w.oldest.Valid, err = t.firstFrom(after + 1)
	return w, err
}

// firstFrom returns the first event at or after a position, and when it was recorded.
func (t *tx) firstFrom(from int64) (position, recorded int64, found bool, err error) {
	found, err = t.One([]any{&position, &recorded}, `select position, recorded_at from events where position >= $1 order by position limit 1`, from)
	return position, recorded, found, err
}

// lagging is a subscription whose events are counted.
type lagging struct {
	*waiting
	position int64
	match    subscription.Match
	sort     int // number of its match; equal matches are evaluated once
	looked   int64
}

// countChosen counts for each of the subscriptions the events that its match selects. Ranges shared
// by several subscriptions are read once.
func (t *tx) countChosen(subs []*lagging, head int64) error {
	slices.SortStableFunc(subs, func(a, b *lagging) int { return cmp.Compare(a.position, b.position) })
	if err := sortMatches(subs); err != nil {
		return err
	}
	window := t.looks.windowFor(subs, head)
	known := make([]selection, len(subs))
	for len(subs) > 0 {
		active, next := []*lagging(nil), subs
		err := t.envelopes(subs[0].position, head, func(e *event.Event) bool {
			for len(next) > 0 && next[0].position < e.Position {
				active, next = append(active, next[0]), next[1:]
			}
			active = slices.DeleteFunc(active, func(l *lagging) bool {
				l.measure(e, known)
				l.capped = l.looked == window && e.Position < head
				return l.looked == window
			})
			return len(active) > 0
		})
		if err != nil {
			return err
		}
		subs = next
	}
	return nil
}

// selection is whether a match selects the event at a position.
type selection struct {
	position int64
	matches  bool
}

func (l *lagging) measure(e *event.Event, known []selection) {
	l.looked++
	v := &known[l.sort]
	if v.position != e.Position {
		*v = selection{e.Position, l.match.Matches(e)}
	}
	if !v.matches {
		return
	}
	if l.events++; !l.oldest.Valid {
		l.oldest = sql.NullInt64{Int64: e.RecordedAt.UnixMicro(), Valid: true}
	}
}

// sortMatches numbers the distinct matches.
func sortMatches(subs []*lagging) error {
	numbers := map[string]int{}
	for _, l := range subs {
		text, err := json.Marshal(l.match)
		if err != nil {
			return err
		}
		n, known := numbers[string(text)]
		if !known {
			n = len(numbers)
			numbers[string(text)] = n
		}
		l.sort = n
	}
	return nil
}

// windowFor returns how many events to examine for each of the subscriptions, which are sorted by
// position.
func (k looks) windowFor(subs []*lagging, head int64) int64 {
	for window := k.window; ; window /= 2 {
		events, end := int64(0), int64(0)
		for _, l := range subs {
			until := min(head, l.position+window)
			events += max(0, until-max(l.position, end))
			end = max(end, until)
		}
		if events <= k.together || window/2 < k.least {
			return window
		}
	}
}

var selectEnvelopes = store.SelectEnvelopes + `
where position between $1 and $2
order by position
limit $3`

// envelopes calls look for the events after a position up to another, in order, until it returns
// false.
func (t *tx) envelopes(after, upTo int64, look func(*event.Event) bool) error {
	for after < upTo {
		count, ended := 0, false
		err := t.Each(func(row sqldb.Row) error {
			e, err := store.ScanEvent(row)
			if err != nil {
				return err
			}
			count++
			after = e.Position
			if ended = !look(&e); ended {
				return sqldb.ErrEnough
			}
			return nil
		}, selectEnvelopes, after+1, upTo, int64(envelopesAtOnce))
		if err != nil || ended || count < envelopesAtOnce {
			return err
		}
	}
	return nil
}
