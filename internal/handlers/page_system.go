package handlers

import (
	"fmt"
	"net/http"

	"outboxweb/web/templates"
)

func (s *server) projectionsPage(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Store.DescribeProjections(r.Context(), s.Projections)
	if err != nil {
		return err
	}
	p := s.page(r, "Projections", "Projections")
	p.Twin = s.links.API().Projections()
	return s.render(w, r, http.StatusOK, templates.ProjectionsPage(p, list))
}

func (s *server) instancesPage(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Store.Instances(r.Context())
	if err != nil {
		return err
	}
	p := s.page(r, "Instances", "Instances")
	p.Self, p.Twin = s.links.Instances(), s.links.API().Instances()
	return s.renderLive(w, r, p, templates.InstancesPage(p, list), templates.InstancesLive(p, list))
}

func (s *server) auditPage(w http.ResponseWriter, r *http.Request) error {
	filter, err := actFilter(r)
	if err != nil {
		return err
	}
	list, err := s.Store.Acts(r.Context(), filter)
	if err != nil {
		return err
	}
	p := s.page(r, "Audit", "Audit")
	p.Twin = s.links.API().Audit(filter)
	return s.render(w, r, http.StatusOK, templates.AuditPage(p, templates.AuditView{Filter: filter, Page: list}))
}

func (s *server) aboutPage(w http.ResponseWriter, r *http.Request) error {
	migrations, err := s.Store.Migrations(r.Context())
	if err != nil {
		return err
	}
	setup := templates.Setup{
		Reasons: s.Store.Ready(r.Context()),
		Limits: []templates.Limit{
			{Name: "Body of an append", Value: fmt.Sprintf("%d MiB", maxAppendBody>>20)},
			{Name: "Body of an act", Value: fmt.Sprintf("%d KiB", maxActBody>>10)},
			{Name: "Items in a page of a list", Value: "50, at most 200"},
			{Name: "Rows requeued at once", Value: "100, at most 10,000"},
			{Name: "Waiting for the projections", Value: fmt.Sprintf("%s, at most %s", defaultWait, longestWait)},
		},
	}
	for _, m := range migrations {
		if n := len(setup.Databases); n > 0 && setup.Databases[n-1].Name == m.Database {
			setup.Databases[n-1].Version = max(setup.Databases[n-1].Version, m.Version)
			continue
		}
		setup.Databases = append(setup.Databases, templates.Database{Name: m.Database, Version: m.Version})
	}
	return s.render(w, r, http.StatusOK, templates.AboutPage(s.page(r, "About", "About"), setup))
}
