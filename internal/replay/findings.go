package replay

import (
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// newsOfRuns is how long a failed run is news.
const newsOfRuns = 24 * time.Hour

// RunFindings are the latest runs that failed or were interrupted, and were not repeated. Of campaigns that a
// verify could not replay another alert tells.
func RunFindings(latest []Run, now time.Time) (all finding.List) {
	for i, r := range latest {
		lost := r.Status == RunFailed || r.Status == RunInterrupted
		if !lost || r.Kind == RunRehearse || r.FinishedAt == nil || slices.ContainsFunc(latest[:i], r.repeatedBy) {
			continue
		}
		ended := " has failed"
		if r.Status == RunInterrupted {
			ended = " was interrupted"
		}
		id := strconv.FormatInt(r.ID, 10)
		f := campaign.Found(campaign.FindsFailedRun, id, r.Counts.Failed, "Run "+id+" ("+string(r.Kind)+")"+ended)
		f.Error, f.Since, f.Page, f.Key = r.Error, r.FinishedAt, campaign.PagePath(nil, "runs", id), string(r.Kind)
		f.Items = []finding.Item{{Name: "run " + id, Note: string(r.Kind) + " of " + r.Scope() + ", " + string(r.Status), Page: f.Page, At: *r.FinishedAt}}
		old := now.Sub(*r.FinishedAt) > newsOfRuns
		if f.Lingers = old || r.Kind == RunVerify && r.Counts.Failed > 0; old {
			f.Level = finding.OK
		}
		all = append(all, f)
	}
	return all
}

// repeatedBy reports whether a later run does the same, whatever becomes of it, or found all of it right.
func (r Run) repeatedBy(later Run) bool {
	missing := func(name string) bool { return !slices.Contains(later.Projections, name) }
	within := later.All || !r.All && !slices.ContainsFunc(r.CampaignIDs, func(id string) bool { return !slices.Contains(later.CampaignIDs, id) })
	right := later.Kind == RunVerify && later.Status == RunCompleted && later.Verdict == campaign.VerdictMatch && len(later.With) == 0
	return (later.Kind == r.Kind || right) && within && !slices.ContainsFunc(r.Projections, missing)
}
