// Package campaigns holds the pages of campaigns, their events, rows and read models, and of searching them.
package campaigns

import (
	"slices"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func campaignsForm(p ui.Page, f campaign.CampaignFilter) ui.FilterForm {
	if f.Sort == campaign.SortTrouble { // the order of the page
		f.Sort = ""
	}
	return ui.FilterForm{Filter: f, To: p.Links.Campaigns(campaign.CampaignFilter{}), Does: "Show", First: []string{"q"}, Words: map[string][]ui.Option{
		"sort": {{Value: "", Words: "needs attention first"}, {Value: "id", Words: "id"}, {Value: "lag", Words: "most events behind"}, {Value: "age", Words: "oldest unapplied event"}},
	}}
}

// eventsBefore returns where a campaign's list of events starts so that it ends just before the one
// shown first; ok is false at the journal's start.
func eventsBefore(after int64, shown int) (start int64, ok bool) {
	if after <= 0 {
		return 0, false
	}
	return max(0, after-int64(max(shown, 1))), true
}

func headAction(p ui.Page, c campaign.Campaign) ui.URL {
	return p.Links.Action(campaign.HeadActions(c.HeadStatus)[0], c.CampaignID, ui.Itoa(c.HeadSeq))
}

// campaignGuides are the guides for what blocks a campaign.
var campaignGuides = map[campaign.State]ui.Guide{campaign.StateDiverged: ui.GuideDiverged, campaign.StateBlocked: ui.GuideDead, campaign.StateFailing: ui.GuideFailed,
	campaign.StateUnverifiable: ui.GuideUnverifiable, campaign.StateDrifted: ui.GuideWrong, campaign.StateLagging: ui.GuideLag}

// campaignGuide is the guide for a campaign: where it lags since no worker is running, that for workers.
func campaignGuide(p ui.Page, c campaign.Campaign) ui.Guide {
	if c.State() == campaign.StateLagging && len(p.Findings.Of(campaign.FindsWorker)) > 0 {
		return ui.GuideWorker
	}
	return campaignGuides[c.State()]
}

// sortable is one of the orders of campaigns: its own direction first, then the other.
func sortable(p ui.Page, f campaign.CampaignFilter, by campaign.CampaignSort, own, other string) (o ui.Order) {
	chosen := f.Sort == by
	if chosen {
		o.Sorted = own
		if f.Reverse {
			o.Sorted = other
		}
	}
	f.Sort, f.Reverse, f.Cursor = by, chosen && !f.Reverse, ""
	o.To = p.Links.Campaigns(f)
	return o
}

// pct is how much of the journal is applied, 0 to 100.
func pct(c campaign.Campaign) string {
	if c.HighWaterSeq == 0 {
		return "100"
	}
	return strconv.FormatInt(min(100, max(0, c.AppliedSeq*100/c.HighWaterSeq)), 10)
}

// behindName is the label for unapplied events: in a diverged campaign the projections are not
// simply behind.
func behindName(c campaign.Campaign) string {
	if c.Diverged != "" {
		return "Waiting"
	}
	return "Behind"
}

// verificationDiffers says how live rows of a campaign differed, or nothing.
func verificationDiffers(p ui.Page, of CampaignView, v campaign.Verification) string {
	c := projection.Comparison{Added: v.Added, Changed: v.Changed, Removed: v.Removed, FirstSeq: v.FirstSeq, ReplayedWith: campaign.ReplayedWith{Version: v.Version}}
	if !c.Differs() {
		return ""
	}
	if v.Outdated {
		return ui.Sentence(jobs.ChangeCounts(c, jobs.VerifySides) + ", compared with " + campaign.OutdatedWords(p.Loaded, v))
	}
	if i := slices.IndexFunc(of.Cursors, func(one campaign.Cursor) bool { return one.Projection == v.Projection }); i >= 0 {
		c.RowsBuilt = of.Cursors[i].RowsBuilt
	}
	return ui.Sentence(jobs.ChangeCounts(c, jobs.VerifySides) + jobs.FirstDivergence(c))
}
