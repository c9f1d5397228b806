package handlers

import (
	"context"
	"net/http"

	"outboxweb/internal/outbox"
)

func (s *server) apiRequeueRow(w http.ResponseWriter, r *http.Request) error {
	return s.apiRowAct(w, r, s.decodeConfirmed, s.Store.RequeueRow)
}

func (s *server) apiRetryRow(w http.ResponseWriter, r *http.Request) error {
	return s.apiRowAct(w, r, s.decodeOrder, s.Store.RetryRow)
}

func (s *server) apiDeadLetterRow(w http.ResponseWriter, r *http.Request) error {
	return s.apiRowAct(w, r, s.decodeOrder, s.Store.DeadLetterRow)
}

// apiRowAct does an act on one row, of which decode reads the body.
func (s *server) apiRowAct(w http.ResponseWriter, r *http.Request, decode func(*http.Request) (outbox.Order, error), act func(context.Context, outbox.Order, string, int64) (outbox.Row, error)) error {
	campaign, seq, err := rowParams(r)
	if err != nil {
		return err
	}
	order, err := decode(r)
	if err != nil {
		return err
	}
	row, err := act(r.Context(), order, campaign, seq)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, row)
}

func (s *server) apiRequeueDead(w http.ResponseWriter, r *http.Request) error {
	var body requeueDeadBody
	if err := decode(r, &body); err != nil {
		return err
	}
	order := s.order(r, "api", body.Reason, nil)
	order.Confirm = body.Confirm
	result, err := s.Store.RequeueDead(r.Context(), order, body.filter())
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, result)
}

func (s *server) apiRetryFailed(w http.ResponseWriter, r *http.Request) error {
	var body requeueBody
	if err := decode(r, &body); err != nil {
		return err
	}
	result, err := s.Store.RetryFailed(r.Context(), s.order(r, "api", body.Reason, nil), body.filter())
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, result)
}

func (s *server) apiPause(w http.ResponseWriter, r *http.Request) error {
	return apiCampaignAct(s, w, r, s.pause)
}

func (s *server) apiResume(w http.ResponseWriter, r *http.Request) error {
	return apiCampaignAct(s, w, r, s.resume)
}

func (s *server) apiReplay(w http.ResponseWriter, r *http.Request) error {
	return apiCampaignAct(s, w, r, s.Store.ReplayCampaign)
}

func apiCampaignAct[R any](s *server, w http.ResponseWriter, r *http.Request, act func(context.Context, outbox.Order, string) (R, error)) error {
	id, err := campaignParam(r)
	if err != nil {
		return err
	}
	order, err := s.decodeOrder(r)
	if err != nil {
		return err
	}
	result, err := act(r.Context(), order, id)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, result)
}

func (s *server) pause(ctx context.Context, o outbox.Order, id string) (campaignView, error) {
	return s.viewChanged(ctx, s.Store.PauseCampaign, o, id)
}

func (s *server) resume(ctx context.Context, o outbox.Order, id string) (campaignView, error) {
	return s.viewChanged(ctx, s.Store.ResumeCampaign, o, id)
}

func (s *server) viewChanged(ctx context.Context, act func(context.Context, outbox.Order, string) (outbox.Campaign, error), o outbox.Order, id string) (campaignView, error) {
	c, err := act(ctx, o, id)
	if err != nil {
		return campaignView{}, err
	}
	return s.viewCampaign(c, s.around(ctx)), nil
}

func (s *server) apiRepairGaps(w http.ResponseWriter, r *http.Request) error {
	order, err := s.decodeOrder(r)
	if err != nil {
		return err
	}
	repaired, err := s.Store.RepairGaps(r.Context(), order)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, repaired)
}
