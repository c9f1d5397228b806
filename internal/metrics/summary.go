package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
)

// Summary gauges that have labels or may be absent.
var (
	rowsDesc        = desc("rows", "Outbox rows by status.", "status")
	heldDesc        = desc("paused_projections", "Paused projections by scope: all campaigns, or campaign (counted per campaign).", "scope")
	quarantinedDesc = desc("quarantined_projections", "Quarantined projections, counted per campaign.")
	faultDesc       = desc("database_fault", "1 while something is wrong with the database itself, by kind, as seen by this process.", "database", "kind")
	shareDesc       = desc("projection_time_share", "Share of the time of waves that a projection takes, in the last busy minutes; absent while it is not measured.", "projection")
	meanDesc        = desc("projection_event_seconds", "Time that an event takes in a projection, on average, in the last busy minutes.", "projection")
	p99Desc         = desc("projection_event_p99_seconds", "Time that 99 of 100 events take at most in a projection, in the last busy minutes.", "projection")
	unreadableDesc  = desc("state_unreadable", "1 while the state of the queue cannot be read and its series are missing.")
)

// summaryGauges are the other gauges of the summary.
var summaryGauges = []struct {
	desc *prometheus.Desc
	of   func(*campaign.Summary) float64
}{
	{desc("oldest_row_age_seconds", "Age of the oldest unapplied event, since its append; 0 when all are applied."),
		func(s *campaign.Summary) float64 { return s.Lag.MaxSeconds }},
	{desc("oldest_retryable_age_seconds", "Age of the oldest event that workers retry by themselves (not in a campaign that is blocked, paused, diverged or served by no running instance), since its append; 0 when there is none."),
		func(s *campaign.Summary) float64 { return s.Lag.RetryableSeconds }},
	{desc("lag_events", "Events in the journal that are not applied yet, over all campaigns."),
		func(s *campaign.Summary) float64 { return float64(s.Lag.Events) }},
	{desc("backlog_growth_per_second", "Events appended minus events applied, per second, in the last seconds; negative while the backlog shrinks, and 0 without a worker to measure it."),
		func(s *campaign.Summary) float64 { return s.Outlook.PerSecond() }},
	{desc("backlog_empty_seconds", "Time until workers have applied all that needs no operator, at the pace of the last seconds; +Inf if they will not, or it is not known."),
		func(s *campaign.Summary) float64 { return s.Outlook.Seconds() }},
	{desc("busy_share", "Share of the last seconds in which waves ran, 0 to 1; of several instances that of the busiest."),
		func(s *campaign.Summary) float64 { return s.Throughput.BusyShare }},
	{desc("campaigns", "Campaigns in the journal."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Total) }},
	{desc("blocked_campaigns", "Campaigns whose head is dead."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Blocked) }},
	{desc("diverged_campaigns", "Campaigns whose watermark contradicts the journal."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Diverged) }},
	{desc("drifted_campaigns", "Campaigns whose live rows differ from the journal, as last verified."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Drifted) }},
	{desc("unverifiable_campaigns", "Campaigns whose journal the last verify could not replay, for example because an event was changed or deleted."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Unverifiable) }},
	{desc("paused_campaigns", "Campaigns that an operator has paused."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Paused) }},
	{desc("skipped_events", "Skipped events, which are never applied."),
		func(s *campaign.Summary) float64 { return float64(s.Campaigns.Skips) }},
	{desc("operations_running", "Operations in progress."),
		func(s *campaign.Summary) float64 { return float64(s.Operations.Running) }},
	{desc("operations_unacknowledged", "Operations that have ended and are not acknowledged."),
		func(s *campaign.Summary) float64 { return float64(s.Operations.Unacknowledged) }},
	{desc("campaign_row_drift", "Campaign rows corrected by the self-check since start."),
		func(s *campaign.Summary) float64 { return float64(s.Drift) }},
	{desc("worker_running", "1 while at least one instance with a worker is running."),
		func(s *campaign.Summary) float64 { return boolGauge(s.Worker.Running) }},
}

// watchSummary adds the gauges read from one summary per scrape.
func (m *Metrics) watchSummary(summary func(context.Context) (campaign.Summary, error)) {
	descs := []*prometheus.Desc{rowsDesc, heldDesc, quarantinedDesc, faultDesc, unreadableDesc, shareDesc, meanDesc, p99Desc}
	for _, g := range summaryGauges {
		descs = append(descs, g.desc)
	}
	m.watch("read the summary", func(ctx context.Context, gauge gauge) error {
		s, err := summary(ctx)
		gauge(unreadableDesc, boolGauge(err != nil))
		if err != nil {
			return err
		}
		for _, g := range summaryGauges {
			gauge(g.desc, g.of(&s))
		}
		for _, status := range event.Statuses {
			gauge(rowsDesc, float64(s.Counts.Of(status)), string(status))
		}
		if s.Held != nil {
			forAll, campaigns := s.PausedProjections()
			gauge(heldDesc, float64(forAll), "all")
			gauge(heldDesc, float64(campaigns), "campaign")
			gauge(quarantinedDesc, float64(s.QuarantinedProjections()))
		}
		for name, i := range s.Installed {
			if c := s.CostOf(name, i.Version); c != nil {
				gauge(shareDesc, c.Share, name)
				gauge(meanDesc, c.Seconds, name)
				gauge(p99Desc, c.P99, name)
			}
		}
		for _, d := range []string{"journal", "projections"} {
			for _, kind := range database.FaultKinds {
				found := slices.ContainsFunc(s.Faults, func(f database.DatabaseFault) bool { return f.Database == d && f.Kind == kind })
				gauge(faultDesc, boolGauge(found), d, string(kind))
			}
		}
		return nil
	}, descs...)
}
