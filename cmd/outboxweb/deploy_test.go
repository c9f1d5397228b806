package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

var (
	ourMetric = regexp.MustCompile(`\boutboxweb_[a-z_]+`)
	runbook   = regexp.MustCompile(`https://github\.com/outboxweb/outboxweb/blob/main/docs/([a-z]+)\.md#([a-z-]+)`)
)

// Every series that the dashboard and the alerts name is in docs/metrics.md.
func TestDeploy_monitoringNamesRealMetrics(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", "metrics.md"))).Or(t)
	known := map[string]bool{}
	for _, name := range regexp.MustCompile("(?m)^\\| `(outboxweb_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		known[name[1]] = true
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			known[name[1]+suffix] = true
		}
	}
	for _, file := range []string{"alerts.yml", "grafana/dashboards/outboxweb.json"} {
		text := must.Get(os.ReadFile(filepath.Join(root, "deploy/monitoring", file))).Or(t)
		found := ourMetric.FindAllString(string(text), -1)
		if len(found) < 16 {
			t.Errorf("%s names only %d series", file, len(found))
		}
		for _, name := range found {
			if !known[name] && !(strings.HasPrefix(name, "outboxweb_intake_") && !known["outboxweb_intake_rejected_rows"]) { // sources come later
				t.Errorf("%s names %s, which is not in docs/metrics.md", file, name)
			}
		}
	}
}

// Every alert has a summary, a description, and a link to a heading of our documentation.
func TestDeploy_alertsLeadToTheRunbook(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile(filepath.Join(root, "deploy/monitoring/alerts.yml"))).Or(t)
	alerts := strings.Split(string(text), "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		link := runbook.FindStringSubmatch(alert)
		switch {
		case link == nil || !strings.Contains(alert, "summary: ") || !strings.Contains(alert, "description: "):
			t.Errorf("%s lacks its summary, description or runbook_url", name)
		case !hasHeading(link[1], link[2]):
			t.Errorf("%s links to docs/%s.md#%s, which is no heading", name, link[1], link[2])
		}
	}
	if len(alerts) < 10 {
		t.Errorf("only %d alerts were found", len(alerts))
	}
}

// Every rule of the built-in alerts leads to a heading of our documentation, and so does an event that a
// destination rejects.
func TestAlertRules_leadToTheDocumentation(t *testing.T) {
	t.Parallel()
	rejected := outbox.AlertFacts{Publishers: []outbox.Publisher{{Status: outbox.PublisherFailed, ErrorKind: outbox.EventError}}}
	for _, r := range outbox.AlertRules() {
		_, runbook, _ := r.What.Advice()
		if r.What == outbox.AlertPublisher {
			if document, heading, _ := strings.Cut(r.Causes(rejected, time.Now())[0].Runbook, "#"); !hasHeading(document, heading) {
				t.Errorf("a rejected event leads to %s#%s, which is no heading", document, heading)
			}
		}
		if document, heading, _ := strings.Cut(runbook, "#"); !hasHeading(document, heading) {
			t.Errorf("%s leads to %q, which is no heading", r.Name, runbook)
		}
	}
}

func hasHeading(document, anchor string) bool {
	d := docs.Named(document)
	if d == nil {
		return false
	}
	return slices.ContainsFunc(d.Sections, func(s docs.Section) bool { return s.Anchor == anchor })
}
