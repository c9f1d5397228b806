package main

import (
	"context"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// eventArg names an event.
type eventArg struct {
	Campaign string `arg:"" help:"The event's campaign."`
	Seq      string `arg:"" help:"The event's seq."`
	seq      int64
}

func (e *eventArg) check() (err error) {
	e.seq, err = parseSeq(e.Seq)
	return err
}

type skipCmd struct {
	eventArg
	campaign.SkipRequest
	jsonFlag
}

func (c *skipCmd) check() error {
	if err := c.eventArg.check(); err != nil {
		return err
	}
	return checkSkip(c.Reason)
}

// checkSkip refuses to skip an event without a reason.
func checkSkip(reason string) error {
	if reason == "" {
		return usagef("a skip needs --reason TEXT")
	}
	return nil
}

// Run skips the event.
func (c *skipCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	return a.confirming(c.Reason, c.Confirm, func(o operator.Command) error {
		row, err := st.SkipEvent(ctx, o, c.Campaign, c.seq)
		return c.answer(a, err, row, "skipped campaign %s seq %d (%s); %s behind it", row.CampaignID, row.Seq, row.EventType, event.Count(row.BlockedBehind, "row waits", "rows wait"))
	})
}

// unskipCmd undoes a skip.
type unskipCmd struct {
	eventArg
	actionFlags
}

// Run undoes the skip.
func (c *unskipCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	skip, err := st.UnskipEvent(ctx, command(c.Reason), c.Campaign, c.seq)
	return c.answer(a, err, skip, "un-skipped campaign %s seq %d (%s); it will be applied like any other event", skip.CampaignID, skip.Seq, skip.EventType)
}

func parseSeq(text string) (int64, error) {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 {
		return 0, usagef("SEQ must be a number of 1 or more, not %q", text)
	}
	return seq, nil
}
