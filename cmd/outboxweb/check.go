package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
)

// checkCmd tests the invariants.
type checkCmd struct {
	Fold bool `default:"true" negatable:"" help:"Fold every campaign from the journal and compare the digest with its live rows."`
	JSON bool `name:"json" help:"Print one JSON document."`
}

// foldInvariant is the one that check tests by folding; the others are the store's.
const foldInvariant = "rebuilt_equals_live"

// Run names every violation it finds.
func (c *checkCmd) Run(ctx context.Context, a *app) error {
	st, set, err := a.openBoth(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	bar := a.progress("check")
	report, err := st.Check(ctx, bar.set)
	bar.end()
	if err != nil {
		return err
	}
	if c.Fold {
		if err := a.checkFolds(ctx, st, set, &report); err != nil {
			return err
		}
	}
	report.OK = len(report.Violations) == 0
	if report.Violations == nil {
		report.Violations = []outbox.Violation{}
	}
	if c.JSON {
		err = a.printJSON(report)
	} else {
		err = printCheck(a, report)
	}
	if err == nil && !report.OK {
		return errFound
	}
	return err
}

func printCheck(a *app, r store.CheckReport) error {
	t := table(a.out)
	for _, what := range slices.Sorted(maps.Keys(r.Checked)) {
		fmt.Fprintf(t, "%s\t%s\n", what, thousands(r.Checked[what]))
	}
	t.Flush()
	if r.OK {
		fmt.Fprintln(a.out, "\nnothing wrong found")
		return nil
	}
	fmt.Fprintf(a.out, "\n%d violations\n", len(r.Violations))
	fmt.Fprintln(t, "INVARIANT\tCAMPAIGN\tSEQ\tDETAIL")
	for _, v := range r.Violations {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", v.Invariant, v.CampaignID, v.Seq, v.Detail)
	}
	return t.Flush()
}

// checkFolds folds every campaign up to what is applied and compares the
// digest with that of the live rows.
func (a *app) checkFolds(ctx context.Context, st *store.Store, set *projection.Set, r *store.CheckReport) error {
	f, err := a.newFolder(ctx, st, set)
	if err != nil {
		return err
	}
	defer f.close()
	bar := a.progress("fold")
	defer bar.end()
	filter := outbox.CampaignFilter{Limit: 200}
	total := r.Checked["campaigns"]
	for {
		page, err := st.Campaigns(ctx, filter)
		if err != nil {
			return err
		}
		for _, campaign := range page.Items {
			bar.set(r.Checked["folded"], total)
			if err := f.check(ctx, campaign, r); err != nil {
				return err
			}
		}
		if page.NextCursor == nil {
			return nil
		}
		filter.Cursor = *page.NextCursor
	}
}

// check compares one campaign. Campaigns that are diverged are reported by
// the store already; those without anything applied have nothing to compare. One
// whose skips change under its eyes is compared again.
func (f *folder) check(ctx context.Context, c outbox.Campaign, r *store.CheckReport) error {
	if c.Diverged != "" {
		return nil
	}
	for {
		found, folded := len(r.Violations), r.Checked["folded"]
		if err := f.compare(ctx, c, r); err != nil {
			return err
		}
		after, err := f.store.Campaign(ctx, c.CampaignID)
		if err != nil || after.Skips == c.Skips || len(r.Violations) == found {
			return err
		}
		c, r.Violations, r.Checked["folded"] = after, r.Violations[:found], folded
	}
}

func (f *folder) compare(ctx context.Context, c outbox.Campaign, r *store.CheckReport) error {
	live, err := liveDigests(ctx, f.store, f.set, c.CampaignID)
	if err != nil || live.AppliedSeq == 0 {
		return err
	}
	r.Checked["folded"]++
	aside, err := f.store.SetAside(ctx, c.CampaignID)
	if err != nil {
		return err
	}
	folded, err := f.fold(ctx, c.CampaignID, live.AppliedSeq, aside)
	var refused *foldError
	switch {
	case errors.As(err, &refused):
		r.Violations = append(r.Violations, outbox.Violation{Invariant: foldInvariant, CampaignID: c.CampaignID, Seq: refused.seq,
			Detail: "was applied live, but " + refused.Error()})
		return nil
	case err != nil:
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(folded.Projections)) {
		if live.Projections[name] != folded.Projections[name] {
			r.Violations = append(r.Violations, outbox.Violation{Invariant: foldInvariant, CampaignID: c.CampaignID, Seq: live.AppliedSeq,
				Detail: fmt.Sprintf("projection %s has digest %s, a fold of the journal has %s", name, live.Projections[name], folded.Projections[name])})
		}
	}
	return nil
}
