package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/static"
)

func TestHeaders_everyAnswerCarriesThem(t *testing.T) {
	s := ownSite(t).trouble()
	for _, target := range append([]string{"/api/v1/summary", "/healthz", "/readyz", "/metrics", "/nope", "/api/v1/nope"}, everyPage...) {
		h := s.get(target).Header
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"Outboxweb":               "1",
			"X-Frame-Options":         "DENY", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: %s is %q", target, name, got)
			}
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s is %q", target, name, h.Get(name))
			}
		}
		if h.Get("X-Request-Id") == "" {
			t.Errorf("%s: no request id", target)
		}
	}
}

// The page's script takes an answer without the mark for a proxy's, and never shows it.
func TestHeaders_everyKindOfAnswerIsMarked(t *testing.T) {
	s := ownSite(t).trouble()
	s.srv.router.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	live := header("HX-Target", "live")
	etag := s.get("/instances", live).Header.Get("ETag")
	for status, a := range map[int]answer{
		200: s.get("/static/" + static.Path(static.Script)), 303: s.submit("/campaigns/c-1/pause", ""), 304: s.get("/instances", live, header("If-None-Match", etag)),
		404: s.get("/static/none.js"), 405: s.do("DELETE", "/", ""), 421: s.get("/", host("evil.example")), 500: s.get("/panic"),
	} {
		if a.StatusCode != status || a.Header.Get("Outboxweb") != "1" {
			t.Errorf("%d with %v, want %d with the mark", a.StatusCode, a.Header, status)
		}
	}
}

func TestBodies_haveLimits(t *testing.T) {
	s := ownSite(t).trouble()
	s.post("/api/v1/campaigns/c-2/pause", `{"reason":"`+strings.Repeat("x", 501)+`"}`).want(t, 422, `"reason":"reason is 501 bytes long; the limit is 500"`)
	s.post("/api/v1/campaigns/c-2/pause", `{"reason":"`+strings.Repeat("x", maxActBody)+`"}`).want(t, 413)
	s.submit("/campaigns/c-2/pause", "reason="+strings.Repeat("x", maxActBody)).want(t, 413, "larger than the limit")
	s.post("/api/v1/campaigns/c-2/pause", `{"why":"x"}`).want(t, 422, `unknown field \"why\"; allowed are reason or expected`)
	s.post("/api/v1/campaigns/c-2/pause", `{"expected":{"status":"gone"}}`).want(t, 422, `"expected.status":`)
}

func TestErrors_haveOneStatusEach(t *testing.T) {
	s := ownSite(t)
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{outbox.NotFound("gone"), 404, "gone"},
		{outbox.Invalid("f", "bad"), 422, "bad"},
		{&outbox.Refusal{Err: outbox.ErrTooLarge, Detail: "large"}, 413, "large"},
		{fmt.Errorf("list rows: %w", outbox.Conflict("changed")), 409, `"detail":"changed"`},
		{&outbox.Refusal{Err: outbox.ErrNotYet, Detail: "later"}, 504, "later"},
		{&outbox.Refusal{Err: outbox.ErrReadOnly, Detail: "no"}, 403, "no"},
		{fmt.Errorf("secret table: %w: %w", outbox.ErrBusy, context.DeadlineExceeded), 503, "try again"},
		{errors.New("secret table is on fire"), 500, "request id"},
	} {
		rec := httptest.NewRecorder()
		s.srv.fail(rec, httptest.NewRequest("GET", "http://127.0.0.1/api/v1/x", nil), c.err)
		if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.text) {
			t.Errorf("%v: %d %s", c.err, rec.Code, rec.Body)
		}
		if strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%v: its text got out: %s", c.err, rec.Body)
		}
		if c.status == 503 && rec.Header().Get("Retry-After") == "" {
			t.Error("a 503 without Retry-After")
		}
	}
}

func TestProbes(t *testing.T) {
	s := ownSite(t).trouble()
	if got := s.get("/healthz").want(t, 200).body; got != "ok\n" {
		t.Errorf("healthz says %q", got)
	}
	s.get("/readyz").want(t, 200, `"ready":true`)
	s.get("/metrics").want(t, 200, `outboxweb_rows{status="dead"} 1`, `outboxweb_http_requests_total{code="200",route="/healthz"} 1`)
	if a := s.do("HEAD", "/", "").want(t, 200); a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("HEAD: %v", a.Header)
	}
	must.OK(t, s.store.Close())
	s.get("/readyz").want(t, 503, `"ready":false`, `"reasons":["`)
	s.get("/healthz").want(t, 200)
}

func TestAssets_areKeptForEver(t *testing.T) {
	s := ownSite(t)
	for _, name := range []string{"app.css", "app.js", "icon.svg"} {
		path := string(s.srv.links.Asset(name))
		a := s.get(path).want(t, 200)
		if got := a.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control is %q", path, got)
		}
	}
	s.get("/static/nope/app.css").want(t, 404)
}
