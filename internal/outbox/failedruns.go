package outbox

import (
	"slices"
	"time"
)

// newsOfRuns is how long a failed run is news.
const newsOfRuns = 24 * time.Hour

// FailedRuns returns those of the latest runs, newest first, that failed or were interrupted within a day
// and after which no run of their kind over their scope was started that has not failed, too.
func FailedRuns(latest []Run, now time.Time) (failed []Run) {
	for i, r := range latest {
		lost := r.Status == RunFailed || r.Status == RunInterrupted
		if !lost || r.Kind == RunRehearse || r.FinishedAt == nil || now.Sub(*r.FinishedAt) > newsOfRuns {
			continue
		}
		if !slices.ContainsFunc(latest[:i], r.repeatedBy) {
			failed = append(failed, r)
		}
	}
	return failed
}

// repeatedBy reports whether a later run does the same, whatever becomes of it.
func (r Run) repeatedBy(later Run) bool {
	missing := func(name string) bool { return !slices.Contains(later.Projections, name) }
	within := later.All || !r.All && !slices.ContainsFunc(r.CampaignIDs, func(id string) bool { return !slices.Contains(later.CampaignIDs, id) })
	return later.Kind == r.Kind && within && !slices.ContainsFunc(r.Projections, missing)
}
