package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// checkCmd tests the invariants: those that need a replay of the journal here, all others in
// internal/maintenance and in the checks registered with its core.
type checkCmd struct {
	Replay bool `default:"true" negatable:"" help:"Replay every campaign from the journal and compare the result with its live rows."`
	jsonFlag
}

// Run reports every violation.
func (c *checkCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	versions, err := st.ReadModel().Versions(ctx)
	if err != nil {
		return err
	}
	replay := c.Replay && len(versions) > 0 // no rows without a version
	if replay {
		if err := refuseOthers(ctx, st, set); err != nil {
			return err
		}
	}
	bar := a.progress("check")
	report, err := st.Maintenance.Check(ctx, bar.set)
	bar.end()
	if err != nil {
		return err
	}
	if err := st.Maintenance.CheckTables(ctx, tablesOf(set, versions), &report); err != nil {
		return err
	}
	if replay {
		if err := a.checkReplays(ctx, st, set, &report); err != nil {
			return err
		}
		report.NotLoaded = notLoaded(set, versions)
	}
	report.OK = len(report.Violations) == 0
	report.Violations = append([]campaign.Violation{}, report.Violations...) // an empty JSON list rather than null
	err = c.show(a, report, func() error { return printCheck(a, report) })
	return cmp.Or(err, problems(!report.OK))
}

func tablesOf(set *projection.Set, versions map[string]string) (tables []string) {
	for _, p := range set.Projections() {
		if _, installed := versions[p.Name]; installed {
			tables = append(tables, p.Tables...)
		}
	}
	return tables
}

// checkedWords are the words for counts whose names in JSON do not say enough.
var checkedWords = map[string]string{"folded": "campaigns replayed", "skips": "skipped events", "skipped": "campaigns not checked"}

func printCheck(a *app, r campaign.CheckReport) error {
	t := table(a.out)
	for _, what := range slices.Sorted(maps.Keys(r.Checked)) {
		t.row(cmp.Or(checkedWords[what], what), event.Number(r.Checked[what]))
	}
	t.Flush()
	if len(r.NotCompared)+len(r.NotLoaded) > 0 {
		fmt.Fprintln(a.out)
		a.printNotCompared(r.NotCompared)
		a.printNotLoaded(r.NotLoaded)
	}
	if r.OK {
		fmt.Fprintln(a.out, "\nno problems found")
		return nil
	}
	fmt.Fprintf(a.out, "\n%s\n", event.Count(int64(len(r.Violations)), "violation", "violations"))
	return printTable(a.out, "INVARIANT\tCAMPAIGN\tSEQ\tDETAIL", r.Violations, func(v campaign.Violation) []any {
		return []any{v.Invariant, v.CampaignID, v.Seq, v.Detail}
	})
}

// leftShown is how many lines are printed about parts that were not compared.
const leftShown = 20

func (a *app) printNotCompared(left []campaign.NotCompared) {
	for _, n := range left[:min(len(left), leftShown)] {
		fmt.Fprintln(a.out, "not compared:", n)
	}
	if more := len(left) - leftShown; more > 0 {
		fmt.Fprintf(a.out, "not compared: %s more; --json has them\n", event.Number(int64(more)))
	}
}

// checkReplays replays every campaign up to its applied event and compares the rows with the live
// ones.
func (a *app) checkReplays(ctx context.Context, st *engine.Engine, set *projection.Set, r *campaign.CheckReport) error {
	f, err := runs.NewReplayer(ctx, st.Store, set)
	if err != nil {
		return err
	}
	defer f.Close()
	bar := a.progress("replay")
	defer bar.end()
	return eachCampaign(ctx, st, nil, func(campaign campaign.Campaign) error {
		bar.set(r.Checked["replayed"], r.Checked["campaigns"])
		return checkReplay(ctx, f, campaign, r)
	})
}

// checkReplay compares one campaign. It skips diverged campaigns, which are already reported, and
// campaigns without applied events.
func checkReplay(ctx context.Context, f *runs.Replayer, c campaign.Campaign, r *campaign.CheckReport) error {
	if c.Diverged != "" || c.AppliedSeq == 0 {
		return nil
	}
	result, err := f.Verify(ctx, c.CampaignID, 0)
	if err != nil {
		return err
	}
	r.Checked["replayed"]++
	found := func(seq int64, detail string, args ...any) {
		r.Violations = append(r.Violations, campaign.Violation{Invariant: campaign.InvariantRebuiltEqualsLive, CampaignID: c.CampaignID, Seq: seq, Detail: fmt.Sprintf(detail, args...)})
	}
	if result.Outcome == replay.OutcomeFailed && len(result.Projections) == 0 {
		found(result.Seq, "%s", result.Error)
	}
	r.NotCompared = append(r.NotCompared, result.NotCompared()...)
	for _, p := range result.Projections {
		switch {
		case p.Error != "":
			found(p.ErrorSeq, "event %d was applied live, but cannot be replayed: %s", p.ErrorSeq, p.Error)
		case p.Verdict == campaign.VerdictDrift:
			found(p.Seq, "%s", driftOf(p))
		}
	}
	return nil
}

// driftOf describes how the live rows of a projection differ from a replay.
func driftOf(p replay.ProjectionResult) string {
	c := p.Comparison
	where := c.From()
	if !c.BuiltByOtherVersion {
		where = cmp.Or(where, "no event explains the difference") + "; " + c.Versions()
	}
	return fmt.Sprintf("projection %s differs from the journal: %s missing, %s changed, %s unexpected; %s", p.Projection, event.Count(c.Added, "row", "rows"), event.Number(c.Changed), event.Number(c.Removed), where)
}
