package main

import (
	"context"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// campaignsCmd lists, pauses, resumes and repairs campaigns.
type campaignsCmd struct {
	List   campaignsListCmd   `cmd:"" help:"List campaigns and why they are not advancing. Long ids are shortened; --json has them in full."`
	Pause  campaignsPauseCmd  `cmd:"" help:"Pause a campaign: its events queue and are not applied."`
	Resume campaignsResumeCmd `cmd:"" help:"Resume a paused campaign."`
	Rows   campaignsRowsCmd   `cmd:"" help:"Show the rows that the journal gives a campaign, as of any of its events, and whether the live rows are the same."`
	Replay campaignsReplayCmd `cmd:"" help:"Enqueue every unapplied event of a campaign again, due now."`
}

type campaignsListCmd struct {
	Filter outbox.CampaignFilter `embed:""`
	listFlags
}

// Run lists campaigns.
func (c *campaignsListCmd) Run(ctx context.Context, a *app) error {
	if err := checkLimit(c.Limit, outbox.MaxPage); err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine.Engine) error {
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
		_, loaded, err := installed(ctx, st)
		if err != nil {
			return err
		}
		held, err := st.Runs.Held(ctx, loaded, ids...)
		if err != nil {
			return err
		}
		a.printCut(page.NextCursor, len(page.Items), "campaigns")
		views := make([]outbox.CampaignView, len(page.Items))
		for i, found := range page.Items {
			views[i] = found.View(time.Now(), summary.Surroundings()).WithHeldProjections(held[found.CampaignID])
		}
		return printList(a, c.jsonFlag, "campaigns", views, "CAMPAIGN\tSTATE\tAPPLIED\tHIGH WATER\tWHY", func(v outbox.CampaignView) []any {
			return []any{firstLine(v.CampaignID, idShown), v.State, v.AppliedSeq, v.HighWaterSeq, firstLine(v.Why, 200)}
		})
	})
}

type campaignAction struct {
	Campaign string `arg:"" help:"The campaign's id."`
	actionFlags
}

// change performs an action and prints the campaign afterwards.
func (c *campaignAction) change(ctx context.Context, a *app, action outbox.Action, act func(*store.Store, context.Context, outbox.Command, string) (outbox.Campaign, error)) error {
	return a.withStore(ctx, func(st *engine.Engine) error {
		changed, err := act(st.Store, ctx, command(c.Reason), c.Campaign)
		if err != nil {
			return err
		}
		summary, err := st.Summary(ctx)
		if err != nil {
			return err
		}
		on, _ := action.OnCampaign()
		v := changed.View(time.Now(), summary.Surroundings())
		return c.print(a, v, "%s campaign %s: %s", strings.ToLower(on.Past), v.CampaignID, v.Why)
	})
}

type campaignsPauseCmd struct{ campaignAction }

// Run pauses one campaign.
func (c *campaignsPauseCmd) Run(ctx context.Context, a *app) error {
	return c.change(ctx, a, outbox.ActionPause, (*store.Store).PauseCampaign)
}

type campaignsResumeCmd struct{ campaignAction }

// Run resumes one campaign.
func (c *campaignsResumeCmd) Run(ctx context.Context, a *app) error {
	return c.change(ctx, a, outbox.ActionResume, (*store.Store).ResumeCampaign)
}

type campaignsReplayCmd struct{ campaignAction }

// Run restores the rows of events that lack one.
func (c *campaignsReplayCmd) Run(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(st *engine.Engine) error {
		done, err := st.ReplayCampaign(ctx, command(c.Reason), c.Campaign)
		if err != nil {
			return err
		}
		return c.print(a, done, "replayed campaign %s: %s enqueued, %s of applied events removed", c.Campaign,
			outbox.Count(done.Inserted, "row", "rows"), outbox.Count(done.Removed, "row", "rows"))
	})
}
