package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/samples"
)

// part is one campaign's part of a wave.
type part struct {
	claim outbox.Claim
	stretch
	result outbox.Result
	gap    bool // events are missing between the watermark and the first row

	// without has the projections that are not applied, with the seq from which on.
	without map[string]int64

	// suspect is the seq of an event that failed together with others and must be tried alone; 0
	// when there is none.
	suspect int64

	// cut is the seq of an event that aborted the transaction; 0 when there is none. It is not
	// tried again in this wave.
	cut     int64
	atFault string // the failed projection; empty when unknown
	failure *readmodel.Failure
}

// Pass claims one wave and processes it (load, apply, settle, release), and then one suspect
// where one is due. It returns true when there was work. It is safe for concurrent use. A
// claimed wave is finished even if ctx ends, cut short between campaigns.
func (w *Worker) Pass(ctx context.Context) (bool, error) {
	if err := w.wentBack(ctx); err != nil {
		return false, err
	}
	worked, err := w.passWave(ctx)
	if err == nil && (!worked || time.Now().UnixNano() >= w.nextSuspect.Load()) {
		var tried bool
		tried, err = w.passSuspect(ctx)
		worked = worked || tried
	}
	if err != nil || worked || w.waves.Load() == 0 { // beside a wave that hangs, to find nothing due is no success
		w.troubles.record(err)
	}
	return worked, err
}

func (w *Worker) passWave(ctx context.Context) (bool, error) {
	defer w.quiet.enter(ctx, w.PollInterval)()
	began := time.Now()
	claims, err := w.Queue.Claim(ctx, w.who, outbox.ClaimLimits{Rows: w.BatchSize, Lease: w.Lease, Except: w.troubles.except()})
	if one, ok := errors.AsType[*outbox.CampaignError](err); ok && w.atFault(ctx, err) {
		w.Logger.Error("campaign cannot be claimed; backing off", "campaign", one.CampaignID, "error", err)
		w.troubles.exclude(one.CampaignID, err, w.Store.Retry())
		return true, nil // the others can be claimed
	}
	if err != nil || len(claims) == 0 {
		return false, w.notHeld(ctx, claims, err)
	}
	if rowsOf(claims) >= int64(w.BatchSize) {
		w.Wake() // there is probably more: wake the other loop
	}
	defer w.busy.enter(began)()
	return true, w.workOffInTurn(ctx, claims)
}

// workOffInTurn processes claims together, and then, alone, the first of those whose head
// exceeded its deadline the last time: while it runs there can be no other writer on SQLite.
// The other slow ones are released.
func (w *Worker) workOffInTurn(ctx context.Context, claims []outbox.Claim) error {
	var quick, slow []outbox.Claim
	for _, c := range claims {
		if c.Slow {
			slow = append(slow, c)
		} else {
			quick = append(quick, c)
		}
	}
	if len(slow) == 0 || len(claims) == 1 {
		return w.workOff(ctx, claims)
	}
	err := w.releaseUncertain(ctx, slow[1:])
	stop := w.renewLeases(context.WithoutCancel(ctx), slow[:1])
	if len(quick) > 0 {
		err = errors.Join(err, w.workOff(ctx, quick))
	}
	stop()
	return errors.Join(err, w.workOff(ctx, slow[:1]))
}

// passSuspect tries the head of one suspect, alone in this process. While there are suspects
// one is tried after each wave; otherwise the check for suspects is rare.
func (w *Worker) passSuspect(ctx context.Context) (bool, error) {
	due, err := w.Queue.SuspectDue(ctx, w.Campaigns)
	if err != nil || !due {
		w.nextSuspect.Store(time.Now().Add(w.PollInterval).UnixNano())
		return false, err
	}
	w.nextSuspect.Store(0)
	leave, ok := w.quiet.alone(ctx, w.PollInterval)
	if !ok {
		return false, nil
	}
	defer leave()
	claims, err := w.Queue.ClaimSuspect(ctx, w.who, w.Lease)
	if err != nil || len(claims) == 0 {
		return false, w.notHeld(ctx, claims, err)
	}
	defer w.busy.enter(time.Now())()
	return true, w.workOff(ctx, claims)
}

// notHeld releases claims returned with an error, which may or may not be held.
func (w *Worker) notHeld(ctx context.Context, claims []outbox.Claim, err error) error {
	if err != nil && len(claims) > 0 {
		return errors.Join(err, w.releaseUncertain(ctx, claims))
	}
	return err
}

// workOff loads, applies and settles claims.
func (w *Worker) workOff(ctx context.Context, claims []outbox.Claim) error {
	began := time.Now()
	w.waves.Add(1)
	defer func() {
		w.lastWave.Store(time.Now().UnixNano())
		w.waves.Add(-1)
	}()
	stop := w.renewLeases(context.WithoutCancel(ctx), claims)
	wave, applyErr := w.Apply(ctx, claims)
	if applyErr != nil && !errors.Is(applyErr, event.ErrBusy) && !errors.Is(applyErr, event.ErrFull) {
		wave.parts, applyErr = w.workOneByOne(ctx, claims)
	}
	stop()
	err := wave.Settle(ctx)
	if err != nil && !errors.Is(err, event.ErrBusy) && !errors.Is(err, event.ErrFull) {
		err = w.settleOneByOne(ctx, wave.parts)
	} else if err == nil {
		w.troubles.include(claims)
	}
	if err != nil {
		return errors.Join(applyErr, err)
	}
	if w.Metrics != nil {
		w.Metrics.Waves.Inc()
		w.Metrics.WaveSeconds.Observe(time.Since(began).Seconds())
	}
	return applyErr
}

// Wave is applied claims that must still be settled.
type Wave struct {
	worker  *Worker
	parts   []*part
	lineage int64 // of both databases when it was loaded
	meter   *meter
}

// Settle ends the wave; see store.Queue.Settle. Events that were lost meanwhile may be applied: both
// databases are reconciled once more then.
func (v *Wave) Settle(ctx context.Context) error {
	err := v.worker.settle(ctx, v.parts)
	v.meter.end(&v.worker.costs)
	if v.worker.lineages() != v.lineage {
		v.worker.lineage.Store(v.lineage)
	}
	return err
}

// lineages changes when the lineage of either database does.
func (w *Worker) lineages() int64 { return w.Store.Lineage() + w.Store.ReadModel().Lineage() }

// wentBack reconciles both databases when one went back: the other may have events that it does not
// have any more.
func (w *Worker) wentBack(ctx context.Context) error {
	now := w.lineages()
	was := w.lineage.Swap(now)
	if was == now {
		return nil
	}
	_, err := w.reconcile(ctx)
	if err != nil {
		w.lineage.CompareAndSwap(now, was)
	}
	return err
}

// Apply loads and applies the claims. Even with an error it returns a wave of all of them, so
// that every lease is released.
func (w *Worker) Apply(ctx context.Context, claims []outbox.Claim) (*Wave, error) {
	parts := make([]*part, len(claims))
	for i, c := range claims {
		parts[i] = &part{claim: c, result: outbox.Result{Claim: c, Applied: c.First - 1}}
	}
	// In order of id pages are changed one after the other, and watermarks locked without deadlocks.
	slices.SortFunc(parts, func(a, b *part) int { return strings.Compare(a.claim.CampaignID, b.claim.CampaignID) })
	wave := &Wave{w, parts, w.lineages(), w.meter(int(rowsOf(claims)))}
	auditOnly, err := w.load(context.WithoutCancel(ctx), parts)
	if err != nil {
		return wave, err
	}
	defer w.lookAhead(context.WithoutCancel(ctx), claims)()
	return wave, w.apply(ctx, attempt{worker: w, parts: parts, auditOnly: auditOnly, meter: wave.meter})
}

// apply runs the parts in one projections transaction, first on the assumption that no event fails:
// without savepoints, and where statements can be batched, all sent together. When one does, everything
// is repeated with savepoints. An event that exceeds its deadline or panics aborts the transaction; the
// wave is then applied again without it.
func (w *Worker) apply(ctx context.Context, attempt attempt) error {
	for {
		err := attempt.run(ctx)
		if err == nil {
			return nil
		}
		for _, p := range attempt.parts { // everything of this transaction was rolled back
			p.result = outbox.Result{Claim: p.claim, Applied: p.claim.First - 1}
			p.gap = false
		}
		at, fatal := attempt.at, (*fatalError)(nil)
		switch {
		case errors.Is(err, event.ErrBusy):
			return fmt.Errorf("apply wave: %w", err)
		case errors.As(err, &fatal) && (at.cut == 0 || fatal.seq < at.cut):
			at.cut, at.atFault, at.failure = fatal.seq, fatal.projection, fatal.failure
		case !attempt.together:
			return fmt.Errorf("apply wave: %w", err)
		}
		attempt.careful = true
	}
}

// attempt is one transaction that applies a wave.
type attempt struct {
	worker    *Worker
	parts     []*part
	auditOnly map[string]bool
	meter     *meter // nil unless the wave is measured

	careful  bool   // with a savepoint per campaign
	together bool   // without savepoints, and where they can be batched with all statements in one batch
	at       *part  // the current one
	sent     []sent // the events of the batch
}

// sent is an event whose statements were sent.
type sent struct {
	end  int // number of statements up to and including it
	part *part
	seq  int64
}

func (t *attempt) run(ctx context.Context) error {
	finish := context.WithoutCancel(ctx)
	return t.worker.Store.ReadModel().Apply(finish, func(tx *readmodel.ApplyTx) error {
		if err := t.readMarks(tx); err != nil {
			return err
		}
		t.sent = t.sent[:0]
		if t.meter != nil {
			t.meter.ApplyTx = tx
		}
		for _, t.at = range t.parts {
			if ctx.Err() != nil {
				break // shutting down: the rest is released
			}
			a := application{attempt: t, worker: t.worker, tx: tx, part: t.at, auditOnly: t.auditOnly}
			if err := a.run(finish); err != nil {
				return err
			}
		}
		done, err := tx.Flush()
		if err != nil {
			t.findEvent(done)
		}
		return err
	})
}

// readMarks reads the watermarks and decides whether the parts are applied together.
func (t *attempt) readMarks(tx *readmodel.ApplyTx) (err error) {
	ids := campaignsOf(t.parts)
	if t.together = !t.careful && !t.runsCode(); t.together {
		if t.together, err = tx.Look(ids, t.worker.loaded); err != nil {
			return err
		}
	}
	if !t.together {
		return tx.ReadAhead(ids)
	}
	tx.Gather()
	return nil
}

// loaded reports whether a projection is loaded; in a worker without projections all count as loaded.
func (w *Worker) loaded(projection string) bool {
	return w.Set == nil || w.Set.Named(projection) != nil
}

// runsCode reports whether a projection written in Go handles any of the events.
func (t *attempt) runsCode() bool {
	return t.worker.Set.HasCode() && slices.ContainsFunc(t.parts, func(p *part) bool { return t.worker.runsCode(p.events) })
}

// runsCode reports whether a projection written in Go handles any of the events.
func (w *Worker) runsCode(events []event.Event) bool {
	return w.Set.HasCode() && slices.ContainsFunc(events, func(e event.Event) bool { return w.Set.RunsCode(e.EventType) })
}

// findEvent finds the event of the statement that follows the first done ones.
func (t *attempt) findEvent(done int) {
	i := sort.Search(len(t.sent), func(i int) bool { return t.sent[i].end > done })
	if i < len(t.sent) {
		t.sent[i].part.suspect = t.sent[i].seq
	}
}

func campaignsOf(parts []*part) []string {
	ids := make([]string, len(parts))
	for i, p := range parts {
		ids[i] = p.claim.CampaignID
	}
	return ids
}

// settle passes the results to the store, retrying until the journal is free, and counts them.
// It continues after ctx has ended, for a limited time.
func (w *Worker) settle(ctx context.Context, parts []*part) error {
	results := make([]outbox.Result, len(parts))
	for i, p := range parts {
		results[i] = p.result
	}
	finish := context.WithoutCancel(ctx)
	var settled outbox.Settlement
	tries := 0
	err := loop.UntilFree(ctx, w.Lease, func() (err error) {
		tries++
		settled, err = w.Queue.Settle(finish, w.who, results)
		return err
	})
	if err != nil {
		return err
	}
	if tries > 1 {
		settled.Fenced = 0 // by an earlier try whose answer was lost
	}
	w.count(settled.Settled)
	w.warn("an event is dead, and its campaign waits for an operator", settled.Dead)
	var aside []outbox.DeadEvent
	for _, p := range parts {
		for _, q := range p.result.Quarantines {
			aside = append(aside, outbox.DeadEvent{CampaignID: p.claim.CampaignID, Seq: q.Seq, Failure: q.Failure})
		}
	}
	w.warn("a projection is quarantined in a campaign, which continues without it", aside)
	w.observe(parts)
	for _, p := range parts {
		if !p.gap {
			continue
		}
		if _, err := w.Queue.ReconcileCampaign(finish, p.claim.CampaignID); err != nil {
			return fmt.Errorf("repair the gap of campaign %q: %w", p.claim.CampaignID, err)
		}
	}
	return nil
}

// warn logs what failed for good at events: one line for each error of a wave, for a bad deploy may fail at an
// event of every campaign. Who appends in inline_apply_only mode is told in the answer.
func (w *Worker) warn(what string, dead []outbox.DeadEvent) {
	if w.Mode == campaign.ModeInline {
		return
	}
	alike := make(map[string]int)
	for _, d := range dead {
		alike[d.Failure.Fingerprint]++
	}
	for _, d := range dead {
		n := alike[d.Failure.Fingerprint]
		if n == 0 {
			continue // logged with an earlier one
		}
		delete(alike, d.Failure.Fingerprint)
		message, _, _ := strings.Cut(d.Failure.Message, "\n")
		w.Logger.Warn(what, "campaign", d.CampaignID, "seq", d.Seq,
			"projection", d.Failure.Projection, "error", message, "others_of_the_same_error", n-1)
	}
}

// releaseUncertain releases claims that may or may not be held.
func (w *Worker) releaseUncertain(ctx context.Context, claims []outbox.Claim) error {
	results := make([]outbox.Result, len(claims))
	for i, c := range claims {
		results[i] = outbox.Result{Claim: c, Applied: c.First - 1}
	}
	return loop.UntilFree(ctx, w.Lease, func() error {
		_, err := w.Queue.Settle(context.WithoutCancel(ctx), w.who, results)
		return err
	})
}

// observe counts the applied events of a wave and how long they waited, and its failures. Of a
// fenced campaign it counts what this process has applied.
func (w *Worker) observe(parts []*part) {
	now := time.Now()
	var c samples.Counts
	types := make(map[string]int64)
	for _, p := range parts {
		for i := range p.events {
			e := &p.events[i]
			if e.Seq < p.claim.First || e.Seq > p.result.Applied || e.Skipped != nil {
				continue
			}
			for name, from := range p.without {
				if e.Seq >= from && slices.Contains(w.Set.Following(e.EventType), name) {
					c.Add(samples.SeriesFollowed, name, -1)
				}
			}
			delay := max(0, now.Sub(e.RecordedAt))
			c.Delay(delay)
			types[e.EventType]++
			if w.Metrics != nil {
				w.Metrics.AppliedAfter.Observe(delay.Seconds())
			}
		}
		for _, q := range p.result.Quarantines {
			c.AddFailure(q.Failure)
		}
		if f := p.result.Failure; f != nil {
			c.AddFailure(*f)
		}
	}
	for name, n := range types {
		c.Add(samples.SeriesApplied, "", n)
		for _, projection := range w.Set.Following(name) {
			c.Add(samples.SeriesFollowed, projection, n)
		}
	}
	w.Samples.Count(w.who.ID, &c)
}

func (w *Worker) count(s outbox.Settled) {
	w.applied.Add(s.Applied)
	w.failed.Add(s.Failed)
	w.fenced.Add(s.Fenced)
	if w.Metrics != nil {
		w.Metrics.Applied.Add(float64(s.Applied))
		w.Metrics.Failed.Add(float64(s.Failed))
		w.Metrics.Fenced.Add(float64(s.Fenced))
	}
}

// renewLeases renews the leases of a long wave, until stopped.
func (w *Worker) renewLeases(ctx context.Context, claims []outbox.Claim) (stop func()) {
	return loop.Keep(w.Lease, w.Logger, func() error { return w.Queue.Renew(ctx, w.who, claims, w.Lease) })
}
