package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/store"
)

// heartbeat is the content of the last heartbeat. On SQLite an idle worker writes none, to
// leave the disk alone: its silence means idleness, and its end is recorded or detected from
// its process being gone. Where workers may run on other machines, it writes one every
// samples.HeartbeatInterval.
type heartbeat struct {
	mu    sync.Mutex
	state campaign.InstanceState
	at    time.Time
	heads []headAt // of the last appendedOver, the oldest first
}

// headAt is the journal's last position at a time, and how long waves had run.
type headAt struct {
	position int64
	busy     time.Duration
	at       time.Time
}

// appendedOver is how long the rate of appends is measured: longer than heartbeats are apart, since appends come
// in bursts.
const appendedOver = 10 * time.Second

// saw adds the journal's last position and how long waves had run, and returns the rate at which events were appended,
// and the share of the time in which waves ran.
func (b *heartbeat) saw(position int64, w *busyTime) (perSecond, busy float64) {
	now := time.Now()
	run := w.change(0, now)
	for len(b.heads) > 1 && now.Sub(b.heads[1].at) >= appendedOver {
		b.heads = b.heads[1:]
	}
	b.heads = append(b.heads, headAt{position, run, now})
	first := b.heads[0]
	seconds := max(now.Sub(first.at).Seconds(), 0.001)
	return max(float64(position-first.position), 0) / seconds, min((run-first.busy).Seconds()/seconds, 1)
}

// arrive writes the worker's first heartbeat. Workers of this host whose process is gone are
// marked as stopped and their leases ended, so that work continues at once after a crash.
func (w *Worker) arrive(ctx context.Context) (bool, error) {
	others, err := w.Store.Processes(ctx)
	if err != nil {
		return false, err
	}
	if err := w.Samples.SampleLeft(ctx, others); err != nil {
		w.Logger.Warn("what the last process left could not be sampled; charts count it for the minute of this start", "error", err)
	}
	now := time.Now().UTC()
	for _, other := range others {
		if other.StoppedAt == nil && other.Process == campaign.ProcessGone {
			err := w.Store.EndLeases(ctx, other.ID)
			if errors.Is(err, event.ErrDamaged) { // the leases expire by themselves
				w.Logger.Error("leases of a dead process could not be released", "instance", other.ID, "error", err)
			} else if err != nil {
				return false, err
			}
			other.StoppedAt = &now
			other.Rates, other.Spent = campaign.Throughput{}, campaign.Spent{}
			if err := w.Store.Heartbeat(ctx, other); err != nil {
				return false, err
			}
		}
	}
	head, err := store.Reading(ctx, w.Store, "", (*store.Tx).HeadPosition)
	if err != nil {
		return false, err
	}
	w.beat.mu.Lock()
	defer w.beat.mu.Unlock()
	next := w.beat.state
	next.StartedAt = now
	if err := w.Store.Heartbeat(ctx, next); err != nil {
		return false, err
	}
	w.beat.state, w.beat.at = next, now
	w.beat.saw(head, &w.busy)
	w.Store.SetHere(next.ID)
	w.Store.Changed() // a summary from before says that no worker is running
	return false, w.Store.Loaded(ctx, next, w.definitions())
}

// definitions are those of the loaded projections.
func (w *Worker) definitions() []campaign.Definition {
	if w.Set == nil {
		return nil
	}
	files := map[string]campaign.RehearsalFile{}
	for _, f := range w.Set.Files() {
		files[f.Projection] = campaign.RehearsalFile{Name: f.Name, Text: f.Text}
	}
	var all []campaign.Definition
	for _, p := range w.Set.Projections() {
		all = append(all, campaign.Definition{Projection: p.Name, Version: p.Version, File: files[p.Name]})
	}
	return all
}

// heartbeat writes counts and rates when they have changed, or when a heartbeat is due.
func (w *Worker) heartbeat(ctx context.Context) (bool, error) {
	w.beat.mu.Lock()
	defer w.beat.mu.Unlock()
	next := w.troubled()
	w.reportStall(next)
	if err := w.Store.InPlace(); err != nil {
		return false, err
	}
	head, err := store.Reading(ctx, w.Store, "", (*store.Tx).HeadPosition)
	if err != nil {
		return false, err
	}
	next.Rates.AppendedPerSecond, next.Rates.BusyShare = w.beat.saw(head, &w.busy)
	next.Spent = w.costs.Spent()
	last := w.beat.state
	if next.BeatEvery == 0 && next.Applied == last.Applied && next.Failed == last.Failed && next.Fenced == last.Fenced && next.Rates == last.Rates && next.Trouble == last.Trouble && next.Stalled == last.Stalled {
		w.beat.at = time.Now()
		return false, w.Samples.FlushCounts(ctx) // what an earlier flush could not write
	}
	if err := w.Store.Heartbeat(ctx, next); err != nil {
		return false, err
	}
	w.beat.state, w.beat.at = next, time.Now()
	return false, w.Samples.FlushCounts(ctx) // with the totals: a process that dies loses as much of both
}

// reportStall reports to this process's probes whether anything is applied.
func (w *Worker) reportStall(i campaign.InstanceState) {
	reason, gauge := "", 0.0
	if i.Stalled {
		reason, gauge = i.Trouble, 1
	}
	w.Store.SetStalled(reason)
	if w.Metrics != nil {
		w.Metrics.Stalled.Set(gauge)
	}
}

// troubled is counted, with the reason why the worker does not apply.
func (w *Worker) troubled() campaign.InstanceState {
	next := w.counted(time.Now())
	next.Trouble, next.Stalled = w.troubles.sentence()
	return next
}

// counted is the state with the current counters and the rates since the last heartbeat.
func (w *Worker) counted(now time.Time) campaign.InstanceState {
	next := w.beat.state
	next.Applied, next.Failed, next.Fenced = w.applied.Load(), w.failed.Load(), w.fenced.Load()
	seconds := max(now.Sub(w.beat.at).Seconds(), 0.001)
	next.Rates = campaign.Throughput{
		AppliedPerSecond: float64(next.Applied-w.beat.state.Applied) / seconds,
		FailedPerSecond:  float64(next.Failed-w.beat.state.Failed) / seconds,
	}
	return next
}

// stop records that the worker ended by itself. A worker that never arrived, or whose databases are not
// in place, records nothing.
func (w *Worker) stop(ctx context.Context) error {
	w.beat.mu.Lock()
	defer w.beat.mu.Unlock()
	if w.beat.state.StartedAt.IsZero() || w.Store.InPlace() != nil {
		return nil
	}
	last := w.counted(time.Now())
	last.Rates, last.Spent = campaign.Throughput{}, campaign.Spent{}
	now := time.Now().UTC()
	last.StoppedAt = &now
	w.Store.NotifyOthers() // they take over the rest
	return loop.AtEnd(func() error { return errors.Join(w.Samples.FlushCounts(ctx), w.Store.Heartbeat(ctx, last)) })
}
