package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// failuresExplainCmd explains why projections cannot apply an event.
type failuresExplainCmd struct {
	Campaign string `arg:"" help:"The campaign's id."`
	Seq      int64  `arg:"" help:"The event's number in it."`
	jsonFlag
	redactFlags
}

// Run explains the event's open failures with the projections of this command.
func (c *failuresExplainCmd) Run(ctx context.Context, a *app) error {
	hide, err := c.redactor()
	if err != nil {
		return err
	}
	var x outbox.EventExplanation
	err = a.readingBoth(ctx, func(st *engine.Engine, set *projection.Set, travel *timetravel.Travel) (err error) {
		x, err = st.Explainer(set, travel, time.Minute)(ctx, redact.Of(hide), c.Campaign, c.Seq)
		return err
	})
	if err != nil {
		return err
	}
	x = redact.Shown(hide, x)
	if c.JSON {
		return a.printJSON(x)
	}
	fmt.Fprintf(a.out, "event %d of campaign %s, %s\n", x.Seq, x.CampaignID, x.EventType)
	if len(x.Failures) == 0 {
		fmt.Fprintln(a.out, "no projection fails at it")
	}
	for _, f := range x.Failures {
		if err := a.printExplained(f); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printExplained(f outbox.ExplainedFailure) error {
	for _, line := range []string{f.Reason, f.Error, f.VersionChanged(), f.Unexplained} {
		if line != "" {
			fmt.Fprintf(a.out, "\n%s\n", line)
		}
	}
	if f.Statement == nil {
		return nil
	}
	fmt.Fprintf(a.out, "\n%s:%d of projection %s\n", f.Statement.File, f.Statement.Line, f.Projection)
	for _, l := range f.Statement.Lines {
		mark := " "
		if l.Failed {
			mark = ">"
		}
		fmt.Fprintf(a.out, "%s %4d  %s\n", mark, l.Number, l.Text)
	}
	there := "THE ROW THAT IS THERE"
	switch {
	case f.Existing == nil:
		there = ""
	case f.Existing.SetBy > 0:
		there += fmt.Sprintf(", BY EVENT %d", f.Existing.SetBy)
	}
	fmt.Fprintln(a.out)
	return printTable(a.out, "COLUMN\tBINDING\tTHIS EVENT\t"+there, f.Compared(), func(c outbox.ComparedColumn) []any {
		value := string(c.Value)
		if c.Missing {
			value = "missing"
		}
		if c.Refused {
			value += " (refused)"
		}
		if c.Computed {
			value += " (in an expression)"
		}
		return []any{c.Name, c.Binding, value, string(c.Existing)}
	})
}
