package destination

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

type statisticsSettings struct {
	interval time.Duration
	tags     []string // whose values are counted
	names    *names   // shared by all publishers that are opened for the subscription
}

// Defaults and bounds of statistics.
const (
	defaultStatisticsInterval = time.Minute
	defaultDistinct           = 100
	mostDistinct              = 10_000
	longestName               = 200 // bytes of a counted type or value
)

// otherName counts for all names beyond the limit.
const otherName = "other"

// names limits how many distinct types, and how many distinct values of all tags together, are
// counted on their own: the first ones in the life of the process.
type names struct {
	most  int
	mu    sync.Mutex
	known map[count]bool
	used  map[bool]int // distinct names of tags and of types
}

// count names a counter: of an event type, or of a tag's value.
type count struct{ tag, value string } // tag is empty for event types

// bounded returns the counter for what is counted: its own, or that of the others.
func (n *names) bounded(c count) count {
	if len(c.value) > longestName {
		c.value = strings.ToValidUTF8(c.value[:longestName], "") + "…"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[c] {
		return c
	}
	ofTag := c.tag != ""
	if n.used[ofTag] == n.most {
		c.value = otherName
		return c
	}
	n.used[ofTag]++
	n.known[c] = true
	return c
}

func (r *reader) statistics(at outbound.Entry, u outbound.URL, fields map[string]outbound.Entry, all *settings) string {
	s := &all.statistics
	s.interval = r.Pause(fields["interval"], defaultStatisticsInterval, longestPause)
	s.tags = r.Texts(fields["tags"], "[region, plan]")
	most := r.Number(fields["max_distinct"], defaultDistinct, 1, mostDistinct)
	s.names = &names{most: int(most), known: map[count]bool{}, used: map[bool]int{}}
	return r.bare(at, u, "the log and the metrics")
}

// statistics counts events and logs the counts at intervals. An interval without events is not
// logged.
type statistics struct {
	statisticsSettings
	sub     operator.SubscriptionName
	logger  *slog.Logger
	metrics Counters
	stop    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex
	since  time.Time
	events int
	counts map[count]int
}

func openStatistics(p Subscription, o Options) (Publisher, error) {
	s := &statistics{statisticsSettings: p.settings.statistics, sub: p.SubscriptionName, logger: o.Logger, metrics: o.Published,
		since: time.Now(), counts: map[count]int{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	go s.run()
	return s, nil
}

func (s *statistics) run() {
	defer close(s.stopped)
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.write()
		case <-s.stop:
			s.write()
			return
		}
	}
}

func (s *statistics) Close() error {
	close(s.stop)
	<-s.stopped
	return nil
}

func (s *statistics) Publish(ctx context.Context, events []*Event) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	counts := map[count]int{}
	for _, e := range events {
		counts[s.names.bounded(count{value: e.EventType})]++
		if len(s.tags) == 0 {
			continue
		}
		var tags map[string]string
		if json.Unmarshal(e.Tags, &tags) != nil {
			continue // an event has text tags; this one was changed outside
		}
		for _, tag := range s.tags {
			if value, has := tags[tag]; has {
				counts[s.names.bounded(count{tag, value})]++
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events += len(events)
	for c, n := range counts {
		s.counts[c] += n
		s.add(c, n)
	}
	return len(events), nil
}

func (s *statistics) add(c count, n int) {
	switch {
	case s.metrics == nil:
	case c.tag == "":
		s.metrics.CountType(s.sub, c.value, n)
	default:
		s.metrics.CountTag(s.sub, c.tag, c.value, n)
	}
}

// write logs the counts since the last time, whatever the log's level, and begins anew.
func (s *statistics) write() {
	s.mu.Lock()
	now := time.Now()
	since, events, counts := s.since, s.events, s.counts
	s.since, s.events, s.counts = now, 0, map[count]int{}
	s.mu.Unlock()
	if events == 0 {
		return
	}
	seconds := now.Sub(since).Seconds()
	r := slog.NewRecord(now, slog.LevelInfo, "events published", 0)
	r.AddAttrs(slog.String("topic", s.sub.Topic), slog.String("publisher", s.sub.Publisher),
		slog.Float64("seconds", rounded(seconds)), slog.Int("events", events), slog.Float64("per_second", rounded(float64(events)/seconds)))
	r.AddAttrs(grouped("event_types", "", counts, seconds))
	for _, tag := range s.tags {
		r.AddAttrs(grouped("tags."+tag, tag, counts, seconds))
	}
	// A log that cannot be written cannot tell of it, and the metrics have the counts.
	_ = s.logger.Handler().Handle(context.Background(), r)
}

// grouped are the counts of the types, or of a tag's values, each with its rate.
func grouped(name, tag string, counts map[count]int, seconds float64) slog.Attr {
	var list []any
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b count) int { return strings.Compare(a.value, b.value) }) {
		if c.tag == tag {
			list = append(list, slog.Group(c.value, slog.Int("events", counts[c]), slog.Float64("per_second", rounded(float64(counts[c])/seconds))))
		}
	}
	return slog.Group(name, list...)
}

// rounded has three decimals.
func rounded(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }
