package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/facts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// block is a fenced block of a document: its heading, its language, its program according to the
// comment in its first line, and the file that it is from.
type block struct{ heading, language, file, text, from string }

// kind is the language, and the file if that determines the program.
func (b block) kind() string {
	if b.language == "yaml" || b.language == "toml" {
		return b.language + " " + b.file
	}
	return b.language
}

var fenced = regexp.MustCompile("(?ms)^(### [^\n]+)$|(?:^<!-- ([^ ]+) -->\n)?^```([a-z]+)\n(.*?)^```$")

func blocks(t *testing.T, document, section string) []block {
	text := paper(t, "docs/"+document)
	_, section, found := strings.Cut(text, "\n## "+section+"\n")
	must.Need(t, found, "%s lacks the section", document)
	section, _, _ = strings.Cut(section, "\n## ")
	var all []block
	heading := ""
	for _, m := range fenced.FindAllStringSubmatch(section, -1) {
		if m[1] != "" {
			heading = strings.TrimPrefix(m[1], "### ")
			continue
		}
		first, _, _ := strings.Cut(m[4], "\n")
		file, _, _ := strings.Cut(strings.TrimPrefix(first, "# "), ";")
		all = append(all, block{heading: heading, language: m[3], file: file, text: m[4], from: m[2]})
	}
	return all
}

// Each configuration in docs/access.md is valid for its program. Others that are
// from files are run by the tests in e2e.
func TestDocs_recipesAreRead(t *testing.T) {
	t.Parallel()
	read := map[string][]string{} // heading → what was checked
	for _, b := range blocks(t, "access.md", "Recipes") {
		check, known := map[string]func(*testing.T, string){
			"yaml outboxweb.yaml": readOwn, "yaml pomerium.yaml": readPomerium, "yaml cloudflared.yaml": readCloudflared,
			"nginx": readNginx, "sh": readTailscale,
		}[b.kind()]
		if !known {
			must.Hold(t, b.from != "", "%s: nothing reads the block of %s that begins with %q", b.heading, b.language, b.file)
			continue
		}
		t.Run(b.heading+" "+b.language, func(t *testing.T) { check(t, b.text) })
		read[b.heading] = append(read[b.heading], b.language)
	}
	for heading, want := range map[string][]string{
		"oauth2-proxy with nginx": {"nginx", "yaml"}, "Pomerium": {"yaml", "yaml"}, "Cloudflare Access": {"yaml", "yaml"}, "Tailscale": {"sh", "yaml"},
	} {
		must.Equal(t, read[heading], want, "has blocks of")
	}
}

// readOwn reads a configuration as serve does, and judges its flags.
func readOwn(t *testing.T, text string) {
	c := must.Get(parseServe(t, text)).Or(t)
	must.OK(t, c.Serve.check())
	must.Hold(t, c.Serve.PublicOrigin != "", "it does not say where browsers find it")
}

// valuesByPath are the values of a configuration in YAML, by the path of their key.
func valuesByPath(t *testing.T, text string) map[string]any {
	var document any
	must.OK(t, yaml.Unmarshal([]byte(text), &document))
	all := map[string]any{}
	var read func(path string, v any)
	read = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				read(path+"."+key, member)
			}
		case []any:
			for i, item := range v {
				read(fmt.Sprintf("%s.%d", path, i), item)
			}
		default:
			all[path] = v
		}
	}
	read("", document)
	return all
}

// readPomerium knows the settings of Pomerium's reference that the recipe uses.
func readPomerium(t *testing.T, text string) {
	c := valuesByPath(t, text)
	must.Equal(t, slices.Sorted(maps.Keys(c)), []string{".authenticate_service_url", ".idp_client_id", ".idp_client_secret_file", ".idp_provider", ".idp_provider_url",
		".jwt_claims_headers.X-Pomerium-Claim-Groups", ".routes.0.from", ".routes.0.pass_identity_headers", ".routes.0.policy.0.allow.and.0.domain.is",
		".routes.0.preserve_host_header", ".routes.0.to", ".signing_key_file"}, "the settings")
	must.Hold(t, c[".routes.0.pass_identity_headers"] == true && c[".routes.0.preserve_host_header"] == true && c[".jwt_claims_headers.X-Pomerium-Claim-Groups"] == "groups", "%v", c)
}

// readCloudflared knows the keys of a locally managed tunnel, whose last rule must match everything.
func readCloudflared(t *testing.T, text string) {
	c := valuesByPath(t, text)
	const access = ".ingress.0.originRequest.access."
	must.Equal(t, slices.Sorted(maps.Keys(c)), []string{".credentials-file", ".ingress.0.hostname", access + "audTag.0", access + "required", access + "teamName", ".ingress.0.service",
		".ingress.1.service", ".tunnel"}, "the keys")
	must.Hold(t, c[access+"required"] == true && c[".ingress.1.service"] == "http_status:404", "%v", c)
}

// readTailscale reads the command with the flags that tailscale serve has.
func readTailscale(t *testing.T, text string) {
	words := strings.Fields(text)
	must.Need(t, len(words) >= 3 && words[0] == "tailscale" && words[1] == "serve", "%q is not tailscale serve", text)
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	path := flags.String("set-path", "", "")
	flags.Bool("bg", false, "")
	flags.Bool("yes", false, "")
	flags.Uint("https", 0, "")
	err := flags.Parse(words[2:])
	must.Need(t, err == nil && flags.NArg() == 1, "%q: %v", text, err)
	target, err := url.Parse(flags.Arg(0))
	must.Hold(t, err == nil && target.Path == *path, "%s is stripped, and %s does not repeat it (%v)", *path, flags.Arg(0), err)
}

// readNginx lets nginx itself test the block in a whole configuration.
func readNginx(t *testing.T, text string) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		must.Need(t, os.Getenv("CI") == "", "nginx must be there in CI")
		t.Skip("there is no nginx to test with")
	}
	dir := t.TempDir()
	pairFiles{t, filepath.Join(dir, "ops.example.pem"), filepath.Join(dir, "ops.example.key")}.write(1)
	text = strings.ReplaceAll(text, "/etc/nginx/", dir+"/")
	text = strings.ReplaceAll(text, "listen 443 ssl", "listen "+unusedAddress(t)+" ssl")
	config := "pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n" +
		"client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n" + text + "}\n"
	file := filepath.Join(dir, "nginx.conf")
	must.OK(t, os.WriteFile(file, []byte(config), 0o600))
	out, err := exec.Command(nginx, "-t", "-p", dir, "-e", "stderr", "-c", file).CombinedOutput()
	must.Hold(t, err == nil && (!bytes.Contains(out, []byte("[warn]")) || os.Geteuid() != 0), "nginx -t: %v\n%s", err, out)
	for _, header := range []string{"X-Forwarded-Email", "X-Forwarded-Groups", "X-Forwarded-User", "X-Forwarded-Preferred-Username", "Authorization", "X-Forwarded-Prefix"} {
		must.Hold(t, strings.Contains(text, "proxy_set_header "+header+" "), "what a client sends as %s comes through", header)
	}
	must.Hold(t, strings.Contains(text, "underscores_in_headers off;"), "headers with underscores come through")
}

func unusedAddress(t *testing.T) string {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer l.Close()
	return l.Addr().String()
}

// unit is a systemd unit: the values of each key of each section.
type unit map[string]map[string][]string

func readUnit(t *testing.T, name string) unit {
	text := paper(t, "docs/"+name)
	u, section := unit{}, ""
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") {
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
			continue
		}
		key, value, found := strings.Cut(line, "=")
		must.Need(t, found && section != "", "%s:%d: %q is no key with a value in a section", name, number+1, line)
		u[section][key] = append(u[section][key], value)
	}
	return u
}

// The units in docs match the program: its flags, its variables, and the one socket that it takes.
func TestUnits_fitTheProgram(t *testing.T) {
	t.Parallel()
	socket, service := readUnit(t, "outboxweb.socket"), readUnit(t, "outboxweb.service")
	s := socket["Socket"]
	must.Hold(t, len(s["ListenStream"]) == 1 && s["Accept"] == nil && slices.Equal(s["SocketMode"], []string{"0660"}), "the socket unit has %v", s)
	must.Equal(t, service["Unit"]["Requires"], []string{"outboxweb.socket"}, "the service requires")
	config := filepath.Join(t.TempDir(), "outboxweb.yaml")
	command := strings.ReplaceAll(service["Service"]["ExecStart"][0], "/etc/outboxweb/outboxweb.yaml", config)
	for _, b := range blocks(t, "deploy.md", "systemd") {
		switch b.language {
		case "yaml":
			must.OK(t, os.WriteFile(config, []byte(b.text), 0o600))
		case "nginx":
			must.Hold(t, strings.Contains(b.text, "proxy_pass http://unix:"+s["ListenStream"][0]+":;"), "the proxy does not connect to %v", s["ListenStream"])
			readNginx(t, b.text)
		}
	}
	var c cli
	parser := newParser(&c, streams{out: new(bytes.Buffer), err: new(bytes.Buffer)})
	must.Get(parser.Parse(strings.Fields(command)[1:])).Or(t)
	must.OK(t, c.Serve.check())
	must.OK(t, c.Serve.checkPlace(&net.UnixAddr{Name: s["ListenStream"][0], Net: "unix"}))
	must.Hold(t, c.Serve.Listen == systemd && c.Serve.authenticates(), "it listens on %q with --auth %s", c.Serve.Listen, c.Serve.Kind)
	var known []string
	for _, flag := range parser.Model.Flags {
		known = append(known, flag.Envs...)
	}
	for _, variable := range service["Service"]["Environment"] {
		name, _, _ := strings.Cut(variable, "=")
		must.Hold(t, slices.Contains(known, name), "%s is no flag's variable", name)
	}
}

func TestUnits_pleaseSystemd(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze; TestUnits_fitTheProgram reads the units without it")
	}
	program := must.Get(exec.LookPath("outboxweb")).Or(t)
	dir, args := t.TempDir(), []string{"verify", "--man=no"}
	for _, name := range []string{"outboxweb.socket", "outboxweb.service"} {
		text := paper(t, "docs/"+name)
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "/usr/local/bin/outboxweb", program)), 0o600))
		args = append(args, path)
	}
	out, err := exec.Command(analyze, args...).CombinedOutput()
	must.Hold(t, err == nil && !bytes.Contains(out, []byte("outboxweb.")), "%v\n%s", err, out)
}

var (
	ourMetric = regexp.MustCompile(`\boutboxweb_[a-z_]+`)
	runbook   = regexp.MustCompile(`https://github\.com/outboxweb/outboxweb/blob/main/docs/([a-z]+)\.md#([a-z-]+)`)
)

// Every series that the dashboard and the alerts name is in docs/metrics.md.
func TestDeploy_monitoringNamesRealMetrics(t *testing.T) {
	t.Parallel()
	text, known := paper(t, "docs/metrics.md"), map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(outboxweb_[a-z_]+)").FindAllStringSubmatch(text, -1) {
		known[name[1]] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[name[1]+suffix] = true
		}
	}
	for _, file := range []string{"alerts.yml", "grafana/dashboards/outboxweb.json"} {
		text := paper(t, "deploy/monitoring/"+file)
		found := ourMetric.FindAllString(text, -1)
		must.Hold(t, len(found) >= 16, "%s names only %d series", file, len(found))
		for _, name := range found {
			must.Hold(t, known[name], "%s names %s, which is not in docs/metrics.md", file, name)
		}
	}
}

// Every alert has a summary, a description, and a link to a heading of our documentation.
func TestDeploy_alertsLeadToTheRunbook(t *testing.T) {
	t.Parallel()
	text := paper(t, "deploy/monitoring/alerts.yml")
	alerts := strings.Split(text, "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		link := runbook.FindStringSubmatch(alert)
		must.Need(t, link != nil && strings.Contains(alert, "summary: ") && strings.Contains(alert, "description: "), "%s lacks its summary, description or runbook_url", name)
		must.Hold(t, hasHeading(link[1], link[2]), "%s links to docs/%s.md#%s, which is no heading", name, link[1], link[2])
	}
	must.Hold(t, len(alerts) >= 10, "only %d alerts were found", len(alerts))
}

// guide is a document and a heading in the source, as findings have them.
var guide = regexp.MustCompile(`"[a-z]+#[a-z0-9-]+"`)

// Every finding leads to a heading of our documentation.
func TestFindings_leadToTheDocumentation(t *testing.T) {
	t.Parallel()
	guides := guide.FindAllString(paper(t, "internal/campaign/kinds.go"), -1)
	must.Need(t, len(guides) >= 15, "only %d guides were found", len(guides))
	for _, p := range []operator.DeliveryErrorKind{operator.EventError, operator.DestinationError} {
		guides = append(guides, facts.Facts{Publishers: []subscription.Publisher{{Status: subscription.PublisherFailed, ErrorKind: p}}}.Judged(time.Now()).Findings.Of(campaign.FindsPublisher)[0].Guide)
	}
	for _, kind := range database.FaultKinds {
		guides = append(guides, "operating#"+kind.Guide())
	}
	for _, guide := range guides {
		document, heading, _ := strings.Cut(strings.Trim(guide, `"`), "#")
		must.Hold(t, hasHeading(document, heading), "%s is no heading", guide)
	}
}

func hasHeading(document, anchor string) bool {
	d := docs.Named(document)
	return d != nil && slices.ContainsFunc(d.Sections, func(s docs.Section) bool { return s.Anchor == anchor })
}
