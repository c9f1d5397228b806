package main

import (
	"context"
	"fmt"
	"time"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// intakeCmd shows sources, decides on their rejected rows, and hands sources over.
type intakeCmd struct {
	List       intakeListCmd       `cmd:"" default:"withargs" help:"Show the sources: state, waiting and rejected rows, last error."`
	Rejections intakeRejectionsCmd `cmd:"" help:"List a source's rejected rows, newest first. Long ids are shortened; --json has them in full."`
	Retry      intakeRetryCmd      `cmd:"" help:"Retry a rejected row as it is in its table now."`
	Discard    intakeDiscardCmd    `cmd:"" help:"Delete a rejected row from its table; its event never enters the journal."`
	HandOver   intakeHandOverCmd   `cmd:"" help:"Hand a source that belongs to another journal over to this one."`
	Schema     intakeSchemaCmd     `cmd:"" help:"Print the statements that create the table outboxweb_intake in a service's database."`
}

// withIntake runs do with the sources of the configuration file.
func (a *app) withIntake(ctx context.Context, do func(*intake.Intake) error) error {
	settings, err := section(&a.Common, sourcesKey, intake.Parse)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(st *engine.Engine) error {
		st.Intake.Settings = settings
		return do(st.Intake)
	})
}

type intakeListCmd struct{ jsonFlag }

// Run lists the sources.
func (c *intakeListCmd) Run(ctx context.Context, a *app) error {
	return a.withIntake(ctx, func(in *intake.Intake) error {
		sources, err := in.States(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return a.printJSON(map[string]any{"sources": sources})
		}
		return a.printSources(sources)
	})
}

func (a *app) printSources(sources []outbox.IntakeSource) error {
	t := table(a.out)
	if len(sources) == 0 {
		t.row("no sources in the journal, nor in the configuration of this command")
		return t.Flush()
	}
	t.row("SOURCE", "STATE", "WAITING", "OLDEST", "REJECTED", "JOURNALLED", "HELD BY", "LAST ERROR")
	for _, s := range sources {
		holder := ""
		if s.Lease != nil {
			holder = s.Lease.Owner
		}
		t.row(s.Name, s.State(time.Now()), outbox.AtLeast(s.Waiting, s.Waiting >= s.WaitingLimit), stampOr(s.OldestAt, ""), s.Rejected, s.Journalled, holder, firstLine(s.Error, 120))
	}
	return t.Flush()
}

type intakeRejectionsCmd struct {
	Source string `arg:"" help:"The source, as named in the configuration file."`
	Limit  int    `default:"50" placeholder:"N" help:"At most this many rows. Default 50."`
	jsonFlag
}

// Run lists rejected rows.
func (c *intakeRejectionsCmd) Run(ctx context.Context, a *app) error {
	if err := checkLimit(c.Limit, outbox.MaxPage); err != nil {
		return err
	}
	return a.withIntake(ctx, func(in *intake.Intake) error {
		page, err := in.Rejections(ctx, c.Source, "", c.Limit)
		if err != nil {
			return err
		}
		a.printCut(page.NextCursor, len(page.Items), "rejected rows")
		switch {
		case c.JSON:
			return a.printJSON(page)
		case len(page.Items) == 0:
			fmt.Fprintln(a.out, "no rejected rows of source "+c.Source)
			return nil
		}
		return printTable(a.out, "ID\tROW\tCAMPAIGN\tEVENT\tTYPE\tSTATUS\tREJECTED\tREASON", page.Items, func(r outbox.IntakeRejection) []any {
			return []any{r.ID, firstLine(r.RowKey, idShown), firstLine(r.CampaignID, idShown), firstLine(r.EventID, idShown), firstLine(r.EventType, idShown), r.Status, stamp(r.RejectedAt), firstLine(r.Reason, 200)}
		})
	})
}

type intakeRetryCmd struct {
	outbox.RejectionKey
	actionFlags
}

// Run retries a rejected row.
func (c *intakeRetryCmd) Run(ctx context.Context, a *app) error {
	return a.withIntake(ctx, func(in *intake.Intake) error {
		r, err := in.Retry(ctx, command(c.Reason), c.Source, c.ID)
		if err != nil {
			return err
		}
		return c.print(a, r, "rejected row %d of source %s is retried by the server that holds the source", r.ID, r.Source)
	})
}

type intakeDiscardCmd struct {
	outbox.RejectionKey
	outbox.DiscardRequest
	jsonFlag
}

// Run discards a rejected row.
func (c *intakeDiscardCmd) Run(ctx context.Context, a *app) error {
	return a.withIntake(ctx, func(in *intake.Intake) error {
		return a.confirming(c.Reason, c.Confirm, func(o outbox.Command) error {
			r, err := in.Discard(ctx, o, c.Source, c.ID)
			if err != nil {
				return err
			}
			return c.print(a, r, "rejected row %d of source %s is discarded by the server that holds the source; its campaign %s continues", r.ID, r.Source, r.CampaignID)
		})
	})
}

type intakeHandOverCmd struct {
	Source string `arg:"" help:"The source, as named in the configuration file."`
	outbox.HandOverRequest
	jsonFlag
}

// Run hands a source over.
func (c *intakeHandOverCmd) Run(ctx context.Context, a *app) error {
	return a.withIntake(ctx, func(in *intake.Intake) error {
		return a.confirming(c.Reason, c.Confirm, func(o outbox.Command) error {
			h, err := in.HandOver(ctx, o, c.Source)
			if err != nil {
				return err
			}
			return c.print(a, h, "source %s is taken from journal %s at the next read of the server that has it in its configuration", h.Source, h.From)
		})
	})
}

type intakeSchemaCmd struct {
	Dialect string `arg:"" enum:"sqlite,postgres" help:"sqlite or postgres."`
	Notify  bool   `help:"With postgres: also a trigger that wakes the server at each commit."`
}

// Run prints the schema.
func (c *intakeSchemaCmd) Run(a *app) error {
	text, err := writers.Schema(c.Dialect)
	if err != nil {
		return err
	}
	if c.Notify {
		if c.Dialect != "postgres" {
			return usagef("--notify needs postgres: SQLite has no notifications")
		}
		text += "\n" + writers.NotifySchema()
	}
	_, err = fmt.Fprint(a.out, text)
	return err
}
