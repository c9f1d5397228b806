package samples

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// SeriesKind is what a series measures.
type SeriesKind string

// The kinds of series. Those that count have the count of each step; the others its value at the
// step's end, or of the whole step.
const (
	SeriesApplied  SeriesKind = "applied"           // events applied, by instance
	SeriesFailure  SeriesKind = "failures"          // failed attempts, by fingerprint
	SeriesFollowed SeriesKind = "projection"        // events applied to a projection as they arrived, without replays and rebuilds, by projection
	SeriesFailedIn SeriesKind = "projection_failed" // failed attempts, by projection
	SeriesBacklog  SeriesKind = "backlog"           // rows waiting, by event type
	SeriesDelay    SeriesKind = "delays"            // events applied, by DelayBucket; stored, not shown
	SeriesBehind   SeriesKind = "behind"            // most events behind, by campaign; stored, shown as a heatmap
	SeriesLatency  SeriesKind = "latency"           // seconds from append to applied, by quantile: p50 and p99
	SeriesLag      SeriesKind = "publisher"         // events behind, by publisher
)

// CountedSeries are the kinds that processes count.
var CountedSeries = []SeriesKind{SeriesApplied, SeriesFailure, SeriesFollowed, SeriesFailedIn, SeriesDelay}

// Other is the label of everything beyond the labels that are told apart.
const Other = "other"

// SeriesShown is how many labels of a kind are told apart.
const SeriesShown = 6

// Series is one line of a chart. A value is null where nothing was recorded.
type Series struct {
	Kind   SeriesKind `json:"kind"`
	Label  string     `json:"label" redact:"-"` // an id, a name, a fingerprint or a quantile
	Values []*float64 `json:"values"`
}

// Counted is what was counted: numbers by label and step.
type Counted map[string]map[int]float64

// Add adds a number to a label's step.
func (t Counted) Add(label string, step int, n float64) {
	if t[label] == nil {
		t[label] = map[int]float64{}
	}
	t[label][step] += n
}

// Top returns a series for each of the labels with the most, by total and then by label, and one
// for all others. Steps without a record have no value.
func (t Counted) Top(kind SeriesKind, recorded []bool) []Series {
	totals := map[string]float64{}
	for label, counts := range t {
		for _, n := range counts {
			totals[label] += n
		}
	}
	labels := slices.SortedFunc(maps.Keys(totals), func(a, b string) int {
		return cmp.Or(cmp.Compare(event.Truth(a == Other), event.Truth(b == Other)), cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b))
	})
	rest := Counted{}
	var all []Series
	for _, label := range labels {
		if len(all) < SeriesShown && label != Other {
			all = append(all, seriesOf(kind, label, t[label], recorded))
			continue
		}
		for i, n := range t[label] {
			rest.Add(Other, i, n)
		}
	}
	if len(rest) > 0 {
		all = append(all, seriesOf(kind, Other, rest[Other], recorded))
	}
	return all
}

func seriesOf(kind SeriesKind, label string, counts map[int]float64, recorded []bool) Series {
	s := Series{Kind: kind, Label: label, Values: make([]*float64, len(recorded))}
	for i := range recorded {
		if n, counted := counts[i]; counted || recorded[i] {
			s.Values[i] = &n
		}
	}
	return s
}

// DelayBuckets is the number of delay buckets. The first four are quarters of a millisecond, each
// further one holds delays 9 % longer, the last everything beyond eight days.
const DelayBuckets = 240

// DelayBucket is the bucket of a delay.
func DelayBucket(d time.Duration) int {
	ms := max(0, float64(d)/float64(time.Millisecond))
	if ms < 1 {
		return int(4 * ms)
	}
	return min(DelayBuckets-1, 4+int(8*math.Log2(ms)))
}

// delayBound is the upper bound of a bucket, in seconds.
func delayBound(bucket int) float64 {
	if bucket < 4 {
		return float64(bucket+1) / 4000
	}
	return math.Pow(2, float64(bucket-3)/8) / 1000
}

// DelayQuantile is the delay in seconds that the share q of the counted delays does not exceed,
// interpolated within its bucket: at most 9 % too long or short. false without delays.
func DelayQuantile(counts *[DelayBuckets]int64, q float64) (seconds float64, found bool) {
	var total, below int64
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0, false
	}
	rank := q * float64(total)
	for b, n := range counts {
		if float64(below+n) < rank || n == 0 {
			below += n
			continue
		}
		lower := 0.0
		if b > 0 {
			lower = delayBound(b - 1)
		}
		return lower + (delayBound(b)-lower)*(rank-float64(below))/float64(n), true
	}
	return delayBound(DelayBuckets - 1), true
}

// Latency returns the quantiles of each step's delays. A step without events, whose delays may be nil, has none.
func Latency(delays []*[DelayBuckets]int64) []Series {
	var all []Series
	for _, q := range []struct {
		label string
		share float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		s := Series{Kind: SeriesLatency, Label: q.label, Values: make([]*float64, len(delays))}
		for i, counts := range delays {
			if counts == nil {
				continue
			}
			if seconds, found := DelayQuantile(counts, q.share); found {
				s.Values[i] = &seconds
			}
		}
		all = append(all, s)
	}
	return all
}

// Heatmap is how far the campaigns were behind that were the furthest behind in a range.
type Heatmap struct {
	From        time.Time    `json:"from"`
	To          time.Time    `json:"to"`
	StepSeconds float64      `json:"step_seconds"`
	Campaigns   []HeatmapRow `json:"campaigns"` // the worst first, at most 40
	Window      Window       `json:"-"`
}

// HeatmapRows is the maximum number of campaigns in a heatmap.
const HeatmapRows = 40

// HeatmapRow is one campaign of a heatmap.
type HeatmapRow struct {
	CampaignID string  `json:"campaign_id" redact:"-"`
	Worst      int64   `json:"worst"`      // most events behind in the range
	LagEvents  []int64 `json:"lag_events"` // most events behind in each step; 0 also when not sampled: less than 5 s behind, or less than a hundred others, at the ends of its minutes, or nothing was recorded
}

// Shade is the level of a value, 0 for nothing to 5, in which each level is a fifth of the
// logarithm of the worst.
func Shade(n, worst int64) int {
	if n <= 0 {
		return 0
	}
	return min(5, 1+int(5*math.Log1p(float64(n-1))/math.Log1p(float64(worst))))
}
