package publishing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"outboxweb/internal/loop"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing/destination"
)

// delivery is a subscription that this process holds, at work in a goroutine of its
// own: it reads on where the subscription stands, delivers what the topic selects, and
// moves the position.
type delivery struct {
	*Relay
	sub destination.Subscription
	to  destination.Publisher
	log *slog.Logger

	wake    loop.Signal   // there may be new events
	steered loop.Signal   // an operator has changed something
	yield   chan struct{} // closed when the publisher is to be released
	yielded sync.Once
	cutOff  context.CancelFunc // ends calls of the destination
	ended   chan struct{}      // closed when it is given back, or lost

	read    time.Time // when the journal was last read, as far as it is known here
	looked  time.Time // operators' actions up to then are known
	scanned int64     // read up to here; nothing of the topic is between the position and it
	saved   time.Time
	polled  time.Time
	actions int64
	pace    outbox.PollPace
	retryAt time.Time // not before; zero when nothing is wrong

	mu       sync.Mutex              // guards what the manager reads
	lease    Lease                   // only the delivery itself changes it
	lost     context.CancelCauseFunc // ends everything at once
	until    time.Time               // the lease ends
	expiry   *time.Timer
	nextPoll time.Time
	rate     rate
	known    int64 // operators' actions, as the manager last saw them
}

var (
	errYielded      = errors.New("the publisher is being released")
	errLeaseExpired = errors.New("the lease has ended")
)

// How long things take at the most, or at the least.
const (
	// scanSave is how often a position is saved that moved over events of
	// other topics alone, and scanStretch how many of those at the most are
	// gone over again when that is lost.
	scanSave    = time.Second
	scanStretch = 10_000
	// yieldGrace is how long a call of a destination may go on when the subscription is
	// to be given back.
	yieldGrace = 5 * time.Second
	// wakePause is the least time between two polls that appends wake.
	wakePause = 10 * time.Millisecond
	// savePause is the first wait before a position that could not be saved is
	// saved again; it doubles up to loop.FaultPause.
	savePause = 100 * time.Millisecond
)

// run delivers until ctx ends, or the publisher is to be released, or is lost.
// calls is for calls of the destination: it ends with ctx, and soon after the
// publisher is to be released.
func (d *delivery) run(ctx, calls context.Context) {
	defer close(d.ended)
	defer func() {
		if err := d.to.Close(); err != nil {
			d.log.Warn("a destination could not be closed", "error", err)
		}
	}()
	err := d.work(ctx, calls)
	switch {
	case errors.Is(err, outbox.ErrLeaseLost), errors.Is(err, errLeaseExpired):
		d.Metrics.PublisherLost.WithLabelValues(d.sub.Topic, d.sub.Publisher).Inc()
		d.log.Info("the publisher was taken over, or moved by an operator", "position", d.lease.Position)
		return
	case !errors.Is(err, errYielded):
		d.log.Error("deliveries of a publisher ended; restarting", "error", err)
	}
	if err := d.Progress.Release(context.WithoutCancel(ctx), d.lease); err != nil {
		d.log.Warn("a publisher could not be released; it is free when its lease expires", "error", err)
	}
}

// work polls, waits and polls again. Its error is why it ended.
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
			wait = d.pace.Empty(d.sub.PollInterval)
		}
		if err := d.waitForPoll(ctx, wait); err != nil {
			return err
		}
	}
}

// failing reports whether the last delivery did not succeed.
func (d *delivery) failing() bool { return !d.retryAt.IsZero() }

// waitForRetry waits as long as nothing may be delivered yet. New events do not
// shorten that, an operator's action may.
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

// waitForPoll waits for the next poll, and saves a position that moved over events of
// other topics on the way.
func (d *delivery) waitForPoll(ctx context.Context, wait time.Duration) error {
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

// wait ends after a time, by a wake-up that counts, or with an error when
// there is nothing more to be done. An operator's act ends it too, once it is
// known what the action has changed. cut says that the time was not waited for.
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
	d.sayNextPoll(d.Clock.Now().Add(wait))
	defer d.sayNextPoll(time.Time{})
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

// debounce waits until some time has passed since the last poll, so that many
// appends in a row wake a subscription only now and then.
func (d *delivery) debounce(ctx context.Context) {
	pause := time.NewTimer(time.Until(d.polled.Add(wakePause)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-d.yield:
	case <-ctx.Done():
	}
}

func (d *delivery) sayNextPoll(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextPoll = at
}

// reload reads what an operator has changed.
func (d *delivery) reload(ctx context.Context) error {
	states, err := d.Progress.States(ctx, d.ID, []outbox.SubscriptionName{d.sub.SubscriptionName})
	if err != nil || len(states) == 0 {
		return err
	}
	d.actions, d.retryAt = states[0].Actions, states[0].RetryAt
	d.pace.Reset()
	switch {
	case states[0].Epoch != d.lease.Epoch:
		return outbox.ErrLeaseLost
	case states[0].Prospect == ProspectYield:
		return errYielded
	}
	return nil
}

// reloadIfChanged looks where an operator has acted since the last look. It is asked
// when events were read after that, so that none is delivered that was appended
// after a pause.
func (d *delivery) reloadIfChanged(ctx context.Context) error {
	acts, err := d.Progress.Actions(ctx, d.sub.SubscriptionName)
	if err != nil || acts == d.actions {
		return err
	}
	return d.reload(ctx)
}

// poll delivers the next batch. found says that there was one, more that there
// may be another at once.
func (d *delivery) poll(ctx, calls context.Context) (found, more bool, err error) {
	d.polled = time.Now()
	batch, upto, more, err := d.next(ctx)
	if err == nil && len(batch) > 0 && !d.read.Before(d.looked) {
		err = d.reloadIfChanged(ctx)
	}
	switch {
	case errors.Is(err, outbox.ErrLeaseLost), errors.Is(err, errYielded):
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

// excuse lets a journal that cannot be read now be read a moment later. The
// lease ends meanwhile, unless it can be renewed.
func (d *delivery) excuse(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.log.Warn("the journal could not be read; retrying", "error", err)
	_, err = d.wait(ctx, loop.FaultPause, nil)
	return err
}

// next reads the next batch that the topic selects, and how far it has read.
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

// deliver hands a batch over and moves the position on by what was taken.
// upto is how far the position goes when all was.
func (d *delivery) deliver(ctx, calls context.Context, batch []*destination.Event, upto int64) (all bool, err error) {
	if d.leaseEnded() {
		return false, errLeaseExpired
	}
	began := time.Now()
	n, failure := d.publish(leaseContext{calls, d}, batch)
	d.Metrics.PublisherSeconds.WithLabelValues(d.sub.Topic, d.sub.Publisher).Observe(time.Since(began).Seconds())
	d.Metrics.PublisherDelivered.WithLabelValues(d.sub.Topic, d.sub.Publisher).Add(float64(n))
	if n > 0 {
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
	return false, d.fail(ctx, batch[n].Event, failure)
}

// publish calls the destination. A panic in a publisher is an error of the
// event it was to deliver.
func (d *delivery) publish(ctx context.Context, batch []*destination.Event) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, &destination.Error{Kind: outbox.EventError, Err: fmt.Errorf("the publisher panicked: %v", r)}
		}
	}()
	n, err = d.to.Publish(ctx, batch)
	if n == 0 && err == nil {
		err = errors.New("the destination accepted nothing and gave no reason")
	}
	return n, err
}

// leaseContext is over as soon as the lease is, also for a process that was
// stopped and whose timers have not noticed yet.
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

// advance saves a position, again and again while the database is away: nothing
// more is delivered before it is saved.
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
		case errors.Is(err, outbox.ErrLeaseLost):
			return outbox.ErrLeaseLost
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

// fail notes an error and when to try again.
func (d *delivery) fail(ctx context.Context, e outbox.Event, cause error) error {
	blame := destination.Cause(cause)
	d.Metrics.PublisherErrors.WithLabelValues(d.sub.Topic, d.sub.Publisher, string(blame.Kind)).Inc()
	f := Failure{Kind: blame.Kind, Message: cause.Error(), Position: e.Position, Pause: d.sub.Pause,
		FailedRetry: d.sub.FailedRetry, RetryAfter: blame.RetryAfter, Gone: blame.Gone}
	state, err := d.Progress.Fail(ctx, d.lease, f)
	switch {
	case errors.Is(err, outbox.ErrLeaseLost):
		return outbox.ErrLeaseLost
	case err != nil: // the destination and the database are away
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

// extend notes that the lease was renewed by a call that began at a time.
func (d *delivery) extend(began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = began.Add(d.Lease)
	d.expiry.Reset(time.Until(d.until))
}

// leaseEnded reports whether the lease ran out by this process's own clock,
// which goes on while the process is stopped.
func (d *delivery) leaseEnded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !time.Now().Before(d.until)
}

// giveBack asks for the subscription to be given back once the batch in flight is done.
func (d *delivery) giveBack() {
	d.yielded.Do(func() {
		close(d.yield)
		time.AfterFunc(yieldGrace, d.cutOff)
	})
}

// beat is what is told when leases are renewed.
func (d *delivery) beat() Beat {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Beat{Lease: d.lease, NextPoll: d.nextPoll, EventsPerSecond: d.rate.add(0, time.Now())}
}

// rate is how many events a second there were lately.
type rate struct {
	since   time.Time
	events  int64
	settled float64
}

// rateWindow is how long a rate is counted before it is told.
const rateWindow = 2 * time.Second

// add counts events, and returns the rate of the last full window, or of the
// one under way when it is the first.
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
