package publishing

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
	"outboxweb/internal/store"
)

// Lease is the right to deliver for a subscription until the lease ends. A call with a
// lease whose epoch is no longer the subscription's is outbox.ErrLeaseLost and changes
// nothing: the caller drops what it has.
type Lease struct {
	outbox.SubscriptionName
	Owner    string
	Epoch    int64 // the fencing number
	Position int64 // as of the claim, and then of the last Advance
}

// State is how a subscription stands for the process that asks.
type State struct {
	outbox.SubscriptionName
	Epoch      int64
	Position   int64
	Status     outbox.PublisherStatus
	ErrorCount int
	RetryAt    time.Time // not before it; zero when nothing is wrong
	Actions    int64     // operators' actions so far: another number means that one came between
	Prospect   Prospect
	Head       int64 // the journal's last position that can be seen
}

// Prospect is what a process may do about a subscription now.
type Prospect int

// The prospects of a subscription.
const (
	ProspectLeave Prospect = iota // others have it, or nobody may
	ProspectClaim                 // nobody has it
	ProspectAsk                   // another process has it, and more than its share
	ProspectHold                  // the process has it
	ProspectYield                 // it has it, and is to give it to another that asks, or to nobody
)

// askedFor is how long a request of another process for a subscription stands.
const askedFor = 15 * time.Second

// insertPublisher makes a new subscription. Another process may be faster.
const insertPublisher = `
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $7)
on conflict (topic, publisher) do nothing`

// Register makes the subscriptions that are new, and notes what is new about the others;
// where they stand does not change. Pairs that are no longer configured stay as
// they are.
func (pr *Progress) Register(ctx context.Context, subs []outbox.PublisherDefinition) error {
	if len(subs) == 0 {
		return nil
	}
	// Positions below the last one may be drawn and not be visible yet. Who
	// begins behind the last one must not begin before them.
	err := pr.core.Journal().WriteFrom(ctx, sqldb.BeginSettled, func(core *store.Tx) error {
		t := &tx{core}
		now := pr.core.Now()
		head, err := t.HeadPosition()
		if err != nil {
			return err
		}
		for _, d := range byName(subs, func(d outbox.PublisherDefinition) outbox.SubscriptionName { return d.SubscriptionName }) {
			if err := t.register(d, head, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("register publishers: %w", err)
	}
	pr.subs.Forget()
	return nil
}

func (t *tx) register(d outbox.PublisherDefinition, head, now int64) error {
	selects, err := json.Marshal(d.Match)
	if err != nil {
		return fmt.Errorf("write what topic %q selects: %w", d.Topic, err)
	}
	start := int64(0)
	if d.StartAtHead {
		start = head
	}
	made, err := t.Exec(insertPublisher, d.Topic, d.Publisher, d.Destination, string(selects), d.MaxErrors, start, now)
	if err != nil || made > 0 {
		return err
	}
	p, err := t.publisher(d.SubscriptionName)
	if err != nil {
		return err
	}
	before, err := json.Marshal(p.match)
	if err != nil || string(before) == string(selects) && p.destination == d.Destination && p.maxErrors == int64(d.MaxErrors) {
		return err
	}
	p.destination, p.match, p.maxErrors = d.Destination, d.Match, int64(d.MaxErrors)
	return t.save(p, now)
}

// States tells a process how the subscriptions that it is configured for stand, in the
// order of their names, and what it may do about each.
func (pr *Progress) States(ctx context.Context, owner string, configured []outbox.SubscriptionName) ([]State, error) {
	var states []State
	err := pr.read(ctx, func(t *tx) error {
		all, err := t.publishers()
		if err != nil {
			return err
		}
		states = prospects(all, owner, configured, pr.core.Now())
		head, err := t.HeadPosition()
		for i := range states {
			states[i].Head = head
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at publishers: %w", err)
	}
	return states, nil
}

// Actions counts what operators have done to a subscription.
func (pr *Progress) Actions(ctx context.Context, name outbox.SubscriptionName) (actions int64, err error) {
	err = pr.read(ctx, func(t *tx) error {
		_, err := t.One([]any{&actions}, `select acts from publisher_progress where topic = $1 and publisher = $2`, name.Topic, name.Publisher)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look for acts on publisher %s: %w", name, err)
	}
	return actions, nil
}

// prospects judges subscriptions for an owner. At most one of them is to be asked for.
func prospects(all []*publisherRow, owner string, configured []outbox.SubscriptionName, now int64) []State {
	var states []State
	holdings := map[string]int{}
	for _, p := range all { // what is asked for counts as given already
		switch {
		case p.wanted(now) && !p.idle():
			holdings[p.wantedBy]++
		case p.leased(now):
			holdings[p.owner]++
		}
	}
	asked := false
	for _, p := range all {
		if !slices.Contains(configured, p.SubscriptionName) {
			continue
		}
		is := p.prospect(owner, now)
		if is == ProspectLeave && !asked && p.worthAsking(holdings, owner, now) {
			is, asked = ProspectAsk, true
		}
		states = append(states, State{SubscriptionName: p.SubscriptionName, Epoch: p.epoch, Position: p.position, Status: p.status,
			ErrorCount: int(p.errors), RetryAt: sqldb.At(p.retryAt.Int64), Actions: p.actions, Prospect: is})
	}
	return states
}

// prospect says what a process may do about the subscription, whatever others hold.
func (p *publisherRow) prospect(owner string, now int64) Prospect {
	wanted := p.wanted(now) && p.wantedBy != owner
	switch {
	case p.owner == owner && (wanted || p.idle()):
		return ProspectYield
	case p.owner == owner:
		return ProspectHold
	case p.idle() || p.leased(now) || wanted && p.owner == "":
		return ProspectLeave
	default:
		return ProspectClaim
	}
}

// worthAsking reports whether the process that has the subscription has at least two
// more than the one that would ask.
func (p *publisherRow) worthAsking(holdings map[string]int, owner string, now int64) bool {
	return p.leased(now) && !p.idle() && !p.wanted(now) && holdings[p.owner] >= holdings[owner]+2
}

// wanted reports whether a process waits for the subscription to be given to it.
func (p *publisherRow) wanted(now int64) bool {
	return p.wantedBy != "" && now-p.wantedAt < askedFor.Microseconds()
}

// idle reports whether there is nothing to be done for the subscription until an
// operator says so.
func (p *publisherRow) idle() bool { return p.status == outbox.PublisherPaused || p.stopped }

// AskFor tells the process that has the subscription that owner would take it. It may
// come to nothing.
func (pr *Progress) AskFor(ctx context.Context, owner string, name outbox.SubscriptionName) error {
	return pr.withPublisher(ctx, "ask for", name, func(p *publisherRow, now int64) error {
		if p.leased(now) && p.owner != owner {
			p.wantedBy, p.wantedAt = owner, now
		}
		return nil
	})
}

// withPublisher changes a subscription in a transaction of its own.
func (pr *Progress) withPublisher(ctx context.Context, what string, name outbox.SubscriptionName, change func(p *publisherRow, now int64) error) error {
	err := pr.write(ctx, func(t *tx) error {
		p, err := t.publisher(name)
		if err != nil {
			return err
		}
		now := pr.core.Now()
		if err := change(p, now); err != nil {
			return err
		}
		return t.save(p, now)
	})
	if err != nil {
		return fmt.Errorf("%s publisher %s: %w", what, name, err)
	}
	return nil
}

// errTaken ends the claim of a subscription that somebody else was faster with.
var errTaken = errors.New("the pair is taken")

// Claim takes a subscription that nobody holds. False means that somebody does by now, or
// that it is not to be held.
func (pr *Progress) Claim(ctx context.Context, owner string, name outbox.SubscriptionName, lease time.Duration) (Lease, bool, error) {
	var claimed Lease
	err := pr.withPublisher(ctx, "claim", name, func(p *publisherRow, now int64) error {
		if p.prospect(owner, now) != ProspectClaim {
			return errTaken
		}
		p.revoke()
		p.owner, p.expires, p.wantedBy, p.wantedAt = owner, now+lease.Microseconds(), "", 0
		claimed = Lease{SubscriptionName: name, Owner: owner, Epoch: p.epoch, Position: p.position}
		return nil
	})
	if errors.Is(err, errTaken) {
		return Lease{}, false, nil
	}
	return claimed, err == nil, err
}

// byName puts what is to be changed of several subscriptions in the order in which all
// transactions change them, so that none waits for another that waits for it.
func byName[T any](all []T, name func(T) outbox.SubscriptionName) []T {
	return slices.SortedFunc(slices.Values(all), func(a, b T) int {
		return cmp.Or(cmp.Compare(name(a).Topic, name(b).Topic), cmp.Compare(name(a).Publisher, name(b).Publisher))
	})
}

// Beat is what the holder of a subscription says about it from time to time.
type Beat struct {
	Lease           Lease
	NextPoll        time.Time // zero while it delivers
	EventsPerSecond float64
}

const renewPublisher = `
update publisher_progress
set lease_expires_at = $5, next_poll_at = $6, events_per_second = $7
where topic = $1
  and publisher = $2
  and lease_owner = $3
  and lease_epoch = $4`

// Renew lengthens leases, and returns the subscriptions that are lost.
func (pr *Progress) Renew(ctx context.Context, beats []Beat, lease time.Duration) (lost []outbox.SubscriptionName, err error) {
	err = pr.write(ctx, func(t *tx) error {
		lost = nil
		until := pr.core.Now() + lease.Microseconds()
		var b sqldb.Batch
		for _, beat := range byName(beats, func(beat Beat) outbox.SubscriptionName { return beat.Lease.SubscriptionName }) {
			l := beat.Lease
			b.Exec(func(n int64) error {
				if n == 0 {
					lost = append(lost, l.SubscriptionName)
				}
				return nil
			}, renewPublisher, l.Topic, l.Publisher, l.Owner, l.Epoch, until, sql.NullInt64{Int64: sqldb.Micros(beat.NextPoll), Valid: !beat.NextPoll.IsZero()}, beat.EventsPerSecond)
		}
		return t.RunAll(&b)
	})
	if err != nil {
		return nil, fmt.Errorf("renew the leases of publishers: %w", err)
	}
	return lost, nil
}

// Advance is how far a holder has come since its last advance.
type Advance struct {
	Position        int64 // everything of the topic up to here is delivered
	LastDelivered   int64 // position of the last event delivered; 0 when none was
	Delivered       int64 // events
	EventsPerSecond float64
	Lease           time.Duration // from now
}

// A subscription whose destination takes events again has got over its errors.
const (
	advancePublisher = advance + advanceHeld

	advanceDelivering = advance + `, last_published_at = $9,
  delivered_position = $10, delivered = delivered + $11,
  error_count = 0, error_position = 0, retry_at = null, stopped = 0,
  status = case when status = 'failed' then 'active' else status end` + advanceHeld

	advance = `
update publisher_progress
set position = $6, events_per_second = $7, lease_expires_at = $8, updated_at = $9`

	advanceHeld = `
where topic = $1
  and publisher = $2
  and lease_owner = $3
  and lease_epoch = $4
  and position = $5
returning acts`
)

// Advance moves the position of a subscription on, from where the lease knows it, and
// lengthens the lease. It returns the number of operators' actions so far. Nothing
// moves a position back.
func (pr *Progress) Advance(ctx context.Context, l *Lease, a Advance) (actions int64, err error) {
	if a.Position <= l.Position {
		return 0, fmt.Errorf("publisher %s cannot advance from position %d to %d", l.SubscriptionName, l.Position, a.Position)
	}
	found := false
	err = pr.write(ctx, func(t *tx) error {
		now := pr.core.Now()
		query, args := advancePublisher, []any{l.Topic, l.Publisher, l.Owner, l.Epoch, l.Position, a.Position, a.EventsPerSecond, now + a.Lease.Microseconds(), now}
		if a.Delivered > 0 {
			query, args = advanceDelivering, append(args, a.LastDelivered, a.Delivered)
		}
		found, err = t.One([]any{&actions}, query, args...)
		return err
	})
	if err == nil && !found {
		err = outbox.ErrLeaseLost
	}
	if err != nil {
		return 0, fmt.Errorf("advance publisher %s: %w", l.SubscriptionName, err)
	}
	l.Position = a.Position
	return actions, nil
}

// Failure is an error of a delivery and its consequences.
type Failure struct {
	Kind     outbox.DeliveryErrorKind
	Message  string // in full
	Position int64  // of the event that was not delivered
	// Pause is the wait after so many errors in a row, and FailedRetry that of
	// a subscription that has failed; RetryAfter is the least the destination asked for.
	Pause       outbox.Retry
	FailedRetry time.Duration
	RetryAfter  time.Duration
	Gone        bool // the destination does not want to be asked again
}

// maxDeliveryError is how much of an error is kept, in bytes.
const maxDeliveryError = 16 << 10

// Fail notes that an event could not be delivered. After as many errors in a row
// as the subscription may have it has failed, and is tried again seldom; the position
// does not move. It returns how the subscription stands then.
func (pr *Progress) Fail(ctx context.Context, l Lease, f Failure) (State, error) {
	var state State
	err := pr.withPublisher(ctx, "note an error of", l.SubscriptionName, func(p *publisherRow, now int64) error {
		if p.owner != l.Owner || p.epoch != l.Epoch || p.position != l.Position {
			return outbox.ErrLeaseLost
		}
		p.fail(f, now)
		state = State{SubscriptionName: p.SubscriptionName, Epoch: p.epoch, Position: p.position, Status: p.status,
			ErrorCount: int(p.errors), RetryAt: sqldb.At(p.retryAt.Int64), Actions: p.actions, Prospect: p.prospect(l.Owner, now)}
		return nil
	})
	return state, err
}

func (p *publisherRow) fail(f Failure, now int64) {
	p.errors++
	p.errorKind, p.lastError, p.errorPosition = f.Kind, sqldb.Storable(sqldb.Clip(f.Message, maxDeliveryError)), f.Position
	p.lastErrorAt = sql.NullInt64{Int64: now, Valid: true}
	wait := f.Pause.Delay(int(p.errors))
	if p.errors >= p.maxErrors || f.Gone {
		wait = f.FailedRetry
		if p.status == outbox.PublisherActive {
			p.status = outbox.PublisherFailed
		}
	}
	p.stopped, p.retryAt = f.Gone, sql.NullInt64{}
	if !f.Gone {
		p.retryAt = sql.NullInt64{Int64: now + max(wait, f.RetryAfter).Microseconds(), Valid: true}
	}
	p.perSecond = 0
}

// Release gives a subscription back, for others to take at once. One that is lost is left
// alone.
func (pr *Progress) Release(ctx context.Context, l Lease) error {
	return pr.withPublisher(ctx, "release", l.SubscriptionName, func(p *publisherRow, _ int64) error {
		if p.owner == l.Owner && p.epoch == l.Epoch {
			p.revoke()
		}
		return nil
	})
}
