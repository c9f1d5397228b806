package overview

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/charts"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// How many errors, and how many campaigns of each, a page shows.
const (
	causesShown     = 8
	campaignsShown  = 3 // on the overview
	campaignsOnPage = 5 // on the page of all failures
)

// causeView is an error group as a block.
type causeView struct {
	campaign.AssessedGroup
	Shown int             // the maximum number of campaigns to name
	Own   bool            // the block is on the page of failures
	On    finding.Finding // that it is a cause of, where it comes first; the zero value otherwise
	Lead  bool            // it comes first of what needs attention: the only one with a button that leads the way
	After *samples.Marker // the last deploy before it; nil if none is known
	// Explained is why one of its events fails, where the page shows it alone; nil if it is not known
	Explained *projection.EventExplanation
}

// An error that was first seen within blamedFor of a deploy is put down to it. Of one that was
// first seen later, up to namedFor, the deploy is named with how long before it was.
const (
	blamedFor = 5 * time.Minute
	namedFor  = time.Hour
)

// deployBefore is the last deploy, or change of a failing projection, before an error was first
// seen; nil if none is marked, or if what ran before that had the error, too.
func deployBefore(markers []samples.Marker, g campaign.ErrorGroup) *samples.Marker {
	if g.FirstAt == nil {
		return nil
	}
	for i, m := range slices.Backward(markers) {
		ago := g.FirstAt.Sub(m.At)
		changed := m.Kind == samples.MarkerVersion && slices.ContainsFunc(g.Tried, func(t campaign.Tried) bool { return t.Projection == m.Subject })
		if ago >= 0 && ago < namedFor && (changed || m.Kind == samples.MarkerDeploy) {
			earlier := g.EarlierAt != nil && g.EarlierAt.Before(m.At) && ranAt(markers[:i+1], *g.EarlierAt) != m.Version
			if earlier || happenedBefore(markers[:i+1], g) {
				return nil
			}
			return &m
		}
	}
	return nil
}

// ranAt is the build, or the version of the projection, that ran at a time before the last of the markers,
// by those before it; empty if it is not known.
func ranAt(markers []samples.Marker, at time.Time) (version string) {
	m := markers[len(markers)-1]
	for _, one := range markers {
		switch {
		case one.Kind != m.Kind || m.Kind == samples.MarkerVersion && one.Subject != m.Subject:
		case one.At.After(at):
			if version == "" {
				version = one.Previous
			}
		default:
			version = one.Version
		}
	}
	return version
}

// happenedBefore reports whether an error happened with a build or version that ran before the last of the
// markers, such as on another host, or after a rollback.
func happenedBefore(markers []samples.Marker, g campaign.ErrorGroup) bool {
	m := markers[len(markers)-1]
	before := map[string]bool{}
	for _, one := range markers {
		if one.Kind == m.Kind && (m.Kind == samples.MarkerDeploy || one.Subject == m.Subject) {
			before[one.Previous], before[one.Version] = true, true
		}
	}
	return slices.ContainsFunc(g.Tried, func(t campaign.Tried) bool {
		version, known := t.Build, true
		if m.Kind == samples.MarkerVersion {
			version, known = t.ProjectionVersion, t.Projection == m.Subject
		}
		return known && version != "" && version != m.Version && before[version]
	})
}

func causesOf(groups []campaign.AssessedGroup, shown int) []causeView {
	all := make([]causeView, len(groups))
	for i, g := range groups {
		all[i] = causeView{AssessedGroup: g, Shown: shown}
	}
	return all
}

// hue is dead where the error blocks something, or will not be retried.
func (c causeView) hue() string { return "s-" + string(groupStatus(c.ErrorGroup)) }

func (c causeView) worst() []campaign.CauseCampaign { return c.Worst[:min(len(c.Worst), c.Shown)] }

// requeues reports whether the reader may start an operation for the error. While one runs, another
// for the remaining rows is offered only on the page of failures.
func (c causeView) requeues(p ui.Page) bool {
	return c.Dead > 0 && (c.Own || c.Operation == nil) && p.Offers(operator.ActionOperationStart)
}

func (c causeView) requeueLink(p ui.Page) ui.URL {
	rows := operations.Selection{Filter: campaign.RequeueFilter{Fingerprint: c.Fingerprint}}
	if c.RehearsedHeads > 0 && !c.PartlyRehearsed() {
		return p.Links.CanaryOf(c.Rehearsal, rows)
	}
	return p.Links.NewOperation(rows)
}

// statement links to what is known about the failing statement: the error's page, and from the page
// of all errors the event that fails in the worst campaign; empty if none does, or the page shows it.
func (c causeView) statement(p ui.Page) ui.URL {
	switch {
	case c.Explained != nil:
		return ""
	case !c.Own:
		return p.Links.FailureGroup(c.Fingerprint)
	case len(c.Worst) > 0:
		return p.Links.Event(c.Worst[0].CampaignID, c.Worst[0].HeadSeq)
	}
	return ""
}

// primary is the class of the button that leads the way, where the block has one.
func (c causeView) primary(leads bool) string {
	if leads && (c.Own || c.Lead) {
		return "primary"
	}
	return ""
}

// rehearseClass makes the rehearsal the way forward where the statement is shown already, or where only
// some campaigns were rehearsed.
func (c causeView) rehearseClass() string {
	return c.primary(c.Explained != nil || c.Remedy() == campaign.RemedyRehearse)
}

// rowsLink lists the rows of the error. Of events that would fail there is no list: its page names the worst.
func (c causeView) rowsLink(p ui.Page) ui.URL {
	if c.OnlyRehearsed() {
		return p.Links.FailureGroup(c.Fingerprint)
	}
	return p.Links.Rows(campaign.RowFilter{Status: groupStatus(c.ErrorGroup), Fingerprint: c.Fingerprint})
}

// triedShown is the maximum number of builds and versions that a block names.
const triedShown = 3

// tried are the builds and versions that the error happened with, latest first.
func (c causeView) tried() []campaign.Tried { return c.Tried[:min(len(c.Tried), triedShown)] }

// nowWord says whether a build is the one that is running now, or a version the one that is loaded.
func nowWord(is string, same bool) string {
	if same {
		return is + " now"
	}
	return "not " + is + " now"
}

// eventTypes are the types of a group's rows, in short.
func (c causeView) eventTypes() string {
	const shown = 2
	names := ""
	for i, t := range c.EventTypes {
		if i == shown {
			return names + " and " + ui.Itoa(len(c.EventTypes)-shown) + " more"
		}
		if i > 0 {
			names += ", "
		}
		names += t.Name
	}
	return names
}

// clockTime is a time of day in UTC, with the date if that is another day.
func clockTime(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04") + " UTC"
	}
	return t.Format("2006-01-02 15:04") + " UTC"
}

// heroNumbers are what an operator reads first: how much is behind, when that will be over, how long an event
// takes, and how much of the read models is proven right.
func heroNumbers(p ui.Page, v Overview) []cell {
	s, o := v.Summary, v.Summary.Outlook
	behind := cell{number: ui.Num(s.Lag.Events), name: "Behind", meaning: "Events that are not applied yet", testID: "events-behind",
		hue: string(campaign.StateLagging), zero: s.Lag.Events == 0, link: p.Links.Campaigns(campaign.CampaignFilter{Sort: campaign.SortLag})}
	if !behind.zero {
		behind.sub = "in " + ui.Count(s.Campaigns.Lagging, "campaign", "campaigns")
	}
	if g := o.PerSecond(); o.Empty != "now" && max(g, -g) >= 0.05 {
		behind.sub += " · " + map[bool]string{true: "+", false: "−"}[g > 0] + ui.Rate(max(g, -g)) + "/s"
	}
	if slices.ContainsFunc(s.Held, campaign.HeldProjection.Lacks) {
		behind.sub += ", live projections only"
	}
	empty := cell{number: o.Empty, name: "Empty in", sub: o.Says, meaning: "When workers will have applied what waits, at the pace of the last seconds", testID: "empty-in",
		hue: string(event.Dead), zero: o.Empty != "never", link: p.Links.Campaigns(campaign.CampaignFilter{Sort: campaign.SortAge})}
	p50, p99 := charts.Latency(v.History)
	latency := cell{number: cmp.Or(p50, "idle"), name: "Append to applied", meaning: "Median of the last time that events were applied", testID: "append-to-applied", zero: true, hue: string(event.Processing), link: p.Links.Charts()}
	if p99 != "" {
		latency.sub = "p99 " + p99 + " · "
	}
	if latency.sub += ui.Rate(s.Throughput.AppliedPerSecond) + " applied/s"; p50 == "" {
		latency.sub = "nothing was applied in this period"
	}
	return []cell{behind, empty, latency, v.proven(p)}
}

// proven is how many of the campaigns the last verify of all found right, and that still exist.
func (v Overview) proven(p ui.Page) cell {
	c := cell{number: "not yet", name: "Read models proven right", sub: "no verify has compared all campaigns lately", meaning: "Campaigns whose rows a verify of all found to be what the journal makes, with no drift known since", testID: "proven",
		hue: string(campaign.StateDrifted), zero: true, link: p.Links.Runs(replay.RunFilter{Kind: replay.RunVerify})}
	if r, total := v.Verified, v.Summary.Campaigns.Total; r != nil && total > 0 {
		wrong := max(r.Counts.Drifted, v.Summary.Campaigns.Drifted) + r.Counts.NotCompared + r.Counts.Failed
		right := max(r.Campaigns.Done-wrong, 0)
		c.number = strconv.FormatFloat(math.Floor(float64(right)/float64(max(total, r.Campaigns.Done))*1000)/10, 'f', -1, 64) + " %"
		c.sub, c.link, c.zero = "of campaigns, "+ui.Relative(*r.FinishedAt, p.Now), p.Links.RunOf(r.ID), right == total
	}
	return c
}
