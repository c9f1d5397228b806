package handlers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/timetravel"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// How long requests wait for the replay of a campaign: a page then shows how far it is, the API is
// busy.
const (
	pagePatience = 1500 * time.Millisecond
	apiPatience  = 8 * time.Second
)

// modelPageQuery is the query of the page, which also shows live rows.
type modelPageQuery struct {
	timetravel.ModelQuery
	Live int `json:"live" validate:"min=0,max=1"`
}

type modelCellQuery struct {
	Seq    int64  `json:"seq" validate:"min=0"` // as of this event; 0 means the last applied one
	Row    string `json:"row" validate:"id"`    // as the read model names it
	Column string `json:"column" validate:"id"`
}

var errNoTravel = event.NotFound("this server does not replay read models")

// readReadModel answers the API with the rows of a campaign as of an event.
func (s *server) readReadModel(ctx context.Context, campaign string, q timetravel.ModelQuery) (timetravel.ReadModel, error) {
	if s.Travel == nil {
		return timetravel.ReadModel{}, errNoTravel
	}
	q.CampaignID = campaign
	return s.Travel.At(ctx, q, apiPatience)
}

// readModelCell reads a cell.
func (s *server) readModelCell(ctx context.Context, campaign string, q modelCellQuery) (h timetravel.ModelHistory, err error) {
	if s.Travel == nil {
		return h, errNoTravel
	}
	return s.Travel.Cell(ctx, timetravel.ModelQuery{CampaignID: campaign, Seq: q.Seq, Row: q.Row}, q.Column, apiPatience)
}

// readChanges answers the API with the rows that one event changed.
func (s *server) readChanges(ctx context.Context, event event.RowKey) (items[timetravel.ModelTable], error) {
	if s.Travel == nil {
		return items[timetravel.ModelTable]{}, errNoTravel
	}
	tables, err := s.Travel.Changes(ctx, event.CampaignID, event.Seq, apiPatience)
	return listOf(tables), err
}

func (s *server) readModelPage(w http.ResponseWriter, r *http.Request) error {
	campaign, q, err := asked[modelPageQuery](r, campaignParam)
	if err != nil {
		return err
	}
	view, err := s.viewReadModel(r, campaign, q)
	if err != nil {
		return err
	}
	p := s.page(r, "Read model of "+ui.ShortID(campaign), "Campaigns")
	p.Twin = s.linksOf(r).API().ReadModel(view.Query)
	if r.Header.Get("HX-Target") == campaigns.ReadModelTarget {
		w.Header().Set("Vary", "HX-Target")
		return s.render(w, r, http.StatusOK, p, pageOf(campaigns.ReadModelPart, view))
	}
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.ReadModelPage, view))
}

// viewReadModel reads the rows as of an event. Until they are replayed, and where they cannot be, it
// reads the live rows if those are asked for.
func (s *server) viewReadModel(r *http.Request, campaign string, q modelPageQuery) (v campaigns.ReadModelView, err error) {
	v.Query = q.ModelQuery
	v.Query.CampaignID = campaign
	if v.Campaign, err = s.Store.Campaign(r.Context(), campaign); err != nil {
		return v, err
	}
	if s.Travel == nil {
		return v, errNoTravel
	}
	held, err := s.Runs.Held(r.Context(), s.Projections, campaign)
	if err != nil {
		return v, err
	}
	v.Held = held[campaign]
	ask := v.Query
	ask.Limit = campaigns.ModelRowsEach
	if q.Table != "" {
		ask.Limit = campaigns.ModelRowsOne
	}
	if q.Live == 0 {
		v.ReadModel, err = s.Travel.At(r.Context(), ask, pagePatience)
		if replaying, ok := errors.AsType[*timetravel.Replaying](err); ok {
			v.Replaying = replaying
		} else if errors.Is(err, event.ErrConflict) || errors.Is(err, event.ErrBusy) {
			v.Why = err.Error()
		} else if err != nil {
			return v, err
		}
	}
	if v.Unread() && v.Query.Seq == 0 {
		if v.ReadModel, err = s.Travel.Live(r.Context(), campaign); err != nil {
			return v, err
		}
		campaigns.CutModel(&v.ReadModel)
	}
	if v.Seq > 0 {
		lines, err := s.Store.EventLines(r.Context(), campaign, v.Seq, v.Seq)
		if err != nil {
			return v, err
		}
		if len(lines) == 1 {
			v.Event = &lines[0]
		}
	}
	return v, nil
}

func (s *server) modelCellPage(w http.ResponseWriter, r *http.Request) error {
	campaign, q, err := asked[modelCellQuery](r, campaignParam)
	if err != nil {
		return err
	}
	h, err := s.readModelCell(r.Context(), campaign, q)
	if err != nil {
		return err
	}
	p := s.page(r, h.Cell.Name+" of "+h.Table, "Campaigns")
	p.Twin = s.linksOf(r).API().ModelCell(h.CampaignID, h.Row, h.Cell.Name, h.Seq)
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.ModelCellPage, h))
}

// rowNames names the sample rows of a result, by projection, for links to what set them.
func (s *server) rowNames(result replay.RunResult) map[string][]string {
	names := map[string][]string{}
	for _, p := range result.Projections {
		if s.Travel == nil || p.Comparison == nil {
			continue
		}
		for _, row := range p.Comparison.Samples {
			names[p.Projection] = append(names[p.Projection], s.Travel.RowName(result.CampaignID, row.Table, row.Key))
		}
	}
	return names
}

// readChanged reads the rows that an event changed, or why there are none to show.
func (s *server) readChanged(ctx context.Context, v *campaigns.EventView) error {
	if s.Travel == nil {
		v.Changed.Why = errNoTravel.Error()
		return nil
	}
	v.Changed.CampaignID, v.Changed.Seq = v.Event.CampaignID, v.Event.Seq
	var err error
	v.Changed.Changes, err = s.Travel.Changes(ctx, v.Event.CampaignID, v.Event.Seq, pagePatience)
	if replaying, ok := errors.AsType[*timetravel.Replaying](err); ok {
		v.Changed.Replaying = replaying
		return nil
	}
	if _, refused := errors.AsType[*event.Refusal](err); refused {
		v.Changed.Why = err.Error()
		return nil
	}
	return err
}
