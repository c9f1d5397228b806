package handlers

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/redact"
	"outboxweb/web/templates"
)

// longestLogged is how much of an address the log shows, in bytes.
const longestLogged = 1000

// access is what the log tells of a request beside what came with it.
type access struct {
	who   outbox.Identity // zero while it is not known who asks
	route string          // the pattern, such as /rows/{campaign}/{seq}
}

type accessKey struct{}

// accessOf is what the log will tell of a request.
func accessOf(r *http.Request) *access { return r.Context().Value(accessKey{}).(*access) }

// logRequest leaves a line about a request that was answered: at the level
// debug where there would be lines without end that tell nothing, which are
// probes, scrapes, embedded files, pages that refresh themselves, and requests
// of which it is not known who asks. The gate tells of those, some at a time.
func (s *server) logRequest(r *http.Request, a *access, status, bytes int, took time.Duration) {
	level := slog.LevelInfo
	if a.who.Auth == "" || a.route == "/metrics" || r.Header.Get("HX-Target") == templates.LiveTarget && status < 400 {
		level = slog.LevelDebug
	}
	if !s.Logger.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", cutLogged(r.Method)), slog.String("path", cutLogged(r.URL.EscapedPath()))}
	if r.URL.RawQuery != "" {
		attrs = append(attrs, slog.String("query", cutLogged(loggedQuery(s.Redact, r.URL.RawQuery))))
	}
	attrs = append(attrs, slog.String("route", a.route), slog.Int("status", status), slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.Int("bytes", bytes),
		slog.String("identity", a.who.Name), slog.String("role", string(a.who.Role)), slog.String("from", remoteHost(r)), slog.String("request_id", requestID(r)))
	s.Logger.LogAttrs(context.Background(), level, "request", attrs...)
}

// loggedQuery is a query string without secrets, however they are escaped.
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
