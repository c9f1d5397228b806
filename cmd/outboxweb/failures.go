package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// failuresCmd lists the errors that rows have in common.
type failuresCmd struct {
	List        failuresListCmd        `cmd:"" help:"Group failed and dead rows by error."`
	Explain     failuresExplainCmd     `cmd:"" help:"Explain why an event fails: the statement, its values, and the row that is there."`
	Projections failuresProjectionsCmd `cmd:"" help:"List events that failed in projections and quarantined them or block campaigns, newest first."`
	kong.Plugins
}

type failuresListCmd struct{ jsonFlag }

// Run lists the groups.
func (c *failuresListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	all, err := st.ErrorGroups(ctx)
	if err != nil {
		return err
	}
	loaded, err := installed(ctx, st)
	if err != nil {
		return err
	}
	running, err := st.Operations.Requeuing(ctx)
	if err != nil {
		return err
	}
	groups := all.Assessed(campaign.RunningOf(version, loaded), running)
	if err := st.Runs.RestOnRehearsals(ctx, groups, loaded); err != nil {
		return err
	}
	quarantined, more, err := st.ReadModel().QuarantineCauses(ctx)
	if err != nil {
		return err
	}
	all.More = all.More || more
	if c.JSON {
		return a.printJSON(map[string]any{"groups": groups, "capped": all.Capped(), "more": all.More, "rehearsed": all.Rehearsed, "quarantined": quarantined})
	}
	if err := a.printGroups(groups, all); err != nil || len(quarantined) == 0 {
		return err
	}
	fmt.Fprintln(a.out, "\nprojections are quarantined, which a requeue does not reach:")
	return printTable(a.out, "PROJECTION\tCAMPAIGNS\tSINCE\tLAST\tFINGERPRINT\tERROR", quarantined, func(q campaign.QuarantineCause) []any {
		return []any{q.Projection, event.AtLeast(q.Campaigns, q.Capped), stamp(q.FirstAt), stamp(q.LastAt), firstLine(q.Fingerprint, 80), firstLine(q.Example, 80)}
	})
}

// worstPrinted is the number of campaigns that the table names for each error.
const worstPrinted = 3

func (a *app) printGroups(groups []campaign.AssessedGroup, all campaign.ErrorGroups) error {
	if says := all.Rehearsed.Text(); says != "" {
		fmt.Fprintln(a.out, says)
	}
	if all.More {
		fmt.Fprintln(a.out, campaign.MoreCauses)
	}
	if len(groups) == 0 {
		fmt.Fprintln(a.out, "no row is failed or dead")
		return nil
	}
	return printTable(a.out, "DEAD\tFAILED\tWOULD FAIL\tREACH\tRELEASES\tSINCE\tNEXT RETRY\tBUILDS\tWORST CAMPAIGNS\tOPERATION\tFINGERPRINT\tERROR\tVERDICT\tNOTE", groups, func(g campaign.AssessedGroup) []any {
		note, operation := "", "-"
		if g.Note != nil {
			note = g.Note.Note
		}
		if g.Operation != nil {
			operation = fmt.Sprintf("%d (%s)", g.Operation.ID, g.Operation.Phase)
		}
		return []any{g.Dead, g.Failed, g.Rehearsed, g.Reach(), g.Released, stampOr(g.FirstAt, "-"), stampOr(g.NextAttemptAt, "-"), triedBuilds(g), worstCampaigns(g), operation,
			firstLine(g.Fingerprint, 80), firstLine(g.Example, 80), g.Verdict, firstLine(note, 80)}
	})
}

func triedBuilds(g campaign.AssessedGroup) string {
	names := make([]string, len(g.Builds))
	for i, b := range g.Builds {
		names[i] = cmp.Or(b.Name, "unknown")
	}
	return cmp.Or(firstLine(strings.Join(names, ", "), 80), "-")
}

func worstCampaigns(g campaign.AssessedGroup) string {
	var names []string
	for _, c := range g.Worst[:min(len(g.Worst), worstPrinted)] {
		names = append(names, fmt.Sprintf("%s event %d", c.CampaignID, c.HeadSeq))
	}
	return cmp.Or(firstLine(strings.Join(names, ", "), 120), "-")
}

// failuresExplainCmd explains why projections cannot apply an event.
type failuresExplainCmd struct {
	Campaign string `arg:"" help:"The campaign's id."`
	Seq      int64  `arg:"" help:"The event's number in it."`
	jsonFlag
	redactFlags
}

// Run explains the event's open failures with the projections of this command.
func (c *failuresExplainCmd) Run(ctx context.Context, a *app) error {
	x, err := readShown(ctx, a, c.redactFlags, func(hide *redact.Redactor, st *engine.Engine, set *projection.Set, travel *timetravel.Travel) (projection.EventExplanation, error) {
		return st.Explainer(set, travel, time.Minute)(ctx, redact.Of(hide), c.Campaign, c.Seq)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(x)
	}
	fmt.Fprintf(a.out, "event %d of campaign %s, %s\n", x.Seq, x.CampaignID, x.EventType)
	if len(x.Failures) == 0 {
		fmt.Fprintln(a.out, "no projection fails at it")
	}
	for _, f := range x.Failures {
		if err := a.printExplained(f); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printExplained(f projection.ExplainedFailure) error {
	for _, line := range []string{f.Reason, f.Error, f.VersionChanged(), f.Unexplained} {
		if line != "" {
			fmt.Fprintf(a.out, "\n%s\n", line)
		}
	}
	if f.Statement == nil {
		return nil
	}
	fmt.Fprintf(a.out, "\n%s:%d of projection %s\n", f.Statement.File, f.Statement.Line, f.Projection)
	for _, l := range f.Statement.Lines {
		mark := " "
		if l.Failed {
			mark = ">"
		}
		fmt.Fprintf(a.out, "%s %4d  %s\n", mark, l.Number, l.Text)
	}
	there := "THE ROW THAT IS THERE"
	switch {
	case f.Existing == nil:
		there = ""
	case f.Existing.SetBy > 0:
		there += fmt.Sprintf(", BY EVENT %d", f.Existing.SetBy)
	}
	fmt.Fprintln(a.out)
	return printTable(a.out, "COLUMN\tBINDING\tTHIS EVENT\t"+there, f.Compared(), func(c projection.ComparedColumn) []any {
		value := string(c.Value)
		if c.Missing {
			value = "missing"
		}
		if c.Refused {
			value += " (refused)"
		}
		if c.Computed {
			value += " (in an expression)"
		}
		return []any{c.Name, c.Binding, value, string(c.Existing)}
	})
}
