package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

type skipCmd struct {
	Campaign string `arg:"" help:"The event's campaign."`
	Seq      string `arg:"" help:"The event's seq."`
	outbox.SkipRequest
	jsonFlag
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
	return a.withStore(ctx, func(st *engine.Engine) error {
		return a.confirming(c.Reason, c.Confirm, func(o outbox.Command) error {
			row, err := st.SkipEvent(ctx, o, c.Campaign, seq)
			if err != nil {
				return err
			}
			return c.print(a, row, "skipped campaign %s seq %d (%s); %s behind it", row.CampaignID, row.Seq, row.EventType, outbox.Count(row.BlockedBehind, "row waits", "rows wait"))
		})
	})
}

// unskipCmd undoes a skip.
type unskipCmd struct {
	Campaign string `arg:"" help:"The event's campaign."`
	Seq      string `arg:"" help:"The event's seq."`
	actionFlags
}

// Run undoes the skip.
func (c *unskipCmd) Run(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine.Engine) error {
		skip, err := st.UnskipEvent(ctx, command(c.Reason), c.Campaign, seq)
		if err != nil {
			return err
		}
		return c.print(a, skip, "un-skipped campaign %s seq %d (%s); it will be applied like any other event", skip.CampaignID, skip.Seq, skip.EventType)
	})
}

// mapSeq reads a flag that is an event's seq.
func mapSeq(parsed *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := parsed.Scan.PopValueInto("int", &text); err != nil {
		return err
	}
	seq, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("must be a whole number, not %q", text)
	case seq < 1:
		return errors.New("must be 1 or more")
	}
	target.SetInt(seq)
	return nil
}

func parseSeq(text string) (int64, error) {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 1 {
		return 0, usagef("SEQ must be a number of 1 or more, not %q", text)
	}
	return seq, nil
}
