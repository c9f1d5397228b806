package main

import (
	"cmp"
	"context"

	"github.com/outboxweb/outboxweb/internal/actions"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// requeueCmd sets dead rows back to pending.
type requeueCmd struct {
	Campaign string      `arg:"" optional:"" help:"The row's campaign."`
	Seq      actions.Seq `arg:"" optional:"" help:"The row's seq."`
	Dead     bool        `help:"Requeue many dead rows, in order of next attempt, then seq."`
	campaign.DeadRows
	operations.OperationOptions
	Wait    bool  `help:"With --canary: follow the operation to its end; exit 1 unless it is done."`
	DryRun  bool  `help:"Change nothing: apply the row's event, and unapplied events before it, to copies of the live rows and print how they would change."`
	Next    int64 `placeholder:"N" help:"With --dry-run: also apply this many events after the row's."`
	Without bool  `help:"With --dry-run: as if the row's event were skipped."`
	jsonFlag
}

// Run requeues one row or, with --dead, many.
func (c *requeueCmd) Run(ctx context.Context, a *app) error {
	if c.DryRun {
		return c.try(ctx, a)
	}
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	return a.confirming(c.Reason, c.Confirm, func(o operator.Command) error {
		switch {
		case c.Canary:
			return c.operation(ctx, a, st, o)
		case c.Dead:
			return c.many(ctx, a, st, o)
		}
		return c.one(ctx, a, st, o)
	})
}

func (c *requeueCmd) check() error {
	filtered := c.CampaignID != "" || c.EventType != "" || c.Fingerprint != ""
	for _, rule := range []struct {
		broken bool
		says   string
	}{
		{c.Dead && c.Campaign != "", "--dead requeues many rows and takes no CAMPAIGN SEQ; use --campaign=" + event.ShellWord(c.Campaign) + " to stay within one campaign"},
		{!c.Dead && filtered, "--campaign, --event-type and --fingerprint need --dead"},
		{!c.Dead && (c.Campaign == "" || c.Seq == 0), "requeue needs CAMPAIGN and SEQ, or --dead"},
		{c.DryRun && c.Dead, "--dry-run takes one row: give CAMPAIGN and SEQ instead of --dead"},
		{c.Next != 0 && !c.DryRun, "--next needs --dry-run"},
		{c.Without && !c.DryRun, "--without needs --dry-run"},
		{c.Canary && !c.Dead, "--canary needs --dead"},
		{c.Rehearsal != 0 && !c.Canary, "--rehearsal needs --canary"},
		{c.Wait && !c.Canary, "--wait needs --canary"},
	} {
		if rule.broken {
			return usagef("%s", rule.says)
		}
	}
	most := event.MaxRequeue
	if c.Canary {
		most = event.MaxOperation
	}
	if c.Dead && c.Limit != nil && (*c.Limit < 1 || *c.Limit > most) {
		return usagef("--limit must lie between 1 and %d", most)
	}
	return nil
}

func (c *requeueCmd) one(ctx context.Context, a *app, st *engine.Engine, o operator.Command) error {
	row, err := st.RequeueRow(ctx, o, c.Campaign, int64(c.Seq))
	return c.answer(a, err, row, "requeued campaign %s seq %d (%s); %s behind it\n%s", row.CampaignID, row.Seq, row.EventType, event.Count(row.BlockedBehind, "row waits", "rows wait"), verifyNext(row.CampaignID))
}

// verifyNext is what comes next once requeued rows of a campaign, or of any, are applied.
func verifyNext(campaign string) string {
	var scope replay.RunRequest
	if campaign != "" {
		scope.Campaigns = []string{campaign}
	}
	return "applied is not yet verified: compare the read models with: " + overScope("outboxweb verify", scope)
}

func (c *requeueCmd) many(ctx context.Context, a *app, st *engine.Engine, o operator.Command) error {
	done, err := st.RequeueDead(ctx, o, c.Filter())
	next := ""
	if done.Requeued > 0 {
		next = "\n" + verifyNext(c.CampaignID)
	}
	return c.answer(a, err, done, "requeued %s, %s of them heads; %s were waiting behind the heads%s",
		event.Count(done.Requeued, "dead row", "dead rows"), event.Number(done.Heads), event.Count(done.Released, "row", "rows"), next)
}

// retryCmd makes the next attempt of a failed head due now.
type retryCmd struct {
	Campaign string      `arg:"" optional:"" help:"The row's campaign."`
	Seq      actions.Seq `arg:"" optional:"" help:"The row's seq."`
	Failed   bool        `help:"Retry many failed heads, in order of next attempt."`
	campaign.RetryRequest
	jsonFlag
}

func (c *retryCmd) check() error {
	switch {
	case c.Failed && c.Campaign != "":
		return usagef("--failed retries many rows and takes no CAMPAIGN SEQ; use --campaign=%s to stay within one campaign", event.ShellWord(c.Campaign))
	case c.Failed:
		return nil
	case c.Campaign == "" || c.Seq == 0:
		return usagef("retry needs CAMPAIGN and SEQ, or --failed")
	}
	return nil
}

// Run makes the row due now or, with --failed, many.
func (c *retryCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	if c.Failed {
		done, err := st.RetryFailed(ctx, command(c.Reason), c.Filter())
		return c.answer(a, err, done, "%s due now", event.Count(done.Retried, "failed row is", "failed rows are"))
	}
	row, err := st.RetryRow(ctx, command(c.Reason), c.Campaign, int64(c.Seq))
	return c.answer(a, err, row, "campaign %s seq %d (%s) is due now; %s failed", row.CampaignID, row.Seq, row.EventType, event.Count(int64(row.AttemptCount), "attempt has", "attempts have"))
}

// gapsCmd lists or repairs gaps.
type gapsCmd struct {
	Repair bool   `help:"Enqueue every event that has neither been applied nor has a row."`
	Reason string `placeholder:"TEXT" help:"With --repair: the reason, for the audit log."`
	jsonFlag
}

// Run lists the gaps, or repairs them and prints the result.
func (c *gapsCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	if c.Repair {
		return c.repair(ctx, a, st)
	}
	gaps, err := st.Maintenance.Gaps(ctx)
	if err != nil {
		return err
	}
	gaps = append([]campaign.Gap{}, gaps...) // an empty JSON list rather than null
	err = printList(a, c.jsonFlag, "gaps", gaps, []ui.Column[campaign.Gap]{
		{Print: "CAMPAIGN", Text: func(g *campaign.Gap) any { return g.CampaignID }},
		{Print: "APPLIED", Text: func(g *campaign.Gap) any { return g.AppliedSeq }},
		{Print: "HIGH WATER", Text: func(g *campaign.Gap) any { return g.HighWaterSeq }},
		{Print: "MISSING", Text: func(g *campaign.Gap) any { return g.Missing }},
	})
	return cmp.Or(err, problems(len(gaps) > 0))
}

func (c *gapsCmd) repair(ctx context.Context, a *app, st *engine.Engine) error {
	done, err := st.Maintenance.RepairGaps(ctx, command(c.Reason))
	return c.answer(a, err, done, "repaired %s: %s written, %s of applied events removed, %s diverged", event.Count(done.Campaigns, "campaign", "campaigns"),
		event.Count(done.Inserted, "row", "rows"), event.Count(done.Removed, "row", "rows"), event.Count(done.Diverged, "campaign", "campaigns"))
}
