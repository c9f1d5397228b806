package main

import (
	"context"
	"fmt"
	"strings"

	"outboxweb/internal/outbox"
	"outboxweb/internal/worker"
)

// try prints what applying a row's event would do. An event that would fail is
// exit 1.
func (c *requeueCmd) try(ctx context.Context, a *app) error {
	seq, err := parseSeq(c.Seq)
	if err != nil {
		return err
	}
	o := a.storeOptions()
	o.ReadOnly = true // other versions of the projections may be tried, which are not to be installed
	st, set, err := a.openBothWith(ctx, o)
	if err != nil {
		return err
	}
	defer st.Close()
	d, err := worker.DryRun(ctx, st, set, c.Campaign, seq, c.Next)
	if err != nil {
		return err
	}
	if c.JSON {
		err = a.printJSON(d)
	} else {
		a.printDryRun(d)
	}
	if err == nil && d.Failed != nil {
		return errFound
	}
	return err
}

func (a *app) printDryRun(d outbox.DryRun) {
	fmt.Fprintf(a.out, "campaign %s: %s of the events from %d on would be applied, up to %d\n", d.CampaignID, thousands(d.Applied), d.FromSeq, d.UntilSeq)
	for _, p := range d.Projections {
		a.printComparison(p)
	}
	if f := d.Failed; f != nil {
		fmt.Fprintf(a.out, "event %d (%s) would fail: %s\n", f.Seq, f.EventType, f.Message)
	}
}

// printComparison prints how the rows of a projection differ, and the samples.
func (a *app) printComparison(p outbox.ProjectionResult) {
	if p.Comparison == nil || !p.Comparison.Differs() {
		fmt.Fprintf(a.out, "%s: no row differs\n", p.Projection)
		return
	}
	c := p.Comparison
	from := ""
	if c.FirstSeq > 0 {
		from = fmt.Sprintf("; live rows and fold part at event %d", c.FirstSeq)
	}
	fmt.Fprintf(a.out, "%s: %s rows added, %s changed, %s removed%s\n", p.Projection, thousands(c.Added), thousands(c.Changed), thousands(c.Removed), from)
	for _, row := range c.Samples {
		fmt.Fprintf(a.out, "  %s\n", rowChangeText(row))
	}
	if more := c.Added + c.Changed + c.Removed - int64(len(c.Samples)); more > 0 {
		fmt.Fprintf(a.out, "  and %s more\n", thousands(more))
	}
}

// rowChangeText is one changed row in a line: added dogs id=3: name "rex", or
// changed dogs id=3: name "rex" → "max".
func rowChangeText(row outbox.RowChange) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", row.Kind, row.Table)
	for _, k := range row.Key {
		fmt.Fprintf(&b, " %s=%s", k.Name, k.Value)
	}
	for i, f := range row.Fields {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		switch {
		case row.Kind == outbox.RowChanged:
			fmt.Fprintf(&b, "%s%s %s → %s", separator, f.Name, valueOr(f.Live, "none"), valueOr(f.Fold, "none"))
		case row.Kind == outbox.RowAdded:
			fmt.Fprintf(&b, "%s%s %s", separator, f.Name, f.Fold)
		default:
			fmt.Fprintf(&b, "%s%s %s", separator, f.Name, f.Live)
		}
	}
	return firstLine(b.String(), 400)
}

func valueOr(value []byte, other string) string {
	if value == nil {
		return other
	}
	return string(value)
}
