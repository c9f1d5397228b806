package main

import (
	"context"
	"fmt"

	"outboxweb/internal/outbox"
)

// requeueCmd sets dead rows back to pending.
type requeueCmd struct {
	Campaign    string `arg:"" optional:"" help:"The row's campaign."`
	Seq         string `arg:"" optional:"" help:"The row's seq."`
	Dead        bool   `help:"Requeue many dead rows, in order of next attempt, then seq."`
	Limit       *int   `placeholder:"N" help:"With --dead: at most this many rows; ${default_requeue} when not given, with --canary all."`
	Only        string `name:"campaign" placeholder:"C" help:"With --dead: only rows of this campaign."`
	EventType   string `placeholder:"T" help:"With --dead: only rows of this event type."`
	Fingerprint string `placeholder:"F" help:"With --dead: only rows whose error has this fingerprint."`
	Canary      bool   `help:"With --dead: start an operation, which workers drive: one head of each error group first, then waves of 1, 2, 4, …"`
	Wait        bool   `help:"With --canary: follow the operation to its end; exit 1 unless it is done."`
	DryRun      bool   `help:"Change nothing: try the row's event, and those before it that are not applied, on copies of the live rows, and print how they would change."`
	Next        int64  `placeholder:"N" help:"With --dry-run: try so many events behind it, too."`
	Confirm     string `placeholder:"PHRASE" help:"The phrase that a requeue wants which requeues or releases more than ${confirm_above} rows, such as 'requeue 43 rows'; asked for at a terminal when it is not given."`
	Reason      string `placeholder:"TEXT" help:"Why; it is recorded."`
	JSON        bool   `name:"json" help:"Print one JSON document."`
}

// Run requeues one row or, with --dead, many.
func (c *requeueCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.DryRun {
		return c.try(ctx, a)
	}
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	return a.confirming(c.Reason, c.Confirm, func(o outbox.Order) error {
		switch {
		case c.Canary:
			return c.operation(ctx, a, st, o)
		case c.Dead:
			return c.many(ctx, a, st, o)
		}
		return c.one(ctx, a, st, o)
	})
}

// printed prints what an act made: as JSON, or as words say it.
func printed[R any](a *app, asJSON bool, words func(R)) func(R, error) error {
	return func(result R, err error) error {
		switch {
		case err != nil:
			return err
		case asJSON:
			return a.printJSON(result)
		}
		words(result)
		return nil
	}
}

func (c *requeueCmd) check() error {
	filtered := c.Only != "" || c.EventType != "" || c.Fingerprint != ""
	switch {
	case c.Dead && c.Campaign != "":
		return usagef("--dead requeues many rows and takes no CAMPAIGN SEQ; use --campaign %s to stay within one campaign", c.Campaign)
	case !c.Dead && filtered:
		return usagef("--campaign, --event-type and --fingerprint need --dead")
	case !c.Dead && (c.Campaign == "" || c.Seq == ""):
		return usagef("requeue needs CAMPAIGN and SEQ, or --dead")
	case c.DryRun && c.Dead:
		return usagef("--dry-run tries one row; it needs CAMPAIGN and SEQ instead of --dead")
	case c.Next != 0 && !c.DryRun:
		return usagef("--next needs --dry-run")
	case c.Canary && !c.Dead:
		return usagef("--canary needs --dead")
	case c.Wait && !c.Canary:
		return usagef("--wait needs --canary")
	case c.Canary && c.Limit != nil:
		return checkLimit(*c.Limit, outbox.MaxOperation)
	case c.Dead && c.Limit != nil:
		return checkLimit(*c.Limit, outbox.MaxRequeue)
	case c.Dead:
		return nil
	}
	_, err := parseSeq(c.Seq)
	return err
}

func (c *requeueCmd) one(ctx context.Context, a *app, st *engine, o outbox.Order) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	return printed(a, c.JSON, func(row outbox.Row) {
		fmt.Fprintf(a.out, "requeued campaign %s seq %d (%s); %s behind it\n", row.CampaignID, row.Seq, row.EventType, outbox.Count(row.BlockedBehind, "row waits", "rows wait"))
	})(st.RequeueRow(ctx, o, c.Campaign, seq))
}

func (c *requeueCmd) many(ctx context.Context, a *app, st *engine, o outbox.Order) error {
	return printed(a, c.JSON, func(done outbox.Requeued) {
		fmt.Fprintf(a.out, "requeued %s, %s of them heads; %s waited behind those\n",
			outbox.Count(done.Requeued, "dead row", "dead rows"), thousands(done.Heads), outbox.Count(done.Released, "row", "rows"))
	})(st.RequeueDead(ctx, o, c.filter()))
}

// filter selects rows as the flags say; the zero limit is the store's own.
func (c *requeueCmd) filter() outbox.RequeueFilter {
	f := outbox.RequeueFilter{CampaignID: c.Only, EventType: c.EventType, Fingerprint: c.Fingerprint}
	if c.Limit != nil {
		f.Limit = *c.Limit
	}
	return f
}

// retryCmd brings the next attempt of a failed head forward.
type retryCmd struct {
	Campaign    string `arg:"" optional:"" help:"The row's campaign."`
	Seq         string `arg:"" optional:"" help:"The row's seq."`
	Failed      bool   `help:"Retry many failed heads, in order of next attempt."`
	Limit       int    `default:"${default_requeue}" placeholder:"N" help:"With --failed: at most this many rows."`
	Only        string `name:"campaign" placeholder:"C" help:"With --failed: only the head of this campaign."`
	EventType   string `placeholder:"T" help:"With --failed: only rows of this event type."`
	Fingerprint string `placeholder:"F" help:"With --failed: only rows whose error has this fingerprint."`
	Reason      string `placeholder:"TEXT" help:"Why; it is recorded."`
	JSON        bool   `name:"json" help:"Print one JSON document."`
}

// Run makes the row due now or, with --failed, many.
func (c *retryCmd) Run(ctx context.Context, a *app) error {
	switch {
	case c.Failed && c.Campaign != "":
		return usagef("--failed retries many rows and takes no CAMPAIGN SEQ; use --campaign %s to stay within one campaign", c.Campaign)
	case c.Failed:
		return a.withStore(ctx, func(st *engine) error { return c.many(ctx, a, st) })
	case c.Campaign == "" || c.Seq == "":
		return usagef("retry needs CAMPAIGN and SEQ, or --failed")
	}
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine) error {
		return printed(a, c.JSON, func(row outbox.Row) {
			fmt.Fprintf(a.out, "campaign %s seq %d (%s) is due now; %s failed\n", row.CampaignID, row.Seq, row.EventType, outbox.Count(int64(row.AttemptCount), "attempt has", "attempts have"))
		})(st.RetryRow(ctx, order(c.Reason), c.Campaign, seq))
	})
}

func (c *retryCmd) many(ctx context.Context, a *app, st *engine) error {
	return printed(a, c.JSON, func(done outbox.Retried) {
		fmt.Fprintf(a.out, "%s due now\n", outbox.Count(done.Retried, "failed row is", "failed rows are"))
	})(st.RetryFailed(ctx, order(c.Reason), outbox.RequeueFilter{
		CampaignID: c.Only, EventType: c.EventType, Fingerprint: c.Fingerprint, Limit: c.Limit}))
}

// deadLetterCmd gives up on a failing head.
type deadLetterCmd struct {
	Campaign string `arg:"" help:"The row's campaign."`
	Seq      string `arg:"" help:"The row's seq."`
	Reason   string `placeholder:"TEXT" help:"Why; it is recorded."`
	JSON     bool   `name:"json" help:"Print one JSON document."`
}

// Run declares the row dead.
func (c *deadLetterCmd) Run(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine) error {
		return printed(a, c.JSON, func(row outbox.Row) {
			fmt.Fprintf(a.out, "campaign %s seq %d (%s) is dead after %s; %s behind it\n", row.CampaignID, row.Seq, row.EventType,
				outbox.Count(int64(row.AttemptCount), "failed attempt", "failed attempts"), outbox.Count(row.BlockedBehind, "row waits", "rows wait"))
		})(st.DeadLetterRow(ctx, order(c.Reason), c.Campaign, seq))
	})
}

// gapsCmd lists or repairs gaps.
type gapsCmd struct {
	Repair bool   `help:"Give every missing event its row back."`
	Reason string `placeholder:"TEXT" help:"With --repair: why; it is recorded."`
	JSON   bool   `name:"json" help:"Print one JSON document."`
}

// Run lists the gaps, or repairs them and says what that did.
func (c *gapsCmd) Run(ctx context.Context, a *app) error {
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	if c.Repair {
		return c.repair(ctx, a, st)
	}
	gaps, err := st.maintenance.Gaps(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(map[string][]outbox.Gap{"gaps": append([]outbox.Gap{}, gaps...)})
	}
	if len(gaps) == 0 {
		fmt.Fprintln(a.out, "no gaps")
		return nil
	}
	t := table(a.out)
	fmt.Fprintln(t, "CAMPAIGN\tAPPLIED\tHIGH WATER\tMISSING")
	for _, g := range gaps {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", g.CampaignID, g.AppliedSeq, g.HighWaterSeq, g.Missing)
	}
	return t.Flush()
}

func (c *gapsCmd) repair(ctx context.Context, a *app, st *engine) error {
	return printed(a, c.JSON, func(done outbox.Repaired) {
		fmt.Fprintf(a.out, "repaired %s: %s written, %s of applied events removed, %s diverged\n", outbox.Count(done.Campaigns, "campaign", "campaigns"),
			outbox.Count(done.Inserted, "row", "rows"), outbox.Count(done.Removed, "row", "rows"), outbox.Count(done.Diverged, "campaign", "campaigns"))
	})(st.maintenance.RepairGaps(ctx, order(c.Reason)))
}
