package metrics

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// everything is the collectors of a process with a value in each series.
func everything() *Metrics {
	m := New(func(context.Context) (campaign.Summary, error) {
		spent := campaign.Spent{On: []campaign.SpentOn{{Spender: campaign.Spender{Projection: "roster", Version: "v1"}, Events: 1, Seconds: 0.1}}}
		spent.Of.Add(1, 1, 1)
		return campaign.Summary{Held: []campaign.HeldProjection{}, Installed: map[string]campaign.Installed{"roster": {Version: "v1"}},
			Instances: []campaign.InstanceState{{LastSeen: time.Now(), BeatEvery: time.Hour, Spent: spent}}}, nil
	})
	m.WatchRuns(func(context.Context) ([]replay.RunTally, error) { return nil, nil })
	m.WatchBehind(func(context.Context) (campaign.BehindCounts, error) { return campaign.BehindCounts{}, nil })
	m.WatchPublishers(func(context.Context) ([]subscription.Publisher, error) {
		return []subscription.Publisher{{SubscriptionName: operator.SubscriptionName{Topic: "scenes", Publisher: "archive"}, Healthy: new(true), Lease: &campaign.Lease{ExpiresAt: time.Now().Add(time.Minute)}}}, nil
	})
	m.WatchFindings(func(context.Context) (finding.List, error) {
		return finding.List{{Kind: "worker", Level: finding.Bad}}, nil
	})
	m.WatchIntake(func(context.Context) ([]inbound.IntakeSource, error) {
		return []inbound.IntakeSource{{Name: "shop"}}, nil
	})
	m.IntakeRows.WithLabelValues("shop")
	m.IntakeErrors.WithLabelValues("shop")
	m.WatchConnections(func() []database.Connections {
		return []database.Connections{{Database: "journal", Use: "write", InUse: 1, Idle: 2, Waiting: 3, Limit: 8}}
	})
	m.WatchWALs(func() map[string]int64 { return map[string]int64{"journal": 4096} })
	m.AddBuild("v1.2.3", "abc")
	m.Request("/rows", "GET", 200, time.Millisecond)
	m.PublisherDelivered.WithLabelValues("scenes", "archive")
	m.PublisherErrors.WithLabelValues("scenes", "archive", "event")
	m.PublisherSeconds.WithLabelValues("scenes", "archive")
	m.CountType(operator.SubscriptionName{Topic: "scenes", Publisher: "counts"}, "scene.started", 1)
	m.CountTag(operator.SubscriptionName{Topic: "scenes", Publisher: "counts"}, "region", "eu", 1)
	m.PublisherLost.WithLabelValues("scenes", "archive")
	m.PublisherTakenOver.WithLabelValues("scenes", "archive")
	m.IdentityRefused.WithLabelValues("expired")
	m.AlertsFiring.WithLabelValues("drift").Set(1)
	m.AlertMessages.WithLabelValues("chat", "sent").Inc()
	return m
}

func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	families := must.Get(m.registry.Gather()).Or(t)
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

const (
	tableBegin = "<!-- metrics: begin -->\n"
	tableEnd   = "<!-- metrics: end -->\n"
)

// table lists the series of outboxweb, generated from the collectors.
func table(t *testing.T, m *Metrics) string {
	families := gather(t, m)
	described := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(described)
	close(described)
	for d := range described {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		must.Hold(t, families[name] != nil, "the table cannot tell of %s: the test makes no series of it", name)
	}
	var b strings.Builder
	b.WriteString("\n| series | kind | tells |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if !strings.HasPrefix(name, "outboxweb_") {
			continue
		}
		f := families[name]
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		series := name
		if len(labels) > 0 {
			series += "{" + strings.Join(labels, ",") + "}"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", series, strings.ToLower(f.GetType().String()), f.GetHelp())
	}
	b.WriteString("\n")
	return b.String()
}

// With OUTBOXWEB_UPDATE=1 in the environment the test writes the table instead of comparing it.
func TestDocs_tableIsTheMetrics(t *testing.T) {
	t.Parallel()
	const name = "../../docs/metrics.md"
	text := must.Get(os.ReadFile(name)).Or(t)
	before, rest, found := strings.Cut(string(text), tableBegin)
	written, after, closed := strings.Cut(rest, tableEnd)
	must.Need(t, found && closed, "%s has no %q … %q", name, tableBegin, tableEnd)
	want := table(t, everything())
	if written == want {
		return
	}
	must.Need(t, os.Getenv("OUTBOXWEB_UPDATE") != "", "the table of docs/metrics.md is not that of the program; OUTBOXWEB_UPDATE=1 go test ./internal/metrics -run Docs writes it")
	must.OK(t, os.WriteFile(name, []byte(before+tableBegin+want+tableEnd+after), 0o644))
}

// The standard metrics of Go programs keep their names, which common dashboards use.
func TestHandler_tellsWhatDashboardsOfEveryProgramAsk(t *testing.T) {
	t.Parallel()
	body := scrape(t, everything())
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds", "process_max_fds", "process_start_time_seconds",
		"go_goroutines", "go_info{", "go_memstats_heap_inuse_bytes", "go_memstats_alloc_bytes", "go_gc_duration_seconds{",
		`outboxweb_build_info{goversion="go`, `outboxweb_connections{database="journal",state="in_use",use="write"} 1`, `outboxweb_connections{database="journal",state="idle",use="write"} 2`,
		`outboxweb_connections_waiting{database="journal",use="write"} 3`, `outboxweb_connections_limit{database="journal",use="write"} 8`,
		`outboxweb_publisher_leased{publisher="archive",topic="scenes"} 1`, `outboxweb_publisher_lease_remaining_seconds{publisher="archive",topic="scenes"} `} {
		must.Hold(t, strings.Contains(body, "\n"+name), "the scrape lacks %s", name)
	}
}

// The same checks as promtool check metrics.
func TestHandler_answersInGoodForm(t *testing.T) {
	t.Parallel()
	must.Same(t, must.Get(promlint.New(strings.NewReader(scrape(t, everything()))).Lint()).Or(t), nil, "problems")
}
