package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout bounds each read of a scrape.
const scrapeTimeout = 5 * time.Second

// gauge adds the value of a gauge to a scrape.
type gauge func(d *prometheus.Desc, value float64, labels ...string)

// scraped are gauges that are read at each scrape.
type scraped struct {
	what  string // what read does, for the log
	read  func(context.Context, gauge) error
	descs []*prometheus.Desc
}

// watch adds gauges whose values read supplies at each scrape. An error is logged.
func (m *Metrics) watch(what string, read func(context.Context, gauge) error, descs ...*prometheus.Desc) {
	m.registry.MustRegister(&scraped{what, read, descs})
}

// Describe implements prometheus.Collector.
func (s *scraped) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scraped) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	err := s.read(ctx, func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	})
	if err != nil {
		slog.Error("scrape: "+s.what, "err", err)
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outboxweb_"+name, help, labels, nil)
}

// boolGauge is 1 for true and 0 for false.
func boolGauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
