package handlers

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

type eventPageQuery struct {
	Tab string `json:"tab" validate:"omitempty,oneof=payload rows neighbours details"`
}

// rowRedirect leads from the address that a row once had to its event's page.
func (s *server) rowRedirect(w http.ResponseWriter, r *http.Request) error {
	row, err := rowParam(r)
	if err != nil {
		return err
	}
	if _, err := s.Store.EventWithin(r.Context(), row.CampaignID, row.Seq, 0); err != nil {
		return err
	}
	to := s.linksOf(r).Event(row.CampaignID, row.Seq)
	if r.URL.RawQuery != "" {
		to += ui.URL("?" + r.URL.RawQuery)
	}
	return seeOther(w, to)
}

func (s *server) eventPage(w http.ResponseWriter, r *http.Request) error {
	row, q, err := asked[eventPageQuery](r, rowParam)
	if err != nil {
		return err
	}
	campaign, seq := row.CampaignID, row.Seq
	view, err := s.readEvent(r.Context(), campaign, seq, ui.EventTab(q.Tab))
	if err != nil {
		return err
	}
	cause := ""
	if view.Row != nil && view.RowStatus.Stuck() {
		cause = view.Row.Row.Fingerprint
	}
	p := s.actingPage(r, campaigns.EventTitle(campaign, seq), "Events", cause)
	p.Around = s.around(r.Context())
	p.Twin = s.linksOf(r).API().Event(campaign, seq)
	if view.Tab != ui.TabPayload { // whose parts stay open: a document never changes
		p.Self = s.linksOf(r).EventTab(campaign, seq, view.Tab)
	}
	if view.Row != nil {
		p.Twin = s.linksOf(r).API().Row(campaign, seq)
	}
	return s.renderActed(w, r, p, pageOf(campaigns.EventPage, view), pageOf(campaigns.EventLive, view))
}

// readEvent reads what a tab of an event's page shows.
func (s *server) readEvent(ctx context.Context, campaign string, seq int64, tab ui.EventTab) (campaigns.EventView, error) {
	v := campaigns.EventView{Tab: tab}
	var err error
	if v.EventDetail, err = s.Store.EventWithin(ctx, campaign, seq, campaigns.InlineDocument); err != nil {
		return v, err
	}
	if err := s.readRowOf(ctx, &v); err != nil {
		return v, err
	}
	if held, err := s.Runs.Held(ctx, s.Projections, campaign); err == nil { // the page says so if they cannot be read
		v.Held = held[campaign]
	}
	s.explain(ctx, &v)
	switch tab {
	case ui.TabHappened:
		return v, s.readHappened(ctx, &v)
	case ui.TabNeighbours:
		return v, s.readNear(ctx, &v)
	case ui.TabRows:
		return v, s.readChanged(ctx, &v)
	}
	return v, nil
}

// readRowOf reads the event's row, if it has one, and its campaign in the same state.
func (s *server) readRowOf(ctx context.Context, v *campaigns.EventView) error {
	row, err := s.Queue.RowWithin(ctx, v.Event.CampaignID, v.Event.Seq, 0)
	switch {
	case err == nil:
		v.Row, v.RowStatus, v.Campaign = &row, row.Row.Status, row.Campaign
		return nil
	case !errors.Is(err, event.ErrNotFound):
		return err
	}
	v.RowStatus = "" // it was applied in the meantime
	v.Campaign, err = s.Store.Campaign(ctx, v.Event.CampaignID)
	return err
}

// explain adds why projections fail at the event. The page does not depend on it: the databases may
// be busy with what is wrong.
func (s *server) explain(ctx context.Context, v *campaigns.EventView) {
	if s.Explain == nil || v.Sizes.Payload > runs.ExplainedBytes {
		return
	}
	x, err := s.explanation(ctx, event.RowKey{CampaignID: v.Event.CampaignID, Seq: v.Event.Seq})
	v.Explained, v.Unexplained = x.Failures, err != nil
}

// explanation explains an event's failures, once a slot is free: it reads the whole event.
func (s *server) explanation(ctx context.Context, e event.RowKey) (projection.EventExplanation, error) {
	if s.Explain == nil {
		return projection.EventExplanation{}, event.NotFound("this server does not explain errors")
	}
	return admission.Within(ctx, s.reading, func() (projection.EventExplanation, error) {
		return s.Explain(ctx, redact.Of(s.Redact), e.CampaignID, e.Seq)
	})
}

// explainExample explains the event at which a campaign fails; nil if that cannot be done just now.
func (s *server) explainExample(ctx context.Context, c campaign.CauseCampaign) *projection.EventExplanation {
	x, err := s.explanation(ctx, event.RowKey{CampaignID: c.CampaignID, Seq: c.HeadSeq})
	if err != nil || len(x.Failures) == 0 {
		return nil
	}
	return &x
}

func (s *server) readHappened(ctx context.Context, v *campaigns.EventView) (err error) {
	if v.History, err = s.Runs.EventHistory(ctx, v.Event.CampaignID, v.Event.Seq); err != nil {
		return err
	}
	if cursors, err := s.Runs.Cursors(ctx, v.Event.CampaignID, s.Projections); err == nil { // the page says so if they cannot be read
		v.Remade = slices.ContainsFunc(cursors, func(c campaign.Cursor) bool { return c.Generation > 1 })
	}
	acts, err := s.Store.AuditLog(ctx, operator.AuditFilter{CampaignID: v.Event.CampaignID, Seq: v.Event.Seq, Limit: activityShownOf})
	v.Acts = acts.Items
	return err
}

// Numbers of events on each side of one: those listed with it, and those looked through for the
// same entity.
const (
	nearShown   = 5
	alikeWithin = 250
)

func (s *server) readNear(ctx context.Context, v *campaigns.EventView) error {
	seq := v.Event.Seq
	lines, err := s.Store.EventLines(ctx, v.Event.CampaignID, max(1, seq-alikeWithin), seq+alikeWithin)
	if err != nil {
		return err
	}
	v.Near = linesBetween(lines, seq-nearShown, seq+nearShown)
	v.Alike = campaigns.AlikeOf(v.Event, lines, alikeWithin)
	return nil
}
