package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// longestLogged is the maximum length of a logged address, in bytes.
const longestLogged = 1000

// access collects what the log line of a request needs beside the request itself.
type access struct {
	who   operator.Identity // zero until the request is authenticated
	route string            // the pattern, such as /rows/{campaign}/{seq}
}

type accessKey struct{}

func accessOf(r *http.Request) *access { return r.Context().Value(accessKey{}).(*access) }

// logRequest logs an answered request. The level is debug for requests that would flood the log:
// probes, scrapes, embedded files, pages that refresh themselves, and unauthenticated requests,
// which the gate logs at a limited rate.
func (s *server) logRequest(r *http.Request, a *access, status, bytes int, took time.Duration) {
	level := slog.LevelInfo
	if a.who.Auth == "" || a.route == "/metrics" || r.Header.Get("HX-Target") == ui.LiveTarget && status < 400 {
		level = slog.LevelDebug
	}
	if !s.Logger.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", cutLogged(r.Method)), slog.String("path", cutLogged(loggedPath(s.Redact, r.URL)))}
	if r.URL.RawQuery != "" {
		attrs = append(attrs, slog.String("query", cutLogged(loggedQuery(s.Redact, r.URL.RawQuery))))
	}
	attrs = append(attrs, slog.String("route", a.route), slog.Int("status", status), slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.Int("bytes", bytes),
		slog.String("identity", a.who.Name), slog.String("role", string(a.who.Role)), slog.String("from", auth.Peer(r)), operator.RequestIDs(r.Context()))
	s.Logger.LogAttrs(context.Background(), level, "request", attrs...)
}

// loggedPath returns the path of an address without secrets, which escapes would hide from the log.
func loggedPath(hide *redact.Redactor, u *url.URL) string {
	if shown := hide.Text(u.Path); shown != u.Path {
		u = &url.URL{Path: shown}
	}
	return u.EscapedPath()
}

// loggedQuery returns a query string without secrets, in whatever way they are escaped.
func loggedQuery(hide *redact.Redactor, raw string) string {
	query, err := url.ParseQuery(raw)
	shown := url.Values{}
	for name, values := range query {
		for _, value := range values {
			if hide.HidesName(name) {
				value = redact.Mark
			}
			shown.Add(hide.Text(name), hide.Text(value))
		}
	}
	text := shown.Encode()
	if err != nil {
		text += " (some of it unreadable)"
	}
	return text
}

func cutLogged(text string) string {
	if len(text) <= longestLogged {
		return text
	}
	return text[:longestLogged] + "… (cut)"
}
