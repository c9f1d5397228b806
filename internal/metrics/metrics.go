// Package metrics holds the Prometheus collectors of one process, in a registry of its own:
// outboxweb's metrics, with names that start with outboxweb_, and the standard metrics of Go
// programs. docs/metrics.md lists the former.
package metrics

import (
	"context"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// Metrics are the collectors of the process, as their tags describe them. The counters are incremented by the
// worker; everything is safe for concurrent use.
type Metrics struct {
	Appended     prometheus.Counter   `metric:"appended_events_total" help:"Events appended to the journal by this process, without duplicates that were already there."`
	AppendTime   prometheus.Histogram `metric:"append_seconds" bounds:"short" help:"Duration of a successful append of one or more events, including the commit."`
	AppliedAfter prometheus.Histogram `metric:"applied_after_seconds" bounds:"delay" help:"Time from the append of an event until it is applied, for each event that this process applied."`

	Applied     prometheus.Counter   `metric:"events_applied_total" help:"Events applied to the projections by this process."`
	Failed      prometheus.Counter   `metric:"apply_failures_total" help:"Attempts to apply an event that failed in this process."`
	Fenced      prometheus.Counter   `metric:"fenced_total" help:"Campaigns this process dropped because another worker had taken over the lease."`
	Waves       prometheus.Counter   `metric:"waves_total" help:"Waves completed by this process."`
	WaveSeconds prometheus.Histogram `metric:"wave_seconds" bounds:"wave" help:"Duration of a wave from claim to release."`
	Stalled     prometheus.Gauge     `metric:"worker_stalled" help:"1 while the worker of this process fails to apply anything."`

	PublisherDelivered *prometheus.CounterVec   `metric:"publisher_delivered_total" labels:"topic,publisher" help:"Events acknowledged by destinations to this process, including repeats."`
	PublisherErrors    *prometheus.CounterVec   `metric:"publisher_errors_total" labels:"topic,publisher,kind" help:"Failed deliveries of this process, by cause: destination, event, or unknown: of a refusal it is not known which of them is at fault."`
	PublisherReads     prometheus.Counter       `metric:"publisher_reads_total" help:"Reads of the journal by position in this process, for all its publishers together."`
	PublisherSeconds   *prometheus.HistogramVec `metric:"publisher_seconds" labels:"topic,publisher" bounds:"short" help:"Duration of the delivery of a batch."`
	PublishedEvents    *prometheus.CounterVec   `metric:"published_events_total" labels:"topic,publisher,event_type" help:"Events delivered to statistics: by this process, by type, including repeats; the types beyond max_distinct count as other."`
	PublishedTags      *prometheus.CounterVec   `metric:"published_tags_total" labels:"topic,publisher,tag,value" help:"Events delivered to statistics: by this process, by the value of a configured tag; the values beyond max_distinct count as other."`
	PublisherTakenOver *prometheus.CounterVec   `metric:"publisher_takeovers_total" labels:"topic,publisher" help:"Publishers that this process took over from a holder that did not release them: it died, or lost the database."`
	PublisherLost      *prometheus.CounterVec   `metric:"publisher_leases_lost_total" labels:"topic,publisher" help:"Publisher leases this process lost: expired, or taken over by another process or an operator."`

	AlertsFiring  *prometheus.GaugeVec   `metric:"alerts_firing" labels:"rule" help:"Causes for which an alert rule fires, as of the last evaluation; absent in processes that do not evaluate the rules."`
	AlertMessages *prometheus.CounterVec `metric:"alert_messages_total" labels:"receiver,outcome" help:"Alert messages that this process sent, by receiver and outcome: sent or failed."`

	IntakeRows   *prometheus.CounterVec `metric:"intake_rows_total" labels:"source" help:"Rows of a source that this process moved to the journal, including those that were there already after a crash."`
	IntakeErrors *prometheus.CounterVec `metric:"intake_errors_total" labels:"source" help:"Errors of a source's database in this process."`

	IdentityRefused *prometheus.CounterVec `metric:"identity_refused_total" labels:"why" help:"Requests refused because the user is not authenticated or has no role, by reason."`

	Requests     *prometheus.CounterVec   `metric:"http_requests_total" labels:"route,code" help:"HTTP requests answered, by route pattern and status code."`
	RequestTimes *prometheus.HistogramVec `metric:"http_request_seconds" labels:"route,method,status" bounds:"request" help:"Duration of an HTTP request until the response was sent, by route pattern, method (GET, HEAD, POST or other) and status class, such as 2xx."`

	registry *prometheus.Registry
}

// bounds are the bucket bounds of histograms, in seconds.
var bounds = map[string][]float64{
	"request": {0.005, 0.025, 0.1, 0.5, 2.5, 10}, // few, since each route has its own series
	"short":   {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	"wave":    {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	"delay":   {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200},
}

// New creates the collectors. The gauges of rows, lag and campaigns call summary at each
// scrape; when it fails they are left out of that scrape and the failure is logged, so that an
// alert on absence fires.
func New(summary func(ctx context.Context) (campaign.Summary, error)) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	v := reflect.ValueOf(m).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Tag.Get("metric") != "" {
			collector := collectorOf(f)
			m.registry.MustRegister(collector)
			v.FieldByIndex(f.Index).Set(reflect.ValueOf(collector))
		}
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.watchSummary(summary)
	return m
}

// collectorOf makes the collector of a field.
func collectorOf(f reflect.StructField) prometheus.Collector {
	o := prometheus.Opts{Name: "outboxweb_" + f.Tag.Get("metric"), Help: f.Tag.Get("help")}
	h := prometheus.HistogramOpts{Name: o.Name, Help: o.Help, Buckets: bounds[f.Tag.Get("bounds")]}
	labels := strings.Split(f.Tag.Get("labels"), ",")
	switch f.Type {
	case reflect.TypeFor[prometheus.Counter]():
		return prometheus.NewCounter(prometheus.CounterOpts(o))
	case reflect.TypeFor[*prometheus.CounterVec]():
		return prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
	case reflect.TypeFor[prometheus.Gauge]():
		return prometheus.NewGauge(prometheus.GaugeOpts(o))
	case reflect.TypeFor[*prometheus.GaugeVec]():
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(o), labels)
	case reflect.TypeFor[prometheus.Histogram]():
		return prometheus.NewHistogram(h)
	}
	return prometheus.NewHistogramVec(h, labels)
}

// WatchRuns adds the gauge of runs by kind and status, which calls tallies at each scrape; when
// it fails the gauge is left out of that scrape. Every kind and status has a value, 0 included,
// so that alerts need not handle absent series.
func (m *Metrics) WatchRuns(tallies func(ctx context.Context) ([]replay.RunTally, error)) {
	m.watch("count the runs", func(ctx context.Context, gauge gauge) error {
		all, err := tallies(ctx)
		if err != nil {
			return err
		}
		runs := map[replay.RunTally]int64{}
		for _, t := range all {
			runs[replay.RunTally{Kind: t.Kind, Status: t.Status}] = t.Runs
		}
		for _, kind := range replay.RunKinds {
			for _, status := range replay.RunStatuses {
				gauge(runsDesc, float64(runs[replay.RunTally{Kind: kind, Status: status}]), string(kind), string(status))
			}
		}
		return nil
	}, runsDesc)
}

var runsDesc = desc("runs", "Runs (replay, verify, rebuild) by kind and status, including those that have ended.", "kind", "status")

// WatchBehind adds the gauge of projections that are behind, which calls count at
// each scrape; when it fails the gauge is left out of that scrape.
func (m *Metrics) WatchBehind(count func(ctx context.Context) (campaign.BehindCounts, error)) {
	m.watch("count the projections that are behind", func(ctx context.Context, gauge gauge) error {
		n, err := count(ctx)
		if err != nil {
			return err
		}
		gauge(behindDesc, float64(n.Alone), "none")
		gauge(behindDesc, float64(n.Waiting), "waiting")
		gauge(behindDesc, float64(n.CatchUps), "active")
		return nil
	}, behindDesc)
}

var behindDesc = desc("behind_projections", "Projections that are behind, counted per campaign, by the state of their replay: none (start one), waiting for another run to end, active.", "replay")

// AddBuild adds the series with the build version.
func (m *Metrics) AddBuild(version, revision string) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboxweb_build_info", Help: "1, with the version of the program, its source's revision where it is known, and Go's version."},
		[]string{"version", "revision", "goversion"})
	m.registry.MustRegister(build)
	build.WithLabelValues(version, revision, runtime.Version()).Set(1)
}

// Append counts one append of this many events.
func (m *Metrics) Append(events int, took time.Duration) {
	m.Appended.Add(float64(events))
	m.AppendTime.Observe(took.Seconds())
}

// Request counts one answered HTTP request. The route is the pattern, never
// the path, so that campaign ids do not become label values.
func (m *Metrics) Request(route, method string, code int, took time.Duration) {
	m.Requests.WithLabelValues(route, strconv.Itoa(code)).Inc()
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other" // clients may send any method
	}
	m.RequestTimes.WithLabelValues(route, method, strconv.Itoa(code/100)+"xx").Observe(took.Seconds())
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
