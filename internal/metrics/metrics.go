// Package metrics holds the Prometheus collectors of one process, in a registry of its own:
// outboxweb's metrics, with names that start with outboxweb_, and the standard metrics of Go
// programs. docs/metrics.md lists the former.
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Metrics are the collectors. The counters are incremented by the worker;
// everything is safe for concurrent use.
type Metrics struct {
	Appended     prometheus.Counter   // events appended
	AppendTime   prometheus.Histogram // time of one append, in seconds
	AppliedAfter prometheus.Histogram // from an event's append until it is applied, in seconds

	Applied     prometheus.Counter   // events applied
	Failed      prometheus.Counter   // attempts that failed
	Fenced      prometheus.Counter   // campaigns dropped because another epoch holds them
	Waves       prometheus.Counter   // waves worked off
	WaveSeconds prometheus.Histogram // time of one wave, claim to release
	Stalled     prometheus.Gauge     // 1 while nothing can be applied

	PublisherDelivered *prometheus.CounterVec   // by topic, publisher: events acknowledged by a destination
	PublisherErrors    *prometheus.CounterVec   // by topic, publisher, kind: failed deliveries
	PublisherReads     prometheus.Counter       // reads of the journal by position, for all publishers together
	PublisherSeconds   *prometheus.HistogramVec // by topic, publisher: time of one call to a destination
	PublishedEvents    *prometheus.CounterVec   // by topic, publisher, event_type: events counted by statistics:
	PublishedTags      *prometheus.CounterVec   // by topic, publisher, tag, value: events counted by statistics:
	PublisherTakenOver *prometheus.CounterVec   // by topic, publisher: leases whose holder did not release them
	PublisherLost      *prometheus.CounterVec   // by topic, publisher: leases that expired or that another process took over

	AlertsFiring  *prometheus.GaugeVec   // by rule: causes for which it fires, as of the last evaluation in this process
	AlertMessages *prometheus.CounterVec // by receiver, outcome: messages sent and failed

	IntakeRows   *prometheus.CounterVec // by source: rows journalled
	IntakeErrors *prometheus.CounterVec // by source: errors of its database

	IdentityRefused *prometheus.CounterVec // by why: requests without a known identity or without a role

	registry     *prometheus.Registry
	requests     *prometheus.CounterVec
	requestTimes *prometheus.HistogramVec
}

// Bucket bounds of histograms, in seconds.
var (
	requestBounds = []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10} // few, since each route has its own series
	shortBounds   = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	delayBounds   = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// New creates the collectors. The gauges of rows, lag and campaigns call summary at each
// scrape; when it fails they are left out of that scrape and the failure is logged, so that an
// alert on absence fires.
func New(summary func(ctx context.Context) (outbox.Summary, error)) *Metrics {
	registry := prometheus.NewRegistry()
	collect := registered{promauto.With(registry)}
	m := &Metrics{
		Appended:     collect.counter("appended_events_total", "Events appended to the journal by this process, without duplicates that were already there."),
		AppendTime:   collect.histogram("append_seconds", "Duration of a successful append of one or more events, including the commit.", shortBounds),
		AppliedAfter: collect.histogram("applied_after_seconds", "Time from the append of an event until it is applied, for each event that this process applied.", delayBounds),

		Applied:            collect.counter("events_applied_total", "Events applied to the projections by this process."),
		Failed:             collect.counter("apply_failures_total", "Attempts to apply an event that failed in this process."),
		Fenced:             collect.counter("fenced_total", "Campaigns this process dropped because another worker had taken over the lease."),
		Waves:              collect.counter("waves_total", "Waves completed by this process."),
		WaveSeconds:        collect.histogram("wave_seconds", "Duration of a wave from claim to release.", shortBounds[1:]),
		Stalled:            collect.NewGauge(prometheus.GaugeOpts{Name: "outboxweb_worker_stalled", Help: "1 while the worker of this process fails to apply anything."}),
		PublisherDelivered: collect.counters("publisher_delivered_total", "Events acknowledged by destinations to this process, including repeats.", "topic", "publisher"),
		PublisherErrors:    collect.counters("publisher_errors_total", "Failed deliveries of this process, by cause: destination, event, or unknown: of a refusal it is not known which of them is at fault.", "topic", "publisher", "kind"),
		PublisherReads:     collect.counter("publisher_reads_total", "Reads of the journal by position in this process, for all its publishers together."),
		PublisherSeconds:   collect.histograms("publisher_seconds", "Duration of the delivery of a batch.", shortBounds, "topic", "publisher"),
		PublishedEvents:    collect.counters("published_events_total", "Events delivered to statistics: by this process, by type, including repeats; the types beyond max_distinct count as other.", "topic", "publisher", "event_type"),
		PublishedTags:      collect.counters("published_tags_total", "Events delivered to statistics: by this process, by the value of a configured tag; the values beyond max_distinct count as other.", "topic", "publisher", "tag", "value"),
		PublisherLost:      collect.counters("publisher_leases_lost_total", "Publisher leases this process lost: expired, or taken over by another process or an operator.", "topic", "publisher"),
		PublisherTakenOver: collect.counters("publisher_takeovers_total", "Publishers that this process took over from a holder that did not release them: it died, or lost the database.", "topic", "publisher"),
		AlertsFiring:       collect.NewGaugeVec(prometheus.GaugeOpts{Name: "outboxweb_alerts_firing", Help: "Causes for which an alert rule fires, as of the last evaluation; absent in processes that do not evaluate the rules."}, []string{"rule"}),
		AlertMessages:      collect.counters("alert_messages_total", "Alert messages that this process sent, by receiver and outcome: sent or failed.", "receiver", "outcome"),
		IntakeRows:         collect.counters("intake_rows_total", "Rows of a source that this process moved to the journal, including those that were there already after a crash.", "source"),
		IntakeErrors:       collect.counters("intake_errors_total", "Errors of a source's database in this process.", "source"),
		IdentityRefused:    collect.counters("identity_refused_total", "Requests refused because the user is not authenticated or has no role, by reason.", "why"),

		registry: registry,
		requests: collect.counters("http_requests_total", "HTTP requests answered, by route pattern and status code.", "route", "code"),
		requestTimes: collect.histograms("http_request_seconds", "Duration of an HTTP request until the response was sent, by route pattern, method (GET, HEAD, POST or other) and status class, such as 2xx.",
			requestBounds, "route", "method", "status"),
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.watchSummary(summary)
	return m
}

// WatchRuns adds the gauge of runs by kind and status, which calls tallies at each scrape; when
// it fails the gauge is left out of that scrape. Every kind and status has a value, 0 included,
// so that alerts need not handle absent series.
func (m *Metrics) WatchRuns(tallies func(ctx context.Context) ([]outbox.RunTally, error)) {
	m.watch("count the runs", func(ctx context.Context, gauge gauge) error {
		all, err := tallies(ctx)
		if err != nil {
			return err
		}
		runs := map[outbox.RunTally]int64{}
		for _, t := range all {
			runs[outbox.RunTally{Kind: t.Kind, Status: t.Status}] = t.Runs
		}
		for _, kind := range outbox.RunKinds {
			for _, status := range outbox.RunStatuses {
				gauge(runsDesc, float64(runs[outbox.RunTally{Kind: kind, Status: status}]), string(kind), string(status))
			}
		}
		return nil
	}, runsDesc)
}

var runsDesc = desc("runs", "Runs (replay, verify, rebuild) by kind and status, including those that have ended.", "kind", "status")

// WatchBehind adds the gauge of projections that are behind, which calls count at
// each scrape; when it fails the gauge is left out of that scrape.
func (m *Metrics) WatchBehind(count func(ctx context.Context) (outbox.BehindCounts, error)) {
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

// registered is a factory whose collectors are registered.
type registered struct{ promauto.Factory }

func (r registered) counter(name, help string) prometheus.Counter {
	return r.NewCounter(prometheus.CounterOpts{Name: "outboxweb_" + name, Help: help})
}

func (r registered) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return r.NewCounterVec(prometheus.CounterOpts{Name: "outboxweb_" + name, Help: help}, labels)
}

func (r registered) histogram(name, help string, bounds []float64) prometheus.Histogram {
	return r.NewHistogram(prometheus.HistogramOpts{Name: "outboxweb_" + name, Help: help, Buckets: bounds})
}

func (r registered) histograms(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return r.NewHistogramVec(prometheus.HistogramOpts{Name: "outboxweb_" + name, Help: help, Buckets: bounds}, labels)
}

// AddBuild adds the series with the build version.
func (m *Metrics) AddBuild(version, revision string) {
	build := promauto.With(m.registry).NewGaugeVec(prometheus.GaugeOpts{Name: "outboxweb_build_info", Help: "1, with the version of the program, its source's revision where it is known, and Go's version."},
		[]string{"version", "revision", "goversion"})
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
	m.requests.WithLabelValues(route, strconv.Itoa(code)).Inc()
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		method = "other" // clients may send any method
	}
	m.requestTimes.WithLabelValues(route, method, strconv.Itoa(code/100)+"xx").Observe(took.Seconds())
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
