package outbox

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestFailedRuns_areThoseThatNoLaterRunRepeats(t *testing.T) {
	t.Parallel()
	now, recently, longAgo := *after(0), *after(-60), *after(-60 * 48)
	rebuild := Run{Kind: RunRebuild, Status: RunFailed, Projections: []string{"revenue"}, CampaignIDs: []string{"a"}, FinishedAt: &recently}
	later := func(change func(*Run)) Run {
		r := rebuild
		r.Status, r.FinishedAt = RunCompleted, nil
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		latest []Run
		want   int
	}{
		"alone":                           {[]Run{rebuild}, 1},
		"interrupted":                     {[]Run{later(func(r *Run) { r.Status, r.FinishedAt = RunInterrupted, &recently })}, 1},
		"repeated":                        {[]Run{later(func(*Run) {}), rebuild}, 0},
		"repeated over everything":        {[]Run{later(func(r *Run) { r.All, r.CampaignIDs, r.Projections = true, nil, []string{"revenue", "seats"} }), rebuild}, 0},
		"repeated, and failed again":      {[]Run{rebuild, rebuild}, 1},
		"before one elsewhere":            {[]Run{later(func(r *Run) { r.CampaignIDs = []string{"b"} }), rebuild}, 1},
		"before one of other projections": {[]Run{later(func(r *Run) { r.Projections = []string{"seats"} }), rebuild}, 1},
		"before one of another kind":      {[]Run{later(func(r *Run) { r.Kind = RunVerify }), rebuild}, 1},
		"long ago":                        {[]Run{later(func(r *Run) { r.Status, r.FinishedAt = RunFailed, &longAgo })}, 0},
		"cancelled":                       {[]Run{later(func(r *Run) { r.Status, r.FinishedAt = RunCancelled, &recently })}, 0},
	} {
		must.Equal(t, len(FailedRuns(c.latest, now)), c.want, name, "runs")
	}
}
