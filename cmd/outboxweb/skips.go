package main

import (
	"context"
	"fmt"
	"strconv"

	"outboxweb/internal/outbox"
)

// skipCmd passes over one event.
type skipCmd struct {
	Campaign string `arg:"" help:"The event's campaign."`
	Seq      string `arg:"" help:"The event's seq."`
	Reason   string `placeholder:"TEXT" help:"Why; it is recorded. A skip needs one."`
	Confirm  string `placeholder:"PHRASE" help:"The words 'skip CAMPAIGN SEQ', with the event's own; asked for at a terminal when they are not given."`
	JSON     bool   `name:"json" help:"Print one JSON document."`
}

// Run skips the event.
func (c *skipCmd) Run(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	if c.Reason == "" {
		return usagef("a skip needs --reason TEXT")
	}
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	return a.confirming(c.Reason, c.Confirm, func(o outbox.Order) error {
		return printed(a, c.JSON, func(row outbox.Row) {
			fmt.Fprintf(a.out, "skipped campaign %s seq %d (%s); %s behind it\n", row.CampaignID, row.Seq, row.EventType, outbox.Count(row.BlockedBehind, "row waits", "rows wait"))
		})(st.SkipEvent(ctx, o, c.Campaign, seq))
	})
}

// unskipCmd takes a skip back.
type unskipCmd struct {
	Campaign string `arg:"" help:"The event's campaign."`
	Seq      string `arg:"" help:"The event's seq."`
	Reason   string `placeholder:"TEXT" help:"Why; it is recorded."`
	JSON     bool   `name:"json" help:"Print one JSON document."`
}

// Run takes the skip back.
func (c *unskipCmd) Run(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	st, err := a.openStore(ctx, a.storeOptions())
	if err != nil {
		return err
	}
	defer st.Close()
	return printed(a, c.JSON, func(skip outbox.Skip) {
		fmt.Fprintf(a.out, "took back the skip of campaign %s seq %d (%s); it is applied like any other event\n", skip.CampaignID, skip.Seq, skip.EventType)
	})(st.UnskipEvent(ctx, order(c.Reason), c.Campaign, seq))
}

// parseSeq reads the SEQ of a command.
func parseSeq(text string) (int64, error) {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 {
		return 0, usagef("SEQ must be a number of 1 or more, not %q", text)
	}
	return seq, nil
}
