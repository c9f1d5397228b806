package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/redact"
	"outboxweb/internal/timetravel"
)

// campaignsRowsCmd shows a read model as of an event.
type campaignsRowsCmd struct {
	Campaign string `arg:"" help:"The campaign's id."`
	Seq      int64  `placeholder:"N" help:"As of this event; by default the last applied one."`
	Table    string `placeholder:"T" help:"Only this table."`
	After    string `placeholder:"ROW" help:"The rows of that table after this one, as the JSON output names it."`
	jsonFlag
	redactFlags
}

// Run replays the campaign and prints the rows.
func (c *campaignsRowsCmd) Run(ctx context.Context, a *app) error {
	hide, err := c.redactor()
	if err != nil {
		return err
	}
	o := a.storeOptions()
	o.ReadOnly = true // it may load other versions of the projections, which must not be installed
	st, set, err := a.openBothWith(ctx, o)
	if err != nil {
		return err
	}
	defer st.Close()
	travel := timetravel.New(timetravel.Config{Store: st.Store, Set: set})
	defer travel.Close()
	const patience = 24 * time.Hour // until interrupted
	m, err := travel.At(ctx, outbox.ModelQuery{CampaignID: c.Campaign, Seq: c.Seq, Table: c.Table, After: c.After}, patience)
	if err != nil {
		return err
	}
	m = redact.Shown(hide, m)
	if c.JSON {
		return a.printJSON(m)
	}
	fmt.Fprintf(a.out, "campaign %s as of event %d of %d\n", m.CampaignID, m.Seq, m.LastSeq)
	for _, t := range m.Tables {
		fmt.Fprintf(a.out, "%s\n", t.Name)
		for _, row := range t.Rows {
			fmt.Fprintf(a.out, "  %s\n", modelRowText(row))
		}
		if t.More {
			fmt.Fprintf(a.out, "  more rows: --table %s --after %s\n", t.Name, t.Next)
		}
	}
	return nil
}

// modelRowText is a row on one line, with what the event changed.
func modelRowText(row outbox.ModelRow) string {
	var parts []string
	if row.Kind != "" {
		parts = append(parts, row.Kind)
	}
	for _, k := range row.Key {
		parts = append(parts, k.Name+"="+string(k.Value))
	}
	for _, c := range row.Cells {
		switch {
		case c.Long:
			parts = append(parts, c.Name+"=(long)")
		case c.Changed:
			parts = append(parts, fmt.Sprintf("%s=%s (was %s)", c.Name, c.Value, c.Before))
		default:
			parts = append(parts, c.Name+"="+string(c.Value))
		}
	}
	return strings.Join(parts, " ")
}
