package publishing_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/samples"
)

func TestPublisherPoints_keepWhatStoodBetweenSamples(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 11, 21, 7, 30, 0, 0, time.UTC)
	w := samples.Range{}.Window(end)
	pointsOf := func(created time.Time, s ...publishing.PublisherSample) []publishing.PublisherPoint {
		return publishing.PublisherPoints(s, w, []samples.Interval{{From: w.From, To: w.To}}, created)
	}
	points := pointsOf(end.Add(-40*24*time.Hour),
		publishing.PublisherSample{At: end.Add(-10 * time.Minute), Delivered: 10, LagEvents: 3, RecordedAt: end.Add(-11 * time.Minute)},
		publishing.PublisherSample{At: end.Add(-2 * time.Minute), Delivered: 130, Errors: 2})
	must.Need(t, len(points) == 12, "%d points, want those since the first sample", len(points))
	p := points[5]
	must.Hold(t, p.LagEvents == 3 && p.LagSeconds == 6*60 && p.PerSecond == 0, "in between: %+v", p)
	p = points[8]
	must.Hold(t, p.PerSecond == 2 && p.DeliveredInStep == 120 && p.ErrorsInARow == 2 && p.LagSeconds == 0, "at the second sample: %+v", p)
	must.Equal(t, points[0].DeliveredInStep, 0, "at the first sample of an old subscription")
	points = pointsOf(end.Add(-10*time.Minute-40*time.Second),
		publishing.PublisherSample{At: end.Add(-10 * time.Minute), Delivered: 4000}, publishing.PublisherSample{At: end.Add(-9 * time.Minute), Delivered: 4010})
	for i, p := range points { // a new subscription: its first deliveries count
		must.Equal(t, p.DeliveredInStep, append([]int64{4000, 10}, make([]int64, len(points)-2)...)[i], "delivered in step", i)
	}
}
