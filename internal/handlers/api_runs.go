package handlers

import (
	"context"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// resultFilter reads the filter for the results of the run in the address.
func resultFilter(r *http.Request) (f outbox.ResultFilter, err error) {
	id, f, err := asked[outbox.ResultFilter](r, runParam)
	f.RunID = id
	return f, err
}

func (s *server) startRun(ctx context.Context, o outbox.Command, asked outbox.RunStartRequest) (outbox.Run, error) {
	order, err := asked.Order()
	if err != nil {
		return outbox.Run{}, err
	}
	return s.Runs.Start(ctx, o, order, s.Projections)
}

// resumeRun resumes a run with the loaded projections.
func (s *server) resumeRun(ctx context.Context, o outbox.Command, id int64) (outbox.Run, error) {
	return s.Runs.Resume(ctx, o, id, s.Projections)
}

func (s *server) readRunLog(ctx context.Context, id int64, q paging) (outbox.Page[outbox.RunLine], error) {
	return s.Runs.Log(ctx, id, q.Cursor, q.Limit)
}

// verifications are a campaign's latest verifications, one per projection.
type verifications struct {
	Items []outbox.Verification `json:"items"`
}

func (s *server) readVerifications(ctx context.Context, campaign string) (verifications, error) {
	all, err := s.Store.Verifications(ctx, campaign)
	return verifications{all}, err
}
