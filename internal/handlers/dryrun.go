package handlers

import (
	"net/http"

	"github.com/outboxweb/outboxweb/internal/admission"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/campaigns"
)

type dryRunQuery struct {
	Next    *int64 `json:"next" validate:"omitnil,min=0" api:"default=10"` // how many events after it to try as well
	Without bool   `json:"without"`                                        // as if the event were skipped
}

// tryRow performs the dry run that an address names.
func (s *server) tryRow(r *http.Request) (v campaigns.DryRunView, err error) {
	row, q, err := asked[dryRunQuery](r, rowParam)
	if err != nil {
		return v, err
	}
	v.CampaignID, v.Seq, v.Without = row.CampaignID, row.Seq, q.Without
	if v.Next = campaigns.DryRunNext; q.Next != nil {
		v.Next = *q.Next
	}
	if s.DryRun == nil {
		return v, event.NotFound("this server cannot run dry runs")
	}
	v.Tried, err = admission.Within(r.Context(), s.trying, func() (replay.RunResult, error) {
		return s.DryRun(r.Context(), v.Trial)
	})
	return v, err
}

func (s *server) readDryRun(r *http.Request) (replay.RunResult, error) {
	v, err := s.tryRow(r)
	return v.Tried, err
}

func (s *server) dryRunPage(w http.ResponseWriter, r *http.Request) error {
	v, err := s.tryRow(r)
	if err != nil {
		return err
	}
	p := s.page(r, campaigns.DryRunTitle(v), "Rows")
	p.Twin = s.linksOf(r).API().DryRun(v.Trial)
	return s.render(w, r, http.StatusOK, p, pageOf(campaigns.DryRunPage, v))
}
