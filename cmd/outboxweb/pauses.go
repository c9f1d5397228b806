package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/web/templates/projections"
)

// projectionsStatusCmd prints the recorded state of the projections.
type projectionsStatusCmd struct {
	Name   string                `arg:"" optional:"" help:"Show this projection and the campaigns where it is not live."`
	Filter campaign.CursorFilter `embed:""`
	Built  string                `name:"built-by" placeholder:"VERSION" help:"With NAME: the campaigns of which this version of it made rows that are still there, with their events; by its number or the beginning of its hash."`
	Limit  int                   `default:"${default_page}" placeholder:"N" least:"1" most:"${max_page}" help:"With NAME: at most this many campaigns, up to ${max_page}. Default ${default_page}."`
	jsonFlag
}

func (c *projectionsStatusCmd) check() error {
	if c.Name == "" && c.Filter.State != "" {
		return usagef("--state needs NAME")
	}
	if c.Name == "" && c.Built != "" {
		return usagef("--built-by needs NAME")
	}
	return nil
}

// Run describes all projections, or one projection and the campaigns it does not follow.
func (c *projectionsStatusCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	known, err := st.Runs.WithUnloaded(ctx, set.Infos())
	if err != nil {
		return err
	}
	versions, err := st.ReadModel().Versions(ctx)
	if err != nil {
		return err
	}
	for i, p := range known { // by servers, whatever this command has loaded
		known[i].NotLoaded = versions[p.Name] == ""
	}
	for _, name := range notLoaded(set, versions) {
		known = append(known, campaign.ProjectionInfo{Name: name, Version: versions[name], Tables: []string{}, EventTypes: []string{}})
	}
	described, err := st.Runs.DescribeProjections(ctx, known)
	if err != nil {
		return err
	}
	if c.Name == "" {
		return c.printAll(a, described)
	}
	c.Filter.Projection, c.Filter.Limit = c.Name, c.Limit
	if c.Built != "" {
		return c.printBuilt(ctx, a, st, known)
	}
	cursors, err := st.Runs.ProjectionCursors(ctx, c.Filter, known)
	if err != nil {
		return err
	}
	for _, p := range described {
		if p.Name == c.Name {
			a.printCut(cursors.NextCursor, len(cursors.Items), "campaigns")
			detail, err := st.ProjectionDetail(ctx, p)
			if err != nil {
				return err
			}
			return c.printOne(a, detail, cursors)
		}
	}
	return nil
}

func (c *projectionsStatusCmd) printBuilt(ctx context.Context, a *app, st *engine.Engine, known []campaign.ProjectionInfo) error {
	version, err := st.WholeVersion(ctx, c.Name, c.Built)
	if err != nil {
		return err
	}
	page, err := st.Runs.BuiltBy(ctx, campaign.BuiltFilter{Projection: c.Name, Version: version, Limit: c.Limit}, known)
	if err != nil {
		return err
	}
	a.printCut(page.NextCursor, len(page.Items), "campaigns")
	return printList(a, c.jsonFlag, "campaigns", page.Items, projections.BuiltColumns())
}

func (c *projectionsStatusCmd) printAll(a *app, described []campaign.ProjectionInfo) error {
	if c.JSON {
		return a.printJSON(map[string]any{"projections": described})
	}
	return printTable(a.out, "NAME\tSTATE\tBLOCKING\tQUARANTINED\tPAUSED\tBEHIND\tFAILURES\tBUILT BY", described, func(p campaign.ProjectionInfo) []any {
		built := strings.TrimPrefix(p.By(), "by ")
		if p.BuiltByOtherVersion && !p.NotLoaded {
			built += "; loaded is " + event.ShortHash(p.Version)
		}
		return []any{p.Name, stateText(p), event.Number(p.Blocking), event.Number(p.Quarantined), event.Number(p.PausedCampaigns),
			event.Number(p.Behind), event.Number(p.OpenFailures), built}
	})
}

// stateText is the worst state of a projection in any campaign, after that it blocks some.
func stateText(p campaign.ProjectionInfo) string {
	text := p.State()
	if by := p.Paused; by != nil {
		text = strings.TrimSuffix(fmt.Sprintf("paused for all campaigns by %s: %s", by.By, firstLine(by.Reason, 60)), ": ")
	}
	switch {
	case p.NotLoaded:
		return "not loaded"
	case p.Blocking == 0:
		return text
	case p.State() == campaign.CursorLive:
		return "blocking"
	}
	return "blocking, " + text
}

func (c *projectionsStatusCmd) printOne(a *app, p campaign.ProjectionDetail, cursors event.Page[campaign.CampaignCursor]) error {
	if c.JSON {
		return a.printJSON(map[string]any{"projection": p, "cursors": cursors.Items})
	}
	fmt.Fprintf(a.out, "%s: %s; blocking %s, quarantined in %s, paused in %s, behind in %s\n", p.Name, stateText(p.ProjectionInfo),
		event.Number(p.Blocking), event.Number(p.Quarantined), event.Number(p.PausedCampaigns), event.Count(p.Behind, "campaign", "campaigns"))
	if text := p.Sentence(p.Name, p.Version); p.NotLoaded {
		fmt.Fprintln(a.out, "Its rows are not updated, and not verified."+p.Held().AdvancedWithout(), p.Held().OnceLoaded())
	} else if text != "" {
		fmt.Fprintln(a.out, text, campaign.BuiltAdvice)
	}
	if p.Cost != nil {
		fmt.Fprintf(a.out, "takes %s\n", p.Cost.Cost)
		if err := printColumns(a.out, projections.CostColumns(), p.Cost.Statements); err != nil {
			return err
		}
	}
	for _, v := range p.Versions {
		fmt.Fprintln(a.out, "version", v.Words(p.Version))
	}
	if len(cursors.Items) == 0 {
		return nil
	}
	if p.Paused != nil {
		fmt.Fprintln(a.out, "campaigns that have not advanced since the pause are not listed")
	}
	return printColumns(a.out, projections.CursorColumns(), cursors.Items)
}

// pauseOrResume is what a command with both names does under the one it was given, and its past participle.
func pauseOrResume[F any](parsed *kong.Context, pause, resume F) (act F, past string) {
	if parsed.Selected().Name == "resume" {
		return resume, "resumed"
	}
	return pause, "paused"
}

// failuresProjectionsCmd lists the events that projections could not follow.
type failuresProjectionsCmd struct {
	Filter campaign.FailureFilter `embed:""`
	listFlags
}

// Run lists them.
func (c *failuresProjectionsCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	c.Filter.Limit = c.Limit
	page, err := st.ReadModel().Failures(ctx, c.Filter)
	return printPage(a, c.jsonFlag, err, "failures", page, projections.FailureColumns())
}
