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

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Lease is the right to deliver for a subscription until the lease expires. A call with an outdated
// epoch returns event.ErrLeaseLost and changes nothing: the caller must discard its result.
type Lease struct {
	operator.SubscriptionName
	Owner    string
	Epoch    int64 // the fencing number
	Position int64 // as of the claim, and then of the last Advance

	From string        // at the claim, who had it and did not release it; empty without one
	Over time.Duration // how long the lease of From had been over
}

// State is the state of a subscription for one process.
type State struct {
	operator.SubscriptionName
	Epoch      int64
	Position   int64
	Status     subscription.PublisherStatus
	ErrorCount int
	RetryAt    time.Time // not retried before this; zero without errors
	Actions    int64     // number of operators' actions so far, to detect new ones
	Prospect   Prospect
	Head       int64 // the journal's last visible position
}

// Prospect is what a process may do with a subscription now.
type Prospect int

// The prospects of a subscription.
const (
	ProspectLeave Prospect = iota // other processes have it, or it must not be claimed
	ProspectClaim                 // it is free to claim
	ProspectAsk                   // another process has it, and more than its share, or hangs in a call
	ProspectHold                  // this process has it
	ProspectYield                 // this process has it, and should release it for another one or for none
)

// askedFor is how long a process's request for a subscription is valid.
const askedFor = 15 * time.Second

// insertPublisher inserts a new subscription, unless another process already has.
const insertPublisher = `
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, settings)
values ($1, $2, $3, $4, $5, $6, $7, $7, $8)
on conflict (topic, publisher) do nothing`

// Register adds new subscriptions and updates the definitions of the others; positions do not
// change. Subscriptions no longer configured stay unchanged.
func (pr *Progress) Register(ctx context.Context, subs []subscription.PublisherDefinition) error {
	if len(subs) == 0 {
		return nil
	}
	// Positions below the last one may be allocated and not visible yet. A subscription that begins
	// after the last one must not begin before them.
	err := pr.core.Journal().WriteFrom(ctx, sqldb.BeginSettled, func(core *store.Tx) error {
		t := pr.in(core)
		now := pr.core.Now()
		head, err := t.HeadPosition()
		if err != nil {
			return err
		}
		for _, d := range byName(subs, func(d subscription.PublisherDefinition) operator.SubscriptionName { return d.SubscriptionName }) {
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

func (t *tx) register(d subscription.PublisherDefinition, head, now int64) error {
	selects, err := json.Marshal(d.Match)
	if err != nil {
		return fmt.Errorf("write what topic %q selects: %w", d.Topic, err)
	}
	settings, err := json.Marshal(d.Settings)
	if err != nil {
		return fmt.Errorf("write the settings of publisher %s: %w", d.SubscriptionName, err)
	}
	start := int64(0)
	if d.StartAtHead {
		start = head
	}
	made, err := t.Exec(insertPublisher, d.Topic, d.Publisher, d.Destination, string(selects), d.MaxErrors, start, now, string(settings))
	if err != nil || made > 0 {
		return err
	}
	p, err := t.publisher(d.SubscriptionName)
	if err != nil {
		return err
	}
	before, err := json.Marshal(p.match)
	if err != nil || string(before) == string(selects) && p.destination == d.Destination && p.maxErrors == int64(d.MaxErrors) && p.settings == d.Settings {
		return err
	}
	p.destination, p.match, p.maxErrors, p.settings = d.Destination, d.Match, int64(d.MaxErrors), d.Settings
	return t.save(p, now)
}

// States returns the state of the subscriptions configured for a process, sorted by name, and what
// it may do with each.
func (pr *Progress) States(ctx context.Context, owner string, configured []operator.SubscriptionName) ([]State, error) {
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
	return states, sqldb.Wrapf(err, "look at publishers")
}

// Actions returns the number of operators' actions on a subscription.
func (pr *Progress) Actions(ctx context.Context, name operator.SubscriptionName) (actions int64, err error) {
	err = pr.read(ctx, func(t *tx) error {
		_, err := t.One([]any{&actions}, `select acts from publisher_progress where topic = $1 and publisher = $2`, name.Topic, name.Publisher)
		return err
	})
	return actions, sqldb.Wrapf(err, "look for acts on publisher %s", name)
}

// prospects determines what an owner may do with subscriptions. It requests at most one from
// another process.
func prospects(all []*publisherRow, owner string, configured []operator.SubscriptionName, now int64) []State {
	var states []State
	holdings := map[string]int{}
	for _, p := range all { // a requested subscription counts as already handed over
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

// prospect returns what a process may do with the subscription, regardless of how many others have.
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

// worthAsking reports whether the subscription's holder has at least two more than the requesting
// process, or has made a call that does not return.
func (p *publisherRow) worthAsking(holdings map[string]int, owner string, now int64) bool {
	return p.leased(now) && !p.idle() && !p.wanted(now) && (p.hangingSince.Valid || holdings[p.owner] >= holdings[owner]+2)
}

// wanted reports whether another process has requested the subscription.
func (p *publisherRow) wanted(now int64) bool {
	return p.wantedBy != "" && now-p.wantedAt < askedFor.Microseconds()
}

// idle reports whether the subscription has no work until an operator acts.
func (p *publisherRow) idle() bool { return p.status == subscription.PublisherPaused || p.stopped }

// AskFor requests the subscription from its holder for owner. The request may have no effect.
func (pr *Progress) AskFor(ctx context.Context, owner string, name operator.SubscriptionName) error {
	return pr.withPublisher(ctx, "ask for", name, func(p *publisherRow, now int64) error {
		if p.leased(now) && p.owner != owner {
			p.wantedBy, p.wantedAt = owner, now
		}
		return nil
	})
}

// withPublisher changes a subscription in its own transaction.
func (pr *Progress) withPublisher(ctx context.Context, what string, name operator.SubscriptionName, change func(p *publisherRow, now int64) error) error {
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
	return sqldb.Wrapf(err, "%s publisher %s", what, name)
}

// errTaken ends what a process does with a subscription that another process claimed first.
var errTaken = errors.New("the subscription is taken")

// Claim claims a free subscription. It returns false if it is no longer free or must not be
// claimed.
func (pr *Progress) Claim(ctx context.Context, owner string, name operator.SubscriptionName, lease time.Duration) (Lease, bool, error) {
	var claimed Lease
	err := pr.withPublisher(ctx, "claim", name, func(p *publisherRow, now int64) error {
		if p.prospect(owner, now) != ProspectClaim {
			return errTaken
		}
		claimed = Lease{SubscriptionName: name, Owner: owner, From: p.owner}
		if p.owner != "" {
			claimed.Over = time.Duration(now-p.expires) * time.Microsecond
		}
		p.revoke()
		p.owner, p.expires, p.wantedBy, p.wantedAt = owner, now+lease.Microseconds(), "", 0
		claimed.Epoch, claimed.Position = p.epoch, p.position
		return nil
	})
	if errors.Is(err, errTaken) {
		return Lease{}, false, nil
	}
	return claimed, err == nil, err
}

// byName sorts changes of several subscriptions in the order that all transactions use, so that
// they cannot deadlock.
func byName[T any](all []T, name func(T) operator.SubscriptionName) []T {
	return slices.SortedFunc(slices.Values(all), func(a, b T) int {
		return cmp.Or(cmp.Compare(name(a).Topic, name(b).Topic), cmp.Compare(name(a).Publisher, name(b).Publisher))
	})
}

// Beat is a periodic report of a subscription's holder.
type Beat struct {
	Lease           Lease
	NextPoll        time.Time // at the latest; zero while it delivers, and while errors last
	EventsPerSecond float64
	HangingSince    time.Time // when the call began that does not return; zero without one
}

const renewPublisher = `
update publisher_progress
set lease_expires_at = $5, next_poll_at = $6, events_per_second = $7, hanging_since = $8
where topic = $1
  and publisher = $2
  and lease_owner = $3
  and lease_epoch = $4`

// Renew extends leases, and returns the subscriptions whose lease is lost.
func (pr *Progress) Renew(ctx context.Context, beats []Beat, lease time.Duration) (lost []operator.SubscriptionName, err error) {
	err = pr.write(ctx, func(t *tx) error {
		lost = nil
		until := pr.core.Now() + lease.Microseconds()
		var b sqldb.Batch
		for _, beat := range byName(beats, func(beat Beat) operator.SubscriptionName { return beat.Lease.SubscriptionName }) {
			l := beat.Lease
			b.Exec(func(n int64) error {
				if n == 0 {
					lost = append(lost, l.SubscriptionName)
				}
				return nil
			}, renewPublisher, l.Topic, l.Publisher, l.Owner, l.Epoch, until, sqldb.MicrosOrNull(beat.NextPoll), beat.EventsPerSecond, sqldb.MicrosOrNull(beat.HangingSince))
		}
		return t.RunAll(&b)
	})
	return lost, sqldb.Wrapf(err, "renew the leases of publishers")
}

// Advance is a holder's progress since its last advance.
type Advance struct {
	Position        int64 // all of the topic's events up to here are delivered
	LastDelivered   int64 // position of the last delivered event; 0 without one
	Delivered       int64 // events
	EventsPerSecond float64
	Lease           time.Duration // from now
}

// A subscription whose destination accepts events again has no more errors in a row.
const (
	advancePublisher = advance + advanceHeld

	advanceDelivering = advance + `, last_published_at = $9,
  delivered_position = $10, delivered = delivered + $11,
  error_count = 0, error_position = 0, retry_at = null, stopped = 0, test_taken = null,
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

// Advance advances the position of a subscription, from the lease's position, and extends the
// lease. It returns the number of operators' actions so far. It never moves a position back.
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
		err = event.ErrLeaseLost
	}
	if err != nil {
		return 0, fmt.Errorf("advance publisher %s: %w", l.SubscriptionName, err)
	}
	l.Position = a.Position
	return actions, nil
}

const saveHealth = `
update publisher_progress
set healthy = $5, health_message = $6, health_at = $7
where topic = $1
  and publisher = $2
  and lease_owner = $3
  and lease_epoch = $4`

// SaveHealth records what a publisher says of itself now to the holder of its lease: nil if it is
// healthy. It does nothing if the lease is lost, which ends what it had said.
func (pr *Progress) SaveHealth(ctx context.Context, l Lease, unhealthy error) error {
	message := ""
	if unhealthy != nil {
		message = sqldb.Storable(sqldb.Clip(unhealthy.Error(), maxDeliveryError))
	}
	err := pr.write(ctx, func(t *tx) error {
		_, err := t.Exec(saveHealth, l.Topic, l.Publisher, l.Owner, l.Epoch, sqldb.Truth(unhealthy == nil), message, pr.core.Now())
		return err
	})
	return sqldb.Wrapf(err, "save the health of publisher %s", l.SubscriptionName)
}

// Failure is a delivery error and its consequences.
type Failure struct {
	Kind     operator.DeliveryErrorKind
	Message  string // in full
	Position int64  // of the undelivered event
	// Pause is the wait after so many errors in a row, and FailedRetry that of a failed
	// subscription; RetryAfter is the minimum wait that the destination asked for.
	Pause       event.Retry
	FailedRetry time.Duration
	RetryAfter  time.Duration
	Gone        bool // the destination asked not to be called again
}

// maxDeliveryError is the maximum length of a stored error, in bytes.
const maxDeliveryError = 16 << 10

// Fail records that an event could not be delivered. After the configured number of errors in a row
// the subscription is failed and retried rarely; the position does not move. It returns the
// subscription's new state.
func (pr *Progress) Fail(ctx context.Context, l Lease, f Failure) (State, error) {
	var state State
	err := pr.withPublisher(ctx, "note an error of", l.SubscriptionName, func(p *publisherRow, now int64) error {
		if !l.holds(p) || p.position != l.Position {
			return event.ErrLeaseLost
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
	if f.Kind == operator.EventError || f.Kind != p.errorKind || f.Position != p.errorPosition {
		p.testTaken = sql.NullInt64{}
	}
	p.errorKind, p.lastError, p.errorPosition = f.Kind, sqldb.Storable(sqldb.Clip(f.Message, maxDeliveryError)), f.Position
	p.lastErrorAt = sql.NullInt64{Int64: now, Valid: true}
	wait := f.Pause.Delay(int(p.errors))
	if p.errors >= p.maxErrors || f.Gone {
		wait = f.FailedRetry
		if p.status == subscription.PublisherActive {
			p.status = subscription.PublisherFailed
		}
	}
	p.stopped, p.retryAt = f.Gone, sql.NullInt64{}
	if !f.Gone {
		p.retryAt = sql.NullInt64{Int64: now + max(wait, f.RetryAfter).Microseconds(), Valid: true}
	}
	p.perSecond, p.nextPoll = 0, sql.NullInt64{}
}

// Release releases a subscription for other processes to claim at once. It does nothing if the
// lease is lost.
func (pr *Progress) Release(ctx context.Context, l Lease) error {
	err := pr.withPublisher(ctx, "release", l.SubscriptionName, func(p *publisherRow, _ int64) error {
		if !l.holds(p) {
			return errTaken
		}
		p.revoke()
		return nil
	})
	if errors.Is(err, errTaken) {
		err = nil
	}
	return err
}

func (l Lease) holds(p *publisherRow) bool { return p.owner == l.Owner && p.epoch == l.Epoch }
