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
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

// campaignsCmd lists, pauses, resumes and repairs campaigns.
type campaignsCmd struct {
	List campaignsListCmd `cmd:"" help:"List campaigns and why they are not advancing. Long ids are shortened; --json has them in full."`
	Rows campaignsRowsCmd `cmd:"" help:"Show the rows that the journal gives a campaign, as of any of its events, and whether the live rows are the same."`
	kong.Plugins
}

type campaignsListCmd struct {
	Filter campaign.CampaignFilter `embed:""`
	listFlags
}

// Run lists campaigns.
func (c *campaignsListCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	c.Filter.Limit = c.Limit
	page, err := st.Campaigns(ctx, c.Filter)
	if err != nil {
		return err
	}
	summary, err := st.Summary(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, len(page.Items))
	for i, found := range page.Items {
		ids[i] = found.CampaignID
	}
	loaded, err := installed(ctx, st)
	if err != nil {
		return err
	}
	held, err := st.Runs.Held(ctx, loaded, ids...)
	if err != nil {
		return err
	}
	a.printCut(page.NextCursor, len(page.Items), "campaigns")
	views := make([]campaign.CampaignView, len(page.Items))
	for i, found := range page.Items {
		views[i] = found.View(time.Now(), summary.Surroundings()).WithHeldProjections(held[found.CampaignID])
	}
	return printList(a, c.jsonFlag, "campaigns", views, campaigns.CampaignColumns(shownNow(), campaign.CampaignFilter{}))
}

// campaignsRowsCmd shows a read model as of an event.
type campaignsRowsCmd struct {
	Campaign string `arg:"" help:"The campaign's id."`
	Seq      int64  `placeholder:"N" help:"As of this event; by default the last applied one."`
	Table    string `placeholder:"T" help:"Only this table."`
	After    string `placeholder:"ROW" help:"The rows of that table after this one, as the JSON output names it."`
	Row      string `placeholder:"ROW" help:"Only this row, as the JSON output names it; with --column, who set the column's value."`
	Column   string `placeholder:"COLUMN" help:"With --row: only this column, what it was before, and the event, actor, request and version that set it."`
	jsonFlag
	redactFlags
}

// patience is how long a replay is waited for: until interrupted.
const patience = 24 * time.Hour

// cell prints who set one cell.
func (c *campaignsRowsCmd) cell(ctx context.Context, a *app) error {
	h, err := readShown(ctx, a, c.redactFlags, func(_ *redact.Redactor, _ *engine.Engine, _ *projection.Set, travel *timetravel.Travel) (timetravel.ModelHistory, error) {
		return travel.Cell(ctx, timetravel.ModelQuery{CampaignID: c.Campaign, Seq: c.Seq, Row: c.Row}, c.Column, patience)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(h)
	}
	fmt.Fprintf(a.out, "%s of %s %s as of event %d: %s\n", h.Cell.Name, h.Table, strings.Join(keyTexts(h.Key), " "), h.Seq, h.Cell.Value)
	fmt.Fprintf(a.out, "set by event %d (%s), %s; %s\n", h.Cell.SetSeq, h.EventType, h.Cell.Statement, cmp.Or(h.Doubt(), h.Versions()))
	if h.SetBy != nil {
		fmt.Fprintln(a.out, h.SetBy.Sentence())
	}
	for _, was := range h.Earlier {
		fmt.Fprintf(a.out, "before: %s, set by event %d, %s\n", was.Value, was.SetSeq, was.Statement)
	}
	return nil
}

// Run replays the campaign and prints the rows.
func (c *campaignsRowsCmd) Run(ctx context.Context, a *app) error {
	if c.Column != "" {
		return c.cell(ctx, a)
	}
	var held map[string][]campaign.Cursor
	m, err := readShown(ctx, a, c.redactFlags, func(_ *redact.Redactor, st *engine.Engine, set *projection.Set, travel *timetravel.Travel) (m timetravel.ReadModel, err error) {
		if m, err = travel.At(ctx, timetravel.ModelQuery{CampaignID: c.Campaign, Seq: c.Seq, Table: c.Table, After: c.After, Row: c.Row}, patience); err == nil {
			held, err = st.Runs.Held(ctx, set.Infos(), c.Campaign)
		}
		return m, err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(m)
	}
	fmt.Fprintf(a.out, "campaign %s as of event %d of %d, replayed from the journal\n", m.CampaignID, m.Seq, m.LastSeq)
	for _, s := range m.Standings {
		if s.Verdict == string(campaign.VerdictDrift) {
			verify := overScope("outboxweb verify", replay.RunRequest{Campaigns: []string{m.CampaignID}, Projections: []string{s.Projection}})
			fmt.Fprintf(a.out, "drift in projection %s: %s not as below; which ones: %s\n", s.Projection, event.Count(s.Differ, "live row is", "live rows are"), verify)
		}
	}
	if text := campaign.Standings(campaign.Lacking(held[c.Campaign], m.Seq)); text != "" {
		fmt.Fprintf(a.out, "readers see older rows than these, as %s\n", text)
	}
	for _, t := range m.Tables {
		fmt.Fprintf(a.out, "%s%s%s\n", t.Name, replayText(t), sourceText(m, t))
		for _, row := range t.Rows {
			fmt.Fprintf(a.out, "  %s\n", modelRowText(row))
		}
		switch {
		case t.More && t.Source == timetravel.SourceLive:
			fmt.Fprintln(a.out, "  there are more rows")
		case t.More:
			fmt.Fprintf(a.out, "  more rows: --table %s --after %s\n", t.Name, t.Next)
		}
	}
	return nil
}

// replayText says with which version a table was replayed, and which ones built its live rows.
func replayText(t timetravel.ModelTable) string {
	if t.Source != timetravel.SourceReplay {
		return ""
	}
	return ", " + cmp.Or(t.Doubt(), t.Versions())
}

// sourceText says of rows that are not from the replay why, and what they are instead.
func sourceText(m timetravel.ReadModel, t timetravel.ModelTable) string {
	s, failed := m.FailedBy(t.Projection)
	if !failed {
		return ""
	}
	instead := "its rows as of this event are not known"
	if t.Source == timetravel.SourceLive {
		instead = "its live rows follow"
	}
	return fmt.Sprintf(": projection %s as loaded cannot replay event %d, %s: %s", s.Projection, s.FailedSeq, instead, s.Error)
}

// modelRowText is a row on one line, with what the event changed.
func modelRowText(row timetravel.ModelRow) string {
	var parts []string
	if row.Kind != "" {
		parts = append(parts, row.Kind)
	}
	parts = append(parts, keyTexts(row.Key)...)
	for _, c := range row.Cells {
		switch {
		case c.Long:
			parts = append(parts, c.Name+"=(long)")
		case c.Changed:
			parts = append(parts, fmt.Sprintf("%s=%s (was %s)", c.Name, c.Value, c.Before))
		default:
			parts = append(parts, c.Name+"="+string(c.Value))
		}
	}
	return strings.Join(parts, " ")
}
