package main

import (
	"cmp"
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
	err = c.show(a, d, func() error { return a.printDryRun(d, set) })
	return cmp.Or(err, problems(d.Outcome == outbox.OutcomeFailed))
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
	err = eachCampaign(ctx, st, c.Campaigns, func(campaign outbox.Campaign) error {
		r, err := f.TryRebuild(ctx, campaign.CampaignID, c.Projections...)
		d.Counts.Add(r.Outcome, 1)
		if r.Outcome != outbox.OutcomeMatch && len(d.Results) < 1000 {
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
			partly = fmt.Sprintf(", %s not fully compared", outbox.Number(n.NotCompared))
		}
		fmt.Fprintf(a.out, "%s replayed: %s would not change%s, %s would change, %s cannot be replayed\n", outbox.Count(n.Sum(), "campaign", "campaigns"), outbox.Number(n.Matched), partly, outbox.Number(n.Drifted), outbox.Number(n.Failed))
	}
	return cmp.Or(err, problems(n.Drifted+n.Failed > 0))
}

// rebuildTrial is a dry run of a rebuild.
type rebuildTrial struct {
	Counts  outbox.RunCounts   `json:"counts"`  // drifted campaigns would change
	Results []outbox.RunResult `json:"results"` // of campaigns that would change or are not compared in full, at most 1,000
}

// eachCampaign calls do with the named campaigns, or with all of them.
func eachCampaign(ctx context.Context, st *engine.Engine, named []string, do func(outbox.Campaign) error) error {
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
	for page, err := range st.CampaignsInPages(ctx, outbox.CampaignFilter{}) {
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

func (a *app) printDryRun(r outbox.RunResult, set *projection.Set) error {
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
func triedDetail(set *projection.Set, results ...outbox.RunResult) runDetail {
	d := runDetail{Run: outbox.Run{Kind: outbox.RunRehearse}, Results: append([]outbox.RunResult{}, results...)}
	for _, p := range set.Projections() {
		d.Projections = append(d.Projections, p.Name)
	}
	return d
}
