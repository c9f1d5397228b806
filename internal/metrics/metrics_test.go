package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

func scrape(t *testing.T, m *Metrics) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	must.Need(t, rec.Code == 200, "scrape answered %d: %s", rec.Code, rec.Body)
	return rec.Body.String()
}

func tells(t *testing.T, m *Metrics, lines ...string) {
	body := scrape(t, m)
	for _, line := range lines {
		must.Hold(t, strings.Contains(body, "\n"+line+"\n"), "the scrape lacks %q", line)
	}
}

func TestHandler_gaugesComeFromTheSummaryAndCountersFromTheWorker(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (campaign.Summary, error) {
		return campaign.Summary{
			Counts:     campaign.Counts{Pending: 7, Dead: 2},
			Lag:        campaign.Lag{Events: 9, MaxSeconds: 12.5, RetryableSeconds: 1.5},
			Campaigns:  campaign.CampaignCounts{Total: 4, Blocked: 2, Diverged: 1, Drifted: 10, Paused: 3, Skips: 5},
			Operations: campaign.OperationCounts{Running: 6, Unacknowledged: 8},
			Drift:      1,
			Worker:     campaign.WorkerSummary{Running: true},
			Faults:     []database.DatabaseFault{database.FullDisk("projections", time.Now())},
		}, nil
	})
	m.Applied.Add(3)
	m.Failed.Inc()
	m.Fenced.Inc()
	m.Waves.Inc()
	m.WaveSeconds.Observe(0.2)
	m.IdentityRefused.WithLabelValues("expired").Inc()
	m.Request("/rows", "GET", 200, 30*time.Millisecond)
	m.Request("/rows", "BREW", 405, time.Millisecond)
	m.Append(3, time.Millisecond)
	tells(t, m,
		`outboxweb_rows{status="pending"} 7`,
		`outboxweb_rows{status="processing"} 0`,
		`outboxweb_rows{status="failed"} 0`,
		`outboxweb_rows{status="dead"} 2`,
		`outboxweb_oldest_row_age_seconds 12.5`,
		`outboxweb_oldest_retryable_age_seconds 1.5`,
		`outboxweb_lag_events 9`,
		`outboxweb_campaigns 4`,
		`outboxweb_blocked_campaigns 2`,
		`outboxweb_diverged_campaigns 1`,
		`outboxweb_drifted_campaigns 10`,
		`outboxweb_paused_campaigns 3`,
		`outboxweb_skipped_events 5`,
		`outboxweb_operations_running 6`,
		`outboxweb_operations_unacknowledged 8`,
		`outboxweb_campaign_row_drift 1`,
		`outboxweb_worker_running 1`,
		`outboxweb_database_fault{database="journal",kind="full"} 0`,
		`outboxweb_state_unreadable 0`,
		`outboxweb_database_fault{database="projections",kind="full"} 1`,
		`outboxweb_events_applied_total 3`,
		`outboxweb_apply_failures_total 1`,
		`outboxweb_fenced_total 1`,
		`outboxweb_waves_total 1`,
		`outboxweb_wave_seconds_count 1`,
		`outboxweb_identity_refused_total{why="expired"} 1`,
		`outboxweb_http_requests_total{code="200",route="/rows"} 1`,
		`outboxweb_http_request_seconds_bucket{method="GET",route="/rows",status="2xx",le="0.025"} 0`,
		`outboxweb_http_request_seconds_bucket{method="GET",route="/rows",status="2xx",le="0.1"} 1`,
		`outboxweb_http_request_seconds_count{method="other",route="/rows",status="4xx"} 1`,
		`outboxweb_appended_events_total 3`,
		`outboxweb_append_seconds_count 1`)
}

func TestHandler_leavesOutWhatCannotBeReadAlone(t *testing.T) {
	t.Parallel()
	const rows, behind, runs = "outboxweb_rows{", "outboxweb_behind_projections{", "outboxweb_runs{"
	away := ""
	reads := func(series string) error {
		if series == away {
			return errors.New("away")
		}
		return nil
	}
	m := New(func(context.Context) (campaign.Summary, error) { return campaign.Summary{}, reads(rows) })
	m.WatchBehind(func(context.Context) (campaign.BehindCounts, error) {
		return campaign.BehindCounts{Alone: 3, Waiting: 2, CatchUps: 1}, reads(behind)
	})
	m.WatchRuns(func(context.Context) ([]replay.RunTally, error) {
		return []replay.RunTally{{Kind: replay.RunVerify, Status: replay.RunFailed, Runs: 3}}, reads(runs)
	})
	tells(t, m, rows+`status="pending"} 0`, behind+`replay="none"} 3`, behind+`replay="waiting"} 2`, behind+`replay="active"} 1`, runs+`kind="verify",status="failed"} 3`, runs+`kind="rebuild",status="running"} 0`)
	for _, away = range []string{rows, behind, runs} {
		body := scrape(t, m)
		for _, series := range []string{rows, behind, runs, "outboxweb_events_applied_total "} {
			must.Equal(t, strings.Contains(body, "\n"+series), series != away, "without", away, "the scrape has", series)
		}
	}
}

func TestWatchPublishers_tellsOfEachAndCountersAreAlwaysOn(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (campaign.Summary, error) { return campaign.Summary{}, nil })
	var failed error
	m.WatchPublishers(func(context.Context) ([]subscription.Publisher, error) {
		return []subscription.Publisher{
			{SubscriptionName: operator.SubscriptionName{Topic: "scenes", Publisher: "archive"}, Status: subscription.PublisherFailed, Position: 7, LagEvents: 3, LagSeconds: 1.5, ErrorCount: 12},
			{SubscriptionName: operator.SubscriptionName{Topic: "rare", Publisher: "a"}, Status: subscription.PublisherPaused, LagCapped: true},
			{SubscriptionName: operator.SubscriptionName{Topic: "own", Publisher: "ok"}, Healthy: new(true)},
			{SubscriptionName: operator.SubscriptionName{Topic: "own", Publisher: "ill"}, Healthy: new(false)},
		}, failed
	})
	m.PublisherDelivered.WithLabelValues("scenes", "archive").Add(4)
	m.PublisherErrors.WithLabelValues("scenes", "archive", "event").Inc()
	m.PublisherReads.Inc()
	m.PublisherSeconds.WithLabelValues("scenes", "archive").Observe(0.2)
	tells(t, m,
		`outboxweb_publisher_lag_events{publisher="archive",topic="scenes"} 3`,
		`outboxweb_publisher_lag_seconds{publisher="archive",topic="scenes"} 1.5`,
		`outboxweb_publisher_position{publisher="archive",topic="scenes"} 7`,
		`outboxweb_publisher_errors_in_a_row{publisher="archive",topic="scenes"} 12`,
		`outboxweb_publisher_status{publisher="archive",status="failed",topic="scenes"} 1`,
		`outboxweb_publisher_status{publisher="archive",status="active",topic="scenes"} 0`,
		`outboxweb_publisher_status{publisher="a",status="paused",topic="rare"} 1`,
		`outboxweb_publisher_delivered_total{publisher="archive",topic="scenes"} 4`,
		`outboxweb_publisher_errors_total{kind="event",publisher="archive",topic="scenes"} 1`,
		`outboxweb_publisher_healthy{publisher="ok",topic="own"} 1`,
		`outboxweb_publisher_healthy{publisher="ill",topic="own"} 0`,
		`outboxweb_publisher_reads_total 1`,
		`outboxweb_publisher_seconds_count{publisher="archive",topic="scenes"} 1`)
	body := scrape(t, m)
	must.Hold(t, !strings.Contains(body, `publisher_lag_events{publisher="a"`) && !strings.Contains(body, `publisher_lag_seconds{publisher="a"`), "a lag that is not known is told as a number")
	must.Hold(t, !strings.Contains(body, `publisher_healthy{publisher="archive"`), "a publisher that says nothing is healthy or not")
	failed = errors.New("away")
	must.Hold(t, !strings.Contains(scrape(t, m), "\noutboxweb_publisher_lag_events"), "publishers that cannot be read have a lag")
	tells(t, m, "outboxweb_publisher_reads_total 1", "outboxweb_lag_events 0")
}
