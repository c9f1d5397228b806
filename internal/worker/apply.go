package worker

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// application applies one campaign's part of a wave in a transaction shared with other
// campaigns.
type application struct {
	worker    *Worker
	tx        *readmodel.ApplyTx
	part      *part
	auditOnly map[string]bool
	skip      map[string]bool // projections that do not follow this campaign
	mark      readmodel.Watermark

	attempt  *attempt // nil in a rehearsal
	gathered bool     // the statements of the last run were sent together
}

// fatalError is an event that aborted the whole transaction: it exceeded its deadline, or it
// panicked inside the database's driver.
type fatalError struct {
	seq        int64
	projection string // the failed one; empty when unknown
	failure    *readmodel.Failure
}

func (e *fatalError) Error() string { return e.failure.Message }

// run applies as many of the part's events as possible and fills in its result. After an error
// the whole transaction is lost.
func (a *application) run(ctx context.Context) error {
	p := a.part
	if len(p.events) == 0 && p.partial {
		return nil // released untried
	}
	var err error
	if a.mark, err = a.tx.Watermark(p.claim.CampaignID); err != nil {
		return err
	}
	if a.mark.FenceEpoch > p.claim.Epoch {
		return nil // the settlement finds the lost lease
	}
	if a.mark.SetAside > 0 {
		if a.skip, err = a.tx.SetAside(p.claim.CampaignID); err != nil {
			return err
		}
	}
	p.result.Applied = a.mark.AppliedSeq
	todo, sound, ok, err := a.compare(ctx)
	if err != nil {
		return err
	}
	if ok && sound > 0 {
		err = a.applySound(ctx, todo[:sound])
	}
	if err == nil && p.result.Applied <= a.mark.AppliedSeq {
		// Advance also raises the fence; without it the fence must still be raised.
		err = a.tx.Fence(p.claim.CampaignID, p.claim.Epoch)
	}
	if err != nil {
		return err
	}
	if p.result.Failure == nil && sound < len(todo) && p.result.Applied == todo[sound].Seq-1 {
		return a.stopAt(&todo[sound])
	}
	return nil
}

// stopAt returns the reason why an event is not tried: it has aborted a transaction of this
// wave, or it is not sound.
func (a *application) stopAt(e *event.Event) error {
	p := a.part
	if p.failure == nil || p.cut != e.Seq {
		p.result.Failure = a.worker.Failure(errors.New(p.reason))
		return nil
	}
	p.result.Failure = p.failure
	if p.atFault == "" {
		return nil
	}
	return a.tx.Failed(p.atFault, e, *p.failure)
}

// applySound applies events that may be applied, without the projections that are paused for all
// campaigns or not loaded here, and resolves the failures at those events.
func (a *application) applySound(ctx context.Context, todo []event.Event) (err error) {
	if a.skip, err = a.tx.ExcludePaused(a.part.claim.CampaignID, a.mark, a.skip); err != nil {
		return err
	}
	if a.skip, err = a.tx.ExcludeUnloaded(a.part.claim.CampaignID, a.mark, a.skip, a.worker.loaded); err != nil {
		return err
	}
	a.part.without = make(map[string]int64, len(a.skip))
	for name := range a.skip {
		a.part.without[name] = 0
	}
	if a.attempt != nil && a.attempt.together {
		err = a.applyBlindly(ctx, todo)
	} else {
		err = a.applyAll(ctx, todo)
	}
	if err == nil && a.mark.OpenFailures > 0 && a.part.result.Applied > a.mark.AppliedSeq {
		err = a.tx.Resolve(a.part.claim.CampaignID, a.part.result.Applied)
	}
	return err
}

// compare compares the events with the watermark. It returns the events still to be applied and
// how many of them may be; false when the part ends here. Events below the watermark count as
// applied only when the event at the watermark is the one that the projections were built from.
// The loaded hashes usually decide that; otherwise the journal is asked.
func (a *application) compare(ctx context.Context) (todo []event.Event, sound int, ok bool, err error) {
	p, mark := a.part, a.mark
	todo, sound, at := p.above(mark.AppliedSeq)
	next := len(todo) > 0 && todo[0].Seq == mark.AppliedSeq+1
	unchained := ""
	if next {
		unchained = todo[0].WhyUnchained(mark.AppliedHash)
	}
	if mark.AppliedSeq > 0 && at != mark.AppliedHash && !(at == "" && next && unchained == "") {
		if diverged, err := a.diverged(ctx); err != nil || diverged {
			return nil, 0, false, err
		}
	}
	if !next {
		a.explainMissing()
		return nil, 0, false, nil
	}
	first := &todo[0]
	if sound > 0 && unchained != "" {
		sound, p.reason = 0, unchained
	}
	for i := range sound { // only up to a hole or an event that was cut off
		if todo[i].Seq != first.Seq+int64(i) || todo[i].Seq == p.cut {
			sound = i
			break
		}
	}
	return todo, max(sound, 0), true, nil
}

// above returns the part's events above a watermark, how many of them are sound, and the chain
// hash of the event at the watermark, empty when it was not loaded.
func (p *part) above(watermark int64) (todo []event.Event, sound int, at string) {
	for i := range p.events {
		e := &p.events[i]
		if e.Seq > watermark {
			return p.events[i:], p.unsound - i, at
		}
		if e.Seq == watermark {
			at = e.ChainHash
		}
	}
	return nil, 0, at
}

// explainMissing records why the event above the watermark is not in the part: its row is
// missing, which is repaired, or it is missing in the journal.
func (a *application) explainMissing() {
	p, next := a.part, a.mark.AppliedSeq+1
	switch {
	case p.claim.Last < next || p.partial && p.events[len(p.events)-1].Seq < next:
	case p.claim.First > next:
		p.gap = true
	default:
		p.result.Failure = a.worker.Failure(fmt.Errorf("event %d is missing from the journal", next))
	}
}

// diverged asks the journal whether the projections were built from it and records a
// contradiction. Nothing of the part is applied then, and its rows stay.
func (a *application) diverged(ctx context.Context) (bool, error) {
	p := a.part
	reason, err := a.worker.Store.Divergence(ctx, p.claim.CampaignID, a.mark)
	if err != nil || reason == "" {
		return false, err
	}
	p.result.Applied, p.result.Diverged = 0, reason
	return true, nil
}

// applyBlindly applies events without a savepoint; batched statements are sent without waiting for their
// results.
func (a *application) applyBlindly(ctx context.Context, todo []event.Event) error {
	t, last := a.attempt, &todo[len(todo)-1]
	err := a.tx.Advance(last.CampaignID, a.part.claim.Epoch, todo[0].Seq-1, last.Seq, last.ChainHash)
	for i := 0; err == nil && i < len(todo); i++ {
		err = a.applyEvent(ctx, &todo[i])
		t.sent = append(t.sent, sent{a.tx.Gathered(), a.part, todo[i].Seq})
		if err != nil && a.tx.Lost() {
			return a.lost(ctx, err, todo, i)
		}
		if err != nil {
			a.part.suspect = todo[i].Seq
		}
	}
	a.part.result.Applied = last.Seq
	return err
}

// applyAll applies events in runs as long as possible: first all of them; when an event fails,
// those before it again, then the failed one alone, so that only its changes are rolled back. One that
// hung as the first of its run is not tried alone: everybody would wait for it twice.
func (a *application) applyAll(ctx context.Context, todo []event.Event) error {
	for len(todo) > 0 {
		run := a.nextRun(todo)
		failedAt, err := a.applyRun(ctx, run)
		if a.tx.Lost() {
			return a.lost(ctx, err, run, failedAt)
		}
		switch {
		case errors.Is(err, event.ErrLeaseLost):
			return nil
		case err == nil:
			a.part.result.Applied = run[len(run)-1].Seq
			todo = todo[len(run):]
		case failedAt > 0 || a.gathered || len(run) > 1 && !errors.Is(err, context.DeadlineExceeded):
			a.part.suspect = run[failedAt].Seq
		default:
			again, err := a.fail(&todo[0], err)
			if err != nil || !again {
				return err
			}
		}
	}
	return nil
}

// nextRun is the events to apply next: those before the suspect, or only the suspect.
func (a *application) nextRun(todo []event.Event) []event.Event {
	switch i := a.part.suspect - todo[0].Seq; {
	case i == 0:
		return todo[:1]
	case i > 0 && i < int64(len(todo)):
		return todo[:i]
	}
	return todo
}

// lost turns the loss of the transaction into its cause: an event that exceeded its deadline,
// panicked, or ran the statement that aborted the transaction; otherwise a fault that counts as
// no event's attempt.
func (a *application) lost(ctx context.Context, err error, run []event.Event, failedAt int) error {
	var panicked *projection.PanicError
	if errors.As(err, &panicked) {
		return &fatalError{seq: panicked.Seq, projection: panicked.Projection, failure: a.worker.Failure(err)}
	}
	if failedAt >= len(run) || ctx.Err() != nil || errors.Is(err, event.ErrBusy) || errors.Is(err, event.ErrFull) || sqldb.Outage(err) {
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) && projection.AtFault(err) == "" {
		return err
	}
	return &fatalError{seq: run[failedAt].Seq, projection: projection.AtFault(err), failure: a.worker.Failure(projection.CutOff(err, a.worker.eventLimit(&run[failedAt])))}
}

// applyRun applies consecutive events inside one savepoint, and advances the watermark first.
// When an event fails the whole run is rolled back and its index is returned.
func (a *application) applyRun(ctx context.Context, run []event.Event) (failedAt int, err error) {
	// A suspect's statements are sent one by one, to find the one that fails.
	a.gathered = run[0].Seq != a.part.suspect && !a.worker.runsCode(run) && a.tx.Gather()
	if err := a.tx.Savepoint(); err != nil {
		return 0, err
	}
	last := &run[len(run)-1]
	var ends []int // number of gathered statements at the end of each event
	err = a.tx.Advance(last.CampaignID, a.part.claim.Epoch, run[0].Seq-1, last.Seq, last.ChainHash)
	for i := 0; err == nil && i < len(run); i++ {
		failedAt = i
		err = a.applyEvent(ctx, &run[i])
		if a.gathered {
			ends = append(ends, a.tx.Gathered())
		}
	}
	if a.gathered && err != nil {
		a.tx.Discard() // including the savepoint
		return failedAt, err
	}
	if a.gathered {
		var done int
		if done, err = a.tx.Flush(); err != nil {
			failedAt = min(sort.SearchInts(ends, done+1), len(run)-1)
		}
	}
	if err != nil && !a.tx.Lost() {
		if lost := a.tx.RollbackTo(); lost != nil {
			return failedAt, errors.Join(err, lost)
		}
	}
	if a.tx.Lost() {
		return failedAt, err
	}
	if err := a.tx.Release(); err != nil {
		return failedAt, err
	}
	return failedAt, err
}

// applyEvent runs the projections for one event. A skipped event is only marked as skipped
// over.
func (a *application) applyEvent(ctx context.Context, e *event.Event) error {
	if e.Skipped != nil {
		return a.tx.PassOver(e)
	}
	var tx projection.Tx = a.tx
	if a.attempt != nil && a.attempt.meter != nil {
		tx = a.attempt.meter
		defer a.attempt.meter.Step(noStatement)
	}
	return a.worker.Set.ApplyWithin(ctx, a.worker.eventLimit(e), tx, e, a.auditOnly, a.skip)
}

// fail records the failure of an event that was tried alone and decides what follows. When its
// projection quarantines rather than blocks, and this was the last attempt, the projection is
// quarantined and again is true: the event must be applied without it.
func (a *application) fail(e *event.Event, cause error) (again bool, err error) {
	f := a.worker.Failure(projection.CutOff(cause, a.worker.eventLimit(e)))
	attempts, own := 1, 1
	if e.Seq == a.part.claim.First {
		attempts += a.part.claim.Attempts
		own += a.part.claim.TriedBy[f.Projection]
	}
	if p, panicked := errors.AsType[*projection.HandlerPanic](cause); panicked && attempts == 1 { // the first of many
		a.worker.Logger.Warn("a projection panicked", "campaign", e.CampaignID, "seq", e.Seq, "event_type", e.EventType,
			"projection", f.Projection, "panic", a.worker.Redact.Text(fmt.Sprint(p.Value)), "stack", string(p.Stack))
	}
	var at *projection.ApplyError
	if errors.As(cause, &at) && !f.Untried {
		if err := a.tx.Failed(at.Projection, e, *f); err != nil {
			return false, err
		}
	}
	if at != nil && a.worker.quarantines(at.Projection) {
		f.SetAside = true
		if f.Last(own, a.worker.Store.Retry()) {
			if err := a.tx.Quarantine(at.Projection, e); err != nil {
				return false, err
			}
			skip := map[string]bool{at.Projection: true}
			for name := range a.skip {
				skip[name] = true
			}
			a.skip = skip
			a.part.without[at.Projection] = e.Seq
			a.part.result.Quarantines = append(a.part.result.Quarantines, outbox.Quarantine{Seq: e.Seq, Attempt: attempts, Failure: *f})
			return true, nil
		}
	}
	a.part.result.Failure = f
	return false, nil
}

// Failure converts an error to what is stored of it. Links and filters show fingerprints
// unredacted, so they are made from the redacted message.
func (w *Worker) Failure(err error) *readmodel.Failure {
	text := err.Error()
	f := &readmodel.Failure{Message: text, Fingerprint: event.Fingerprint(w.Redact.Text(text))}
	if p := w.Set.Named(projection.AtFault(err)); p != nil { // a failure of the engine's own statements is never permanent
		f.Projection, f.Version, f.Permanent, f.MaxAttempts = p.Name, p.Version, sqldb.Permanent(err), p.MaxAttempts
	}
	_, f.Untried = errors.AsType[*projection.NotCalledError](err)
	return f
}

// quarantines reports whether a projection that fails is quarantined for the campaign instead
// of blocking it.
func (w *Worker) quarantines(name string) bool {
	p := w.Set.Named(name)
	return p != nil && p.OnFailure == projection.Quarantine
}
