package handlers

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func (s *server) campaignsPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[campaign.CampaignFilter](s)(r)
	if err != nil {
		return err
	}
	if filter.Sort == "" {
		filter.Sort = campaign.SortTrouble
	}
	p := s.page(r, "Campaigns", "Campaigns")
	p.Self, p.Twin = s.linksOf(r).Campaigns(filter), s.linksOf(r).API().Campaigns(filter)
	shown := list[campaign.CampaignFilter, campaignView]{"campaigns", s.viewCampaigns, campaigns.CampaignsPage, campaigns.CampaignsLive}
	return shown.show(s, w, r, p, filter)
}

// Numbers of events in the list and the timeline of a campaign's page, some of them before the next
// event to apply.
const (
	eventsShown    = 20
	eventsBefore   = 5
	timelineShown  = 40
	timelineBefore = 12
)

func (s *server) campaignPage(w http.ResponseWriter, r *http.Request) error {
	id, q, err := asked[campaignPageQuery](r, campaignParam)
	if err != nil {
		return err
	}
	over, err := s.pageRange(r)
	if err != nil {
		return err
	}
	view, err := s.readCampaign(r.Context(), id, q, over)
	if err != nil {
		return err
	}
	p := s.actingPage(r, "Campaign "+ui.ShortID(id), "Campaigns", view.Fingerprint)
	p.Around = s.around(r.Context())
	p.Self, p.Twin = s.linksOf(r).Campaign(id), s.linksOf(r).API().Campaign(id)
	if q.AfterSeq != nil {
		p.Self = s.linksOf(r).CampaignAfter(id, *q.AfterSeq)
	}
	return s.renderActed(w, r, p, pageOf(campaigns.CampaignPage, view), pageOf(campaigns.CampaignLive, view))
}

type campaignPageQuery struct {
	AfterSeq *int64 `json:"after_seq" validate:"omitnil,min=0"`
}

// readCampaign reads the view of a campaign's page: the events after the requested seq, or those
// around the next one to apply.
func (s *server) readCampaign(ctx context.Context, id string, q campaignPageQuery, over samples.Range) (campaigns.CampaignView, error) {
	v := campaigns.CampaignView{Shown: eventsShown}
	var err error
	if v.Campaign, err = s.Store.Campaign(ctx, id); err != nil {
		return v, s.Intake.Explained(ctx, id, err)
	}
	c := v.Campaign
	v.After = max(0, min(c.AppliedSeq-eventsBefore, c.HighWaterSeq-eventsShown))
	switch {
	case q.AfterSeq != nil:
		v.After = *q.AfterSeq
	case over.Free():
		if v.After, err = s.Store.SeqBefore(ctx, c, over.From); err != nil {
			return v, err
		}
	}
	after := min(v.After, c.HighWaterSeq) // keeps the sum below from overflowing
	first := max(1, min(c.AppliedSeq+1-timelineBefore, c.HighWaterSeq-timelineShown+1))
	if v.Timeline, err = s.Store.EventLines(ctx, id, first, first+timelineShown-1); err != nil {
		return v, err
	}
	if after+1 >= first && after+eventsShown < first+timelineShown { // same range as around the next event
		v.Events = linesBetween(v.Timeline, after+1, after+eventsShown)
	} else if v.Events, err = s.Store.EventLines(ctx, id, after+1, after+eventsShown); err != nil {
		return v, err
	}
	if v.Cursors, err = s.Runs.Cursors(ctx, id, s.Projections); err != nil {
		return v, err
	}
	if v.Verifications, err = s.Store.Verifications(ctx, id); err != nil {
		return v, err
	}
	if v.Rejecting, err = s.Intake.Blocking(ctx, id); err != nil {
		return v, err
	}
	if c.HeadStatus.Stuck() {
		head, err := s.Queue.Rows(ctx, campaign.RowFilter{CampaignID: id, Limit: 1})
		if err != nil {
			return v, err
		}
		if len(head.Items) == 1 {
			v.Cause, v.Fingerprint = head.Items[0].LastError, head.Items[0].Fingerprint
		}
	}
	v.History.Range = over
	if v.History.Points, err = s.Samples.CampaignHistory(ctx, id, over); err != nil {
		return v, err
	}
	if w := over.Window(s.Now()); w.To.After(w.Now) {
		v.History.Points = append(v.History.Points, samples.CampaignPoint{At: w.Now, LagEvents: c.LagEvents()})
	}
	if v.History.Markers, err = s.Samples.History(ctx, over); err != nil {
		return v, err
	}
	v.History.Markers.Markers = slices.DeleteFunc(slices.Clone(v.History.Markers.Markers), func(m samples.Marker) bool { return !m.About(id) })
	if v.Skips, err = s.Store.Skips(ctx, event.SkipFilter{CampaignID: id, Limit: skipsShown}); err != nil {
		return v, err
	}
	acts, err := s.Store.AuditLog(ctx, operator.AuditFilter{CampaignID: id, Limit: activityShownOf})
	v.Acts = acts.Items
	return v, err
}

// linesBetween returns the lines from seq first to seq last.
func linesBetween(lines []campaign.EventLine, first, last int64) []campaign.EventLine {
	bySeq := func(l campaign.EventLine, seq int64) int { return cmp.Compare(l.Seq, seq) }
	from, _ := slices.BinarySearchFunc(lines, first, bySeq)
	to, _ := slices.BinarySearchFunc(lines, last+1, bySeq)
	return lines[from:to]
}
