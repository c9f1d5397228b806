package main

import (
	"context"
	"fmt"

	"github.com/alecthomas/kong"

	writers "github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/web/templates/delivery"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// intakeCmd shows sources, decides on their rejected rows, and hands sources over.
type intakeCmd struct {
	List       intakeListCmd       `cmd:"" default:"withargs" help:"Show the sources: state, waiting and rejected rows, last error."`
	Rejections intakeRejectionsCmd `cmd:"" help:"List a source's rejected rows, newest first. Long ids are shortened; --json has them in full."`
	kong.Plugins
	Schema intakeSchemaCmd `cmd:"" help:"Print the statements that create the table outboxweb_intake in a service's database."`
}

// intake returns the sources of the configuration file, on the store that open opens.
func (a *app) intake(open func() (*engine.Engine, error)) (*intake.Intake, error) {
	settings, err := section(&a.Common, sourcesKey, intake.Parse)
	if err != nil {
		return nil, err
	}
	st, err := open()
	if err != nil {
		return nil, err
	}
	st.Intake.Settings = settings
	return st.Intake, nil
}

type intakeListCmd struct{ jsonFlag }

// Run lists the sources.
func (c *intakeListCmd) Run(ctx context.Context, a *app, in *intake.Intake) error {
	sources, err := in.States(ctx)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return a.printJSON(map[string]any{"sources": sources})
	case len(sources) == 0:
		fmt.Fprintln(a.out, "no sources in the journal, nor in the configuration of this command")
		return nil
	}
	return printColumns(a.out, delivery.SourceColumns(shownNow()), sources)
}

type intakeRejectionsCmd struct {
	Source string `arg:"" help:"The source, as named in the configuration file."`
	Limit  int    `default:"50" placeholder:"N" least:"1" most:"${max_page}" help:"At most this many rows. Default 50."`
	jsonFlag
}

// Run lists rejected rows.
func (c *intakeRejectionsCmd) Run(ctx context.Context, a *app, in *intake.Intake) error {
	page, err := in.Rejections(ctx, c.Source, "", c.Limit)
	if err != nil {
		return err
	}
	a.printCut(page.NextCursor, len(page.Items), "rejected rows")
	if c.JSON {
		return a.printJSON(page)
	}
	return printList(a, c.jsonFlag, "rejected rows of source "+c.Source, page.Items, []ui.Column[inbound.IntakeRejection]{
		{Print: "ID", Text: func(r *inbound.IntakeRejection) any { return r.ID }},
		{Print: "ROW", Most: idShown, Text: func(r *inbound.IntakeRejection) any { return r.RowKey }},
		{Print: "CAMPAIGN", Most: idShown, Text: func(r *inbound.IntakeRejection) any { return r.CampaignID }},
		{Print: "EVENT", Most: idShown, Text: func(r *inbound.IntakeRejection) any { return r.EventID }},
		{Print: "TYPE", Most: idShown, Text: func(r *inbound.IntakeRejection) any { return r.EventType }},
		{Print: "STATUS", Text: func(r *inbound.IntakeRejection) any { return r.Status }},
		{Print: "REJECTED", Text: func(r *inbound.IntakeRejection) any { return r.RejectedAt }},
		{Print: "REASON", Most: 200, Text: func(r *inbound.IntakeRejection) any { return r.Reason }},
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
