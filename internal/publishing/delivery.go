package publishing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// delivery works on a subscription that this process has leased, in its own goroutine: it reads the
// journal from the position, delivers the topic's events, and advances the position.
type delivery struct {
	*Relay
	sub destination.Subscription
	to  *lazyPublisher
	log *slog.Logger
	// lineage is the one that the lease was claimed under.
	lineage int64

	wake    loop.Signal   // there may be new events
	steered loop.Signal   // an operator has performed an action
	yield   chan struct{} // closed when the publisher is to be released
	yielded sync.Once
	cutOff  context.CancelFunc // cancels calls of the destination
	ended   chan struct{}      // closed when the subscription is released or lost

	read    time.Time // when the journal was last read
	looked  time.Time // operators' actions up to this time are known
	scanned int64     // read up to here; no event of the topic lies between the position and here
	saved   time.Time
	polled  time.Time
	actions int64
	pace    subscription.PollPace
	retryAt time.Time // not retried before this; zero without errors
	asked   bool      // whether the destination is healthy, since the last trouble or operator's action
	health  *bool     // the last answer, as saved; nil before the first
	hanging time.Time // as reported at the last renewal; only the manager uses it

	mu       sync.Mutex              // guards what the manager reads
	lease    Lease                   // changed only by the delivery itself
	lost     context.CancelCauseFunc // cancels everything at once
	until    time.Time               // when the lease expires
	expiry   *time.Timer
	nextPoll time.Time
	rate     rate
	known    int64 // operators' actions, as the manager last read them
}

var (
	errYielded      = errors.New("the publisher is being released")
	errLeaseExpired = errors.New("the lease has ended")
)

// Time limits and intervals.
const (
	// scanSave is how often a position is saved that advanced over events of other topics only, and
	// scanStretch the maximum number of such events to rescan if that is lost.
	scanSave    = time.Second
	scanStretch = 10_000
	// yieldGrace is how long a call of the destination may continue when the subscription is to be
	// released.
	yieldGrace = 5 * time.Second
	// wakePause is the minimum interval between two polls woken by appends.
	wakePause = 10 * time.Millisecond
	// savePause is the first wait before retrying to save a position; it doubles up to
	// loop.FaultPause.
	savePause = 100 * time.Millisecond
)

// run delivers until ctx ends, the subscription is to be released, or its lease is lost. calls is
// the context for calls of the destination: it ends with ctx, and soon after the subscription is to
// be released.
func (d *delivery) run(ctx, calls context.Context) {
	defer close(d.ended)
	defer func() {
		if err := d.to.Close(); err != nil {
			d.log.Warn("a destination could not be closed", "error", err)
		}
	}()
	err := d.work(ctx, calls)
	switch {
	case errors.Is(err, event.ErrLeaseLost), errors.Is(err, errLeaseExpired):
		d.Metrics.PublisherLost.WithLabelValues(d.sub.Topic, d.sub.Publisher).Inc()
		d.log.Info(d.whyLost(context.WithoutCancel(ctx), err), "position", d.lease.Position)
		return
	case !errors.Is(err, errYielded):
		d.log.Error("deliveries of a publisher ended; restarting", "error", err)
	}
	if err := d.Progress.Release(context.WithoutCancel(ctx), d.lease); err != nil {
		d.log.Warn("a publisher could not be released; it is free when its lease expires", "error", err)
	}
}

// whyLost says what happened to the lease that an error ended.
func (d *delivery) whyLost(ctx context.Context, lost error) string {
	is := State{Epoch: d.lease.Epoch, Position: d.lease.Position, Actions: d.actions}
	states, err := d.Progress.States(ctx, d.ID, []operator.SubscriptionName{d.sub.SubscriptionName})
	if err == nil && len(states) > 0 {
		is = states[0]
	}
	switch {
	case d.lineage != d.Progress.core.Lineage(), is.Epoch < d.lease.Epoch, is.Epoch == d.lease.Epoch && is.Position < d.lease.Position:
		return "the journal went back to an earlier state; the publisher continues from its position there"
	case is.Actions != d.actions:
		return "an operator moved the publisher, or acted on it"
	case is.Epoch > d.lease.Epoch:
		return "another process took the publisher over"
	case errors.Is(lost, errLeaseExpired):
		return "the lease of the publisher expired before it was renewed"
	}
	return "the lease of the publisher was lost"
}

// work polls in a loop. Its error is the reason why it ended.
func (d *delivery) work(ctx, calls context.Context) error {
	for {
		if err := d.waitForRetry(ctx); err != nil {
			return err
		}
		found, more, err := d.poll(ctx, calls)
		switch {
		case err != nil:
			return err
		case more, found && d.failing():
			continue
		case found:
			d.pace.Reset()
		}
		wait := d.sub.PollInterval
		if !found {
			wait = d.pace.Empty(d.sub.PollInterval, d.sub.Idle)
		}
		if err := d.waitForPoll(ctx, wait); err != nil {
			return err
		}
	}
}

// failing reports whether the last delivery failed.
func (d *delivery) failing() bool { return !d.retryAt.IsZero() }

// waitForRetry waits until deliveries may be retried. New events do not shorten the wait, an
// operator's action may.
func (d *delivery) waitForRetry(ctx context.Context) error {
	for {
		pause := time.Duration(0)
		if d.failing() {
			pause = max(0, d.retryAt.Sub(d.Clock.Now()))
		}
		if _, err := d.wait(ctx, pause, nil); err != nil || pause == 0 {
			return err
		}
	}
}

// waitForPoll waits for the next poll, and saves a position that advanced over events of other
// topics.
func (d *delivery) waitForPoll(ctx context.Context, wait time.Duration) error {
	d.sayNextPoll(d.Clock.Now().Add(wait))
	defer d.sayNextPoll(time.Time{})
	if d.scanned > d.lease.Position {
		first := min(wait, max(0, scanSave-d.Clock.Now().Sub(d.saved)))
		if cut, err := d.wait(ctx, first, d.wake); err != nil || cut || first == wait {
			return err
		}
		if err := d.advance(ctx, Advance{Position: d.scanned}); err != nil {
			return err
		}
		wait -= first
	}
	_, err := d.wait(ctx, wait, d.wake)
	return err
}

// wait ends after a time, on a wake-up that counts, or with an error when there is nothing more to
// do. An operator's action also ends it, after its changes are read. cut reports that the wait
// ended early.
func (d *delivery) wait(ctx context.Context, wait time.Duration, wake <-chan struct{}) (cut bool, err error) {
	select {
	case <-d.yield:
		return true, errYielded
	case <-ctx.Done():
		return true, context.Cause(ctx)
	default:
	}
	if wait <= 0 {
		return false, nil
	}
	timer, stop := d.Clock.After(wait)
	defer stop()
	select {
	case <-timer:
		return false, nil
	case <-wake:
		d.pace.Reset()
		d.debounce(ctx)
		return true, nil
	case <-d.steered:
		return true, d.reload(ctx)
	case <-d.yield:
		return true, errYielded
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// debounce waits until some time has passed since the last poll, so that frequent appends wake a
// subscription only now and then.
func (d *delivery) debounce(ctx context.Context) {
	select {
	case <-time.After(time.Until(d.polled.Add(wakePause))):
	case <-d.yield:
	case <-ctx.Done():
	}
}

func (d *delivery) sayNextPoll(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextPoll = at
}

// reload reads the changes made by operators.
func (d *delivery) reload(ctx context.Context) error {
	states, err := d.Progress.States(ctx, d.ID, []operator.SubscriptionName{d.sub.SubscriptionName})
	if err != nil || len(states) == 0 {
		return err
	}
	d.actions, d.retryAt, d.asked = states[0].Actions, states[0].RetryAt, false
	d.pace.Reset()
	switch {
	case states[0].Epoch != d.lease.Epoch:
		return event.ErrLeaseLost
	case states[0].Prospect == ProspectYield:
		return errYielded
	}
	return nil
}

// reloadIfChanged reloads if an operator has acted since the last check. It is called when events
// were read after that check, so that no event is delivered that was appended after a pause.
func (d *delivery) reloadIfChanged(ctx context.Context) error {
	acts, err := d.Progress.Actions(ctx, d.sub.SubscriptionName)
	if err != nil || acts == d.actions {
		return err
	}
	return d.reload(ctx)
}

// poll delivers the next batch. found reports that there was one, more that another may be ready.
func (d *delivery) poll(ctx, calls context.Context) (found, more bool, err error) {
	d.polled = time.Now()
	batch, upto, more, err := d.next(ctx)
	if d.lineage != d.Progress.core.Lineage() { // before anything of the journal as it is now is delivered
		err = event.ErrLeaseLost
	}
	if err == nil && len(batch) > 0 && !d.read.Before(d.looked) {
		err = d.reloadIfChanged(ctx)
	}
	switch {
	case errors.Is(err, event.ErrLeaseLost), errors.Is(err, errYielded):
		return false, false, err
	case err != nil:
		return false, true, d.excuse(ctx, err)
	}
	if len(batch) > 0 {
		all, err := d.deliver(ctx, calls, batch, upto)
		return true, more || !all, err
	}
	d.scanned = upto
	if upto-d.lease.Position >= scanStretch {
		err = d.advance(ctx, Advance{Position: upto})
	}
	return false, more, err
}

// excuse allows a failed read of the journal to be retried shortly. The lease expires meanwhile
// unless it can be renewed.
func (d *delivery) excuse(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.log.Warn("the journal could not be read; retrying", "error", err)
	_, err = d.wait(ctx, loop.FaultPause, nil)
	return err
}

// next reads the next batch that the topic selects, and returns how far it has read.
func (d *delivery) next(ctx context.Context) (batch []*destination.Event, upto int64, more bool, err error) {
	upto = d.scanned
	for upto-d.scanned < scanStretch {
		page, err := d.feed.after(ctx, upto)
		if err != nil {
			return nil, 0, false, err
		}
		if page.read.After(d.read) {
			d.read = page.read
		}
		for _, e := range page.events {
			if !d.sub.Match.Matches(&e.Event) {
				continue
			}
			if batch = append(batch, e); len(batch) == d.sub.BatchSize {
				return batch, e.Position, true, nil
			}
		}
		upto = page.end
		if !page.more {
			return batch, upto, false, nil
		}
	}
	return batch, upto, true, nil
}

// deliver delivers a batch and advances the position over the acknowledged events. upto is the
// position after the whole batch.
func (d *delivery) deliver(ctx, calls context.Context, batch []*destination.Event, upto int64) (all bool, err error) {
	if d.leaseEnded() {
		return false, errLeaseExpired
	}
	if unhealthy := d.checkHealth(ctx, leaseContext{calls, d}); unhealthy != nil && ctx.Err() == nil && !d.toYield() {
		return false, d.fail(ctx, batch[0].Event, unhealthy)
	}
	began := time.Now()
	n, failure := d.publish(leaseContext{calls, d}, batch)
	d.Metrics.PublisherSeconds.WithLabelValues(d.sub.Topic, d.sub.Publisher).Observe(time.Since(began).Seconds())
	d.Metrics.PublisherDelivered.WithLabelValues(d.sub.Topic, d.sub.Publisher).Add(float64(n))
	if n > 0 {
		d.Progress.delivered(d.sub.SubscriptionName, batch[n-1].Position)
		a := Advance{Position: batch[n-1].Position, LastDelivered: batch[n-1].Position, Delivered: int64(n)}
		if n == len(batch) {
			a.Position = upto
		}
		d.scanned = a.Position
		if err := d.advance(ctx, a); err != nil {
			return false, err
		}
		if d.failing() {
			d.log.Info("deliveries of a publisher succeed again", "position", d.lease.Position)
		}
		d.retryAt = time.Time{}
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case d.leaseEnded():
		return false, errLeaseExpired
	case failure == nil:
		return n == len(batch), nil
	case d.toYield():
		return false, errYielded
	}
	d.asked = false
	if destination.Cause(failure).Kind != operator.DestinationError {
		if unhealthy := d.checkHealth(ctx, leaseContext{calls, d}); unhealthy != nil && destination.Cause(unhealthy).Kind == operator.DestinationError {
			failure = fmt.Errorf("%w; the delivery failed with: %w", unhealthy, failure)
		}
	}
	return false, d.fail(ctx, batch[n].Event, failure)
}

// checkHealth asks the destination whether it is healthy, before the first delivery, after one that
// failed, and before each until deliveries succeed again, and saves the answer. A destination that
// cannot say is healthy.
func (d *delivery) checkHealth(ctx, calls context.Context) error {
	if d.asked && !d.failing() && (d.health == nil || *d.health) {
		return nil
	}
	to, err := d.to.opened()
	if err != nil {
		return err
	}
	said, reason := destination.CheckHealth(calls, to)
	unhealthy, healthy := destination.NotHealthy(reason), reason == nil
	d.asked = true
	if !said || ctx.Err() != nil {
		return unhealthy
	}
	if err := d.Progress.SaveHealth(ctx, d.lease, reason); err != nil {
		d.log.Warn("the health of a publisher could not be saved", "error", err)
		return unhealthy
	}
	d.health = &healthy
	return unhealthy
}

// publish calls the destination. A panic in a publisher is an error at the event being delivered.
func (d *delivery) publish(ctx context.Context, batch []*destination.Event) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, &destination.Error{Kind: operator.UnknownError, Err: fmt.Errorf("the publisher panicked: %v", r)}
		}
	}()
	n, err = d.to.Publish(ctx, batch)
	if n == 0 && err == nil {
		err = errors.New("the destination accepted nothing and gave no reason")
	}
	return n, err
}

// leaseContext ends with the lease, even in a process that was suspended and whose timers have not
// fired yet.
type leaseContext struct {
	context.Context
	delivery *delivery
}

func (c leaseContext) Err() error {
	if c.delivery.leaseEnded() {
		return context.Canceled
	}
	return c.Context.Err()
}

func (d *delivery) toYield() bool {
	select {
	case <-d.yield:
		return true
	default:
		return false
	}
}

// advance saves a position, retrying while the database is down: nothing more is delivered before
// it is saved.
func (d *delivery) advance(ctx context.Context, a Advance) error {
	d.mu.Lock()
	a.EventsPerSecond = d.rate.add(a.Delivered, time.Now())
	lease := d.lease
	d.mu.Unlock()
	a.Lease = d.Lease
	for pause := savePause; ; pause = min(2*pause, loop.FaultPause) {
		began := time.Now()
		acts, err := d.Progress.Advance(ctx, &lease, a)
		switch {
		case err == nil:
			d.mu.Lock()
			d.lease = lease
			d.mu.Unlock()
			d.extend(began)
			d.saved, d.looked = d.Clock.Now(), began
			if acts != d.actions {
				return d.reload(ctx)
			}
			return nil
		case errors.Is(err, event.ErrLeaseLost):
			return event.ErrLeaseLost
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.toYield():
			d.log.Warn("a position could not be saved; its batch will be delivered again", "error", err)
			return errYielded
		}
		d.log.Warn("a position could not be saved; retrying", "error", err)
		timer, stop := d.Clock.After(pause)
		select {
		case <-timer:
		case <-d.yield:
		case <-ctx.Done():
		}
		stop()
	}
}

// fail records an error and the time of the next try.
func (d *delivery) fail(ctx context.Context, e event.Event, cause error) error {
	blame := destination.Cause(cause)
	d.Metrics.PublisherErrors.WithLabelValues(d.sub.Topic, d.sub.Publisher, string(blame.Kind)).Inc()
	f := Failure{Kind: blame.Kind, Message: cause.Error(), Position: e.Position, Pause: d.sub.Pause,
		FailedRetry: d.sub.FailedRetry, RetryAfter: blame.RetryAfter, Gone: blame.Gone}
	state, err := d.Progress.Fail(ctx, d.lease, f)
	switch {
	case errors.Is(err, event.ErrLeaseLost):
		return event.ErrLeaseLost
	case err != nil: // destination and database are down
		d.log.Warn("a delivery error could not be recorded", "error", err, "delivery", cause)
		d.retryAt = d.Clock.Now().Add(d.sub.Pause.Delay(1))
		return nil
	}
	d.log.Warn("a delivery failed", "error", cause, "position", e.Position, "campaign", e.CampaignID, "seq", e.Seq,
		"errors_in_a_row", state.ErrorCount, "status", state.Status, "retry_at", state.RetryAt)
	d.actions, d.retryAt = state.Actions, state.RetryAt
	if state.Prospect == ProspectYield {
		return errYielded
	}
	return nil
}

// extend records that the lease was renewed by a call that began at a time.
func (d *delivery) extend(began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = began.Add(d.Lease)
	d.expiry.Reset(time.Until(d.until))
}

// leaseEnded reports whether the lease has expired by this process's clock, which runs on while the
// process is suspended.
func (d *delivery) leaseEnded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !time.Now().Before(d.until)
}

// giveBack requests the release of the subscription after the batch in flight.
func (d *delivery) giveBack() {
	d.yielded.Do(func() {
		close(d.yield)
		time.AfterFunc(yieldGrace, d.cutOff)
	})
}

// beat returns what is reported when leases are renewed.
func (d *delivery) beat() Beat {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Beat{Lease: d.lease, NextPoll: d.nextPoll, EventsPerSecond: d.rate.add(0, time.Now()), HangingSince: d.sub.HangingSince()}
}

// rate measures the recent rate in events per second.
type rate struct {
	since   time.Time
	events  int64
	settled float64
}

// rateWindow is the time over which a rate is measured.
const rateWindow = 2 * time.Second

// add counts events, and returns the rate of the last full window, or of the current one if it is
// the first.
func (r *rate) add(events int64, now time.Time) float64 {
	if r.since.IsZero() {
		r.since = now
	}
	r.events += events
	if passed := now.Sub(r.since); passed >= rateWindow {
		r.settled = float64(r.events) / passed.Seconds()
		r.since, r.events = now, 0
	}
	return r.settled
}
