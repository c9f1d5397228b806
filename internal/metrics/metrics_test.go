package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func scrape(t *testing.T, m *Metrics) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	must.Need(t, rec.Code == 200, "scrape answered %d: %s", rec.Code, rec.Body)
	return rec.Body.String()
}

func TestHandler_gaugesComeFromTheSummaryAndCountersFromTheWorker(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (outbox.Summary, error) {
		return outbox.Summary{
			Counts:     outbox.Counts{Pending: 7, Dead: 2},
			Lag:        outbox.Lag{Events: 9, MaxSeconds: 12.5, RetryableSeconds: 1.5},
			Campaigns:  outbox.CampaignCounts{Total: 4, Blocked: 2, Diverged: 1, Drifted: 10, Paused: 3, Skips: 5},
			Operations: outbox.OperationCounts{Running: 6, Unacknowledged: 8},
			Drift:      1,
			Worker:     outbox.WorkerSummary{Running: true},
			Faults:     []outbox.DatabaseFault{outbox.FullDisk("projections", time.Now())},
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
	body := scrape(t, m)
	for _, line := range []string{
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
		`outboxweb_append_seconds_count 1`,
	} {
		must.Hold(t, strings.Contains(body, "\n"+line+"\n"), "the scrape lacks %q", line)
	}
}

func TestHandler_leavesGaugesOutWhenTheSummaryFails(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (outbox.Summary, error) { return outbox.Summary{}, errors.New("no database") })
	body := scrape(t, m)
	must.Hold(t, !strings.Contains(body, "outboxweb_rows{"), "a failed summary was reported as zero rows")
	must.Hold(t, strings.Contains(body, "outboxweb_events_applied_total 0"), "the counters are gone too")
}

func TestWatchBehind_isLeftOutOfAScrapeThatCannotCount(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (outbox.Summary, error) { return outbox.Summary{}, nil })
	var failed error
	m.WatchBehind(func(context.Context) (outbox.BehindCounts, error) {
		return outbox.BehindCounts{Alone: 3, Waiting: 2, CatchUps: 1}, failed
	})
	for replay, n := range map[string]int{"none": 3, "waiting": 2, "active": 1} {
		if body := scrape(t, m); !strings.Contains(body, fmt.Sprintf("\noutboxweb_behind_projections{replay=%q} %d\n", replay, n)) {
			t.Errorf("the scrape lacks what is behind with its replay %s", replay)
		}
	}
	failed = errors.New("away")
	if body := scrape(t, m); strings.Contains(body, "\noutboxweb_behind_projections") || !strings.Contains(body, "outboxweb_lag_events") {
		t.Error("a scrape that cannot count what is behind is to have everything else")
	}
}

func TestWatchRuns_tellsOfEachKindAndStatus(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context) (outbox.Summary, error) { return outbox.Summary{}, nil })
	var failed error
	m.WatchRuns(func(context.Context) ([]outbox.RunTally, error) {
		return []outbox.RunTally{{Kind: outbox.RunVerify, Status: outbox.RunFailed, Runs: 3}}, failed
	})
	body := scrape(t, m)
	for _, line := range []string{`outboxweb_runs{kind="verify",status="failed"} 3`, `outboxweb_runs{kind="rebuild",status="running"} 0`} {
		must.Hold(t, strings.Contains(body, line+"\n"), "the scrape lacks %s", line)
	}
	failed = errors.New("away")
	if body := scrape(t, m); strings.Contains(body, "outboxweb_runs{") || !strings.Contains(body, "outboxweb_lag_events") {
		t.Error("a scrape that cannot count runs is to have everything else")
	}
}
