package main

import (
	"context"
	"fmt"
	"strings"

	"outboxweb/internal/outbox"
	"outboxweb/internal/runs"
)

// projectionsStatusCmd tells what the database knows of the projections.
type projectionsStatusCmd struct {
	Name  string `arg:"" optional:"" help:"One of them, with the campaigns that it does not follow."`
	State string `placeholder:"S" help:"With NAME: only campaigns in which it is quarantined, paused or behind."`
	Limit int    `default:"${default_page}" placeholder:"N" help:"With NAME: at most this many campaigns, up to ${max_page}."`
	JSON  bool   `name:"json" help:"Print one JSON document."`
}

// Run describes all projections, or one and the campaigns it does not follow.
func (c *projectionsStatusCmd) Run(ctx context.Context, a *app) error {
	state, err := outbox.ParseCursorState(c.State)
	switch {
	case err != nil:
		return asUsage("--state", err)
	case c.Name == "" && state != "":
		return usagef("--state needs NAME")
	}
	if err := checkLimit(c.Limit, outbox.MaxPage); err != nil {
		return err
	}
	set, err := a.loadProjections(ctx)
	if err != nil {
		return err
	}
	loaded := projectionInfos(set)
	return a.withStore(ctx, func(st *engine) error {
		described, err := st.runs.DescribeProjections(ctx, loaded)
		if err != nil {
			return err
		}
		if c.Name == "" {
			return c.printAll(a, described)
		}
		cursors, err := st.runs.ProjectionCursors(ctx, outbox.CursorFilter{Projection: c.Name, State: state, Limit: c.Limit}, loaded)
		if err != nil {
			return err
		}
		for _, p := range described {
			if p.Name == c.Name {
				return c.printOne(a, p, cursors)
			}
		}
		return nil
	})
}

func (c *projectionsStatusCmd) printAll(a *app, described []outbox.ProjectionInfo) error {
	if c.JSON {
		return a.printJSON(map[string]any{"projections": described})
	}
	t := table(a.out)
	fmt.Fprintln(t, "NAME\tSTATE\tQUARANTINED\tPAUSED\tBEHIND\tFAILURES\tBUILT BY")
	for _, p := range described {
		built := "the loaded version"
		if p.BuiltByOtherVersion {
			built = "not the loaded version"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, holdText(p.Paused), thousands(p.Quarantined), thousands(p.PausedCampaigns),
			thousands(p.Behind), thousands(p.OpenFailures), built)
	}
	return t.Flush()
}

func holdText(p *outbox.Pause) string {
	if p == nil {
		return "live"
	}
	return strings.TrimSuffix(fmt.Sprintf("paused by %s: %s", p.By, firstLine(p.Reason, 60)), ": ")
}

func (c *projectionsStatusCmd) printOne(a *app, p outbox.ProjectionInfo, cursors outbox.Page[outbox.CampaignCursor]) error {
	if c.JSON {
		return a.printJSON(map[string]any{"projection": p, "cursors": cursors.Items})
	}
	fmt.Fprintf(a.out, "%s: %s; quarantined for %s, paused for %s, behind in %s campaigns\n", p.Name, holdText(p.Paused),
		thousands(p.Quarantined), thousands(p.PausedCampaigns), thousands(p.Behind))
	if len(cursors.Items) == 0 {
		return nil
	}
	t := table(a.out)
	fmt.Fprintln(t, "CAMPAIGN\tSTATE\tAPPLIED\tLAG\tFAILURE")
	for _, cursor := range cursors.Items {
		failure := ""
		if f := cursor.Failure; f != nil {
			failure = fmt.Sprintf("event %d: %s", f.Seq, firstLine(f.Message, 120))
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", cursor.CampaignID, cursor.State, cursor.AppliedSeq, cursor.LagEvents, failure)
	}
	return t.Flush()
}

// projectionHold is what pausing and resuming a projection take.
type projectionHold struct {
	Name     string `arg:"" help:"The projection."`
	Campaign string `placeholder:"C" help:"Only for this campaign."`
	Reason   string `placeholder:"TEXT" help:"Why; it is recorded."`
	JSON     bool   `name:"json" help:"Print one JSON document."`
}

func (c *projectionHold) change(ctx context.Context, a *app, past string,
	act func(*runs.Runs, context.Context, outbox.Order, string, string, []outbox.ProjectionInfo) (outbox.ProjectionHold, error)) error {
	set, err := a.loadProjections(ctx)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine) error {
		h, err := act(st.runs, ctx, order(c.Reason), c.Name, c.Campaign, projectionInfos(set))
		switch {
		case err != nil:
			return err
		case c.JSON:
			return a.printJSON(h)
		}
		where := "for all campaigns"
		if h.CampaignID != "" {
			where = fmt.Sprintf("for campaign %s at event %d", h.CampaignID, h.AppliedSeq)
		}
		fmt.Fprintf(a.out, "%s projection %s %s; it is %s\n", past, h.Projection, where, h.State)
		if h.Behind > 0 {
			fmt.Fprintf(a.out, "%s for a replay\n", outbox.Count(h.Behind, "campaign waits", "campaigns wait"))
		}
		if h.BlockedByRun > 0 {
			fmt.Fprintf(a.out, "the replay starts when run %d has ended\n", h.BlockedByRun)
		}
		return nil
	})
}

type projectionsPauseCmd struct{ projectionHold }

// Run pauses the projection.
func (c *projectionsPauseCmd) Run(ctx context.Context, a *app) error {
	return c.change(ctx, a, "paused", (*runs.Runs).PauseProjection)
}

type projectionsResumeCmd struct{ projectionHold }

// Run resumes the projection.
func (c *projectionsResumeCmd) Run(ctx context.Context, a *app) error {
	return c.change(ctx, a, "resumed", (*runs.Runs).ResumeProjection)
}

// failuresProjectionsCmd lists the events that projections could not follow.
type failuresProjectionsCmd struct {
	Status     string `placeholder:"S" help:"Only those that are open or resolved."`
	Campaign   string `placeholder:"C" help:"Only those of this campaign."`
	Projection string `placeholder:"P" help:"Only those of this projection."`
	Limit      int    `default:"${default_page}" placeholder:"N" help:"At most this many, up to ${max_page}."`
	JSON       bool   `name:"json" help:"Print one JSON document."`
}

// Run lists them.
func (c *failuresProjectionsCmd) Run(ctx context.Context, a *app) error {
	status, err := outbox.ParseFailureStatus(c.Status)
	if err != nil {
		return asUsage("--status", err)
	}
	if err := checkLimit(c.Limit, outbox.MaxPage); err != nil {
		return err
	}
	filter := outbox.FailureFilter{Status: status, CampaignID: c.Campaign, Projection: c.Projection, Limit: c.Limit}
	return a.withStore(ctx, func(st *engine) error {
		page, err := st.ReadModel().Failures(ctx, filter)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(map[string]any{"failures": page.Items})
		}
		if len(page.Items) == 0 {
			fmt.Fprintln(a.out, "no failures")
			return nil
		}
		t := table(a.out)
		fmt.Fprintln(t, "PROJECTION\tCAMPAIGN\tSEQ\tATTEMPTS\tSTATUS\tERROR")
		for _, f := range page.Items {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\n", f.Projection, f.CampaignID, f.Seq, f.Attempts, f.Status, firstLine(f.Message, 120))
		}
		return t.Flush()
	})
}
