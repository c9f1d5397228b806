package handlers

import (
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/system"
)

func (s *server) instancesPage(w http.ResponseWriter, r *http.Request) error {
	var v system.InstancesView
	var err error
	if v.Range, err = s.pageRange(r); err != nil {
		return err
	}
	if v.List, err = s.Store.Instances(r.Context()); err != nil {
		return err
	}
	if v.History, err = s.Samples.History(r.Context(), v.Range); err != nil && r.Context().Err() == nil {
		// The list tells of a damaged database: it must not need every table.
		slog.ErrorContext(r.Context(), "the chart of instances is not available", "error", err)
	}
	p := s.page(r, "Instances", "Instances")
	p.Self, p.Twin = s.linksOf(r).Instances(), s.linksOf(r).API().Instances()
	return s.renderLive(w, r, p, pageOf(system.InstancesPage, v), pageOf(system.InstancesLive, v))
}

func (s *server) auditPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := filter[operator.AuditFilter](s)(r)
	if err != nil {
		return err
	}
	if relativeTimes(r) {
		return seeOther(w, s.linksOf(r).Audit(filter))
	}
	list, removed, err := s.audit(r.Context(), filter)
	if err != nil {
		return err
	}
	p := s.page(r, "Audit log", "Audit")
	p.Twin = s.linksOf(r).API().Audit(filter)
	view := system.AuditView{Filter: filter, Page: list, RemovedBefore: removed}
	if view.Offered, err = s.offered(r, "audit"); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, p, pageOf(system.AuditPage, view))
}

// cost is the cost of requests since the process started.
type cost struct {
	database.Cost
	requests, nanos atomic.Int64
}

func (c *cost) report() database.CostReport {
	r := c.Report()
	r.Requests, r.RequestSeconds = c.requests.Load(), time.Duration(c.nanos.Load()).Seconds()
	return r
}

func (s *server) readAbout(r *http.Request) (campaign.About, error) {
	a := campaign.About{Version: s.Version, Go: runtime.Version(), Mode: s.Mode, ReadOnly: s.ReadOnly, Settings: s.Settings, Cost: s.cost.report(), Request: s.arrival(r)}
	if a.Settings == nil {
		a.Settings = []database.Setting{}
	}
	var err error
	if a.Databases, err = s.Store.Databases(r.Context()); err != nil {
		return a, err
	}
	a.Reasons = append([]string{}, s.Store.Ready(r.Context())...)
	a.Ready = len(a.Reasons) == 0
	a.Projections, err = s.Runs.DescribeProjections(r.Context(), s.Projections)
	return a, err
}

func (s *server) aboutPage(w http.ResponseWriter, r *http.Request) error {
	a, err := s.readAbout(r)
	if err != nil {
		return err
	}
	p := s.page(r, "About", "About")
	p.Twin = s.linksOf(r).API().About()
	return s.render(w, r, http.StatusOK, p, pageOf(system.AboutPage, system.Setup{About: a, Limits: s.limits()}))
}
