package handlers

import (
	"fmt"
	"net/http"
	"time"

	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/overview"
)

type handOverQuery struct {
	File string `json:"file" validate:"omitempty,oneof=true false"` // true is a file that needs nothing else
}

// handedOver is how far back a hand-over tells of what was done.
const handedOver = 24 * time.Hour

func (s *server) handOverPage(w http.ResponseWriter, r *http.Request) error {
	var q handOverQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	all, err := s.queryOverview(r.Context(), samples.Range{Name: samples.RangeNames[0]})
	if err != nil {
		return err
	}
	v := overview.HandOver{Overview: all, Since: s.Now().Add(-handedOver)}
	if v.Paused, err = s.Store.Paused(r.Context(), overview.HandOverActs); err != nil {
		return err
	}
	if v.Acts, err = s.Store.LatestActs(r.Context(), operator.AuditFilter{Outcome: operator.AuditDone, Since: v.Since, Limit: overview.HandOverActs}); err != nil {
		return err
	}
	p := s.overviewFrame(r, sharedOverview{all})
	p.Title, p.Self, p.Twin = "Hand over", s.linksOf(r).HandOver(), s.linksOf(r).API().Summary()
	if q.File == "true" {
		w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="handover-%s.html"`, s.Now().UTC().Format("20060102T150405Z")))
		return s.render(w, r, http.StatusOK, p, pageOf(overview.HandOverFile, v))
	}
	return s.render(w, r, http.StatusOK, p, pageOf(overview.HandOverPage, v))
}
