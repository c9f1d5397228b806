package main

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// try prints what applying a row's event would do. It exits with 1 if the event would fail.
func (c *requeueCmd) try(ctx context.Context, a *app) error {
	st, set, err := a.openReading(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := runs.DryRun(ctx, st.Store, set, c.Campaign, c.seq, c.Next)
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(d)
	} else {
		err = a.printDryRun(d, set)
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
	t := rebuildTrial{replayer: f, projections: c.Projections, Results: []outbox.RunResult{}}
	if err := t.each(ctx, st, c.Campaigns); err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(t)
	} else {
		err = a.printTried(set, t.Results...)
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
	replayer    *runs.Replayer
	projections []string

	Campaigns   int64              `json:"campaigns"`
	Unchanged   int64              `json:"unchanged"`
	Changed     int64              `json:"changed"`
	Failed      int64              `json:"failed"`
	NotCompared int64              `json:"not_compared"` // campaigns that would not change in which a paused projection lacks events
	Results     []outbox.RunResult `json:"results"`      // of campaigns that would change or are not compared in full, at most 1,000
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
	return nil
}

func (a *app) printDryRun(d outbox.DryRun, set *projection.Set) error {
	fmt.Fprintf(a.out, "campaign %s: %s\n", d.CampaignID, d.Sentence())
	if f := d.Failed; f != nil {
		fmt.Fprintf(a.out, "event %d (%s) would fail: %s\n", f.Seq, f.EventType, f.Message)
	}
	if text := d.TablesText(); text != "" {
		fmt.Fprintln(a.out, text)
	}
	if d.Applied == 0 {
		return nil
	}
	return a.printTried(set, outbox.RunResult{CampaignID: d.CampaignID, Seq: d.UntilSeq, Outcome: outbox.OutcomeDrift, Projections: d.Projections})
}

// printTried prints how live rows would differ from what was tried.
func (a *app) printTried(set *projection.Set, results ...outbox.RunResult) error {
	d := runDetail{Run: outbox.Run{Kind: outbox.RunRehearse}, Results: results}
	for _, p := range set.Projections() {
		d.Projections = append(d.Projections, p.Name)
	}
	a.printVersions(d)
	return a.printResults(d)
}
