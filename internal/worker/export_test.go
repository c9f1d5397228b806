package worker

import (
	"context"
	"errors"

	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
)

// The tests take the steps of a wave one by one, to stop between them.

// Who is the worker's name in leases.
func (w *Worker) Who() store.Worker { return w.who }

// ApplyClaims is a wave that ends before it is settled, as in a process that
// dies then.
func (w *Worker) ApplyClaims(ctx context.Context, claims []store.Claim) error {
	_, err := w.work(ctx, claims)
	return err
}

// FinishClaims is the rest of a wave after its claim. What is to happen between
// applying and settling does.
func (w *Worker) FinishClaims(ctx context.Context, claims []store.Claim, between ...func()) error {
	parts, err := w.work(ctx, claims)
	for _, happen := range between {
		happen()
	}
	return errors.Join(err, w.settle(ctx, parts))
}

// Counted is what the worker has counted since it was made.
func (w *Worker) Counted() store.Settled {
	return store.Settled{Applied: w.applied.Load(), Failed: w.failed.Load(), Fenced: w.fenced.Load()}
}

// TimedSteps are the steps that Run takes by the clock when nothing wakes it.
func (w *Worker) TimedSteps() []func(context.Context) (bool, error) {
	poll := w.Pass
	if w.Mode == outbox.ModeShadow {
		poll = w.Rehearse
	}
	return []func(context.Context) (bool, error){poll, w.reconcile, w.selfCheck(), w.heartbeat}
}

// Versions are those of the worker's projections.
func (w *RunWorker) Versions() map[string]string { return w.versions() }

// DieInRun takes up a run and rebuilds its first campaign as far as the stage:
// until it is folded, until its lease is taken and all is folded, or until the
// rows are swapped. Then the process is gone; what it would have done next is
// returned, for one that only slept. Nil means that there is no run.
func (w *RunWorker) DieInRun(ctx context.Context, stage int) (next func() error, err error) {
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return nil, err
	}
	r := w.runner(lease)
	scope, err := w.Runs.Scope(ctx, lease, "", 1)
	if err != nil || len(scope) == 0 || lease.Run.Kind != outbox.RunRebuild {
		return func() error { return nil }, err
	}
	f, err := NewFolder(ctx, w.Runs.Core, w.Set)
	if err != nil {
		return nil, err
	}
	m, err := r.plan(ctx, f, scope[0])
	if err != nil || m.ended || stage == 0 {
		return f.Close, err
	}
	who := store.Worker{ID: outbox.RunOwner(lease.Run.ID, w.Worker.ID)}
	claims, err := w.Runs.ClaimCampaigns(ctx, lease, who, []string{m.scope.CampaignID}, w.Lease)
	if err != nil || len(claims) == 0 {
		return f.Close, err
	}
	if err := m.finish(ctx, f, claims[0]); err != nil || m.ended {
		return f.Close, err
	}
	swap := func() error {
		_, err := f.scratch.Swap(ctx, []readmodel.Swap{m.swap})
		return err
	}
	if stage == 1 {
		return func() error { return errors.Join(swap(), f.Close()) }, nil
	}
	return func() error {
		_, err := w.Runs.Core.ReleaseForRun(ctx, who, claims)
		return errors.Join(err, f.Close())
	}, swap()
}

// CatchUp takes up a run and brings a projection level in one campaign, as a
// replay does. What is to happen between folding and taking the lease does.
func (w *RunWorker) CatchUp(ctx context.Context, campaign, name string, between func()) (outbox.ProjectionResult, error) {
	p := outbox.ProjectionResult{Projection: name}
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return p, errors.Join(err, errors.New("there is no run"))
	}
	r := w.runner(lease)
	f, err := NewFolder(ctx, w.Runs.Core, w.Set)
	if err != nil {
		return p, err
	}
	defer f.Close()
	m := &remake{scope: store.RunCampaign{CampaignID: campaign}, names: []string{name}}
	mark, err := m.look(ctx, f)
	if err == nil {
		err = m.resume(ctx, f, mark.AppliedSeq)
	}
	if err != nil {
		return p, err
	}
	between()
	return p, r.hold(ctx, []string{campaign}, func(claims []store.RunClaim) error { return m.land(ctx, w, f, claims[0], &p) })
}

// VerifyNext is the step that verifies in the background.
func (w *RunWorker) VerifyNext() func(context.Context) (bool, error) { return w.verifyNext() }

// Trouble is what keeps the worker from applying.
func (w *Worker) Trouble() (text string, stalled bool) { return w.troubles.sentence() }
