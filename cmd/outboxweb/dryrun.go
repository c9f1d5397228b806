package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// try prints what applying a row's event would do. It exits with 1 if the event would fail.
func (c *requeueCmd) try(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	st, set, err := a.openReading(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := runs.DryRun(ctx, st.Store, set, c.Campaign, seq, c.Next)
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(d)
	} else {
		a.printDryRun(d)
	}
	if err == nil && d.Failed != nil {
		return errFound
	}
	return err
}

// try prints what a rebuild would change, campaign by campaign. It exits with 1 if a row would
// change or an event would fail.
func (c *runsStartCmd) try(ctx context.Context, a *app) error {
	st, set, err := a.openReading(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	f, err := runs.NewReplayer(ctx, st.Store, set)
	if err != nil {
		return err
	}
	defer f.Close()
	f.OtherVersion()
	t := rebuildTrial{app: a, replayer: f, projections: c.Projections, Results: []outbox.RunResult{}, quiet: c.JSON}
	if err := t.each(ctx, st, c.Campaigns); err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(t)
	} else {
		a.printNotCompared(t.left)
		partly := ""
		if t.NotCompared > 0 {
			partly = fmt.Sprintf(", %s not fully compared", outbox.Number(t.NotCompared))
		}
		fmt.Fprintf(a.out, "%s replayed: %s would not change%s, %s would change, %s cannot be replayed\n", outbox.Count(t.Campaigns, "campaign", "campaigns"), outbox.Number(t.Unchanged), partly, outbox.Number(t.Changed), outbox.Number(t.Failed))
	}
	if err == nil && t.Changed+t.Failed > 0 {
		return errFound
	}
	return err
}

// rebuildTrial is a dry run of a rebuild in progress.
type rebuildTrial struct {
	app         *app
	replayer    *runs.Replayer
	projections []string
	quiet       bool

	Campaigns   int64              `json:"campaigns"`
	Unchanged   int64              `json:"unchanged"`
	Changed     int64              `json:"changed"`
	Failed      int64              `json:"failed"`
	NotCompared int64              `json:"not_compared"` // campaigns that would not change in which a paused projection lacks events
	Results     []outbox.RunResult `json:"results"`      // of campaigns that would change or are not compared in full, at most 1,000

	left []outbox.NotCompared
}

// each tries the named campaigns, or all of them.
func (t *rebuildTrial) each(ctx context.Context, st *engine.Engine, named []string) error {
	for _, id := range named {
		if _, err := st.Campaign(ctx, id); err != nil {
			return err
		}
		if err := t.one(ctx, id); err != nil {
			return err
		}
	}
	if len(named) > 0 {
		return nil
	}
	for page, err := range st.CampaignsInPages(ctx, outbox.CampaignFilter{}) {
		if err != nil {
			return err
		}
		for _, c := range page {
			if err := t.one(ctx, c.CampaignID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *rebuildTrial) one(ctx context.Context, id string) error {
	r, err := t.replayer.TryRebuild(ctx, id, t.projections...)
	if err != nil {
		return err
	}
	t.Campaigns++
	t.left = append(t.left, r.NotCompared()...)
	switch r.Outcome {
	case outbox.OutcomeMatch:
		t.Unchanged++
		return nil
	case outbox.OutcomeNotCompared:
		t.NotCompared++
	case outbox.OutcomeDrift:
		t.Changed++
	default:
		t.Failed++
	}
	if len(t.Results) < 1000 {
		t.Results = append(t.Results, r)
	}
	if t.quiet || r.Outcome == outbox.OutcomeNotCompared {
		return nil
	}
	fmt.Fprintf(t.app.out, "campaign %s, %s\n", id, outbox.Count(r.Seq, "event", "events"))
	if len(r.Projections) == 0 {
		fmt.Fprintf(t.app.out, "%s\n", r.Error)
	}
	for _, p := range r.Projections {
		if p.Error != "" {
			fmt.Fprintf(t.app.out, "%s: event %d cannot be replayed: %s\n", p.Projection, p.ErrorSeq, p.Error)
			continue
		}
		t.app.printComparison(p)
	}
	return nil
}

func (a *app) printDryRun(d outbox.DryRun) {
	fmt.Fprintf(a.out, "campaign %s: %s\n", d.CampaignID, d.Sentence())
	for _, p := range d.Projections {
		if p.LeftOut != "" {
			fmt.Fprintf(a.out, "%s: %s, so events are not applied to it\n", p.Projection, p.LeftOut)
			continue
		}
		if d.Applied > 0 {
			a.printComparison(p)
		}
	}
	if f := d.Failed; f != nil {
		fmt.Fprintf(a.out, "event %d (%s) would fail: %s\n", f.Seq, f.EventType, f.Message)
	}
	if text := d.TablesText(); text != "" {
		fmt.Fprintln(a.out, text)
	}
}

// printComparison prints how the rows of a projection differ, with samples.
func (a *app) printComparison(p outbox.ProjectionResult) {
	if p.Comparison == nil || !p.Comparison.Differs() {
		fmt.Fprintf(a.out, "%s: no differences\n", p.Projection)
		return
	}
	c := p.Comparison
	from := ""
	if text := c.From(); text != "" && text != c.Versions() {
		from = "; " + text
	}
	fmt.Fprintf(a.out, "%s: %s added, %s changed, %s removed%s; %s\n", p.Projection, outbox.Count(c.Added, "row", "rows"), outbox.Number(c.Changed), outbox.Number(c.Removed), from, c.Versions())
	for _, row := range c.Samples {
		fmt.Fprintf(a.out, "  %s\n", rowChangeText(row))
	}
	if more := c.Added + c.Changed + c.Removed - int64(len(c.Samples)); more > 0 {
		fmt.Fprintf(a.out, "  and %s more\n", outbox.Number(more))
	}
}

// rowChangeText formats one changed row in a line: added dogs id=3: name "rex", or changed dogs
// id=3: name "rex" → "max".
func rowChangeText(row outbox.RowChange) string {
	var b strings.Builder
	b.WriteString(strings.Join(append([]string{row.Kind, row.Table}, keyTexts(row.Key)...), " "))
	for i, f := range row.Fields {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		switch {
		case row.Kind == outbox.RowChanged:
			fmt.Fprintf(&b, "%s%s %s → %s", separator, f.Name, valueOr(f.Live, "none"), valueOr(f.Expected, "none"))
		case row.Kind == outbox.RowAdded:
			fmt.Fprintf(&b, "%s%s %s", separator, f.Name, f.Expected)
		default:
			fmt.Fprintf(&b, "%s%s %s", separator, f.Name, f.Live)
		}
	}
	return firstLine(b.String(), 400)
}

// keyTexts are the columns of a row's key with their values.
func keyTexts(key []outbox.Field) (texts []string) {
	for _, k := range key {
		texts = append(texts, k.Name+"="+string(k.Value))
	}
	return texts
}

func valueOr(value []byte, other string) string {
	if value == nil {
		return other
	}
	return string(value)
}
