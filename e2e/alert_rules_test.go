package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

const alertRules = "../deploy/monitoring/alerts.yml"

// incidents are what a server's /metrics say during a trouble that one of the alerts is for, where it
// differs from a server that is well. Down, it says nothing.
var incidents = map[string]scrape{
	"OutboxwebDown":            nil,
	"OutboxwebAbsent":          {"up": "stale"},
	"OutboxwebDeadHead":        {"outboxweb_blocked_campaigns": "1", "outboxweb_lag_events": "2", `outboxweb_rows{status="dead"}`: "1", `outboxweb_rows{status="pending"}`: "1"},
	"OutboxwebLag":             {"outboxweb_oldest_retryable_age_seconds": "5", "outboxweb_lag_events": "2", `outboxweb_rows{status="failed"}`: "1"},
	"OutboxwebNoWorker":        {"outboxweb_worker_running": "0", "outboxweb_oldest_retryable_age_seconds": "5", "outboxweb_lag_events": "1"},
	"OutboxwebWorkerStalled":   {"outboxweb_worker_stalled": "1"},
	"OutboxwebStateUnreadable": {"outboxweb_state_unreadable": "1", "outboxweb_blocked_campaigns": "stale", "outboxweb_lag_events": "stale"},
	"OutboxwebDiskFull":        {`outboxweb_database_fault{database="journal",kind="full"}`: "1", "outboxweb_worker_stalled": "1"},
	"OutboxwebDatabaseFault":   {`outboxweb_database_fault{database="journal",kind="went_back"}`: "1"},
	"OutboxwebDiverged":        {"outboxweb_diverged_campaigns": "2"},
	"OutboxwebDrift":           {"outboxweb_drifted_campaigns": "1"},
	"OutboxwebUnverifiable":    {"outboxweb_unverifiable_campaigns": "1"},
	"OutboxwebQuarantined":     {"outboxweb_quarantined_projections": "1"},
	"OutboxwebPublisherFailed": {`outboxweb_publisher_status{publisher="partner",status="failed",topic="sales"}`: "1", `outboxweb_publisher_lag_seconds{publisher="partner",topic="sales"}`: "5"},
	"OutboxwebPublisherLag":    {`outboxweb_publisher_status{publisher="partner",status="active",topic="sales"}`: "1", `outboxweb_publisher_lag_seconds{publisher="partner",topic="sales"}`: "5"},
	"OutboxwebIntakeRejected":  {`outboxweb_intake_rejected_rows{source="shop"}`: "1", `outboxweb_intake_oldest_row_age_seconds{source="shop"}`: "5"},
	"OutboxwebIntakeLag":       {`outboxweb_intake_rejected_rows{source="shop"}`: "0", `outboxweb_intake_oldest_row_age_seconds{source="shop"}`: "5"},
}

// Each incident fires its own alert and no other, and the alert ends with the incident. promtool
// evaluates the rules over what /metrics say before, during and after it.
func TestAlertRules_eachIncidentFiresItsOwn(t *testing.T) {
	t.Parallel()
	promtool := findPromtool(t)
	d := newDatabases(t)
	p := newPartner(t, always(0))
	s := start(t, d, append(partnerConfig(t, d, p), writeProjections(t, seatProjections)...)...)
	appendTo(t, s, "", "table", seats("ana", "ben"))
	s.awaitSettled(t)
	well := scrapeOf(t, s)
	text := must.Get(os.ReadFile(alertRules)).Or(t)
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		t.Run(m[1], func(t *testing.T) {
			t.Parallel()
			differing, known := incidents[m[1]]
			must.Need(t, known, "no incident fires it")
			var trouble scrape
			if differing != nil {
				trouble = maps.Clone(well)
				maps.Copy(trouble, differing)
			}
			testRules(t, promtool, m[1], []scrape{well, trouble, well})
		})
	}
	for _, args := range []string{"rules " + alertRules, "config --syntax-only ../deploy/monitoring/prometheus.yml"} {
		out, err := exec.Command(promtool, append([]string{"check"}, strings.Fields(args)...)...).CombinedOutput()
		must.Hold(t, err == nil, "promtool check %s: %v\n%s", args, err, out)
	}
}

func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	must.Need(t, err == nil || os.Getenv("CI") == "", "promtool must be there in CI: %v", err)
	if err != nil {
		t.Skipf("without promtool the alerts cannot be tested: %v", err)
	}
	return path
}

// scrape is the value of each series, as it is written; nil if the server does not answer.
type scrape map[string]string

var alertSeries = regexp.MustCompile(`^(outboxweb_(?:[a-z_]+)(?:\{[^}]*\})?) (\S+)$`)

func scrapeOf(t *testing.T, s *server) scrape {
	t.Helper()
	all := scrape{"up": "1"}
	for line := range strings.Lines(string(do(t, s, http.MethodGet, "/metrics", nil).body)) {
		if m := alertSeries.FindStringSubmatch(strings.TrimSpace(line)); m != nil && !strings.Contains(m[1], "_bucket") {
			all[m[1]] = m[2]
		}
	}
	return all
}

// phaseMinutes is how long each phase lasts in the evaluation, with a scrape a minute.
const phaseMinutes = 30

// testRules evaluates the alerts over the phases, scraped from instance a, while instance b, on the
// same databases, is well.
func testRules(t *testing.T, promtool, alert string, phases []scrape) {
	t.Helper()
	rules := must.Get(filepath.Abs(alertRules)).Or(t)
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
	names := map[string]bool{}
	for _, phase := range phases {
		for name := range phase {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, instance := range []string{"a", "b"} {
			fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", withLabels(name, instance), history(name, instance, phases))
		}
	}
	b.WriteString("    promql_expr_test:\n")
	for n, fires := range []bool{false, true, false} {
		fmt.Fprintf(&b, "      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n        eval_time: %dm\n", (n+1)*phaseMinutes-1)
		if fires {
			fmt.Fprintf(&b, "        exp_samples: [{labels: '{alertname=\"%s\"}', value: 1}]\n", alert)
		}
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	must.OK(t, os.WriteFile(file, []byte(b.String()), 0o600))
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	must.Hold(t, err == nil, "promtool test rules: %v\n%s\n%s", err, out, b.String())
}

func withLabels(series, instance string) string {
	name, labels, found := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	if found {
		labels += ","
	}
	return fmt.Sprintf("%s{%sinstance=\"%s:8080\",job=\"outboxweb\"}", name, labels, instance)
}

// history writes a series over the phases. The age of what waits grows by a second in each second.
func history(name, instance string, phases []scrape) string {
	var all []string
	for n, phase := range phases {
		value, found := phase[name]
		switch {
		case instance == "b" && (phase == nil || name == "outboxweb_worker_stalled" || name == "up" && value != "stale"):
			value, found = phases[0][name]
		case name == "up" && phase == nil:
			value, found = "0", true
		}
		age := strings.Contains(name, "_age_seconds") || strings.Contains(name, "_lag_seconds")
		switch {
		case !found || value == "stale":
			all = append(all, fmt.Sprintf("stale _x%d", phaseMinutes-1))
		case age && value != "0" && n == 1:
			all = append(all, fmt.Sprintf("%s+60x%d", value, phaseMinutes-1))
		default:
			all = append(all, fmt.Sprintf("%sx%d", value, phaseMinutes-1))
		}
	}
	return strings.Join(all, " ")
}
