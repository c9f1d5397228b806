package publishing

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// RelayConfig configures the subscriptions that a process delivers for. Progress, Metrics and ID
// are required; zero values of the others are the defaults.
type RelayConfig struct {
	Progress     *Progress
	Pairs        []destination.Subscription
	Metrics      *metrics.Metrics
	Logger       *slog.Logger
	ID           string              // of the process, in leases
	Options      destination.Options // options of destinations, without the journal's id; the default Logger is the relay's
	Source       string              // of the events, for receivers; empty means one derived from the journal's id
	PollInterval time.Duration       // how often the process checks which subscriptions it may claim; 0 means event.DefaultPoll
	Lease        time.Duration       // 0 means event.DefaultLease
	Clock        Clock
	// Open opens a destination; nil means destination.Subscription.Open.
	Open func(destination.Subscription, destination.Options) (destination.Publisher, error)
}

// Clock provides the waits between polls and after errors. The zero value is the real one.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) (fired <-chan time.Time, stop func())
}

func realAfter(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Relay delivers the journal's events to other systems: each leased subscription in its own
// goroutine, so that none waits for another. Several processes may run one; leases distribute the
// subscriptions over them.
type Relay struct {
	RelayConfig
	feed  *feed
	names []operator.SubscriptionName
	subs  map[operator.SubscriptionName]destination.Subscription
	wake  loop.Signal
	head  int64 // of the journal, at the last check

	mu       sync.Mutex
	held     map[operator.SubscriptionName]*delivery
	renewals time.Time // when leases were last renewed
}

// NewRelay returns a Relay. Run starts it.
func NewRelay(c RelayConfig) *Relay {
	if c.PollInterval <= 0 {
		c.PollInterval = event.DefaultPoll
	}
	if c.Lease <= 0 {
		c.Lease = event.DefaultLease
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Clock.Now == nil {
		c.Clock.Now = time.Now
	}
	if c.Clock.After == nil {
		c.Clock.After = realAfter
	}
	if c.Open == nil {
		c.Open = destination.Subscription.Open
	}
	r := &Relay{RelayConfig: c, wake: loop.NewSignal(1), held: map[operator.SubscriptionName]*delivery{}, subs: map[operator.SubscriptionName]destination.Subscription{}}
	for _, sub := range c.Pairs {
		r.names = append(r.names, sub.SubscriptionName)
		r.subs[sub.SubscriptionName] = sub
	}
	r.feed = newFeed(c.Progress.core.EventsFrom, c.Metrics.PublisherReads.Inc)
	r.feed.lineage = c.Progress.core.Lineage
	return r
}

// Wake makes every subscription check for events now, and the process for operators' actions. It
// never blocks.
func (r *Relay) Wake() {
	r.wake.Raise()
	r.wakeSubscriptions()
}

func (r *Relay) wakeSubscriptions() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.held {
		d.wake.Raise()
	}
}

// tendPause is the minimum interval between two checks of the subscriptions, however often the
// process is woken.
const tendPause = 50 * time.Millisecond

// Run delivers until ctx ends; then it lets the batches in flight end, releases the subscriptions
// and returns nil. Errors of the database and of destinations are logged and retried; they do not
// end it.
func (r *Relay) Run(ctx context.Context) error {
	if len(r.Pairs) == 0 {
		return nil
	}
	options, ok := r.start(ctx)
	if !ok {
		return nil
	}
	defer r.end()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		if err := r.manageLeases(ctx, options); err != nil && ctx.Err() == nil {
			r.Logger.Warn("publishers could not be checked; retrying", "error", err)
		}
		pause.Reset(tendPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			continue
		}
		pause.Reset(min(loop.Every(r.PollInterval)(ctx), r.Lease/3))
		select {
		case <-pause.C:
		case <-r.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// start registers the subscriptions and reads the journal's id. It waits for a database that is
// down; false means that ctx ended.
func (r *Relay) start(ctx context.Context) (options destination.Options, ok bool) {
	options = r.Options
	options.Logger, options.Published = cmp.Or(options.Logger, r.Logger), r.Metrics
	var definitions []subscription.PublisherDefinition
	for _, sub := range r.Pairs {
		definitions = append(definitions, sub.Definition())
	}
	for ctx.Err() == nil {
		err := r.Progress.Register(ctx, definitions)
		if err == nil {
			options.Journal, err = r.Progress.core.JournalID(ctx)
		}
		if err == nil {
			r.feed.source = cmp.Or(r.Source, destination.Source(options.Journal))
			return options, true
		}
		r.Logger.Warn("publishers cannot start yet; retrying", "error", err)
		select {
		case <-time.After(loop.FaultPause):
		case <-ctx.Done():
		}
	}
	return options, false
}

// manageLeases claims, requests and releases subscriptions, renews their leases, and informs
// deliveries of operators' actions.
func (r *Relay) manageLeases(ctx context.Context, options destination.Options) error {
	r.removeEnded()
	if err := r.renew(ctx); err != nil {
		return err
	}
	had := r.positions()
	states, err := r.Progress.States(ctx, r.ID, r.names)
	if err != nil {
		return err
	}
	if len(states) > 0 && states[0].Head != r.head { // other processes append without waking this one
		r.head = states[0].Head
		r.wakeSubscriptions()
	}
	var faults []error
	for _, state := range states {
		faults = append(faults, r.settle(ctx, state, had[state.SubscriptionName], options))
	}
	return errors.Join(faults...)
}

// positions are those that the held subscriptions have saved.
func (r *Relay) positions() map[operator.SubscriptionName]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	saved := make(map[operator.SubscriptionName]int64, len(r.held))
	for name, d := range r.held {
		saved[name] = d.beat().Lease.Position
	}
	return saved
}

func (r *Relay) removeEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, d := range r.held {
		select {
		case <-d.ended:
			delete(r.held, name)
		default:
		}
	}
}

// settle handles one subscription. saved is the position that its delivery here had saved before the
// state was read.
func (r *Relay) settle(ctx context.Context, state State, saved int64, options destination.Options) error {
	d := r.delivery(state.SubscriptionName)
	if d != nil && d.update(state, saved) {
		return nil
	}
	switch state.Prospect {
	case ProspectClaim:
		if d == nil {
			return r.claim(ctx, state, options)
		}
	case ProspectAsk:
		if !r.subs[state.SubscriptionName].HangingSince().IsZero() {
			return nil // it could not deliver here
		}
		return r.Progress.AskFor(ctx, r.ID, state.SubscriptionName)
	case ProspectHold, ProspectYield:
		if d == nil { // its delivery ended without releasing it
			err := r.Progress.Release(ctx, Lease{SubscriptionName: state.SubscriptionName, Owner: r.ID, Epoch: state.Epoch})
			if err == nil {
				r.wake.Raise() // to claim it again, unless another process does
			}
			return err
		}
	}
	return nil
}

func (r *Relay) delivery(name operator.SubscriptionName) *delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[name]
}

// claim claims a subscription and starts delivering.
func (r *Relay) claim(ctx context.Context, state State, options destination.Options) error {
	began, lineage := time.Now(), r.Progress.core.Lineage()
	lease, ok, err := r.Progress.Claim(ctx, r.ID, state.SubscriptionName, r.Lease)
	if err != nil || !ok {
		return err
	}
	sub := r.subs[state.SubscriptionName]
	to := &lazyPublisher{open: func() (destination.Publisher, error) { return r.Open(sub, options) }}
	work, lost := context.WithCancelCause(context.WithoutCancel(ctx))
	calls, cutOff := context.WithCancel(work)
	d := &delivery{Relay: r, sub: sub, to: to, lease: lease, lineage: lineage, lost: lost, cutOff: cutOff, scanned: lease.Position, actions: state.Actions, known: state.Actions, retryAt: state.RetryAt,
		log:  r.Logger.With("topic", sub.Topic, "publisher", sub.Publisher),
		wake: loop.NewSignal(1), steered: loop.NewSignal(1), yield: make(chan struct{}), ended: make(chan struct{})}
	if lease.From != "" {
		r.Metrics.PublisherTakenOver.WithLabelValues(sub.Topic, sub.Publisher).Inc()
		d.log.Warn("took over a publisher whose holder died or lost the database", "from", lease.From, "lease_over_for", lease.Over, "position", lease.Position)
	}
	d.expiry = time.AfterFunc(r.Lease, func() { lost(errLeaseExpired) })
	d.extend(began)
	r.mu.Lock()
	r.held[sub.SubscriptionName] = d
	r.mu.Unlock()
	go func() {
		defer lost(nil)
		defer d.expiry.Stop()
		d.run(work, calls)
		r.wake.Raise()
	}()
	return nil
}

// lazyPublisher opens its publisher at the first delivery, so that a failure to open is a delivery
// error like any other.
type lazyPublisher struct {
	open func() (destination.Publisher, error)
	destination.Publisher
}

func (d *lazyPublisher) opened() (destination.Publisher, error) {
	if d.Publisher == nil {
		to, err := d.open()
		if err != nil {
			return nil, err
		}
		d.Publisher = to
	}
	return d.Publisher, nil
}

// Publish implements destination.Publisher.
func (d *lazyPublisher) Publish(ctx context.Context, events []*destination.Event) (int, error) {
	to, err := d.opened()
	if err != nil {
		return 0, err
	}
	return to.Publish(ctx, events)
}

// Close implements destination.Publisher.
func (d *lazyPublisher) Close() error {
	if d.Publisher == nil {
		return nil
	}
	return d.Publisher.Close()
}

// update informs a delivery of its subscription's state, and reports whether it may continue.
func (d *delivery) update(state State, saved int64) bool {
	lease := d.beat().Lease
	switch {
	// It was claimed by another process, or moved, or the database has lost the lease or its progress.
	case lease.Epoch != state.Epoch, state.Position < saved:
		d.lost(event.ErrLeaseLost)
		return false
	case state.Prospect == ProspectYield:
		d.giveBack()
	default:
		d.mu.Lock()
		known := d.known
		d.known = state.Actions
		d.mu.Unlock()
		if known != state.Actions {
			d.steered.Raise()
		}
	}
	return true
}

// renew extends the leases of all held subscriptions when due, or when a call hangs or does not hang
// any more.
func (r *Relay) renew(ctx context.Context) error {
	r.mu.Lock()
	began := time.Now()
	due := began.Sub(r.renewals) >= r.Lease/4 && len(r.held) > 0
	deliveries := make(map[operator.SubscriptionName]*delivery, len(r.held))
	var beats []Beat
	for name, d := range r.held {
		deliveries[name] = d
		beat := d.beat()
		beats = append(beats, beat)
		due = due || !beat.HangingSince.Equal(d.hanging)
	}
	r.mu.Unlock()
	if !due {
		return nil
	}
	lost, err := r.Progress.Renew(ctx, beats, r.Lease)
	if err != nil {
		return err
	}
	r.renewals = began
	for _, name := range lost {
		deliveries[name].lost(event.ErrLeaseLost)
		delete(deliveries, name)
	}
	for _, beat := range beats {
		if d := deliveries[beat.Lease.SubscriptionName]; d != nil {
			d.hanging = beat.HangingSince
			d.extend(began)
		}
	}
	return nil
}

// end releases all subscriptions.
func (r *Relay) end() {
	r.mu.Lock()
	deliveries := make([]*delivery, 0, len(r.held))
	for _, d := range r.held {
		d.giveBack()
		deliveries = append(deliveries, d)
	}
	r.mu.Unlock()
	for _, d := range deliveries {
		<-d.ended
	}
}
