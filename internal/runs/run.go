package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"outboxweb/internal/loop"
	"outboxweb/internal/outbox"
)

const (
	// runReport is how often a run says how far it is, at the most; and how
	// soon it learns that it is cancelled in another process.
	runReport = 500 * time.Millisecond
	// runResults is how many results wait for a report at the most.
	runResults = 64
	// Campaigns are worked off in groups, so that small ones share
	// transactions: of at most so many, with at most so many events.
	groupCampaigns = 32
	groupEvents    = 4000
)

// Why the work on a run ended before its time.
var (
	errRunCancelled = errors.New("the run is cancelled")
	errRunLost      = errors.New("the run was taken over by another process")
)

// Work works on runs, verifies in the background and prunes old results until ctx
// ends; then it lets what is under way end, or another process go on with it.
// Faults of the databases are logged and tried again.
func (w *Worker) Work(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	run := func(name string, interval loop.Interval, wake <-chan struct{}, step loop.Step) {
		loops.Go(func() {
			loop.Loop{Name: name, Step: step, Interval: interval, Wake: wake, Logger: w.Logger}.Run(ctx)
		})
	}
	for range workerLoops {
		run("runs", loop.Every(w.PollInterval), w.Runs.started, w.Step)
	}
	if w.VerifyEvery > 0 && w.mode() != outbox.ModeShadow {
		run("verify", loop.Every(w.VerifyEvery), nil, loop.ExceptFirst(w.verifyNext()))
	}
	run("prune", loop.Every(pruneInterval), nil, loop.ExceptFirst(w.Runs.Prune))
}

// Step takes up one run, if there is any, and works on it to its end, or
// until ctx ends; another process goes on with it then. It is safe for
// concurrent use.
func (w *Worker) Step(ctx context.Context) (bool, error) {
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return false, err
	}
	return true, w.runner(lease).run(ctx)
}

func (w *Worker) runner(lease Lease) *runner {
	return &runner{worker: w, lease: lease, active: make(map[string]int64), results: make(chan outbox.RunResult, runResults),
		done: lease.Run.Events.Done, failed: lease.Run.Counts.Failed}
}

// versions are those of the loaded projections, by name.
func (w *Worker) versions() map[string]string {
	versions := make(map[string]string)
	for _, p := range w.Set.Projections() {
		versions[p.Name] = p.Version
	}
	return versions
}

// runner works on one run.
type runner struct {
	worker  *Worker
	lease   Lease
	rate    *allowance // of the run; nil when it has no limit
	results chan outbox.RunResult

	mu     sync.Mutex
	active map[string]int64 // seqs of the campaigns under way
	done   int64            // events of the campaigns that are done
	failed int64            // campaigns
	lines  []outbox.RunLine

	reported struct { // at the last report, for the rate
		at     time.Time
		events int64
		rate   float64
	}
}

// run does the run's work and writes down how it ended.
func (r *runner) run(ctx context.Context) error {
	if r.lease.Run.Rate > 0 {
		r.rate = newAllowance(r.lease.Run.Rate)
	}
	r.reported.at, r.reported.events = time.Now(), r.done
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var reporting sync.WaitGroup
	var unsaved error
	reporting.Go(func() { unsaved = r.saveResults(working, stop) })
	err := r.work(working, stop)
	close(r.results)
	reporting.Wait()
	if unsaved != nil { // campaigns without their results are done again
		return errors.Join(unsaved, r.worker.Runs.Release(context.WithoutCancel(ctx), r.lease))
	}
	return r.end(context.WithoutCancel(ctx), ctx.Err() != nil, context.Cause(working), err)
}

// work hands the campaigns of the scope to replayers, which work side by side.
func (r *runner) work(ctx context.Context, stop context.CancelCauseFunc) error {
	groups := make(chan []Campaign)
	var replayers sync.WaitGroup
	var once sync.Once
	var fault error
	fail := func(err error) {
		once.Do(func() { fault = err })
		stop(err)
	}
	for range r.worker.Parallel {
		replayers.Go(func() {
			if err := r.replayGroups(ctx, groups); err != nil {
				fail(err)
			}
		})
	}
	if err := r.feed(ctx, groups); err != nil {
		fail(err)
	}
	close(groups)
	replayers.Wait()
	return fault
}

// feed reads the scope in pages and divides it into groups.
func (r *runner) feed(ctx context.Context, groups chan<- []Campaign) error {
	after := ""
	for {
		page, err := r.worker.Runs.Scope(ctx, r.lease, after, 500)
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].CampaignID
		for len(page) > 0 {
			n, events := 0, int64(0)
			for n < len(page) && n < groupCampaigns && (n == 0 || events+page[n].HighWaterSeq <= groupEvents) {
				events += page[n].HighWaterSeq
				n++
			}
			select {
			case groups <- page[:n]:
			case <-ctx.Done():
				return ctx.Err()
			}
			page = page[n:]
		}
	}
}

// replayGroups works groups off with a replayer of its own.
func (r *runner) replayGroups(ctx context.Context, groups <-chan []Campaign) error {
	var f *Replayer
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	for group := range groups {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f == nil {
			var err error
			if f, err = NewReplayer(ctx, r.worker.Runs.core, r.worker.Set); err != nil {
				return err
			}
			f.pace = r.throttle
		}
		if err := r.group(ctx, f, group); err != nil {
			return err
		}
		if err := f.scratch.Clear(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

// group does what the run is there for in some campaigns.
func (r *runner) group(ctx context.Context, f *Replayer, group []Campaign) error {
	switch r.lease.Run.Kind {
	case outbox.RunRebuild:
		return r.rebuild(ctx, f, group)
	case outbox.RunReplay:
		return r.each(group, func(c Campaign) (outbox.RunResult, error) { return r.replay(ctx, f, c) })
	default:
		return r.each(group, func(c Campaign) (outbox.RunResult, error) {
			return f.Verify(ctx, c.CampaignID, r.lease.Run.UntilSeq, r.lease.Run.Projections...)
		})
	}
}

// each does one campaign after the other.
func (r *runner) each(group []Campaign, do func(Campaign) (outbox.RunResult, error)) error {
	for _, c := range group {
		result, err := do(c)
		if err != nil {
			return err
		}
		r.report(c, result)
	}
	return nil
}

// report sends what became of a campaign.
func (r *runner) report(c Campaign, result outbox.RunResult) {
	result.CampaignID, result.Events, result.At = c.CampaignID, c.HighWaterSeq, time.Now().UTC()
	if until := r.lease.Run.UntilSeq; until > 0 {
		result.Events = min(until, result.Events)
	}
	r.results <- result // what is done is written down, whatever ends the run
}

// log adds a line to the run's log with the next report.
func (r *runner) log(campaign, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, outbox.RunLine{At: time.Now().UTC(), CampaignID: campaign, Text: fmt.Sprintf(format, args...)})
}

// saveResults writes down what is done, until there are no more results. When the
// run is cancelled, or not this process's any more, it stops the work. Its
// error is why the last results are not written down.
func (r *runner) saveResults(ctx context.Context, stop context.CancelCauseFunc) error {
	tick := time.NewTicker(runReport)
	defer tick.Stop()
	var results []outbox.RunResult
	send := func() error {
		status, err := r.send(context.WithoutCancel(ctx), results)
		switch {
		case errors.Is(err, outbox.ErrLeaseLost):
			results = nil
			stop(errRunLost)
		case err != nil:
			r.worker.Logger.Warn("the progress of a run could not be saved; retrying", "run", r.lease.Run.ID, "error", err)
			return err
		case status == outbox.RunCancelling:
			stop(errRunCancelled)
			fallthrough
		default:
			results = nil
		}
		return nil
	}
	for {
		select {
		case result, more := <-r.results:
			if !more {
				return loop.UntilFree(ctx, r.worker.Lease, send)
			}
			r.count(result)
			if results = append(results, result); len(results) >= runResults {
				_ = send() // what is not written goes with the next one
			}
		case <-tick.C:
			_ = send()
		}
	}
}

// count adds a result up.
func (r *runner) count(result outbox.RunResult) {
	if result.Outcome == outbox.OutcomeFailed {
		r.log(result.CampaignID, "failed: %s", result.Error)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, result.CampaignID)
	r.done += result.Events
	if result.Outcome == outbox.OutcomeFailed {
		r.failed++
	}
}

func (r *runner) send(ctx context.Context, results []outbox.RunResult) (outbox.RunStatus, error) {
	r.mu.Lock()
	events, lines := r.done, r.lines
	for _, seq := range r.active {
		events += seq
	}
	now := time.Now()
	if seconds := now.Sub(r.reported.at).Seconds(); seconds > 0.1 {
		recent := float64(max(0, events-r.reported.events)) / seconds
		if r.reported.rate > 0 { // smooth, so that the time left can be read
			recent = 0.7*r.reported.rate + 0.3*recent
		}
		r.reported.at, r.reported.events, r.reported.rate = now, events, recent
	}
	rate := r.reported.rate
	r.lines = nil
	r.mu.Unlock()
	status, err := r.worker.Runs.Report(ctx, r.lease, Progress{Results: results, Lines: lines, EventsDone: events, EventsPerSecond: rate, Lease: r.worker.Lease})
	if err != nil {
		r.mu.Lock()
		r.lines = append(lines, r.lines...)
		r.mu.Unlock()
	}
	return status, err
}

// end writes down how the work on the run ended: stopping says that this
// process is, cause why the work was stopped, and err what it came to.
func (r *runner) end(ctx context.Context, stopping bool, cause, err error) error {
	s, log := r.worker.Runs, r.worker.Logger.With("run", r.lease.Run.ID)
	switch {
	case errors.Is(cause, errRunLost) || errors.Is(err, outbox.ErrLeaseLost):
		log.Warn("a run was lost to another process")
		return nil
	case errors.Is(cause, errRunCancelled):
		return r.finish(ctx, outbox.RunCancelled, "")
	case stopping:
		return s.Release(ctx, r.lease)
	case s.core.ReadModel().Away(err):
		return errors.Join(outbox.ErrBusy, err, s.Release(ctx, r.lease))
	case err != nil:
		r.log("", "%v", err)
		_, _ = r.send(ctx, nil)
		return r.finish(ctx, outbox.RunFailed, explainFault(err))
	case r.failed > 0:
		return r.finish(ctx, outbox.RunFailed, outbox.Count(int64(r.failed), "campaign failed; see its result and the log", "campaigns failed; see their results and the log"))
	}
	if err := r.markBuilt(ctx); err != nil {
		return err
	}
	return r.finish(ctx, outbox.RunCompleted, "")
}

// markBuilt notes that all rows of the projections are those of their present
// version, once a rebuild has made all of them.
func (r *runner) markBuilt(ctx context.Context) error {
	run := r.lease.Run
	if run.Kind != outbox.RunRebuild || !run.All {
		return nil
	}
	for _, name := range run.Projections {
		if err := r.worker.Runs.core.ReadModel().MarkBuilt(ctx, name, run.Versions[name]); err != nil {
			return err
		}
	}
	return nil
}

// explainFault is the sentence about a fault that ended a run.
func explainFault(err error) string {
	var refusal *outbox.Refusal
	if errors.As(err, &refusal) {
		return refusal.Detail
	}
	return "internal error; see the log"
}

func (r *runner) finish(ctx context.Context, status outbox.RunStatus, why string) error {
	run, err := r.worker.Runs.Finish(ctx, r.lease, status, why)
	if errors.Is(err, outbox.ErrLeaseLost) {
		return nil
	}
	if err == nil {
		r.worker.Logger.Log(ctx, slog.LevelInfo, "run ended", "run", run.ID, "kind", run.Kind, "status", run.Status, "campaigns", run.Campaigns.Done, "events", run.Events.Done)
	}
	return err
}
