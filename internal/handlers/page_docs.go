package handlers

import (
	"net/http"

	"github.com/a-h/templ"
	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/docs"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/web/templates/system"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// docsQuery is the query of the list of documents.
type docsQuery struct {
	Query string `json:"q" validate:"maxbytes=200"`
}

// docsPage lists the documents, or the results of a search.
func (s *server) docsPage(w http.ResponseWriter, r *http.Request) error {
	var q docsQuery
	if err := fill(&q, r.URL.Query()); err != nil {
		return err
	}
	show := func(p ui.Page) templ.Component { return system.DocsPage(p, q.Query, docs.Search(q.Query)) }
	return s.render(w, r, http.StatusOK, s.plainFrame(r, "Documentation", "Documentation"), plainPage(show))
}

func (s *server) docPage(w http.ResponseWriter, r *http.Request) error {
	d := docs.Named(chi.URLParam(r, "document"))
	if d == nil {
		return event.NotFound("there is no document %q", chi.URLParam(r, "document"))
	}
	show := func(p ui.Page) templ.Component { return system.DocPage(p, *d) }
	nav := "Documentation"
	if d.Name == docs.Operating {
		nav = docs.Operating
	}
	return s.render(w, r, http.StatusOK, s.plainFrame(r, d.Title, nav), plainPage(show))
}

// operating redirects from the runbook's former address.
func (s *server) operating(w http.ResponseWriter, r *http.Request) error {
	http.Redirect(w, r, string(s.linksOf(r).Operating("")), http.StatusPermanentRedirect)
	return nil
}
