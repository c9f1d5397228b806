package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"outboxweb/internal/loop"
	"outboxweb/internal/metrics"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publish"
	"outboxweb/internal/publishing"
	"outboxweb/internal/store"
)

// PublishingConfig says which pairs a process delivers for, and how. Store,
// Progress, Metrics and ID are required; other zero values are the defaults.
type PublishingConfig struct {
	Store        *store.Store
	Progress     *publishing.Progress
	Pairs        []publish.Pair
	Metrics      *metrics.Metrics
	Logger       *slog.Logger
	ID           string        // of the process, in leases
	Build        string        // version of the program
	Source       string        // of the events, for receivers; empty means one made of the journal's id
	PollInterval time.Duration // how often the process looks which pairs it may take; 0 means 2 s
	Lease        time.Duration // 0 means 30 s
	Clock        Clock
	// Open opens a destination; nil means publish.Pair.Open.
	Open func(publish.Pair, publish.Options) (publish.Publisher, error)
}

// Clock is where the waits between polls and after errors come from. The zero
// value is the real one.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) (fired <-chan time.Time, stop func())
}

func realAfter(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Publishing delivers the journal's events to other systems: each pair that
// the process holds in a goroutine of its own, so that none waits for another.
// Several processes may run one; leases spread the pairs over them.
type Publishing struct {
	PublishingConfig
	feed  *feed
	names []outbox.PairName
	pairs map[outbox.PairName]publish.Pair
	wake  chan struct{}
	head  int64 // of the journal, at the last look

	mu       sync.Mutex
	held     map[outbox.PairName]*delivery
	renewals time.Time // leases were last renewed
}

// NewPublishing makes a Publishing. Run starts it.
func NewPublishing(c PublishingConfig) *Publishing {
	if c.PollInterval <= 0 {
		c.PollInterval = 2 * time.Second
	}
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock.Now == nil {
		c.Clock.Now = time.Now
	}
	if c.Clock.After == nil {
		c.Clock.After = realAfter
	}
	if c.Open == nil {
		c.Open = publish.Pair.Open
	}
	p := &Publishing{PublishingConfig: c, wake: make(chan struct{}, 1), held: map[outbox.PairName]*delivery{}, pairs: map[outbox.PairName]publish.Pair{}}
	for _, pair := range c.Pairs {
		p.names = append(p.names, pair.PairName)
		p.pairs[pair.PairName] = pair
	}
	p.feed = newFeed(c.Store.EventsFrom, c.Metrics.PublisherReads.Inc)
	return p
}

// Wake makes every pair look for events now, and the process for operators'
// acts. It never blocks.
func (p *Publishing) Wake() {
	nudge(p.wake)
	p.wakePairs()
}

func (p *Publishing) wakePairs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.held {
		nudge(d.wake)
	}
}

// tendPause is the least time between two looks at the pairs, however often
// the process is woken.
const tendPause = 50 * time.Millisecond

// Run delivers until ctx ends; then it lets the batches in flight end, gives
// the pairs back and returns nil. Faults of the database and of destinations
// are logged and tried again; they do not end it.
func (p *Publishing) Run(ctx context.Context) error {
	if len(p.Pairs) == 0 {
		return nil
	}
	options, ok := p.start(ctx)
	if !ok {
		return nil
	}
	defer p.end()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		if err := p.tend(ctx, options); err != nil && ctx.Err() == nil {
			p.Logger.Warn("publishers could not be looked after; it is tried again", "error", err)
		}
		pause.Reset(tendPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			continue
		}
		pause.Reset(min(loop.Every(p.PollInterval)(ctx), p.Lease/3))
		select {
		case <-pause.C:
		case <-p.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// start makes the pairs known and learns which journal this is. A database
// that is away is waited for; false means that ctx ended.
func (p *Publishing) start(ctx context.Context) (options publish.Options, ok bool) {
	var definitions []outbox.PublisherDefinition
	for _, pair := range p.Pairs {
		definitions = append(definitions, pair.Definition())
	}
	for ctx.Err() == nil {
		err := p.Progress.RegisterPublishers(ctx, definitions)
		if err == nil {
			options.Journal, err = p.Store.JournalID(ctx)
		}
		if err == nil {
			if p.feed.source = p.Source; p.Source == "" {
				p.feed.source = publish.Source(options.Journal)
			}
			options.Logger, options.Version = p.Logger, p.Build
			return options, true
		}
		p.Logger.Warn("publishers cannot start yet; it is tried again", "error", err)
		timer := time.NewTimer(loop.FaultPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return options, false
}

// tend takes, asks for and gives back pairs, renews their leases, and tells
// deliveries what operators did.
func (p *Publishing) tend(ctx context.Context, options publish.Options) error {
	p.forgetEnded()
	if err := p.renew(ctx); err != nil {
		return err
	}
	states, err := p.Progress.PublisherStates(ctx, p.ID, p.names)
	if err != nil {
		return err
	}
	if len(states) > 0 && states[0].Head != p.head { // others append too, and need not say so
		p.head = states[0].Head
		p.wakePairs()
	}
	var faults []error
	for _, state := range states {
		faults = append(faults, p.settle(ctx, state, options))
	}
	return errors.Join(faults...)
}

func (p *Publishing) forgetEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, d := range p.held {
		select {
		case <-d.ended:
			delete(p.held, name)
		default:
		}
	}
}

// settle does what is to be done about one pair.
func (p *Publishing) settle(ctx context.Context, state publishing.State, options publish.Options) error {
	d := p.delivery(state.PairName)
	if d != nil && d.heed(state) {
		return nil
	}
	switch state.Prospect {
	case publishing.ProspectClaim:
		if d == nil {
			return p.claim(ctx, state, options)
		}
	case publishing.ProspectAsk:
		return p.Progress.AskForPublisher(ctx, p.ID, state.PairName)
	case publishing.ProspectHold, publishing.ProspectYield:
		if d == nil { // its delivery ended without being able to give it back
			err := p.Progress.ReleasePublisher(ctx, publishing.Lease{PairName: state.PairName, Owner: p.ID, Epoch: state.Epoch})
			if err == nil {
				nudge(p.wake) // to take it again, unless somebody else does
			}
			return err
		}
	}
	return nil
}

func (p *Publishing) delivery(name outbox.PairName) *delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[name]
}

// claim takes a pair and starts delivering.
func (p *Publishing) claim(ctx context.Context, state publishing.State, options publish.Options) error {
	began := time.Now()
	lease, ok, err := p.Progress.ClaimPublisher(ctx, p.ID, state.PairName, p.Lease)
	if err != nil || !ok {
		return err
	}
	pair := p.pairs[state.PairName]
	to := &destination{open: func() (publish.Publisher, error) { return p.Open(pair, options) }}
	work, lost := context.WithCancelCause(context.WithoutCancel(ctx))
	calls, cutOff := context.WithCancel(work)
	d := &delivery{Publishing: p, pair: pair, to: to, lease: lease, lost: lost, cutOff: cutOff, scanned: lease.Position, acts: state.Acts, known: state.Acts, retryAt: state.RetryAt,
		log:  p.Logger.With("topic", pair.Topic, "publisher", pair.Publisher),
		wake: make(chan struct{}, 1), steered: make(chan struct{}, 1), yield: make(chan struct{}), ended: make(chan struct{})}
	d.expiry = time.AfterFunc(p.Lease, func() { lost(errLeaseExpired) })
	d.extend(began)
	p.mu.Lock()
	p.held[pair.PairName] = d
	p.mu.Unlock()
	go func() {
		defer lost(nil)
		defer d.expiry.Stop()
		d.run(work, calls)
		nudge(p.wake)
	}()
	return nil
}

// destination opens a publisher when something is to be delivered, so that one
// that cannot be opened is an error of a delivery like any other.
type destination struct {
	open func() (publish.Publisher, error)
	publish.Publisher
}

// Publish implements publish.Publisher.
func (d *destination) Publish(ctx context.Context, events []*publish.Event) (int, error) {
	if d.Publisher == nil {
		to, err := d.open()
		if err != nil {
			return 0, err
		}
		d.Publisher = to
	}
	return d.Publisher.Publish(ctx, events)
}

// Close implements publish.Publisher.
func (d *destination) Close() error {
	if d.Publisher == nil {
		return nil
	}
	return d.Publisher.Close()
}

// heed tells a delivery how its pair stands, and reports whether it was right
// to go on.
func (d *delivery) heed(state publishing.State) bool {
	lease := d.beat().Lease
	switch {
	case lease.Epoch < state.Epoch: // it was taken over, or moved
		d.lost(outbox.ErrLeaseLost)
		return false
	case state.Prospect == publishing.ProspectYield:
		d.giveBack()
	default:
		d.mu.Lock()
		known := d.known
		d.known = state.Acts
		d.mu.Unlock()
		if known != state.Acts {
			nudge(d.steered)
		}
	}
	return true
}

// renew lengthens the leases of all pairs that are held, when it is time.
func (p *Publishing) renew(ctx context.Context) error {
	p.mu.Lock()
	began := time.Now()
	due := began.Sub(p.renewals) >= p.Lease/4 && len(p.held) > 0
	deliveries := make(map[outbox.PairName]*delivery, len(p.held))
	var beats []publishing.Beat
	for name, d := range p.held {
		deliveries[name] = d
		beats = append(beats, d.beat())
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	lost, err := p.Progress.RenewPublishers(ctx, beats, p.Lease)
	if err != nil {
		return err
	}
	p.renewals = began
	for _, name := range lost {
		deliveries[name].lost(outbox.ErrLeaseLost)
		delete(deliveries, name)
	}
	for _, d := range deliveries {
		d.extend(began)
	}
	return nil
}

// end gives all pairs back.
func (p *Publishing) end() {
	p.mu.Lock()
	deliveries := make([]*delivery, 0, len(p.held))
	for _, d := range p.held {
		d.giveBack()
		deliveries = append(deliveries, d)
	}
	p.mu.Unlock()
	for _, d := range deliveries {
		<-d.ended
	}
}
