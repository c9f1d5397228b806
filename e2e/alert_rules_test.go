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
)

const alertRules = "../deploy/monitoring/alerts.yml"

// incident is a trouble that one of the alerts is for. A made one cannot be planted in a moment: its
// series are added to those of a healthy server instead.
type incident struct {
	alert          string
	sign           string // the series of /metrics that shows it; empty for a server that is gone
	value          string // of the series, as a regular expression
	begin          func(*onCall)
	plant, resolve func(*onCall)
	made           map[string]string
}

func (o *onCall) post(path string, body map[string]any) {
	o.t.Helper()
	body["reason"] = "the cause is fixed"
	a := do(o.t, o.s, http.MethodPost, "/api/v1/"+path, body)
	if a.status/100 != 2 {
		o.t.Fatalf("POST %s: %d %s", path, a.status, a.body)
	}
}

func (o *onCall) occupied()    { appendTo(o.t, o.s, "", "table", seats("ana", "ana", "cem")) }
func (o *onCall) freeTheSeat() { change(o.t, o.d.projections(), freeSeat, "table", "ana") }
func (o *onCall) runOfTable(k string) {
	o.post("runs", map[string]any{"kind": k, "campaign_id": "table"})
}

var incidents = []incident{
	{alert: "OutboxwebDeadHead", sign: "outboxweb_blocked_campaigns", value: "1", begin: (*onCall).startPlain, plant: (*onCall).occupied,
		resolve: func(o *onCall) {
			o.freeTheSeat()
			o.post("rows/table/2/requeue", map[string]any{})
		}},
	{alert: "OutboxwebLag", sign: "outboxweb_oldest_retryable_age_seconds", value: "[1-9].*", begin: func(o *onCall) {
		o.serve = append(o.serve, "--max-attempts", "8", "--retry-base", "1h", "--retry-max", "1h")
		o.start()
	}, plant: (*onCall).occupied, resolve: func(o *onCall) {
		o.freeTheSeat()
		o.post("rows/table/2/retry", map[string]any{})
	}},
	{alert: "OutboxwebNoWorker", sign: "outboxweb_worker_running", value: "0", begin: (*onCall).startPlain, plant: func(o *onCall) {
		o.systemctl("stop outboxweb")
		o.start("--worker=false")
		appendTo(o.t, o.s, "", "table", seats("ana"))
	}, resolve: func(o *onCall) {
		o.systemctl("stop outboxweb")
		o.start()
	}},
	{alert: "OutboxwebDown", begin: (*onCall).startPlain, plant: func(o *onCall) { o.s.kill() }, resolve: (*onCall).startPlain},
	{alert: "OutboxwebDrift", sign: "outboxweb_drifted_campaigns", value: "1", begin: (*onCall).morning, plant: func(o *onCall) {
		change(o.t, o.d.projections(), "update seats set user_id = $1 where user_id = $2", "eve", "ben")
		o.runOfTable("verify")
	}, resolve: func(o *onCall) { o.runOfTable("rebuild") }},
	{alert: "OutboxwebUnverifiable", sign: "outboxweb_unverifiable_campaigns", value: "1", begin: (*onCall).morning, plant: func(o *onCall) {
		o.env["PAYLOAD"] = o.alter()
		o.failVerify("1")
	}, resolve: func(o *onCall) {
		o.setPayload(o.env["PAYLOAD"])
		o.runOfTable("verify")
	}},
	{alert: "OutboxwebQuarantined", sign: "outboxweb_quarantined_projections", value: "1", begin: func(o *onCall) {
		rewrite(o.t, o.files, clubProjections("", ""))
		o.start()
	}, plant: func(o *onCall) {
		appendTo(o.t, o.s, "", "table", []event{badge("ana"), taken("seat-1", "ana"), badge("ana"), badge("ben")})
	}, resolve: func(o *onCall) {
		rewrite(o.t, o.files, clubProjections("", countBadge))
		o.systemctl("stop outboxweb")
		o.start()
		o.post("runs", map[string]any{"kind": "replay", "campaign_id": "table", "projections": []string{"badges"}})
	}},
	{alert: "OutboxwebPublisherFailed", sign: `outboxweb_publisher_status{publisher="partner",status="failed",topic="sales"}`, value: "1",
		begin: func(o *onCall) { o.publishing(quickPublisher) }, plant: (*onCall).seated, resolve: func(o *onCall) {
			o.partner.becomes(always(0))
			o.post("publishers/sales/partner/resume", map[string]any{})
		}},
	{alert: "OutboxwebPublisherLag", sign: `outboxweb_publisher_lag_seconds{publisher="partner",topic="sales"}`, value: "[1-9].*",
		begin: func(o *onCall) {
			o.publishing(strings.Replace(quickPublisher, "max_errors: 3", "max_errors: 1000", 1))
		}, plant: (*onCall).seated, resolve: func(o *onCall) { o.partner.becomes(always(0)) }},
	{alert: "OutboxwebDiskFull", sign: `outboxweb_database_fault{database="journal",kind="full"}`, value: "1", begin: (*onCall).morning, plant: func(o *onCall) {
		text := strings.Repeat("x", 50_000)
		note := func() answer {
			return do(o.t, o.s, http.MethodPost, "/api/v1/campaigns/notes/events", map[string]any{"event_type": "noted", "payload": map[string]string{"text": text}})
		}
		note()
		o.s.awaitSettled(o.t)
		o.post("campaigns/notes/pause", map[string]any{"reason": "no row is to wait for a settlement that the full disk refuses"})
		o.lift = limitFiles(o.t, o.s.pid(), 1<<20)
		eventually(o.t, patience, "an append is refused", func() (bool, string) {
			a := note()
			return a.status == http.StatusInsufficientStorage, fmt.Sprintf("%d %s", a.status, a.body)
		})
	}, resolve: func(o *onCall) {
		o.lift()
		appendTo(o.t, o.s, "", "garden", seats("ana"))
	}},
	{alert: "OutboxwebDatabaseFault", made: map[string]string{`outboxweb_database_fault{database="journal",kind="went_back"}`: "1"}},
	{alert: "OutboxwebAbsent", made: map[string]string{"up": "stale"}},
	{alert: "OutboxwebDiverged", made: map[string]string{"outboxweb_diverged_campaigns": "2"}},
	{alert: "OutboxwebWorkerStalled", made: map[string]string{"outboxweb_worker_stalled": "1"}},
	{alert: "OutboxwebStateUnreadable", made: map[string]string{"outboxweb_state_unreadable": "1", "outboxweb_blocked_campaigns": "stale", "outboxweb_lag_events": "stale"}},
	{alert: "OutboxwebIntakeRejected", made: map[string]string{`outboxweb_intake_rejected_rows{source="shop"}`: "1", `outboxweb_intake_oldest_row_age_seconds{source="shop"}`: "5"}},
	{alert: "OutboxwebIntakeLag", made: map[string]string{`outboxweb_intake_rejected_rows{source="shop"}`: "0", `outboxweb_intake_oldest_row_age_seconds{source="shop"}`: "5"}},
}

func (o *onCall) startPlain() { o.start() }

func (o *onCall) seated() { appendTo(o.t, o.s, "", "table", seats("ana", "ben")) }

// publishing has a publisher whose destination is down, with these settings.
func (o *onCall) publishing(settings string) {
	o.partner = newPartner(o.t, always(http.StatusServiceUnavailable))
	o.serve = append(slices.Clone(o.serve), o.d.config(o.t, fmt.Sprintf(`
topics:
  sales:
    match: {event_types: ["*"]}
    publishers:
      partner: {url: %q, %s}
`, o.partner.url+"/events", settings))...)
	o.start()
}

// Each incident fires its own alert and no other, and the alert ends with the incident. promtool
// evaluates the rules over what a server's /metrics say before, during and after it.
func TestAlertRules_eachIncidentFiresItsOwn(t *testing.T) {
	t.Parallel()
	promtool := findPromtool(t)
	for _, i := range incidents {
		t.Run(i.alert, func(t *testing.T) {
			t.Parallel()
			o := newOnCall(t, newDatabases(t), "sqlite", "curl")
			var phases []scrape
			if i.made != nil {
				o.morning()
				well := o.scrape()
				trouble := maps.Clone(well)
				maps.Copy(trouble, i.made)
				phases = []scrape{well, trouble, well}
			} else {
				i.begin(o)
				phases = append(phases, o.scrape())
				i.plant(o)
				phases = append(phases, o.awaitSign(i, true))
				i.resolve(o)
				phases = append(phases, o.awaitSign(i, false))
			}
			testRules(t, promtool, i.alert, phases)
		})
	}
}

// No alert is without an incident that fires it.
func TestAlertRules_allAreTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !slices.ContainsFunc(incidents, func(i incident) bool { return i.alert == m[1] }) {
			t.Errorf("no incident fires %s", m[1])
		}
	}
	for _, args := range []string{"rules " + alertRules, "config --syntax-only ../deploy/monitoring/prometheus.yml"} {
		if out, err := exec.Command(findPromtool(t), append([]string{"check"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Errorf("promtool check %s: %v\n%s", args, err, out)
		}
	}
}

func findPromtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("promtool must be there in CI: %v", err)
	}
	if err != nil {
		t.Skipf("without promtool the alerts cannot be tested: %v", err)
	}
	return path
}

// scrape is the value of each series, as it is written; nil if the server does not answer.
type scrape map[string]string

var alertSeries = regexp.MustCompile(`^(outboxweb_(?:[a-z_]+)(?:\{[^}]*\})?) (\S+)$`)

func (o *onCall) scrape() scrape {
	a, err := o.s.do(o.t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil
	}
	all := scrape{"up": "1"}
	for line := range strings.Lines(string(a.body)) {
		if m := alertSeries.FindStringSubmatch(strings.TrimSpace(line)); m != nil && !strings.Contains(m[1], "_bucket") {
			all[m[1]] = m[2]
		}
	}
	return all
}

// awaitSign waits until the incident shows, or is over, and returns what is scraped then.
func (o *onCall) awaitSign(i incident, on bool) (got scrape) {
	o.t.Helper()
	is := regexp.MustCompile("^(?:" + i.value + ")$")
	eventually(o.t, patience, fmt.Sprintf("%s is %s: %v", i.sign, i.value, on), func() (bool, string) {
		got = o.scrape()
		shown := got == nil
		if i.sign != "" {
			shown = is.MatchString(got[i.sign])
		}
		return shown == on, got[i.sign]
	})
	return got
}

// phaseMinutes is how long each phase lasts in the evaluation, with a scrape a minute.
const phaseMinutes = 30

// testRules evaluates the alerts over the phases, scraped from instance a, while instance b, on the
// same databases, is well.
func testRules(t *testing.T, promtool, alert string, phases []scrape) {
	t.Helper()
	rules, err := filepath.Abs(alertRules)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s\n%s", err, out, b.String())
	}
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
