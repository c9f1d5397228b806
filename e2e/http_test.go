package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHTTP_probesAndMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	if a := do(t, s, http.MethodGet, "/healthz", nil); a.status != http.StatusOK || string(a.body) != "ok\n" {
		t.Errorf("healthz: %d %q", a.status, a.body)
	}
	var ready struct{ Ready bool }
	s.get(t, "/readyz", &ready)
	if !ready.Ready {
		t.Error("readyz does not say that it is ready")
	}
	for _, series := range []string{
		`outboxweb_rows{status="pending"}`, `outboxweb_rows{status="processing"}`, `outboxweb_rows{status="failed"}`, `outboxweb_rows{status="dead"}`,
		"outboxweb_oldest_row_age_seconds", "outboxweb_oldest_retryable_age_seconds", "outboxweb_events_applied_total", "outboxweb_apply_failures_total",
		"outboxweb_lag_events", "outboxweb_blocked_campaigns", "outboxweb_fenced_total", "outboxweb_appended_events_total", "outboxweb_applied_after_seconds_count",
		`outboxweb_connections_waiting{database="journal",use="write"}`,
	} {
		if n := s.metric(t, series); n != 0 {
			t.Errorf("%s is %v on an empty journal", series, n)
		}
	}
	s.post(t, http.StatusCreated, "/api/v1/campaigns/c-1/events?wait=applied", map[string]any{"event_type": "note", "payload": map[string]any{}})
	for _, series := range []string{"outboxweb_appended_events_total", "outboxweb_append_seconds_count", "outboxweb_applied_after_seconds_count",
		`outboxweb_http_request_seconds_count{method="POST",route="/api/v1/campaigns/{campaign}/events",status="2xx"}`} {
		eventually(t, patience, series+" counts one event", func() (bool, string) { // it is applied a moment before its wave ends
			n := s.metric(t, series)
			return n == 1, fmt.Sprint(n)
		})
	}
	if s.metric(t, "process_open_fds") <= 0 || s.metric(t, "go_goroutines") <= 0 {
		t.Error("the process tells nothing of itself")
	}
}

// Every page answers, in each state of a campaign, with the headers that keep a browser from
// running foreign code.
func TestHTTP_pages(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t), append([]string{"--max-attempts", "1"}, writeProjections(t, historyProjections)...)...)
	const path = "/api/v1/campaigns/c-1/events"
	s.post(t, http.StatusCreated, path, map[string]any{"events": []event{
		{EventType: "one.made", Payload: map[string]any{"n": 1}}, {EventType: "one.made", Payload: map[string]any{}}, {EventType: "one.made", Payload: map[string]any{"n": 3}}}})
	eventually(t, patience, "the second event is dead", func() (bool, string) {
		c := campaignState(t, s, "c-1")
		return c.State == "blocked", c.Why
	})
	for _, page := range []string{"/", "/rows", "/rows?status=dead", "/campaigns/c-1/events/2", "/campaigns/c-1/events/3", "/campaigns", "/campaigns?state=blocked",
		"/campaigns/c-1", "/campaigns/c-1/events/1", "/projections", "/instances", "/audit", "/about"} {
		a := do(t, s, http.MethodGet, page, nil)
		if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || !strings.Contains(string(a.body), "</html>") {
			t.Errorf("%s: %d %s", page, a.status, a.header.Get("Content-Type"))
		}
		if policy := a.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy is %q", page, policy)
		}
	}
	overview := string(do(t, s, http.MethodGet, "/", nil).body)
	for _, id := range []string{"count-pending", "count-processing", "count-failed", "count-dead", "oldest-age", "as-of"} {
		if !strings.Contains(overview, `data-testid="`+id+`"`) {
			t.Errorf("the overview has no element %s", id)
		}
	}
	if a := do(t, s, http.MethodGet, "/campaigns/nobody", nil); a.status != http.StatusNotFound || !strings.Contains(string(a.body), "</html>") {
		t.Errorf("an unknown campaign's page: %d", a.status)
	}
}

// Requests that a browser may have been tricked into sending are refused, whatever host they name.
func TestHTTP_refusesOtherSites(t *testing.T) {
	t.Parallel()
	s := start(t, newDatabases(t))
	const path = "/api/v1/campaigns/c-1/events"
	const body = `{"event_type": "one.made", "payload": {}}`
	for _, test := range []struct {
		name   string
		method string
		change func(*http.Request)
		status int
	}{
		{"another host", http.MethodGet, func(r *http.Request) { r.Host = "evil.example" }, http.StatusMisdirectedRequest},
		{"another host's port", http.MethodGet, func(r *http.Request) { r.Host = "evil.example:80" }, http.StatusMisdirectedRequest},
		{"another site", http.MethodPost, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		{"another origin", http.MethodPost, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, http.StatusForbidden},
		{"a form", http.MethodPost, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, http.StatusUnsupportedMediaType},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), test.method, s.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			test.change(r)
			a, err := s.send(r)
			if err != nil {
				t.Fatal(err)
			}
			refused(t, a, test.status)
		})
	}
	var sum summary
	s.get(t, "/api/v1/summary", &sum)
	if sum.Campaigns.Total != 0 {
		t.Errorf("something was appended all the same: %+v", sum)
	}
}

// An operator fixes the cause of a dead event and requeues it: the campaign drains, and the audit
// log has the action exactly once, however often it was sent.
func TestHTTP_requeue(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	serve := append([]string{"--max-attempts", "1"}, projections...)
	first := start(t, d, serve...)
	events := []event{{EventType: "one.made", Payload: map[string]any{"n": 1}}, {EventType: "one.made", Payload: map[string]any{}}, {EventType: "one.made", Payload: map[string]any{"n": 3}}}
	first.post(t, http.StatusCreated, "/api/v1/campaigns/c-1/events", map[string]any{"events": events})
	eventually(t, patience, "the second event is dead", func() (bool, string) {
		c := campaignState(t, first, "c-1")
		return c.State == "blocked" && c.Lease == nil, c.Why
	})
	for series, want := range map[string]float64{`outboxweb_rows{status="dead"}`: 1, `outboxweb_rows{status="pending"}`: 1, "outboxweb_blocked_campaigns": 1,
		"outboxweb_lag_events": 2, "outboxweb_apply_failures_total": 1, "outboxweb_events_applied_total": 1} {
		eventually(t, patience, fmt.Sprintf("%s is %v", series, want), func() (bool, string) {
			got := first.metric(t, series)
			return got == want, fmt.Sprint("it is ", got)
		})
	}
	refused(t, do(t, first, http.MethodPost, "/api/v1/rows/c-1/3/requeue", map[string]any{}), http.StatusConflict, "pending", "dead")
	refused(t, do(t, first, http.MethodPost, "/api/v1/rows/c-1/2/requeue", map[string]any{"expected": map[string]any{"status": "failed"}}), http.StatusConflict, "dead")
	if code := first.stop(t); code != 0 {
		t.Errorf("the first server ended with exit code %d", code)
	}

	mended := strings.ReplaceAll(historyProjections["tally.sql"], ":payload.n!", "coalesce(:payload.n, 0)")
	if err := os.WriteFile(filepath.Join(projections[1], "tally.sql"), []byte(mended), 0o600); err != nil {
		t.Fatal(err)
	}
	second := start(t, d, serve...)
	for range 2 {
		requeue(t, second, "/api/v1/rows/c-1/2/requeue", "once")
	}
	second.awaitSettled(t)
	verifyOrder(t, d)
	if c := campaignState(t, second, "c-1"); c.AppliedSeq != 3 || c.State != "current" {
		t.Errorf("after the requeue the campaign is %+v", c)
	}
	var audit struct {
		Items []struct {
			Action, Reason string
			CampaignID     string `json:"campaign_id"`
			Seq            int64
		}
	}
	second.get(t, "/api/v1/audit?outcome=done", &audit)
	if len(audit.Items) != 1 || audit.Items[0].Action != "requeue" || audit.Items[0].Reason != "mended" || audit.Items[0].CampaignID != "c-1" || audit.Items[0].Seq != 2 {
		t.Errorf("the audit has %+v, want the one requeue", audit.Items)
	}
	checkClean(t, d, projections...)
}

// requeue does the action as a script would, under an idempotency key.
func requeue(t *testing.T, s *server, path, key string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(`{"reason": "mended"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	a, err := s.send(r)
	if err != nil {
		t.Fatal(err)
	}
	var row struct {
		Status       string
		AttemptCount int `json:"attempt_count"`
	}
	a.decode(t, &row)
	if a.status != http.StatusOK || row.Status != "pending" || row.AttemptCount != 0 {
		t.Fatalf("requeue: %d %s", a.status, a.body)
	}
}

func TestHTTP_readOnly(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	projections := writeProjections(t, historyProjections)
	mustCommand(t, d, strings.NewReader(`{"campaign_id": "c-1", "event_type": "one.made", "payload": {"n": 1}}`), append([]string{"append", "-"}, projections...)...)
	s := start(t, d, append([]string{"--read-only"}, projections...)...)
	s.awaitSettled(t) // its worker goes on
	for _, path := range []string{"/api/v1/campaigns/c-1/events", "/api/v1/campaigns/c-1/pause", "/api/v1/rows/c-1/1/requeue"} {
		refused(t, do(t, s, http.MethodPost, path, event{EventType: "one.made", Payload: map[string]any{"n": 1}}), http.StatusForbidden, "read-only")
	}
	if c := campaignState(t, s, "c-1"); c.HighWaterSeq != 1 || c.AppliedSeq != 1 {
		t.Errorf("the campaign is %+v", c)
	}
}
