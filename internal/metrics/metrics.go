// Package metrics holds the Prometheus collectors of one process, in a
// registry of its own: what outboxweb measures, under names that start with
// outboxweb_, and what every Go program tells of itself, under the standard
// ones. docs/metrics.md lists the first kind.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"outboxweb/internal/outbox"
)

// scrapeTimeout bounds the summary that a scrape reads.
const scrapeTimeout = 5 * time.Second

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

	PublisherDelivered *prometheus.CounterVec   // by topic, publisher: events that a destination acknowledged
	PublisherErrors    *prometheus.CounterVec   // by topic, publisher, kind: deliveries that failed
	PublisherReads     prometheus.Counter       // times that the journal was read by position, for all publishers together
	PublisherSeconds   *prometheus.HistogramVec // by topic, publisher: time of one call of a destination
	PublisherLost      *prometheus.CounterVec   // by topic, publisher: leases that another process took over, or that ran out

	IdentityRefused *prometheus.CounterVec // by why: requests of which it was not known who asks, or that had no role

	registry     *prometheus.Registry
	requests     *prometheus.CounterVec
	requestTimes *prometheus.HistogramVec
}

// Bounds of histograms, in seconds.
var (
	requestBounds = []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10} // few, since there is a series of each for every route
	shortBounds   = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	delayBounds   = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// New makes the collectors. The gauges about rows, lag and campaigns call
// summary at each scrape; when it fails they are left out of that scrape and
// the failure is logged, so that an alert on absence fires.
func New(summary func(ctx context.Context) (outbox.Summary, error)) *Metrics {
	m := &Metrics{
		Appended:     counter("appended_events_total", "Events appended to the journal by this process; those that were there already are not counted."),
		AppendTime:   histogram("append_seconds", "Time of one append that was not refused, of one event or many, with the wait for the commit.", shortBounds),
		AppliedAfter: histogram("applied_after_seconds", "Time from the append of an event until it is applied, for each event that this process applied.", delayBounds),

		Applied:            counter("events_applied_total", "Events applied to the projections by this process."),
		Failed:             counter("apply_failures_total", "Attempts to apply an event that failed in this process."),
		Fenced:             counter("fenced_total", "Campaigns this process dropped because another worker had taken them over."),
		Waves:              counter("waves_total", "Waves this process has worked off."),
		WaveSeconds:        histogram("wave_seconds", "Time of one wave from claim to release.", shortBounds[1:]),
		Stalled:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "outboxweb_worker_stalled", Help: "1 while the worker of this process fails at everything it tries to apply."}),
		PublisherDelivered: counters("publisher_delivered_total", "Events that destinations have acknowledged to this process, repeats included.", "topic", "publisher"),
		PublisherErrors:    counters("publisher_errors_total", "Deliveries of this process that failed, by whom the error blames: destination or event.", "topic", "publisher", "kind"),
		PublisherReads:     counter("publisher_reads_total", "Times this process has read the journal by position, for all its publishers together."),
		PublisherSeconds:   histograms("publisher_seconds", "Time of one delivery of a batch.", shortBounds, "topic", "publisher"),
		PublisherLost:      counters("publisher_leases_lost_total", "Leases of publishers that this process lost: they ran out, or another process or an operator took them over.", "topic", "publisher"),
		IdentityRefused:    counters("identity_refused_total", "Requests that were refused because it is not known who asks, or because that one has no role, by why.", "why"),

		registry: prometheus.NewRegistry(),
		requests: counters("http_requests_total", "HTTP requests answered, by route pattern and status code.", "route", "code"),
		requestTimes: histograms("http_request_seconds", "Time of one HTTP request until the client has taken its answer, by route pattern, method (GET, HEAD, POST or other) and class of the status, such as 2xx.",
			requestBounds, "route", "method", "status"),
	}
	m.registry.MustRegister(m.Appended, m.AppendTime, m.AppliedAfter, m.requestTimes, m.PublisherLost, m.Applied, m.Failed, m.Fenced, m.Waves, m.WaveSeconds, m.Stalled, m.requests,
		m.PublisherDelivered, m.PublisherErrors, m.PublisherReads, m.PublisherSeconds, m.IdentityRefused,
		&state{summary: summary},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// WatchRuns adds the gauge of runs by kind and status, which calls tallies at
// each scrape; when it fails the gauge is left out of that scrape.
func (m *Metrics) WatchRuns(tallies func(ctx context.Context) ([]outbox.RunTally, error)) {
	m.registry.MustRegister(&runs{tallies: tallies})
}

type runs struct {
	tallies func(ctx context.Context) ([]outbox.RunTally, error)
}

var runsDesc = desc("runs", "Replays, verifies and rebuilds by kind and status; those that have ended too.", "kind", "status")

func (r *runs) Describe(ch chan<- *prometheus.Desc) { ch <- runsDesc }

// Collect has a value for each kind and status, so that an alert need not know
// of what has never been.
func (r *runs) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	tallies, err := r.tallies(ctx)
	if err != nil {
		slog.Error("scrape: count the runs", "err", err)
		return
	}
	for _, kind := range outbox.RunKinds {
		for _, status := range outbox.RunStatuses {
			n := 0.0
			for _, t := range tallies {
				if t.Kind == kind && t.Status == status {
					n = float64(t.Runs)
				}
			}
			ch <- prometheus.MustNewConstMetric(runsDesc, prometheus.GaugeValue, n, string(kind), string(status))
		}
	}
}

// WatchBehind adds the gauge of projections that are behind, which calls count at
// each scrape; when it fails the gauge is left out of that scrape.
func (m *Metrics) WatchBehind(count func(ctx context.Context) (outbox.BehindCounts, error)) {
	m.registry.MustRegister(&behind{count: count})
}

type behind struct {
	count func(ctx context.Context) (outbox.BehindCounts, error)
}

var behindDesc = desc("behind_projections", "Projections, once for each campaign, that were resumed behind its journal, by their replay: none, so that somebody has to start one; waiting for the end of another run; active.", "replay")

func (b *behind) Describe(ch chan<- *prometheus.Desc) { ch <- behindDesc }

func (b *behind) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	n, err := b.count(ctx)
	if err != nil {
		slog.Error("scrape: count the projections that are behind", "err", err)
		return
	}
	for replay, n := range map[string]int64{"none": n.Alone, "waiting": n.Waiting, "active": n.CatchUps} {
		ch <- prometheus.MustNewConstMetric(behindDesc, prometheus.GaugeValue, float64(n), replay)
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "outboxweb_" + name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outboxweb_" + name, Help: help}, labels)
}

func histogram(name, help string, bounds []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "outboxweb_" + name, Help: help, Buckets: bounds})
}

func histograms(name, help string, bounds []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "outboxweb_" + name, Help: help, Buckets: bounds}, labels)
}

// TellBuild adds the series that says which build this is.
func (m *Metrics) TellBuild(version, revision string) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "outboxweb_build_info", Help: "1, with the version of the program, its source's revision where it is known, and Go's version."},
		[]string{"version", "revision", "goversion"})
	build.WithLabelValues(version, revision, runtime.Version()).Set(1)
	m.registry.MustRegister(build)
}

// Append counts one append that made so many events.
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
		method = "other" // clients make methods up
	}
	m.requestTimes.WithLabelValues(route, method, strconv.Itoa(code/100)+"xx").Observe(took.Seconds())
}

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// state reads the gauges from one summary a scrape.
type state struct {
	summary func(ctx context.Context) (outbox.Summary, error)
}

var (
	rowsDesc         = desc("rows", "Outbox rows by status.", "status")
	oldestDesc       = desc("oldest_row_age_seconds", "Age of the oldest event that is not applied, with a row or without, from its append; 0 when all are applied.")
	retryableDesc    = desc("oldest_retryable_age_seconds", "Age of the oldest event that workers try by themselves, from its append: in no blocked, paused or diverged campaign; 0 when there is none.")
	lagDesc          = desc("lag_events", "Events in the journal that are not applied yet, over all campaigns.")
	campaignsDesc    = desc("campaigns", "Campaigns in the journal.")
	blockedDesc      = desc("blocked_campaigns", "Campaigns whose head is dead.")
	divergedDesc     = desc("diverged_campaigns", "Campaigns whose watermark contradicts the journal.")
	driftedDesc      = desc("drifted_campaigns", "Campaigns whose live rows differ from the journal, as last verified.")
	unverifiableDesc = desc("unverifiable_campaigns", "Campaigns whose journal the last verify could not fold, such as one with an event that was changed or deleted.")
	pausedDesc       = desc("paused_campaigns", "Campaigns that an operator has paused.")
	heldDesc         = desc("paused_projections", "Projections that an operator has paused, by scope: all, for all campaigns; campaign, for some, once for each of them.", "scope")
	quarantinedDesc  = desc("quarantined_projections", "Projections, once for each campaign, that are set aside after a failure until a run catches them up; those paused for all campaigns are not counted.")
	skippedDesc      = desc("skipped_events", "Events that are skipped: passed over and never applied.")
	runningDesc      = desc("operations_running", "Requeues of many rows that are under way.")
	openDesc         = desc("operations_unacknowledged", "Requeues of many rows that have ended and that nobody has acknowledged.")
	driftDesc        = desc("campaign_row_drift", "Campaigns that the self-check found not to match their outbox rows, and repaired, since start.")
	diskDesc         = desc("disk_full", "1 while a write to the database found no room, as far as this process knows.", "database")
	workerDesc       = desc("worker_running", "1 when an instance with a worker has started and not stopped.")
	unreadableDesc   = desc("state_unreadable", "1 while the state of the queue cannot be read, so that its series are missing.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outboxweb_"+name, help, labels, nil)
}

func (s *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsDesc, oldestDesc, retryableDesc, lagDesc, campaignsDesc, blockedDesc, divergedDesc, driftedDesc, unverifiableDesc,
		pausedDesc, heldDesc, quarantinedDesc, skippedDesc, runningDesc, openDesc, driftDesc, diskDesc, workerDesc, unreadableDesc} {
		ch <- d
	}
}

func (s *state) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	sum, err := s.summary(ctx)
	if err != nil {
		slog.Error("scrape: read the summary", "err", err)
		ch <- prometheus.MustNewConstMetric(unreadableDesc, prometheus.GaugeValue, 1)
		return
	}
	ch <- prometheus.MustNewConstMetric(unreadableDesc, prometheus.GaugeValue, 0)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, status := range outbox.Statuses {
		gauge(rowsDesc, float64(sum.Counts.Of(status)), string(status))
	}
	running := 0.0
	if sum.Worker.Running {
		running = 1
	}
	gauge(oldestDesc, sum.Lag.MaxSeconds)
	gauge(retryableDesc, sum.Lag.RetryableSeconds)
	gauge(lagDesc, float64(sum.Lag.Events))
	gauge(campaignsDesc, float64(sum.Campaigns.Total))
	gauge(blockedDesc, float64(sum.Campaigns.Blocked))
	gauge(divergedDesc, float64(sum.Campaigns.Diverged))
	gauge(driftedDesc, float64(sum.Campaigns.Drifted))
	gauge(unverifiableDesc, float64(sum.Campaigns.Unverifiable))
	gauge(pausedDesc, float64(sum.Campaigns.Paused))
	if sum.Held != nil {
		forAll, campaigns := sum.PausedProjections()
		gauge(heldDesc, float64(forAll), "all")
		gauge(heldDesc, float64(campaigns), "campaign")
		gauge(quarantinedDesc, float64(sum.QuarantinedProjections()))
	}
	gauge(skippedDesc, float64(sum.Campaigns.Skips))
	gauge(runningDesc, float64(sum.Operations.Running))
	gauge(openDesc, float64(sum.Operations.Unacknowledged))
	gauge(driftDesc, float64(sum.Drift))
	for _, database := range []string{"journal", "projections"} {
		full := 0.0
		if slices.ContainsFunc(sum.DisksFull, func(d outbox.FullDisk) bool { return d.Database == database }) {
			full = 1
		}
		gauge(diskDesc, full, database)
	}
	gauge(workerDesc, running)
}
