package handlers

import (
	"context"
	"net/http"

	"outboxweb/internal/outbox"
)

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
