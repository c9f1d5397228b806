package e2e

import (
	"bytes"
	"encoding/base64"
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

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// container is what a manifest starts: the program's arguments and the variables.
type container struct {
	args []string
	env  map[string]string
}

func image(t *testing.T) container {
	text, c := must.Get(os.ReadFile("../deploy/Dockerfile")).Or(t), container{env: map[string]string{}}
	lines := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)^(ENV|CMD) (.*)$`).FindAllStringSubmatch(lines, -1) {
		if m[1] == "CMD" {
			must.OK(t, yaml.Unmarshal([]byte(m[2]), &c.args))
			continue
		}
		for _, setting := range strings.Fields(m[2]) {
			name, value, _ := strings.Cut(setting, "=")
			c.env[name] = value
		}
	}
	must.Need(t, len(c.args) != 0 && len(c.env) != 0, "deploy/Dockerfile has %v", c)
	return c
}

func readYAML(t *testing.T, file string, into any) {
	must.OK(t, yaml.Unmarshal(must.Get(os.ReadFile(filepath.Join("../deploy", file))).Or(t), into))
}

// composed is the image as a service of compose.yaml.
func composed(t *testing.T, service string) container {
	var file struct {
		Services map[string]struct{ Environment map[string]string }
	}
	readYAML(t, "compose.yaml", &file)
	c := image(t)
	maps.Copy(c.env, file.Services[service].Environment)
	return c
}

// orchestrated is the image as the container of a workload of Kubernetes.
func orchestrated(t *testing.T, file string) container {
	type made struct {
		Args []string
		Env  []struct{ Name, Value string }
	}
	var workload struct {
		Spec struct {
			Template struct{ Spec struct{ Containers []made } }
		}
	}
	readYAML(t, "kubernetes/"+file, &workload)
	c, of := image(t), workload.Spec.Template.Spec.Containers[0]
	c.args = of.Args
	for _, setting := range of.Env {
		c.env[setting.Name] = setting.Value
	}
	return c
}

// running is a container's process, with its paths in directories of the test and on a free port.
type running struct {
	t            *testing.T
	url, secrets string
	env          []string
	dir          string
}

// makeSecrets runs deploy/make-secrets, and puts the databases' URLs in.
func makeSecrets(t *testing.T, d databases) string {
	dir := filepath.Join(t.TempDir(), "secrets")
	cmd := exec.Command("../deploy/make-secrets", dir)
	cmd.Env = append(os.Environ(), "OUTBOXWEB="+binary)
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "make-secrets: %v\n%s", err, out)
	rewrite(t, dir, map[string]string{"journal-db": d.flags()[1] + "\n", "projections-db": d.flags()[3] + "\n"})
	return dir
}

// The program may be named by a relative path, what exists stays, and another host is not taken for the one in the files.
func TestDeploy_makeSecretsFromAnywhere(t *testing.T) {
	t.Parallel()
	script := must.Get(filepath.Abs("../deploy/make-secrets")).Or(t)
	dir := t.TempDir()
	must.OK(t, os.Symlink(binary, filepath.Join(dir, "program")))
	run := func(host string) (string, error) {
		cmd := exec.Command(script, "secrets")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OUTBOXWEB=./program", "DATABASE_HOST="+host)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, host := range []string{"one.example:5433", "one.example:5433", ""} {
		must.Get(run(host)).Or(t)
	}
	out, err := run("two.example")
	must.Hold(t, err != nil && strings.Contains(out, "secrets/journal-db exists and names another host than two.example"), "for another host: %v\n%s", err, out)
	url := must.Get(os.ReadFile(filepath.Join(dir, "secrets", "journal-db"))).Or(t)
	must.Hold(t, strings.Contains(string(url), "@one.example:5433/outboxweb?search_path=journal"), "%s", url)
}

// runContainer starts a container and waits until its probe is content.
func runContainer(t *testing.T, c container, d databases, extra ...string) running {
	r := running{t: t, secrets: makeSecrets(t, d), dir: d.dir}
	address := portOfOurs(t)
	_, port, _ := strings.Cut(address, ":")
	r.url = "http://" + address
	etc := t.TempDir()
	local := strings.NewReplacer("/run/secrets", r.secrets, "/etc/outboxweb", etc, "/data/", d.dir+"/", "0.0.0.0:8080", "0.0.0.0:"+port,
		"trusted_proxy: [", "trusted_proxy: [127.0.0.1/32, ").Replace
	config := must.Get(os.ReadFile("../deploy/kubernetes/base/outboxweb.yaml")).Or(t)
	rewrite(t, etc, map[string]string{"outboxweb.yaml": local(string(config))})
	for name, value := range c.env {
		r.env = append(r.env, name+"="+local(value))
	}
	cmd := exec.Command(binary, append(c.args, extra...)...)
	cmd.Dir, cmd.Env = r.dir, r.env
	log, _ := background(t, cmd)
	eventually(t, "outboxweb health exits 0", func() (bool, string) {
		text, err := r.health()
		return err == nil && strings.HasPrefix(text, "ready: "), text + log.String()
	})
	return r
}

func (r running) health() (string, error) {
	cmd := exec.Command(binary, "health")
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r running) secret(name string) string {
	text := must.Get(os.ReadFile(filepath.Join(r.secrets, name))).Or(r.t)
	return strings.TrimSpace(string(text))
}

// want fails the test unless a request with headers, of which each is a name and a value, has an answer of a status.
func (r running) want(status int, url string, headers ...string) {
	request := must.Get(http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)).Or(r.t)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	request.Host = "localhost"
	answer := must.Get(http.DefaultTransport.RoundTrip(request)).Or(r.t)
	defer answer.Body.Close()
	must.Hold(r.t, answer.StatusCode == status, "GET %s: %s, want %d", url, answer.Status, status)
}

// wantAccess checks that the proxy and Prometheus are let in, and nobody else.
func (r running) wantAccess() {
	r.want(http.StatusUnauthorized, r.url+"/")
	r.want(http.StatusUnauthorized, r.url+"/", "X-Forwarded-Email", "admin")
	r.want(http.StatusUnauthorized, r.url+"/metrics")
	r.want(http.StatusOK, r.url+"/metrics", "Authorization", "Bearer "+r.secret("prometheus-token"))
	r.want(http.StatusOK, r.url+"/tokens", "X-Forwarded-Email", "admin", "X-Outboxweb-Proxy-Secret", r.secret("proxy-secret"))
}

func TestDeploy_theImageStartsOnlyWithAuthentication(t *testing.T) {
	t.Parallel()
	c, d := image(t), newDatabases(t)
	cmd := exec.Command(binary, c.args...)
	cmd.Dir, cmd.Env = d.dir, []string{"OUTBOXWEB_LISTEN=" + c.env["OUTBOXWEB_LISTEN"]}
	out, err := cmd.CombinedOutput()
	must.Hold(t, err != nil && bytes.Contains(out, []byte("set --auth")), "without --auth: %v, %s", err, out)
	runContainer(t, c, d, "--auth", "token")
	for _, name := range []string{"journal.db", "projections.db"} { // in the volume
		must.Get(os.Stat(filepath.Join(d.dir, "data", name))).Or(t)
	}
}

func TestDeploy_kubernetes(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	runContainer(t, orchestrated(t, "sqlite/statefulset.yaml"), d).wantAccess()
	must.Get(os.Stat(d.journal())).Or(t) // in the volume
	d = newPostgres(t)
	for range 2 {
		runContainer(t, orchestrated(t, "postgres/deployment.yaml"), d).wantAccess()
	}
	awaitEqual(t, "the instances in the journal database", 2, func() int64 { return scalar[int64](t, d.journal(), "select count(*) from instances") })
}

// The proxy of compose.yaml lets users in by their passwords, and tells the server who they are.
func TestDeploy_composeWithItsProxy(t *testing.T) {
	t.Parallel()
	r := runContainer(t, composed(t, "outboxweb-1"), newPostgres(t))
	runContainer(t, composed(t, "outboxweb-2"), databases{dir: r.dir, url: newPostgres(t).url}).wantAccess()
	text := must.Get(os.ReadFile("../deploy/nginx/outboxweb.conf.template")).Or(t)
	_, location, _ := strings.Cut(string(text), "    location / {")
	location = "location / {" + strings.TrimSuffix(strings.TrimSpace(location), "}")
	location = strings.NewReplacer("/run/secrets", r.secrets, "${PROXY_SECRET}", r.secret("proxy-secret"), "http://outboxweb;", r.url+";").Replace(location)
	proxy := startNginx(t, location)
	as := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+password))
	}
	r.want(http.StatusUnauthorized, proxy+"/", "X-Forwarded-Email", "admin")
	r.want(http.StatusUnauthorized, proxy+"/", "Authorization", as("wrong"))
	r.want(http.StatusOK, proxy+"/tokens", "Authorization", as(r.secret("admin-password")))
}

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

// Each incident fires its own alert and no other, and the alert ends with the incident. promtool evaluates the rules
// over what /metrics say before, during and after it.
func TestAlertRules_eachIncidentFiresItsOwn(t *testing.T) {
	size.Full(t, "cmd/outboxweb tests that the rules name real series")
	t.Parallel()
	promtool := installed(t, "promtool")
	d := newDatabases(t)
	s := start(t, d, append(partnerConfig(t, d, newPartner(t, always(0))), writeProjections(t, seatProjections)...)...)
	applied(t, s, "table", seats("ana", "ben"))
	well, body := scrape{"up": "1"}, ""
	eventually(t, "its publisher is up to date", func() (bool, string) {
		body = string(fetch(t, s, "/metrics").body)
		return strings.Contains(body, `outboxweb_publisher_lag_seconds{publisher="partner",topic="sales"} 0`+"\n"), body
	})
	for line := range strings.Lines(body) {
		if m := alertSeries.FindStringSubmatch(strings.TrimSpace(line)); m != nil && !strings.Contains(m[1], "_bucket") {
			well[m[1]] = m[2]
		}
	}
	rules := must.Get(filepath.Abs("../deploy/monitoring/alerts.yml")).Or(t)
	tests, known := "rule_files: ["+rules+"]\nevaluation_interval: 1m\ntests:\n", map[string]bool{}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(must.Get(os.ReadFile(rules)).Or(t)), -1) {
		differing, found := incidents[m[1]]
		must.Hold(t, found, "no incident fires %s", m[1])
		var trouble scrape
		if differing != nil {
			trouble = maps.Clone(well)
			maps.Copy(trouble, differing)
		}
		tests += ruleTest(m[1], []scrape{well, trouble, well})
		known[m[1]] = true
	}
	must.Equal(t, len(known), len(incidents), "how many alerts there are")
	file := filepath.Join(t.TempDir(), "test.yml")
	must.OK(t, os.WriteFile(file, []byte(tests), 0o600))
	for _, args := range []string{"test rules " + file, "check rules " + rules, "check config --syntax-only ../deploy/monitoring/prometheus.yml"} {
		out, err := exec.Command(promtool, strings.Fields(args)...).CombinedOutput()
		must.Hold(t, err == nil, "promtool %s: %v\n%s", args, err, out)
	}
}

// scrape is the value of each series, as it is written; nil if the server does not answer.
type scrape map[string]string

var alertSeries = regexp.MustCompile(`^(outboxweb_(?:[a-z_]+)(?:\{[^}]*\})?) (\S+)$`)

// phaseMinutes is how long each phase lasts in the evaluation, with a scrape a minute.
const phaseMinutes = 24

// ruleTest is a test of an alert over the phases, scraped from instance a, while instance b, on the same databases, is
// well.
func ruleTest(alert string, phases []scrape) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - name: %s\n    interval: 1m\n    input_series:\n", alert)
	names := scrape{}
	for _, phase := range phases {
		maps.Copy(names, phase)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, instance := range []string{"a", "b"} {
			series, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			fmt.Fprintf(&b, "      - {series: '%s{instance=\"%s:8080\",job=\"outboxweb\",%s}', values: '%s'}\n", series, instance, labels, history(name, instance, phases))
		}
	}
	b.WriteString("    promql_expr_test:\n")
	for n, fires := range []bool{false, true, false} {
		fmt.Fprintf(&b, "      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n        eval_time: %dm\n", (n+1)*phaseMinutes-1)
		if fires {
			fmt.Fprintf(&b, "        exp_samples: [{labels: '{alertname=\"%s\"}', value: 1}]\n", alert)
		}
	}
	return b.String()
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
