package handlers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// statusHeader carries the status of an error that htmx gets with 200. Browsers log every other
// status of a script's request to their console.
const statusHeader = "Outboxweb-Status"

// byHTMX reports whether a page's script sent the request rather than the browser itself.
func byHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// failStatus returns the status to answer an error with. Only 401 is sent unchanged to htmx too:
// proxies act on it.
func failStatus(w http.ResponseWriter, r *http.Request, p problem) int {
	if !byHTMX(r) {
		return p.Status
	}
	w.Header().Set(statusHeader, strconv.Itoa(p.Status))
	if p.Status == http.StatusUnauthorized {
		return p.Status
	}
	return http.StatusOK
}

// failInPlace shows htmx an error without replacing the page. It reports false if a page shows the
// error better.
func (s *server) failInPlace(w http.ResponseWriter, r *http.Request, p problem) bool {
	h := w.Header()
	switch {
	case !byHTMX(r):
		return false
	case r.Header.Get("HX-Target") == templates.LiveTarget: // its script shows the error
		h.Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(failStatus(w, r, p))
		_, _ = io.WriteString(w, templates.Visible(outbox.Sentence(p.Detail))) // the client may have disconnected
		return true
	case r.Method != http.MethodPost:
		return false
	}
	h.Set("HX-Push-Url", "false")
	h.Set("HX-Retarget", "this")
	h.Set("HX-Reswap", "afterbegin show:none")
	if err := s.render(w, r, failStatus(w, r, p), s.plainFrame(r, "", ""), pageOf(templates.Refusal, s.problemView(r, p))); err != nil {
		s.Logger.Error("render the refusal of a form", outbox.RequestIDs(r.Context()), "err", err)
	}
	return true
}

type formAgainKey struct{}

// failAtForm answers a refused form with its page, read again: the error is shown at the form, and
// its fields keep the submitted values. It reports false if there is no such page.
func (s *server) failAtForm(w http.ResponseWriter, r *http.Request, p problem) bool {
	if p.badQuery || r.Context().Value(formAgainKey{}) != nil || r.Header.Get("HX-Target") == templates.LiveTarget {
		return false
	}
	form := templates.RefusedForm{Method: r.Method, Path: s.outside(r), Problem: s.problemView(r, p), Focus: "autofocus"}
	if byHTMX(r) {
		form.Focus = "data-focus" // the script sets the focus: browsers log a warning about a late autofocus
	}
	var pages []string // candidate pages, the likeliest first
	switch {
	case len(r.PostForm) > 0:
		form.Values = r.PostForm
		pages = []string{r.PostForm.Get(templates.FromField), r.Referer(), form.Path + "?" + r.PostForm.Encode(), string(s.back(r))}
	case r.Method == http.MethodGet && r.URL.RawQuery != "" && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusConflict):
		form.Values, pages = r.URL.Query(), []string{form.Path}
	}
	page, found := s.pageOf(r, form, pages)
	if page == nil || !found && r.Method == http.MethodGet {
		return false
	}
	h := w.Header()
	h.Set("HX-Push-Url", "false") // the address bar keeps the form's page
	h.Set("HX-Reswap", "innerHTML show:none")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(failStatus(w, r, p))
	_, _ = w.Write(page) // the client may have disconnected
	return true
}

// pageOf returns the first page that has the form, or else the first that can be shown, with the
// refusal on it.
func (s *server) pageOf(r *http.Request, form templates.RefusedForm, addresses []string) (page []byte, found bool) {
	for _, address := range addresses {
		shown, err := s.pageAt(r, address)
		if err != nil {
			continue
		}
		form.From = address
		again, found, err := form.PutInto(r.Context(), s.plainFrame(r, "", ""), shown)
		if err != nil {
			s.Logger.Error("show a refused form again", outbox.RequestIDs(r.Context()), "err", err)
			continue
		}
		if found {
			return again, true
		}
		if page == nil {
			page = again
		}
	}
	return page, false
}

// outside returns a request's path as the reader's browser sees it.
func (s *server) outside(r *http.Request) string {
	return s.linksOf(r).Base() + strings.TrimPrefix(r.URL.EscapedPath(), s.links.Base())
}

// errNoPage means that an address leads to no page of ours.
var errNoPage = errors.New("no page to show again")

// pageAt reads one of our own pages with the request's identity. The address is the browser's; its
// scheme and host are ignored.
func (s *server) pageAt(r *http.Request, address string) ([]byte, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	path, below := strings.CutPrefix(u.EscapedPath(), s.linksOf(r).Base())
	if !below || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/export/") {
		return nil, errNoPage
	}
	query, at := u.Query(), chi.NewRouteContext()
	s.router.Match(at, http.MethodGet, path)
	maps.DeleteFunc(query, func(name string, _ []string) bool { // an earlier action's outcome does not belong to this refusal
		return name == "act" || s.routes[http.MethodGet+" "+at.RoutePattern()].takes.named(name) == nil
	})
	inside, err := url.Parse(s.links.Base() + path)
	if err != nil {
		return nil, err
	}
	inside.RawQuery = query.Encode()

	ctx := context.WithValue(r.Context(), formAgainKey{}, true)
	ctx = context.WithValue(ctx, chi.RouteCtxKey, nil)
	ctx = context.WithValue(ctx, attemptKey{}, nil)
	again := r.Clone(ctx)
	again.Method, again.URL, again.RequestURI = http.MethodGet, inside, inside.RequestURI()
	again.Body, again.ContentLength, again.Form, again.PostForm = http.NoBody, 0, nil, nil
	for name := range again.Header {
		if strings.HasPrefix(name, "Hx-") || strings.HasPrefix(name, "If-") || strings.HasPrefix(name, "Content-") || name == "Accept-Encoding" {
			again.Header.Del(name)
		}
	}
	var page pageBuffer
	s.router.ServeHTTP(&page, again)
	if page.body.Len() == 0 {
		return nil, errNoPage
	}
	return page.body.Bytes(), nil
}

// pageBuffer keeps an answer that is a page, and discards any other.
type pageBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (b *pageBuffer) Header() http.Header {
	if b.header == nil {
		b.header = http.Header{}
	}
	return b.header
}

func (b *pageBuffer) WriteHeader(status int) { b.status = status }

func (b *pageBuffer) Write(data []byte) (int, error) {
	if b.status > http.StatusOK || !strings.HasPrefix(b.Header().Get("Content-Type"), "text/html") {
		return len(data), nil
	}
	return b.body.Write(data)
}
