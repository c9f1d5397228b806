package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
)

// resultFilter reads the filter for the results of the run in the address.
func resultFilter(r *http.Request) (f replay.ResultFilter, err error) {
	id, f, err := asked[replay.ResultFilter](r, runParam)
	f.RunID = id
	return f, err
}

func (s *server) startRun(ctx context.Context, o operator.Command, asked replay.RunStartRequest) (replay.Run, error) {
	order, err := asked.Order()
	if err != nil {
		return replay.Run{}, err
	}
	return s.Runs.Start(ctx, o, order, s.Projections)
}

func (s *server) readRunLog(ctx context.Context, id int64, q paging) (event.Page[replay.RunLine], error) {
	return s.Runs.Log(ctx, id, q.Cursor, q.Limit)
}

// verifications are a campaign's latest verifications, one per projection.
type verifications struct {
	Items []campaign.Verification `json:"items"`
}

func (s *server) readVerifications(ctx context.Context, campaign string) (verifications, error) {
	all, err := s.Store.Verifications(ctx, campaign)
	return verifications{all}, err
}
