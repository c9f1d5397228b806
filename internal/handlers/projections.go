package handlers

import (
	"context"
	"errors"
	"net/http"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/projections"
)

// projectionFailures is how many of its open failures a projection's page shows.
const projectionFailures = 5

// knownProjections returns the loaded projections and those that are not loaded any more, with their state
// in the database.
func (s *server) knownProjections(ctx context.Context) ([]campaign.ProjectionInfo, error) {
	all, err := s.Runs.WithUnloaded(ctx, s.Projections)
	if err != nil {
		return nil, err
	}
	return s.Runs.DescribeProjections(ctx, all)
}

// described returns the projection that a request names, with its state in the database.
func (s *server) described(r *http.Request) (campaign.ProjectionInfo, error) {
	name, err := param(r, "name")
	if err != nil {
		return campaign.ProjectionInfo{}, err
	}
	list, err := s.knownProjections(r.Context())
	if err != nil {
		return campaign.ProjectionInfo{}, err
	}
	for _, p := range list {
		if p.Name == name {
			return p, nil
		}
	}
	return campaign.ProjectionInfo{}, event.NotFound("no projection %q is loaded", name)
}

// detailed is described with what is known of its definition.
func (s *server) detailed(r *http.Request) (campaign.ProjectionDetail, error) {
	p, err := s.described(r)
	if err != nil {
		return campaign.ProjectionDetail{}, err
	}
	return s.Store.ProjectionDetail(r.Context(), p)
}

func cursorFilter(r *http.Request) (f campaign.CursorFilter, err error) {
	name, f, err := asked[campaign.CursorFilter](r, pathParam("name"))
	f.Projection = name
	return f, err
}

func (s *server) projectionCursors(ctx context.Context, filter campaign.CursorFilter) (page event.Page[campaign.CampaignCursor], err error) {
	known, err := s.Runs.WithUnloaded(ctx, s.Projections)
	if err != nil {
		return page, err
	}
	return s.Runs.ProjectionCursors(ctx, filter, known)
}

// failureFilter reads the failure filter of a request; unless is the default status.
func failureFilter(unless campaign.FailureStatus) func(*http.Request) (campaign.FailureFilter, error) {
	return func(r *http.Request) (f campaign.FailureFilter, err error) {
		err = fill(&f, r.URL.Query())
		switch f.Status {
		case "":
			f.Status = unless
		case "all":
			f.Status = ""
		}
		return f, err
	}
}

func (s *server) projectionsPage(w http.ResponseWriter, r *http.Request) error {
	list, err := s.knownProjections(r.Context())
	if err != nil {
		return err
	}
	view := projections.ProjectionsView{Loaded: list[:len(s.Projections)]}
	for _, i := range list {
		if i.NotLoaded {
			view.Left = append(view.Left, i)
		}
	}
	p := s.actingPage(r, "Projections", "Projections", "")
	p.Self, p.Twin = s.linksOf(r).Projections(), s.linksOf(r).API().Projections()
	return s.renderActed(w, r, p, pageOf(projections.ProjectionsPage, view), pageOf(projections.ProjectionsLive, view))
}

func (s *server) projectionPage(w http.ResponseWriter, r *http.Request) error {
	view, err := s.readProjection(r)
	if err == nil && view.NotLoaded && view.Version == "" || errors.Is(err, event.ErrNotFound) {
		return s.unloadedPage(w, r, view, err)
	}
	if err != nil {
		return err
	}
	if view.Range, err = s.pageRange(r); err != nil {
		return err
	}
	if view.History, err = s.Samples.History(r.Context(), view.Range); err != nil {
		return err
	}
	p := s.actingPage(r, "Projection "+view.Name, "Projections", "")
	p.Self, p.Twin = s.linksOf(r).ProjectionCursors(view.Filter), s.linksOf(r).API().Projection(view.Name)
	return s.renderActed(w, r, p, pageOf(projections.ProjectionPage, view), pageOf(projections.ProjectionLive, view))
}

// builtFilter names a version of a projection of a request, in whole.
func (s *server) builtFilter(r *http.Request) (f campaign.BuiltFilter, err error) {
	name, f, err := asked[campaign.BuiltFilter](r, pathParam("name"))
	if err != nil {
		return f, err
	}
	version, err := param(r, "version")
	if err != nil {
		return f, err
	}
	f.Projection = name
	f.Version, err = s.Store.WholeVersion(r.Context(), name, version)
	return f, err
}

func (s *server) builtBy(ctx context.Context, f campaign.BuiltFilter) (event.Page[campaign.BuiltCampaign], error) {
	return s.Runs.BuiltBy(ctx, f, s.Projections)
}

func (s *server) versionPage(w http.ResponseWriter, r *http.Request) (err error) {
	var v projections.VersionView
	if v.ProjectionDetail, err = s.detailed(r); err != nil {
		return err
	}
	if v.Filter, err = s.builtFilter(r); err != nil {
		return err
	}
	if v.Built, err = s.builtBy(r.Context(), v.Filter); err != nil {
		return err
	}
	v.Shown.Version = v.Filter.Version
	for _, one := range v.Versions {
		if one.Version == v.Shown.Version {
			v.Shown = one
		}
	}
	p := s.page(r, projections.VersionTitle(v), "Projections")
	p.Twin = s.linksOf(r).API().Version(v.Filter)
	return s.render(w, r, http.StatusOK, p, pageOf(projections.VersionPage, v))
}

// unloadedPage shows what is known of a projection that is not loaded, and the way out. One that
// nothing is known of is missing.
func (s *server) unloadedPage(w http.ResponseWriter, r *http.Request, known projections.ProjectionView, missing error) error {
	name, err := param(r, "name")
	if err != nil {
		return err
	}
	v := projections.UnloadedView{Name: name, Known: known}
	if v.Last, err = s.Store.Definition(r.Context(), name, ""); err != nil {
		return err
	}
	if v.Failures, err = s.Store.ReadModel().Failures(r.Context(), campaign.FailureFilter{Status: campaign.FailureOpen, Projection: name, Limit: projectionFailures}); err != nil {
		return err
	}
	if known.Name == "" && v.Last.Version == "" && len(v.Failures.Items) == 0 {
		return missing
	}
	if v.Acts, err = s.Store.AuditLogOf(r.Context(), activityShownOf, operator.ProjectionTarget(name)); err != nil {
		return err
	}
	if me(r).Role.Includes(operator.ActionRehearse.Role()) {
		v.Text = v.Last.File.Text
	}
	v.Last.File.Text = ""
	return s.render(w, r, http.StatusOK, s.page(r, "Projection "+name, "Projections"), pageOf(projections.UnloadedPage, v))
}

func (s *server) readProjection(r *http.Request) (projections.ProjectionView, error) {
	var v projections.ProjectionView
	var err error
	if v.ProjectionDetail, err = s.detailed(r); err != nil {
		return v, err
	}
	if v.Filter, err = cursorFilter(r); err != nil {
		return v, err
	}
	if v.Cursors, err = s.projectionCursors(r.Context(), v.Filter); err != nil {
		return v, err
	}
	if v.Failures, err = s.Store.ReadModel().Failures(r.Context(), campaign.FailureFilter{Status: campaign.FailureOpen, Projection: v.Name, Limit: projectionFailures}); err != nil {
		return v, err
	}
	if v.Quarantined > 0 && !v.NotLoaded {
		passed, err := s.Runs.QuarantinesPassed(r.Context(), s.Projections)
		if err != nil {
			return v, err
		}
		v.Passed = passed[v.Name]
	}
	v.Acts, err = s.Store.AuditLogOf(r.Context(), activityShownOf, operator.ProjectionTarget(v.Name))
	return v, err
}
