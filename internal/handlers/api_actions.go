package handlers

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// viewed makes an action on a campaign answer with the changed campaign.
func (s *server) viewed(act func(context.Context, outbox.Command, string) (outbox.Campaign, error)) actionCall[outbox.ActionRequest, string, campaignView] {
	return func(ctx context.Context, o outbox.Command, id string, _ outbox.ActionRequest) (campaignView, error) {
		c, err := act(ctx, o, id)
		if err != nil {
			return campaignView{}, err
		}
		return s.viewCampaign(c, s.around(ctx)), nil
	}
}
