package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// try prints what applying a row's event would do. It exits with 1 if the event would fail.
func (c *requeueCmd) try(ctx context.Context, a *app) error {
	st, set, err := a.openReading(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := runs.DryRun(ctx, st.Store, set, replay.Trial{CampaignID: c.Campaign, Seq: int64(c.Seq), Next: c.Next, Without: c.Without})
	if err != nil {
		return err
	}
	err = c.show(a, d, func() error { return a.printDryRun(d, set) })
	return cmp.Or(err, problems(d.Outcome == replay.OutcomeFailed))
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
	d := triedDetail(set)
	err = eachCampaign(ctx, st, c.Campaigns, func(campaign campaign.Campaign) error {
		r, err := f.TryRebuild(ctx, campaign.CampaignID, c.Projections...)
		d.Counts.Add(r.Outcome, 1)
		if r.Outcome != replay.OutcomeMatch && len(d.Results) < 1000 {
			d.Results = append(d.Results, r)
		}
		return err
	})
	if err != nil {
		return err
	}
	n := d.Counts
	if c.JSON {
		err = a.printJSON(rebuildTrial{n, d.Results})
	} else {
		a.printVersions(d)
		err = a.printResults(d)
		partly := ""
		if n.NotCompared > 0 {
			partly = fmt.Sprintf(", %s not fully compared", event.Number(n.NotCompared))
		}
		fmt.Fprintf(a.out, "%s replayed: %s would not change%s, %s would change, %s cannot be replayed\n", event.Count(n.Sum(), "campaign", "campaigns"), event.Number(n.Matched), partly, event.Number(n.Drifted), event.Number(n.Failed))
	}
	return cmp.Or(err, problems(n.Drifted+n.Failed > 0))
}

// rebuildTrial is a dry run of a rebuild.
type rebuildTrial struct {
	Counts  replay.RunCounts   `json:"counts"`  // drifted campaigns would change
	Results []replay.RunResult `json:"results"` // of campaigns that would change or are not compared in full, at most 1,000
}

// eachCampaign calls do with the named campaigns, or with all of them.
func eachCampaign(ctx context.Context, st *engine.Engine, named []string, do func(campaign.Campaign) error) error {
	for _, id := range named {
		campaign, err := st.Campaign(ctx, id)
		if err == nil {
			err = do(campaign)
		}
		if err != nil {
			return err
		}
	}
	if len(named) > 0 {
		return nil
	}
	for page, err := range st.CampaignsInPages(ctx, campaign.CampaignFilter{}) {
		if err != nil {
			return err
		}
		for _, campaign := range page {
			if err := do(campaign); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) printDryRun(r replay.RunResult, set *projection.Set) error {
	fmt.Fprintf(a.out, "campaign %s: %s\n", r.CampaignID, r.TriedText())
	if at := r.Rehearsed; at.FailedSeq > 0 {
		fmt.Fprintf(a.out, "event %d (%s) would fail: %s\n", at.FailedSeq, at.EventType, r.Error)
	}
	if text := r.Rehearsed.TablesText(); text != "" {
		fmt.Fprintln(a.out, text)
	}
	d := triedDetail(set, r)
	a.printVersions(d)
	return a.printResults(d)
}

// triedDetail is a run of which only results are known, of what was tried.
func triedDetail(set *projection.Set, results ...replay.RunResult) runDetail {
	d := runDetail{Run: replay.Run{Kind: replay.RunRehearse}, Results: append([]replay.RunResult{}, results...)}
	for _, p := range set.Projections() {
		d.Projections = append(d.Projections, p.Name)
	}
	return d
}
