package runs

import (
	"context"
	"errors"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// Versions returns the versions of the worker's projections.
func (w *Worker) Versions() map[string]string { return w.versions() }

// RestoreTables makes dropped tables again.
func (w *Worker) RestoreTables(ctx context.Context) error {
	_, err := w.restoreTables(ctx)
	return err
}

// WaitForOwed sets how long a check waits for a run of each projection that is behind.
func (rs *Runs) WaitForOwed(d time.Duration) { rs.owedWait = d }

// Started is signalled when a caller of this process started, resumed or cancelled a run.
func (rs *Runs) Started() <-chan struct{} { return rs.started }

// Left is the end of the work on a run, which may still be leased.
func (rs *Runs) Left(l Lease) { rs.left(l) }

// DieInRun claims a run and rebuilds its first campaign up to a stage: until it is replayed, until its lease is taken and all is replayed, or until
// the rows are swapped. Then the process dies; its next step is returned, for a process that only slept. Nil means that there is no run.
func (w *Worker) DieInRun(ctx context.Context, stage int) (next func() error, err error) {
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return nil, err
	}
	r := w.runner(lease)
	scope, err := w.Runs.Scope(ctx, lease, "", 1)
	if err != nil || len(scope) == 0 || lease.Run.Kind != replay.RunRebuild {
		return func() error { return nil }, err
	}
	f, err := NewReplayer(ctx, w.Runs.core, w.Set)
	if err != nil {
		return nil, err
	}
	m, err := r.plan(ctx, f, scope[0])
	if err != nil || m.ended || stage == 0 {
		return f.Close, err
	}
	who := outbox.Worker{ID: campaign.RunOwner(lease.Run.ID, w.Worker.ID)}
	claims, err := w.Runs.ClaimCampaigns(ctx, lease, who, []string{m.scope.CampaignID}, w.Lease)
	if err != nil || len(claims) == 0 {
		return f.Close, err
	}
	if err := m.finish(ctx, f, claims[0]); err != nil || m.ended {
		return f.Close, err
	}
	swap := func() error { _, err := f.scratch.Swap(ctx, []readmodel.Swap{m.swap}); return err }
	if stage == 1 {
		return func() error { return errors.Join(swap(), f.Close()) }, nil
	}
	return func() error {
		_, err := w.Runs.queue.ReleaseForRun(ctx, who, claims)
		return errors.Join(err, f.Close())
	}, swap()
}

// CatchUp claims a run and catches up a projection in one campaign, as a replay does. It calls between after replaying and before leasing.
func (w *Worker) CatchUp(ctx context.Context, campaign, name string, between func()) (replay.ProjectionResult, error) {
	p := replay.ProjectionResult{Projection: name}
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return p, errors.Join(err, errors.New("there is no run"))
	}
	r := w.runner(lease)
	f, err := NewReplayer(ctx, w.Runs.core, w.Set)
	if err != nil {
		return p, err
	}
	defer f.Close()
	m := &rebuilding{scope: Campaign{CampaignID: campaign}, names: []string{name}}
	mark, err := m.readPositions(ctx, f)
	if err == nil {
		err = m.resume(ctx, f, mark.AppliedSeq)
	}
	if err != nil {
		return p, err
	}
	between()
	return p, r.withLeases(ctx, []string{campaign}, func(claims []outbox.RunClaim) error { return m.land(ctx, w, f, claims[0], &p) })
}

// VerifyNext is the step that verifies in the background.
func (w *Worker) VerifyNext() func(context.Context) (bool, error) { return w.verifyNext() }

// CountReplayed counts the events that the replayer replays, and the stretches of them.
func (f *Replayer) CountReplayed(events, stretches *int64) {
	f.pace = func(_ context.Context, _ *Expected, n int64, _ time.Duration) error {
		*events, *stretches = *events+n, *stretches+1
		return nil
	}
}

// SaysStill returns the log of a run whose workers say what they do, and do no events, at some times after each other.
func (w *Worker) SaysStill(doing string, gaps ...time.Duration) []replay.RunLine {
	r, now := w.runner(Lease{}), time.Now()
	r.reported.moved = now
	r.say("c", doing)
	for _, gap := range gaps {
		now = now.Add(gap)
		r.sayStill(now, 0)
	}
	return r.lines
}
