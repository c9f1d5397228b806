package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// verifyCmd compares live rows with a replay of the journal; it is suitable for cron.
type verifyCmd struct {
	replay.RunRequest
	actionFlags
}

func (c *verifyCmd) check() error { return checkScope(c.RunRequest) }

// Run verifies and prints what drifted. Drift is exit code 1.
func (c *verifyCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	c.All = len(c.Campaigns) == 0
	c.Kind = replay.RunVerify
	if err := refuseOthers(ctx, st, set, c.Projections...); err != nil {
		return err
	}
	run, err := st.Runs.Start(ctx, command(c.Reason), c.RunRequest, set.Infos())
	if err != nil {
		return err
	}
	if run, err = a.followRun(ctx, st, set, run.ID); err != nil {
		return err
	}
	var missing []string
	if len(c.Projections) == 0 {
		versions, err := st.ReadModel().Versions(ctx)
		if err != nil {
			return err
		}
		missing = notLoaded(set, versions)
	}
	return a.printVerified(ctx, st, set, run, missing, c.jsonFlag)
}

// printVerified prints the outcome of a verify, and the missing projections that it says nothing of. Its error is
// what the verify amounts to.
func (a *app) printVerified(ctx context.Context, st *engine.Engine, set *projection.Set, run replay.Run, missing []string, as jsonFlag) error {
	d, err := readRun(ctx, st, run)
	if err != nil {
		return err
	}
	d.NotLoaded = missing
	err = as.show(a, d, func() error {
		err := a.printVerdict(ctx, st, set, d)
		if err == nil {
			a.printNotLoaded(missing)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := runError(run); err != nil || !run.All {
		return err
	}
	return vouchedFor(ctx, st)
}

// overScope is a command on the campaigns and projections of a run, or on all campaigns if it names none.
func overScope(command string, o replay.RunRequest) string {
	return request.CommandLine(command, replay.RunRequest{Campaigns: o.Campaigns, All: len(o.Campaigns) == 0, Projections: o.Projections})
}

// vouchedFor returns an error when the journal lacks events that the projections have applied:
// their agreement then proves little.
func vouchedFor(ctx context.Context, st *engine.Engine) error {
	s, err := st.Summary(ctx)
	if err == nil && s.OtherJournal {
		err = errors.New(s.OtherJournalText())
	}
	return err
}

// printVerdict prints the outcome of a verify, then what drifted and which versions were compared: before
// a rebuild is offered.
func (a *app) printVerdict(ctx context.Context, st *engine.Engine, set *projection.Set, d runDetail) error {
	loaded, err := st.Runs.DescribeProjections(ctx, set.Infos())
	if err != nil {
		return err
	}
	p, run := shownNow(), d.Run
	p.Loaded = loaded
	fmt.Fprintf(a.out, "%s (%s in %s)\n", jobs.RunSentence(p, run), event.Count(run.Events.Done, "event", "events"), event.Count(run.Campaigns.Done, "campaign", "campaigns"))
	switch {
	case run.Status != replay.RunCompleted:
		fmt.Fprintf(a.out, "run %d: %s\n", run.ID, run.Error)
	case run.Verdict == campaign.VerdictDrift && !run.OfLoaded():
	case run.Verdict == campaign.VerdictDrift:
		a.printVersions(d)
		for _, p := range loaded {
			if text := p.Sentence(p.Name, p.Version); text != "" && slices.Contains(run.Projections, p.Name) {
				fmt.Fprintln(a.out, text, campaign.BuiltAdvice)
			}
		}
		fix, err := rebuildOf(ctx, st, run)
		if err != nil {
			return err
		}
		fmt.Fprintln(a.out, "if the projection files are right,", fix)
	case run.UntilSeq > 0 && run.Verdict == "":
		fmt.Fprintf(a.out, "its live rows are at another event and were not compared: outboxweb runs show %d prints the digests\n", run.ID)
	}
	left, err := st.ReadModel().Left(ctx)
	if err != nil {
		return err
	}
	for _, name := range left {
		fmt.Fprintf(a.out, "not compared: projection %s, which is not loaded any more\n", name)
	}
	return a.printResults(d)
}

// driftedNamed is the maximum number of campaigns that the command of a rebuild names.
const driftedNamed = 50

// rebuildOf says how to rebuild what a verify found to differ, and no more.
func rebuildOf(ctx context.Context, st *engine.Engine, run replay.Run) (string, error) {
	o, err := st.Runs.RebuildOf(ctx, run.ID)
	if len(o.Campaigns) > driftedNamed {
		return fmt.Sprintf("rebuild them on the page /runs/%d, or by name: outboxweb campaigns list --state drifted --json", run.ID), err
	}
	return "fix them with: " + overScope("outboxweb runs start rebuild", o), err
}

// printVersions prints which versions built the rows that differ, and which they were compared with.
func (a *app) printVersions(d runDetail) {
	for _, name := range d.Projections {
		if text := replay.VersionsOf(d.Results, name); text != "" {
			fmt.Fprintf(a.out, "projection %s: %s\n", name, text)
		}
	}
}
