package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// viewed makes an action on a campaign answer with the changed campaign.
func (s *server) viewed(act actionCall[string, outbox.Campaign]) actionCall[string, campaignView] {
	return func(ctx context.Context, o outbox.Command, id string) (campaignView, error) {
		c, err := act(ctx, o, id)
		if err != nil {
			return campaignView{}, err
		}
		return s.viewCampaign(c, s.around(ctx)), nil
	}
}

func (b requeueBody) why() (reason, confirm string)     { return b.Reason, "" }
func (b requeueDeadBody) why() (reason, confirm string) { return b.Reason, b.Confirm }

// readRowsAction reads actions on the rows that a filter selects; the API sends it as a B.
func readRowsAction[B interface {
	reasoned
	filter() outbox.RequeueFilter
}](s *server) func(*http.Request) (actionRequest[outbox.RequeueFilter], error) {
	return func(r *http.Request) (a actionRequest[outbox.RequeueFilter], err error) {
		var body B
		if err := decode(r, &body); err != nil {
			return a, err
		}
		reason, confirm := body.why()
		a.on, a.order = body.filter(), s.command(r, "api", reason, nil)
		a.order.Confirm = confirm
		return a, nil
	}
}

// readGlobalAction reads actions without an object.
func (s *server) readGlobalAction(r *http.Request) (a actionRequest[struct{}], err error) {
	a.order, err = s.decodeCommand(r)
	return a, err
}

func (s *server) repairGaps(ctx context.Context, o outbox.Command, _ struct{}) (outbox.Repaired, error) {
	return s.maintenance.RepairGaps(ctx, o)
}
