package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
)

const (
	// runReport is the minimum interval between progress reports; and how soon a run learns that it
	// was cancelled in another process.
	runReport = 500 * time.Millisecond
	// runResults is the maximum number of results waiting for a report.
	runResults = 64
	// Campaigns are processed in groups, so that small ones share transactions: limits on a group's
	// campaigns and events, and on how long a replayed campaign waits for the others.
	groupCampaigns = 32
	groupEvents    = 4000
	groupTime      = 2 * time.Second

	// runStill is for how long the progress of a run may stand still before its log says why.
	runStill = 5 * time.Second

	// catchUpInterval is how often replays are started that nothing else has started.
	catchUpInterval = time.Hour
	// tablesInterval is how often dropped tables of read models are looked for.
	tablesInterval = 30 * time.Second
)

// Reasons why the work on a run ended early.
var (
	errRunCancelled = errors.New("the run is cancelled")
	errRunLost      = errors.New("the run was taken over by another process")
)

// Work executes runs, verifies in the background and prunes old results until ctx ends; then it
// finishes work in progress or releases it to another process. Database errors are logged and
// retried.
func (w *Worker) Work(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	run := func(name string, interval loop.Interval, wake <-chan struct{}, step loop.Step) {
		loops.Go(func() {
			loop.Loop{Name: name, Step: step, Interval: interval, Wake: wake, Logger: w.Logger}.Run(ctx)
		})
	}
	// What events were applied without is caught up once a process has it loaded again.
	run("catch up", loop.Every(catchUpInterval), nil, func(ctx context.Context) (bool, error) { return false, w.Runs.startOwed(ctx) })
	run("tables", loop.Every(tablesInterval), nil, w.restoreTables)
	for range workerLoops {
		run("runs", loop.Every(w.PollInterval), w.Runs.started, w.Step)
	}
	if w.VerifyEvery > 0 && w.Runs.core.Mode() != campaign.ModeShadow {
		run("verify", loop.Every(w.VerifyEvery), nil, loop.ExceptFirst(w.verifyNext()))
	}
	run("prune", loop.Every(pruneInterval), nil, loop.ExceptFirst(w.Runs.Prune))
}

// Step claims one run, if there is any, and executes it to its end, or until ctx ends; another
// process then continues it. It is safe for concurrent use.
func (w *Worker) Step(ctx context.Context) (bool, error) {
	lease, ok, err := w.Runs.Claim(ctx, w.Worker, w.versions(), w.Lease)
	if err != nil || !ok {
		return false, err
	}
	defer w.Runs.left(lease)
	return true, w.runner(lease).run(ctx)
}

func (w *Worker) runner(lease Lease) *runner {
	return &runner{worker: w, lease: lease, active: make(map[string]int64), doing: make(map[string]string), results: make(chan replay.RunResult, runResults),
		done: lease.Run.Events.Done, failed: lease.Run.FailedCampaigns()}
}

// versions returns the versions of the loaded projections, by name.
func (w *Worker) versions() map[string]string { return versionsOf(w.Set.Infos()) }

// runner executes one run.
type runner struct {
	worker  *Worker
	lease   Lease
	asked   rehearsalRow    // of a run that replays with other files than the loaded ones
	set     *projection.Set // that it replays with
	rate    *allowance      // of the run; nil without a limit
	results chan replay.RunResult

	mu     sync.Mutex
	active map[string]int64  // seqs of the campaigns in progress
	doing  map[string]string // what is being done with them
	done   int64             // events of completed campaigns
	failed int64             // failed campaigns
	lines  []replay.RunLine

	reported struct { // at the last report, for the rate
		at     time.Time
		events int64
		rate   float64
		moved  time.Time // when there was progress
	}
}

// run executes the run and records how it ended.
func (r *runner) run(ctx context.Context) error {
	if r.lease.Run.Rate > 0 {
		r.rate = newAllowance(r.lease.Run.Rate)
	}
	r.reported.at, r.reported.events, r.reported.moved = time.Now(), r.done, time.Now()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var reporting sync.WaitGroup
	var unsaved error
	reporting.Go(func() { unsaved = r.saveResults(working, stop) })
	work := r.work
	if r.lease.Run.Kind == replay.RunRehearse {
		work = r.rehearse
	}
	err := r.readChanged(working)
	if err == nil {
		err = work(working, stop)
	}
	close(r.results)
	reporting.Wait()
	if unsaved != nil { // campaigns without a stored result are done again
		return errors.Join(unsaved, r.worker.Runs.Release(context.WithoutCancel(ctx), r.lease))
	}
	return r.end(context.WithoutCancel(ctx), ctx.Err() != nil, context.Cause(working), err)
}

// readChanged reads what a run that replays with other files than the loaded ones was asked.
func (r *runner) readChanged(ctx context.Context) error {
	run := r.lease.Run
	if r.set = r.worker.Set; len(run.With) == 0 {
		return nil
	}
	var err error
	r.asked, err = reading(ctx, r.worker.Runs, "", func(t *tx) (rehearsalRow, error) { return t.rehearsal(run.ID) })
	switch {
	case err != nil:
	case len(r.asked.files) == 0:
		err = event.Conflict("the files of run %d have been deleted; start a new one", run.ID)
	default:
		r.set, _, err = r.worker.Set.Changed(ctx, r.asked.files)
	}
	return err
}

// work distributes the campaigns of the scope to concurrent replayers.
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
	return r.eachPage(ctx, 500, func(page []Campaign) error {
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
		return nil
	})
}

// eachPage reads the scope in pages.
func (r *runner) eachPage(ctx context.Context, limit int, do func([]Campaign) error) error {
	for after := ""; ; {
		page, err := r.worker.Runs.Scope(ctx, r.lease, after, limit)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		after = page[len(page)-1].CampaignID
	}
}

// replayGroups processes groups with its own replayer.
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
			if f, err = NewReplayer(ctx, r.worker.Runs.core, r.set); err != nil {
				return err
			}
			f.foreign = len(r.asked.changesSchema(r.set, r.worker.Set)) > 0
			f.pace, f.say = r.throttle, r.say
			if err := r.makeMissing(ctx, f); err != nil {
				return err
			}
		}
		if err := r.group(ctx, f, group); err != nil {
			if unlike := f.unlike(ctx, r.lease.Run.Projections, err); unlike != "" {
				err = event.Setup("%s", unlike)
			}
			return err
		}
		if err := f.scratch.Clear(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

// makeMissing makes missing tables of projections whose rows the run is to make.
func (r *runner) makeMissing(ctx context.Context, f *Replayer) error {
	if r.lease.Run.Kind == replay.RunVerify {
		return nil
	}
	if table, _ := f.missing(ctx, r.lease.Run.Projections); table == "" {
		return nil
	}
	return Install(ctx, r.worker.Runs.core, r.worker.Set)
}

// group executes the run's kind on some campaigns.
func (r *runner) group(ctx context.Context, f *Replayer, group []Campaign) error {
	switch r.lease.Run.Kind {
	case replay.RunRebuild:
		return r.rebuild(ctx, f, group)
	case replay.RunReplay:
		return r.each(group, func(c Campaign) (replay.RunResult, error) { return r.replay(ctx, f, c) })
	default:
		return r.each(group, func(c Campaign) (replay.RunResult, error) {
			return f.Verify(ctx, c.CampaignID, r.lease.Run.UntilSeq, r.lease.Run.Projections...)
		})
	}
}

// each calls do for each campaign in turn.
func (r *runner) each(group []Campaign, do func(Campaign) (replay.RunResult, error)) error {
	for _, c := range group {
		result, err := do(c)
		if err != nil {
			return err
		}
		r.report(c, result)
	}
	return nil
}

func (r *runner) report(c Campaign, result replay.RunResult) {
	result.CampaignID, result.Events, result.At = c.CampaignID, c.HighWaterSeq, time.Now().UTC()
	if until := r.lease.Run.UntilSeq; until > 0 {
		result.Events = min(until, result.Events)
	} else if r.lease.Run.Kind != replay.RunReplay {
		result.Events = min(c.AppliedSeq, result.Events)
	}
	r.results <- result // a completed campaign is recorded, whatever ends the run
}

// log adds a line to the run's log with the next report.
func (r *runner) log(campaign, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, replay.RunLine{At: time.Now().UTC(), CampaignID: campaign, Text: fmt.Sprintf(format, args...)})
}

// say notes what is being done with a campaign.
func (r *runner) say(campaign, doing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing[campaign] = doing
}

// sayStill adds to the log what is being done while the number of events done does not grow.
func (r *runner) sayStill(now time.Time, events int64) {
	if events > r.reported.events {
		r.reported.moved = now
	}
	if now.Sub(r.reported.moved) < runStill {
		return
	}
	r.reported.moved = now
	for _, campaign := range slices.Sorted(maps.Keys(r.doing)) {
		r.lines = append(r.lines, replay.RunLine{At: now.UTC(), CampaignID: campaign, Text: r.doing[campaign]})
	}
}

// saveResults records results until there are no more. If the run is cancelled, or its lease is
// lost, it stops the work. Its error is the reason why the last results are not recorded.
func (r *runner) saveResults(ctx context.Context, stop context.CancelCauseFunc) error {
	tick := time.NewTicker(runReport)
	defer tick.Stop()
	var results []replay.RunResult
	send := func() error {
		status, err := r.send(context.WithoutCancel(ctx), results)
		switch {
		case errors.Is(err, event.ErrLeaseLost):
			results = nil
			stop(errRunLost)
		case err != nil:
			r.worker.Logger.Warn("the progress of a run could not be saved; retrying", "run", r.lease.Run.ID, "error", err)
			return err
		case status == replay.RunCancelling:
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
				_ = send() // unsent results go with the next report
			}
		case <-tick.C:
			_ = send()
		}
	}
}

func (r *runner) count(result replay.RunResult) {
	failed := result.Outcome == replay.OutcomeFailed && r.lease.Run.Kind != replay.RunRehearse
	if failed {
		r.log(result.CampaignID, "failed: %s", result.Error)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, result.CampaignID)
	delete(r.doing, result.CampaignID)
	r.done += result.Events
	if failed {
		r.failed++
	}
}

func (r *runner) send(ctx context.Context, results []replay.RunResult) (replay.RunStatus, error) {
	r.mu.Lock()
	events := r.done
	for _, seq := range r.active {
		events += seq
	}
	now := time.Now()
	r.sayStill(now, events)
	lines := r.lines
	if seconds := now.Sub(r.reported.at).Seconds(); seconds > 0.1 {
		recent := float64(max(0, events-r.reported.events)) / seconds
		if r.reported.rate > 0 { // smoothed, so that the displayed time left is steady
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

// end records how the work on the run ended: stopping means that this process is stopping, cause is
// why the work was stopped, and err its result.
func (r *runner) end(ctx context.Context, stopping bool, cause, err error) error {
	s, log := r.worker.Runs, r.worker.Logger.With("run", r.lease.Run.ID)
	switch {
	case errors.Is(cause, errRunLost) || errors.Is(err, event.ErrLeaseLost):
		log.Warn("a run was lost to another process")
		return nil
	case errors.Is(cause, errRunCancelled):
		return r.finish(ctx, replay.RunCancelled, "")
	case stopping:
		return s.Release(ctx, r.lease)
	case s.core.ReadModel().Away(err):
		return errors.Join(event.ErrBusy, err, s.Release(ctx, r.lease))
	case err != nil:
		r.log("", "%v", err)
		_, _ = r.send(ctx, nil)
		return r.finish(ctx, replay.RunFailed, explainFault(err))
	case r.failed > 0:
		return r.finish(ctx, replay.RunFailed, event.Count(int64(r.failed), "campaign failed; see its result and the log", "campaigns failed; see their results and the log"))
	}
	if err := r.markBuilt(ctx); err != nil {
		return err
	}
	return r.finish(ctx, replay.RunCompleted, "")
}

// markBuilt records that all rows of the projections are those that their current version builds, once
// a rebuild has covered all of them, or a verification has found no difference.
func (r *runner) markBuilt(ctx context.Context) error {
	run := r.lease.Run
	switch {
	case !run.All || !run.OfLoaded() || run.Kind != replay.RunRebuild && run.Kind != replay.RunVerify:
		return nil
	case run.Kind == replay.RunVerify:
		ended, err := r.worker.Runs.Get(ctx, run.ID)
		if err != nil {
			return err
		}
		if c := ended.Counts; c.Drifted+c.Failed+c.NotCompared > 0 {
			return nil
		}
	}
	for _, name := range run.Projections {
		if err := r.worker.Runs.core.ReadModel().MarkBuilt(ctx, name, run.Versions[name]); err != nil {
			return err
		}
	}
	return nil
}

// explainFault returns the sentence about an error that ended a run.
func explainFault(err error) string {
	var refusal *event.Refusal
	if errors.As(err, &refusal) {
		return refusal.Detail
	}
	return "internal error; see the log"
}

func (r *runner) finish(ctx context.Context, status replay.RunStatus, why string) error {
	run, err := r.worker.Runs.Finish(ctx, r.lease, status, why)
	if errors.Is(err, event.ErrLeaseLost) {
		return nil
	}
	if err == nil {
		r.worker.Logger.Log(ctx, slog.LevelInfo, "run ended", "run", run.ID, "kind", run.Kind, "status", run.Status, "campaigns", run.Campaigns.Done, "events", run.Events.Done)
	}
	return err
}
