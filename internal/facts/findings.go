package facts

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Facts are what is known of the whole system at one moment, of which findings are made.
type Facts struct {
	Summary     campaign.Summary
	Build       string                    // of the program that would retry
	Loaded      []campaign.ProjectionInfo // the loaded projections, with the versions that built their rows
	Publishers  []subscription.Publisher
	Sources     []inbound.IntakeSource
	Groups      campaign.ErrorGroups       // of failed and dead rows
	DriftBuilt  []campaign.DriftBuilt      // what made the rows that differ, those of most campaigns first
	Compared    []replay.Run               // verifies with other versions than the loaded ones, newest first
	Found       []campaign.FoundDrift      // what verifications found, by projection
	Drifted     []campaign.Verification    // that found drift, by campaign; at most MaxVerifications
	Unverified  []campaign.Verification    // that failed, likewise
	Quarantined []campaign.QuarantineCause // those in most campaigns first; may be incomplete
	Passed      map[string]replay.QuarantinePassed
	Runs        []replay.Run           // the latest back to the first of them that was lost, newest first
	Ended       []operations.Operation // that wait to be acknowledged, the latest first; may be incomplete
	Owners      []finding.Owner        // who is on what
	Findings    finding.List           // what is wrong, the worst first, and last, with finding.OK, what only waits to be read
	Lingering   finding.List           // what is no news any more, and only keeps alerts going
	// Moved is whether anything was applied, or tried and failed, since the last evaluation of alerts.
	Moved bool
}

// MaxVerifications is how many verifications of a kind Facts have.
const MaxVerifications = 200

// Judged are the facts with what they show to be wrong: Findings and Lingering.
func (f Facts) Judged(now time.Time) Facts {
	s := f.Summary
	f.Findings, f.Lingering = nil, nil
	for _, of := range []finding.List{s.FaultFindings(), s.JournalFindings(), f.rowFindings(), inbound.SourceFindings(f.Sources, now), subscription.PublisherFindings(f.Publishers, now, s.PauseEnds), f.driftFindings(), f.versionFindings(),
		f.quarantineFindings(), s.WorkerFindings(now), campaign.InstanceFindings(s.Instances, now), s.HeldFindings(), replay.RunFindings(f.Runs, now), operations.OperationFindings(f.Ended)} {
		for _, one := range of {
			if one.Level == finding.OK && one.Lingers {
				f.Lingering = append(f.Lingering, one)
			} else {
				f.Findings = append(f.Findings, f.Owned(one))
			}
		}
	}
	slices.SortStableFunc(f.Findings, func(a, b finding.Finding) int {
		return cmp.Compare(campaign.KindIndex(a.Kind), campaign.KindIndex(b.Kind))
	})
	f.Findings.Sort()
	f.Summary.Findings = f.Findings
	return f
}

// prepares makes the page of a finding the one that prepares a run.
func prepares(f *finding.Finding, link string, run replay.RunRequest) {
	f.Page, f.Link, f.Runs = campaign.PagePath(run.Query(), "runs", "new"), link, true
}

// rowFindings are rows that are not applied.
func (f Facts) rowFindings() (all finding.List) {
	s := f.Summary
	if n := s.Campaigns.Blocked; n > 0 {
		all = append(all, f.Caused(campaign.Found(campaign.FindsBlocked, "", n, campaign.OfTotal(n, s.Campaigns.Total)+" blocked by a permanently failed event"), func(g campaign.ErrorGroup) int64 { return g.Heads }))
	}
	if n := s.Counts.Failed; n > 0 {
		all = append(all, f.Caused(campaign.Found(campaign.FindsFailing, "", n, event.Count(n, "row has failed and will be retried", "rows have failed and will be retried")), func(g campaign.ErrorGroup) int64 { return g.Failed }))
	}
	if n := s.Campaigns.Paused; n > 0 {
		all = append(all, campaign.Found(campaign.FindsPausedHere, "", n, campaign.OfTotal(n, s.Campaigns.Total)+" paused"+s.PauseEnds.Campaigns()))
	}
	if s.Lag.Events > s.Counts.Failed+s.Counts.Dead {
		all = append(all, campaign.Found(campaign.FindsLag, "", s.Lag.Events, event.Count(s.Lag.Events, "event", "events")+" not yet applied, in "+campaign.Campaigns(s.Campaigns.Lagging)))
	}
	return all
}

// Caused adds the errors of rows; of counts those of an error.
func (f Facts) Caused(one finding.Finding, of func(campaign.ErrorGroup) int64) finding.Finding {
	more := len(f.Groups.Groups) == event.MaxCauses
	groups := slices.DeleteFunc(slices.Clone(f.Groups.Groups), func(g campaign.ErrorGroup) bool { return of(g) == 0 })
	slices.SortStableFunc(groups, func(a, b campaign.ErrorGroup) int { return cmp.Compare(of(b), of(a)) })
	for _, g := range groups {
		if g.FirstAt != nil && (one.Since == nil || g.FirstAt.Before(*one.Since)) {
			one.Since = g.FirstAt
		}
	}
	if len(groups) > 0 {
		one.Error = groups[0].Example
		if tried := groups[0].Tried; len(tried) > 0 {
			one.Build, one.Projection, one.Version = tried[0].Build, tried[0].Projection, tried[0].ProjectionVersion
		}
	}
	if len(groups) > 1 {
		one.Says += ", with " + event.AtLeast(int64(len(groups)), more) + " different errors"
	}
	return one
}

func (f Facts) quarantineFindings() (all finding.List) {
	for _, h := range campaign.QuarantinedAmong(f.Summary.Held) {
		one := campaign.Found(campaign.FindsQuarantine, h.Projection, h.Quarantined, "Projection "+h.Projection+" is quarantined in "+h.Campaigns(h.Quarantined))
		one.Projection, one.Page = h.Projection, campaign.PagePath(url.Values{"projection": {h.Projection}}, "failures")+"#stuck"
		one.Items = []finding.Item{{Name: h.Projection, Note: "for " + h.Campaigns(h.Quarantined), Page: campaign.PagePath(url.Values{"state": {campaign.CursorQuarantined}}, "projections", h.Projection)}}
		for _, q := range f.Quarantined {
			if q.Projection != h.Projection {
				continue
			}
			one.Error = cmp.Or(one.Error, q.Example)
			if one.Since == nil || q.FirstAt.Before(*one.Since) {
				one.Since = &q.FirstAt
			}
		}
		if text := f.Passed[h.Projection].Sentence(h.Quarantined); text != "" {
			one.Does = event.Sentence(text)
			prepares(&one, "Replay what is quarantined…", replay.RunRequest{Kind: replay.RunReplay, All: true, Projections: []string{h.Projection}})
		}
		all = append(all, one)
	}
	return all
}
