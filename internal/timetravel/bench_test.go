package timetravel_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/sample"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// stepLimit is how long a step to another event may take at most.
const stepLimit = 100 * time.Millisecond

// BenchmarkStep measures steps to ten events of a campaign of 100,000, beside one plain replay of
// it and the replay that records the changes. It fails when a step takes longer than stepLimit.
func BenchmarkStep(b *testing.B) {
	const events = 100_000
	e := enginetest.Open(b, []string{"builtin:campaigns"}, enginetest.BatchSize(5000))
	e.Feed(slices.Collect(sample.Events(sample.Config{Campaigns: 1, Events: events, Seed: 1, End: time.Now().UTC()}))...)
	list := must.Get(e.Campaigns(b.Context(), campaign.CampaignFilter{})).Or(b)
	campaign := list.Items[0].CampaignID
	last := list.Items[0].AppliedSeq

	began := time.Now()
	f := must.Get(runs.NewReplayer(b.Context(), e.Store, e.Set)).Or(b)
	defer f.Close()
	expected, err := f.Begin(b.Context(), campaign, nil)
	if err == nil {
		err = expected.To(b.Context(), last)
	}
	must.OK(b, err)
	plain := time.Since(began)

	tr := timetravel.New(timetravel.Config{Store: e.Store, Set: e.Set})
	defer tr.Close()
	began = time.Now()
	must.Get(tr.At(b.Context(), timetravel.ModelQuery{CampaignID: campaign}, time.Hour)).Or(b)
	recording := time.Since(began)

	var steps []time.Duration
	for b.Loop() {
		for i := range int64(10) {
			seq := last/20 + i*last/10
			began := time.Now()
			must.Get(tr.At(b.Context(), timetravel.ModelQuery{CampaignID: campaign, Seq: seq}, time.Hour)).Or(b)
			steps = append(steps, time.Since(began))
		}
	}
	slices.Sort(steps)
	slowest := steps[len(steps)-1]
	b.ReportMetric(float64(plain.Milliseconds()), "ms/plain-replay")
	b.ReportMetric(float64(recording.Milliseconds()), "ms/recording-replay")
	b.ReportMetric(float64(last), "events")
	b.ReportMetric(float64(steps[len(steps)/2].Microseconds())/1000, "ms/step")
	b.ReportMetric(float64(slowest.Microseconds())/1000, "ms/slowest-step")
	must.Hold(b, steps[len(steps)*9/10] <= stepLimit, "a step of ten takes longer than %s; the slowest takes %s", stepLimit, slowest)
}
