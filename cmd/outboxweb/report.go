package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

// reportCmd shows the state of the outbox.
type reportCmd struct {
	Filter campaign.RowFilter `embed:""`
	Limit  int                `placeholder:"N" least:"1" help:"Show at most this many rows. Default with a filter: 50."`
	jsonFlag
}

// report is the command's output.
type report struct {
	Summary campaign.Summary `json:"summary"`
	Tonight campaign.Tonight `json:"tonight"`
	Rows    []campaign.Row   `json:"rows"`
}

// Run prints the summary and, when a filter or limit is given, rows.
func (c *reportCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	r := report{Rows: []campaign.Row{}}
	st.Facts.Build = version
	facts, err := st.Facts.Read(ctx)
	if err != nil {
		return err
	}
	r.Summary = facts.Summary
	settings, err := section(&a.Common, alertsKey, alerts.Parse)
	if err != nil {
		return err
	}
	if r.Tonight, err = st.Alerts(settings, version, nil).Tonight(ctx, r.Summary); err != nil {
		return err
	}
	filtered := outbox.RowsBy.Asks(c.Filter) || c.Limit > 0
	if filtered {
		if r.Rows, err = c.rows(ctx, a, st); err != nil {
			return err
		}
	}
	if c.JSON {
		return a.printJSON(r)
	}
	blocked, err := st.Blocked(ctx, event.MaxPage)
	if err != nil {
		return err
	}
	causes, err := st.ErrorGroups(ctx)
	if err != nil {
		return err
	}
	printSummary(a.out, r, blocked, causes)
	if !filtered {
		return nil
	}
	fmt.Fprintln(a.out)
	return printList(a, c.jsonFlag, "such rows", r.Rows, campaigns.RowColumns(shownNow(), campaign.RowFilter{}))
}

// rows reads the rows that the flags select.
func (c *reportCmd) rows(ctx context.Context, a *app, st *engine.Engine) ([]campaign.Row, error) {
	if c.Filter.CampaignID != "" {
		if _, err := st.Campaign(ctx, c.Filter.CampaignID); err != nil {
			return nil, st.Intake.Explained(ctx, c.Filter.CampaignID, err)
		}
	}
	return pages(a, "rows", cmp.Or(c.Limit, 50), func(cursor string, limit int) (event.Page[campaign.Row], error) {
		c.Filter.Cursor, c.Filter.Limit = cursor, limit
		return st.Rows(ctx, c.Filter)
	})
}

// How many campaigns that need an operator, and how many errors, are listed.
const (
	blockedShown = 10
	causesShown  = 5
	itemsShown   = 3 // of a finding
)

func printSummary(w io.Writer, r report, blocked []campaign.Blocked, causes campaign.ErrorGroups) {
	s := r.Summary
	fmt.Fprintf(w, "%s, as of %s\n\n", s.Mode, s.AsOf.UTC().Format(time.RFC3339))
	t := table(w)
	for _, f := range s.Findings {
		t.row(f.Level, firstLine(f.Says+".", 300))
		for _, more := range []string{f.Owner.Says(), f.Error, f.Does} {
			if more != "" {
				t.row("", firstLine(more, 300))
			}
		}
		for _, one := range f.Items[:min(len(f.Items), itemsShown)] {
			line := strings.Trim(one.Name+": "+one.Note, ": ,")
			if !one.At.IsZero() {
				line += ", " + event.Age(s.AsOf.Sub(one.At)) + " ago"
			}
			t.row("", firstLine(line, 200))
		}
	}
	if t.Flush(); len(s.Findings) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(t, "PENDING\tPROCESSING\tFAILED\tDEAD")
	t.row(event.Number(s.Counts.Pending), event.Number(s.Counts.Processing), event.Number(s.Counts.Failed), event.Number(s.Counts.Dead))
	t.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(t, "oldest event\t"+oldestLine(s.Oldest, s.AsOf))
	fmt.Fprintln(t, "oldest retryable\t"+oldestLine(s.OldestRetryable, s.AsOf))
	fmt.Fprintf(t, "lag\t%s, %s\n", event.Count(s.Lag.Events, "event", "events"), event.Age(time.Duration(s.Lag.MaxSeconds*float64(time.Second))))
	fmt.Fprintln(t, "empty\t"+s.Outlook.Sentence())
	fmt.Fprintln(t, "twice the load\t"+s.Outlook.Doubled)
	fmt.Fprintln(t, "left alone\t"+r.Tonight.Text())
	fmt.Fprintf(t, "campaigns\t%s, %s lagging, %s blocked, %s paused, %s diverged, %s drifted, %s unverifiable\n", event.Number(s.Campaigns.Total),
		event.Number(s.Campaigns.Lagging), event.Number(s.Campaigns.Blocked), event.Number(s.Campaigns.Paused), event.Number(s.Campaigns.Diverged), event.Number(s.Campaigns.Drifted), event.Number(s.Campaigns.Unverifiable))
	fmt.Fprintln(t, "worker\t"+workerLine(s))
	if says := causes.Rehearsed.Text(); says != "" {
		fmt.Fprintln(t, "rehearsed\t"+says)
	}
	for _, g := range causes.Groups[:min(len(causes.Groups), causesShown)] {
		fmt.Fprintln(t, "cause\t"+g.Reach()+": "+firstLine(g.Example, 100))
	}
	if more := len(causes.Groups) - causesShown; more > 0 {
		fmt.Fprintf(t, "causes\t%s more: outboxweb failures list\n", event.AtLeast(int64(more), causes.More))
	}
	t.Flush()
	if len(blocked) == 0 {
		return
	}
	fmt.Fprintln(w)
	fmt.Fprintln(t, "CAMPAIGN\tSTATE\tWHY")
	for _, c := range blocked[:min(len(blocked), blockedShown)] {
		t.row(firstLine(c.CampaignID, idShown), c.State(), firstLine(c.Why(s.AsOf, s.Surroundings()), 200))
	}
	t.Flush()
	if more := len(blocked) - blockedShown; more > 0 {
		least := ""
		if len(blocked) == event.MaxPage {
			least = "at least "
		}
		fmt.Fprintf(w, "and %s%d more: outboxweb campaigns list --state blocked; likewise failing and diverged\n", least, more)
	}
}

func oldestLine(o *campaign.Oldest, now time.Time) string {
	if o == nil {
		return "none"
	}
	return fmt.Sprintf("campaign %s seq %d, appended %s ago", o.CampaignID, o.Seq, event.Age(now.Sub(o.EnqueuedAt)))
}

func workerLine(s campaign.Summary) string {
	seen := "never seen"
	if s.Worker.LastSeen != nil {
		seen = "last seen "
		if !s.Worker.Running { // it may have been idle for long before its end
			seen += "at work "
		}
		seen += event.Age(s.AsOf.Sub(*s.Worker.LastSeen)) + " ago"
	}
	if !s.Worker.Running {
		return "none is running, " + seen
	}
	known := func(i campaign.InstanceState) bool {
		words := i.StateWords(s.AsOf)
		return words == string(campaign.InstanceRunning) || words == string(campaign.InstanceIdle)
	}
	if !slices.ContainsFunc(s.Instances, known) {
		return seen + " on another host: idle, or gone"
	}
	serving := ""
	if !s.Worker.Campaigns.Every() {
		serving = ", serving only campaigns that match " + s.Worker.Campaigns.String()
	}
	if idle := s.AsOf.Sub(*s.Worker.LastSeen); idle > campaign.Recent && s.Throughput == (campaign.Throughput{}) {
		return "running, idle: it last had work " + event.Age(idle) + " ago" + serving
	}
	return fmt.Sprintf("running, %s%s, %.0f applied/s, %.0f failed/s", seen, serving, s.Throughput.AppliedPerSecond, s.Throughput.FailedPerSecond)
}
