package handlers

import (
	"context"
	"net/http"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// routeViews adds the forms of views. A view changes nothing but its owner's pages, so these are no
// actions of the registry: viewers may, and no audit record is written. The guards of forms hold.
func (s *server) routeViews() {
	form := func(pattern string, h handler) {
		s.add(route{method: http.MethodPost, pattern: pattern, role: operator.RoleViewer}, s.handle(s.form(h)))
	}
	form("/views", s.saveViewForm)
	form("/views/{view}/rename", s.changeView(s.Search.RenameView))
	form("/views/{view}/remove", s.changeView(func(ctx context.Context, owner string, id int64, _ string) error {
		return s.Search.RemoveView(ctx, owner, id)
	}))
}

// viewForm names a view, and the page to go back to.
type viewForm struct {
	List  string `json:"list" validate:"text,maxbytes=50"`
	Name  string `json:"name" validate:"text,maxbytes=1000"`
	Query string `json:"query" validate:"text,maxbytes=8000"`
}

// backToList returns to the list of the form, with its filters.
func (s *server) backToList(w http.ResponseWriter, r *http.Request, form viewForm) error {
	checked, err := search.CheckView(search.View{List: form.List, Name: "-", Query: form.Query})
	if err != nil {
		return err
	}
	return seeOther(w, s.linksOf(r).View(checked))
}

func (s *server) saveViewForm(w http.ResponseWriter, r *http.Request) error {
	var form viewForm
	if err := fill(&form, r.PostForm); err != nil {
		return err
	}
	v := search.View{List: form.List, Name: form.Name, Query: form.Query}
	if err := s.Search.SaveView(r.Context(), me(r).ViewOwner(), v); err != nil {
		return err
	}
	return s.backToList(w, r, form)
}

func (s *server) changeView(change func(ctx context.Context, owner string, id int64, name string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var form viewForm
		id, err := viewParam(r)
		if err == nil {
			err = fill(&form, r.PostForm)
		}
		if err == nil {
			err = change(r.Context(), me(r).ViewOwner(), id, form.Name)
		}
		if err != nil {
			return err
		}
		return s.backToList(w, r, form)
	}
}

// offered reads what a list's page offers: the reader's views of it, and the values of its filters.
// The page's own filters are what a new view keeps.
func (s *server) offered(r *http.Request, list string) (o ui.Offered, err error) {
	if r.Header.Get("HX-Target") == ui.LiveTarget { // the live part shows neither
		return o, nil
	}
	o.Views = ui.ViewsView{List: list}
	if current, err := search.CheckView(search.View{List: list, Name: "-", Query: r.URL.RawQuery}); err == nil {
		o.Views.Query = current.Query
	}
	if o.Views.All, err = s.Search.Views(r.Context(), me(r).ViewOwner(), list); err != nil {
		return o, err
	}
	if o.Values, err = s.Search.Values(r.Context()); err != nil {
		return o, err
	}
	groups, err := s.Store.ErrorGroups(r.Context())
	for _, g := range groups.Groups[:min(len(groups.Groups), fingerprintsOffered)] {
		o.Fingerprints = append(o.Fingerprints, g.Fingerprint)
	}
	for _, p := range s.Projections {
		o.Projections = append(o.Projections, p.Name)
	}
	return o, err
}

// list is a list with a page of its own, which refreshes itself.
type list[F, T any] struct {
	name        string // as views have it
	read        func(context.Context, F) (event.Page[T], error)
	whole, live func(ui.Page, ui.ListView[F, T]) templ.Component
}

// show answers with the page p of what a filter selects.
func (l list[F, T]) show(s *server, w http.ResponseWriter, r *http.Request, p ui.Page, filter F) error {
	page, err := l.read(r.Context(), filter)
	if err != nil {
		return err
	}
	view := ui.ListView[F, T]{Filter: filter, Page: page}
	if view.Offered, err = s.offered(r, l.name); err != nil {
		return err
	}
	return s.renderLive(w, r, p, pageOf(l.whole, view), pageOf(l.live, view))
}

// fingerprintsOffered is how many errors a filter offers, those with the most dead rows first.
const fingerprintsOffered = 20
