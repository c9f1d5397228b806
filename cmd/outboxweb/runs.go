package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/worker"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// runsCmd starts, lists and controls replays, verifies and rebuilds.
type runsCmd struct {
	Start  runsStartCmd  `cmd:"" help:"Start a replay, verify or rebuild."`
	List   runsListCmd   `cmd:"" help:"List runs, newest first."`
	Show   runsShowCmd   `cmd:"" help:"Show a run, its differences and the end of its log."`
	Cancel runsCancelCmd `cmd:"" help:"Cancel a run: finished campaigns stay done, the others are unchanged."`
	Resume runsResumeCmd `cmd:"" help:"Resume an interrupted or failed run where it stopped."`
}

// checkScope refuses flags of a run that kong does not.
func checkScope(o replay.RunRequest) error {
	if o.All && len(o.Campaigns) > 0 {
		return usagef("--all means every campaign; give it or --campaign, not both")
	}
	return nil
}

type runsStartCmd struct {
	Kind replay.RunKind `arg:"" values:"scoped-run-kind" help:"The kind of run: replay, verify or rebuild."`
	replay.RunStartRequest
	Wait   bool `help:"Follow the run until it ends; exit 1 unless it completes, or if a verify finds drift."`
	DryRun bool `help:"Rebuild only: start no run, print what would change. To try out changed files, name them in --projections."`
	jsonFlag
}

// Run starts a run and, when asked to, follows it.
func (c *runsStartCmd) Run(ctx context.Context, a *app) error {
	if err := checkScope(c.RunRequest); err != nil {
		return err
	}
	if !c.All && len(c.Campaigns) == 0 {
		return usagef("runs start needs --campaign C, or --all")
	}
	if c.DryRun {
		if c.Kind != replay.RunRebuild || c.Wait {
			return usagef("--dry-run is for runs start rebuild, without --wait")
		}
		return c.try(ctx, a)
	}
	st, set, err := a.openUninstalled(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	if c.Kind.ReadsOnly() {
		err = refuseOthers(ctx, st, set, c.Projections...)
	} else {
		err = install(ctx, st, set)
	}
	if err != nil {
		return err
	}
	var run replay.Run
	err = a.confirming(c.Reason, c.Confirm, func(o operator.Command) (err error) {
		c.RunRequest.Kind = c.Kind
		run, err = st.Runs.Start(ctx, o, c.RunRequest, set.Infos())
		return err
	})
	if err != nil {
		return err
	}
	if c.Wait {
		return a.printEnd(ctx, st, set, run.ID, c.jsonFlag)
	}
	return a.printQueued(ctx, st, run, c.jsonFlag)
}

// printEnd follows a run to its end and prints the outcome.
func (a *app) printEnd(ctx context.Context, st *engine.Engine, set *projection.Set, id int64, as jsonFlag) error {
	run, err := a.followRun(ctx, st, set, id)
	if err != nil {
		return err
	}
	if err := a.printRun(ctx, st, run, as); err != nil {
		return err
	}
	return runError(run)
}

// printQueued prints that a run is waiting for a worker.
func (a *app) printQueued(ctx context.Context, st *engine.Engine, run replay.Run, as jsonFlag) error {
	if err := a.warnWithoutWorker(ctx, st, "run %d is queued until one does: start outboxweb serve, or use --wait", run.ID); err != nil {
		return err
	}
	return as.print(a, run, "run %d is %s: %s of %s\nfollow it with: outboxweb runs show %d", run.ID, run.Status, run.Kind, run.Scope(), run.ID)
}

// runError returns the error that an ended run amounts to, or nil.
func runError(run replay.Run) error {
	return problems(!run.Succeeded())
}

// serverFirst is how long a running server has to claim a run before the command does. The server
// is preferred because it can yield to events being applied; a command cannot.
const serverFirst = 5 * time.Second

// work executes runs until ctx ends: a waiting command works on runs itself unless a server does.
func (a *app) work(ctx context.Context, st *engine.Engine, set *projection.Set) error {
	summary, err := st.Summary(ctx)
	if err != nil {
		return err
	}
	if summary.Worker.Running {
		select {
		case <-time.After(serverFirst):
		case <-ctx.Done():
			return nil
		}
	}
	w := worker.New(worker.Config{Queue: st.Queue, Set: set, Logger: slog.New(slog.DiscardHandler), Mode: st.Mode(), Build: version})
	st.WorkOnRuns(w, runs.WorkerConfig{})
	return w.Attend(ctx)
}

// followRun executes runs until this one has ended.
func (a *app) followRun(ctx context.Context, st *engine.Engine, set *projection.Set, id int64) (replay.Run, error) {
	working, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var worked sync.WaitGroup
	worked.Go(func() {
		if err := a.work(working, st, set); err != nil {
			failed <- err
		}
	})
	run, err := a.watchRun(ctx, st, id, failed)
	stop()
	worked.Wait()
	if err != nil {
		a.leaveRun(context.WithoutCancel(ctx), st, id)
	}
	return run, err
}

// leavePatience is for how long a command that is stopped tries to end its run.
const leavePatience = 10 * time.Second

// leaveRun ends a run that this command was to work on, and does not any more, unless a server does.
func (a *app) leaveRun(ctx context.Context, st *engine.Engine, id int64) {
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	run, err := st.Runs.Interrupt(ctx, id, "the command that worked on it was stopped; resume it, or start a new run")
	switch {
	case err != nil || run.Status.Active():
		fmt.Fprintf(a.err, "run %d has not ended; follow it with: outboxweb runs show %d\n", id, id)
	case run.Status == replay.RunInterrupted:
		fmt.Fprintf(a.err, "run %d is interrupted; continue with: outboxweb runs resume %d --wait\n", id, id)
	}
}

// watchRun polls a run until it has ended, or until executing runs has failed here.
func (a *app) watchRun(ctx context.Context, st *engine.Engine, id int64, failed <-chan error) (run replay.Run, err error) {
	err = a.watch(ctx, "run", failed, func() (ended bool, done, total int64, err error) {
		run, err = st.Runs.Get(ctx, id)
		return !run.Status.Active(), run.Events.Done, run.Events.Total, err
	})
	return run, err
}

// logEnd is how many lines of a log are printed, and resultsShown how many results of each outcome.
const (
	logEnd       = 20
	resultsShown = event.MaxPage
)

// runDetail is a run with its results and log.
type runDetail struct {
	replay.Run
	Rehearsal *replay.FixRehearsal `json:"rehearsal,omitempty"` // its answer; nil unless it is one
	Results   []replay.RunResult   `json:"results"`             // results that drifted, failed or were not fully compared; of a rehearsal all
	Log       []replay.RunLine     `json:"log"`                 // its end, oldest line first
	// NotLoaded are projections that events are applied with, and that verify did not have to compare.
	NotLoaded  []string `json:"not_loaded,omitempty"`
	unattended string   // what is known of the process at work on an active run; empty while it reports
}

func readRun(ctx context.Context, st *engine.Engine, run replay.Run) (runDetail, error) {
	d := runDetail{Run: run, Results: []replay.RunResult{}, unattended: run.Unattended(time.Now())}
	summary, err := st.Summary(ctx)
	if err != nil {
		return d, err
	}
	if run.Status.Active() && summary.Worker.Absent() {
		d.unattended = "No worker is running; start a worker, or cancel the run"
		d.EventsPerSecond, d.SecondsLeft = 0, nil
	}
	outcomes := []string{replay.OutcomeDrift, replay.OutcomeFailed, replay.OutcomeNotCompared}
	if run.Kind == replay.RunRehearse {
		outcomes = append(outcomes, replay.OutcomeReplayed, replay.OutcomeMatch)
		loaded, err := installed(ctx, st)
		if err != nil {
			return d, err
		}
		rehearsal, err := st.Runs.Rehearsal(ctx, run.ID, loaded)
		if err != nil {
			return d, err
		}
		d.Rehearsal = &rehearsal
	}
	for _, outcome := range outcomes {
		page, err := st.Runs.Results(ctx, replay.ResultFilter{RunID: run.ID, Outcome: outcome, Samples: true, Limit: resultsShown})
		if err != nil {
			return d, err
		}
		d.Results = append(d.Results, page.Items...)
	}
	lines, err := st.Runs.Log(ctx, run.ID, "", logEnd)
	d.Log = lines.Items
	slices.Reverse(d.Log)
	return d, err
}

// printRun prints a run with its mismatches and the end of its log.
func (a *app) printRun(ctx context.Context, st *engine.Engine, run replay.Run, as jsonFlag) error {
	d, err := readRun(ctx, st, run)
	if err != nil {
		return err
	}
	if as.JSON {
		return a.printJSON(d)
	}
	fmt.Fprintf(a.out, "run %d is %s: %s of %s, started by %s at %s\n", d.ID, d.Status, d.Kind, d.Scope(), d.RequestedBy, stamp(d.RequestedAt))
	for _, line := range []struct{ name, text string }{{"reason", d.Reason}, {"error", d.Error}, {"cancelled by", d.CancelledBy}, {"verdict", d.Kind.OutcomeName(string(d.Verdict))}} {
		if line.text != "" {
			fmt.Fprintf(a.out, "%s: %s\n", line.name, line.text)
		}
	}
	a.printVersions(d)
	if d.unattended != "" {
		fmt.Fprintln(a.out, d.unattended)
	}
	fmt.Fprintf(a.out, "%s of %s, %s of %s%s\n\n", event.Number(d.Campaigns.Done), event.Count(d.Campaigns.Total, "campaign", "campaigns"), event.Number(d.Events.Done), event.Count(d.Events.Total, "event", "events"), pace(d.Run))
	t := table(a.out)
	if d.Rehearsal != nil {
		if err := a.printAnswer(*d.Rehearsal); err != nil {
			return err
		}
	}
	for _, c := range d.Outcomes() {
		t.row(c.Name, c.Campaigns)
	}
	for i, name := range slices.Sorted(maps.Keys(d.Digests)) {
		if i == 0 {
			fmt.Fprintf(a.out, "\ndigests at seq %d\n", d.Seq)
		}
		left := ""
		if p := d.LeftOut(d.Results, name); p != nil {
			left = fmt.Sprintf("\tat seq %d, %s", p.Seq, p.LeftOut)
		}
		fmt.Fprintf(t, "%s\t%s%s\n", name, d.Digests[name], left)
	}
	if err := errors.Join(t.Flush(), a.printResults(d)); err != nil {
		return err
	}
	for i, line := range d.Log {
		if i == 0 {
			fmt.Fprintln(a.out, "\nend of its log")
		}
		t.row(stamp(line.At), line.CampaignID, firstLine(line.Text, 200))
	}
	return t.Flush()
}

func pace(run replay.Run) string {
	if run.EventsPerSecond <= 0 {
		return ""
	}
	text := fmt.Sprintf(", %s events/s", event.Number(int64(run.EventsPerSecond)))
	if run.SecondsLeft != nil {
		text += fmt.Sprintf(", about %s left", event.Age(time.Duration(*run.SecondsLeft*float64(time.Second))))
	}
	return text
}

// printResults prints a line for each campaign, but of what was tried only for those of which there is
// anything to say, and which rows differ.
func (a *app) printResults(d runDetail) error {
	said := slices.DeleteFunc(slices.Clone(d.Results), func(r replay.RunResult) bool {
		return d.Kind == replay.RunRehearse && jobs.ResultWords(d.Kind, r) == ""
	})
	if len(said) > 0 {
		fmt.Fprintln(a.out)
		if err := printColumns(a.out, jobs.RunResultColumns(d.Run), said); err != nil {
			return err
		}
	}
	if err := a.printCells(d); err != nil {
		return err
	}
	all := d.Counts.Drifted + d.Counts.Failed + d.Counts.NotCompared
	if d.Rehearsal != nil {
		all = d.Campaigns.Done
	}
	if more := all - int64(len(d.Results)); more > 0 && d.ID > 0 {
		fmt.Fprintf(a.out, "and %s more; all of them are at /runs/%d\n", event.Count(more, "campaign", "campaigns"), d.ID)
	}
	return nil
}

// cellsShown is the number of printed fields after which no further row is printed, and valueShown the
// number of characters of their values.
const (
	cellsShown = 50
	valueShown = 60
)

// printCells prints which rows differ, and their fields.
func (a *app) printCells(d runDetail) error {
	t, cells, more := table(a.out), 0, int64(0)
	live, expected, kinds := "LIVE", "EXPECTED", map[string]string{projection.RowAdded: "missing", projection.RowRemoved: "unexpected"}
	if d.Kind == replay.RunRehearse {
		live, expected, kinds = "NOW", "THEN", nil
	}
	for _, r := range d.Results {
		for _, p := range r.Projections {
			if p.Comparison == nil {
				continue
			}
			more += p.Comparison.Added + p.Comparison.Changed + p.Comparison.Removed
			for _, row := range p.Comparison.Samples {
				if cells >= cellsShown {
					break
				}
				if cells == 0 {
					fmt.Fprintf(t, "\nCAMPAIGN\tTABLE\tROW\tKEY\tFIELD\t%s\t%s\n", live, expected)
				}
				if len(row.Fields) == 0 {
					row.Fields = []projection.FieldChange{{Live: []byte("there"), Expected: []byte("there")}}
				}
				for _, f := range row.Fields {
					if row.Kind == projection.RowAdded {
						f.Live = []byte("absent")
					} else if row.Kind == projection.RowRemoved {
						f.Expected = []byte("absent")
					}
					t.row(firstLine(r.CampaignID, idShown), row.Table, cmp.Or(kinds[row.Kind], row.Kind), firstLine(strings.Join(keyTexts(row.Key), " "), valueShown), f.Name, firstLine(string(f.Live), valueShown), firstLine(string(f.Expected), valueShown))
					cells++
				}
				more--
			}
		}
	}
	if more > 0 && cells > 0 {
		where := "--json"
		if d.ID > 0 {
			where = fmt.Sprintf("runs show %d --json", d.ID)
		}
		fmt.Fprintf(t, "and %s; %s has up to %d of each campaign and projection\n", event.Count(more, "more row", "more rows"), where, projection.MaxSamples)
	}
	return t.Flush()
}

// keyTexts are the columns of a row's key with their values.
func keyTexts(key []projection.Field) (texts []string) {
	for _, k := range key {
		texts = append(texts, k.Name+"="+string(k.Value))
	}
	return texts
}

type runsListCmd struct {
	Filter replay.RunFilter `embed:""`
	listFlags
}

// Run lists runs.
func (c *runsListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	c.Filter.Limit = c.Limit
	page, err := st.Runs.List(ctx, c.Filter)
	return printPage(a, c.jsonFlag, err, "runs", page, jobs.RunColumns(shownNow()))
}

type runsShowCmd struct {
	ID int64 `arg:"" help:"The run's number."`
	jsonFlag
}

// Run shows one run.
func (c *runsShowCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	run, err := st.Runs.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	return a.printRun(ctx, st, run, c.jsonFlag)
}

type runsCancelCmd struct {
	ID int64 `arg:"" help:"The run's number."`
	actionFlags
}

// Run cancels one run.
func (c *runsCancelCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	run, err := st.Runs.Cancel(ctx, command(c.Reason), c.ID)
	if err != nil {
		return err
	}
	becomes := "cancelled"
	if run.Status == replay.RunCancelling {
		becomes = "cancelling: it ends as soon as its worker notices"
		if err := a.warnWithoutWorker(ctx, st, "run %d ends when one starts, or when it is cancelled again after its lease", run.ID); err != nil {
			return err
		}
	}
	return c.print(a, run, "run %d is %s", run.ID, becomes)
}

type runsResumeCmd struct {
	ID     int64  `arg:"" help:"The run's number."`
	Reason string `placeholder:"TEXT" help:"The reason, for the audit log."`
	Wait   bool   `help:"Follow the run until it ends; exit 1 unless it completes, or if a verify finds drift."`
	jsonFlag
}

// Run requeues one run.
func (c *runsResumeCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	if err := refuseOthers(ctx, st, set); err != nil {
		return err
	}
	run, err := st.Runs.Resume(ctx, command(c.Reason), c.ID, set.Infos())
	if err != nil {
		return err
	}
	if c.Wait {
		return a.printEnd(ctx, st, set, run.ID, c.jsonFlag)
	}
	return a.printQueued(ctx, st, run, c.jsonFlag)
}
