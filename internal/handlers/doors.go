package handlers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Values from the store contain secrets. They are hidden where a value leaves the server, which it
// does only through one of these functions: a page (pageFunc), JSON (writeJSON), a list as a file
// (export), a document of an event (document), and the sentence of an error (fail). Identifiers
// pass unchanged; redact.Shown documents how a field is marked as one.

// writeJSON answers with v, its secrets hidden. It encodes before it sends anything, so that a
// value that cannot be encoded is an error rather than half an answer.
func (s *server) writeJSON(w http.ResponseWriter, status int, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(redact.Shown(s.Redact, v)); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the client may have disconnected
	return nil
}

// pageFunc is a page that is not rendered yet. It makes the component from the page's frame and its
// own view, with the secrets of both hidden: links and sentences are composed of what readers may
// see. Only pageOf makes one, and only draw calls it.
type pageFunc func(by *redact.Redactor, frame ui.Page) templ.Component

// pageOf returns a page, or part of one, that shows a view.
func pageOf[V any](component func(ui.Page, V) templ.Component, view V) pageFunc {
	return func(by *redact.Redactor, frame ui.Page) templ.Component {
		return component(redact.Shown(by, frame), redact.Shown(by, view))
	}
}

// plainPage returns a page that shows only its frame and fixed texts.
func plainPage(component func(ui.Page) templ.Component) pageFunc {
	return pageOf(func(p ui.Page, _ struct{}) templ.Component { return component(p) }, struct{}{})
}

func (s *server) writePage(ctx context.Context, into *bytes.Buffer, p ui.Page, content pageFunc) error {
	if s.Redact.HidesPayloads() {
		ctx = ui.WithHiddenPayloads(ctx)
	}
	if err := content(s.Redact, p).Render(ctx, into); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	return nil
}

// render answers with a page, rendered whole before its first byte is sent.
func (s *server) render(w http.ResponseWriter, r *http.Request, status int, p ui.Page, content pageFunc) error {
	buf := templ.GetBuffer()
	defer templ.ReleaseBuffer(buf)
	if err := s.writePage(r.Context(), buf, p, content); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(ui.VisibleHTML(buf.Bytes())) // the client may have disconnected
	return nil
}

// renderLive answers with a page that refreshes itself: all of it, or only its live part if that
// was requested. An unchanged live part is a 304; the age of the content is a header, so that it
// does not count as a change.
func (s *server) renderLive(w http.ResponseWriter, r *http.Request, p ui.Page, whole, live pageFunc) error {
	if r.Header.Get("HX-Target") != ui.LiveTarget {
		return s.render(w, r, http.StatusOK, p, whole)
	}
	buf := templ.GetBuffer()
	defer templ.ReleaseBuffer(buf)
	if err := s.writePage(r.Context(), buf, p, live); err != nil {
		return err
	}
	sum := sha256.Sum256(buf.Bytes())
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	h := w.Header()
	h.Set("ETag", etag)
	h.Set("Vary", "HX-Target")
	h.Set("Outboxweb-Now", stamp(p.Now))
	h.Set("Outboxweb-As-Of", stamp(cmp.Or(p.AsOf, p.Now)))
	setAlarm(h, p.Findings)
	s.noteSince(h, r)
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(ui.VisibleHTML(buf.Bytes())) // the client may have disconnected
	return nil
}
