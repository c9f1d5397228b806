package handlers

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
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
			must.Equal(t, h.Get(name), want, target, name, "is")
		}
		for name := range h {
			must.Hold(t, !strings.HasPrefix(name, "Access-Control-"), "%s: %s is %q", target, name, h.Get(name))
		}
		must.Hold(t, h.Get("X-Request-Id") != "", "%s: no request id", target)
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
		must.Hold(t, a.StatusCode == status && a.Header.Get("Outboxweb") == "1", "%d with %v, want %d with the mark", a.StatusCode, a.Header, status)
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
		must.Hold(t, rec.Code == c.status && strings.Contains(rec.Body.String(), c.text), "%v: %d %s", c.err, rec.Code, rec.Body)
		must.Hold(t, !strings.Contains(rec.Body.String(), "secret"), "%v: its text got out: %s", c.err, rec.Body)
		must.Hold(t, c.status != 503 || rec.Header().Get("Retry-After") != "", "a 503 without Retry-After")
	}
}

func TestProbes(t *testing.T) {
	s := ownSite(t).trouble()
	must.Equal(t, s.get("/healthz").want(t, 200).body, "ok\n", "healthz says")
	s.get("/readyz").want(t, 200, `"ready":true`)
	s.get("/metrics").want(t, 200, `outboxweb_rows{status="dead"} 1`, `outboxweb_http_requests_total{code="200",route="/healthz"} 1`)
	must.Equal(t, s.do("HEAD", "/", "").want(t, 200).Header.Get("Content-Type"), "text/html; charset=utf-8", "HEAD")
	must.OK(t, s.store.Close())
	s.get("/readyz").want(t, 503, `"ready":false`, `"reasons":["`)
	s.get("/healthz").want(t, 200)
}

func TestAssets_areKeptForEver(t *testing.T) {
	s := ownSite(t)
	for _, name := range []string{"app.css", "app.js", "icon.svg"} {
		path := string(s.srv.links.Asset(name))
		a := s.get(path).want(t, 200)
		got := a.Header.Get("Cache-Control")
		must.Hold(t, strings.Contains(got, "immutable"), "%s: Cache-Control is %q", path, got)
	}
	s.get("/static/nope/app.css").want(t, 404)
}

// byForm marks a request as a form's, sent by the page's script.
func byForm(r *http.Request) {
	r.Header.Set("HX-Request", "true")
	r.Header.Set("Outboxweb-Form", "1")
}

// A refused form is answered with a page that repeats what was typed; scripts get the sentence for
// the form, and the fields at fault, without a line in the browser's console.
func TestRefusedForm_keepsWhatWasTyped(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", poison, "b").withPublisher(1).work()
	tooLong := strings.Repeat("x", 501)
	for _, form := range []struct{ path, fields, wrong, keeps string }{
		{"/rows/c-1/2/requeue", "expected_status=dead&reason=" + tooLong, "reason", tooLong},
		{"/rows/c-1/2/skip", "expected_status=dead&confirm=skip&reason=" + url.QueryEscape(`it's "late" & <soon>`), "confirm", "it&#39;s &#34;late&#34; &amp; &lt;soon&gt;"},
		{"/projections/campaigns/pause", "reason=" + tooLong, "reason", tooLong},
		{"/runs", "kind=verify&all_campaigns=true&rate=fast&reason=one%0D%0Atwo", "rate", "one\r\ntwo"},
		{"/failures/groups/note", "fingerprint=f&note=" + strings.Repeat("n", 2001), "note", strings.Repeat("n", 2001)},
	} {
		a := s.submit(form.path, form.fields).want(t, 422, "<h1>Check your input", `<dd class="wrap">`+form.keeps+"</dd>").lacks(t, "<dt>expected")
		must.Equal(t, a.Header.Get("HX-Retarget"), "", form.path, "without scripts")
		a = s.submit(form.path, form.fields, byForm).want(t, 200, `role="alert"`, `data-fields="`+form.wrong+`"`).lacks(t, "<html", form.keeps)
		h := a.Header
		must.Hold(t, h.Get("Outboxweb-Status") == "422" && h.Get("HX-Push-Url") == "false" && h.Get("HX-Retarget") == "this" && h.Get("HX-Reswap") == "afterbegin show:none", "%s: scripts are told %v", form.path, h)
	}
	s.get("/api/v1/audit?outcome=done").want(t, 200, `"items":[]`)
}

// A refused filter or preview is told with what was typed, and with a way to its page without it.
func TestRefusedForm_thatAsks(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.BasePath = "/base"
		c.Trusts = func(*http.Request) bool { return true }
	})
	s.seed("c-1", "a")
	prefix := header("X-Forwarded-Prefix", "/ops")
	const events = "/base/events?since=2026-11-22&until=2026-11-20&q=kept&cursor=x"
	s.get(events, prefix).want(t, 422, "Since must be before until.", ">kept</dd>", ">2026-11-22</dd>", `href="/ops/base/events" data-testid="whole"`).lacks(t, "event-1", "<dt>cursor")
	s.get(events, byForm).want(t, 200, `data-fields="since"`).lacks(t, "<html")
	s.get("/base/runs/new?kind=verify&campaigns=c-1%0D%0Ac-2&rate=fast").want(t, 422, ">fast</dd>", "c-1\r\nc-2</dd>")
	s.get("/base/rows?statsu=dead").want(t, 422, "is not a query parameter", `data-testid="whole"`)
}

// An error that is not of a form reaches the page's script in an answer that browsers do not log to
// their console: a page, or the sentence for a live part.
func TestFail_toldToScripts(t *testing.T) {
	s := ownSite(t)
	byScript := header("HX-Request", "true")
	h := s.get("/campaigns/c-9", byScript).want(t, 200, "<html").Header
	must.Hold(t, h.Get("Outboxweb-Status") == "404" && h.Get("HX-Retarget") == "", "a link is answered with %v", h)
	a := s.get("/campaigns/c-9/events/1", byScript, header("HX-Target", "live")).want(t, 200)
	must.Hold(t, a.Header.Get("Outboxweb-Status") == "404" && a.body == `There is no campaign "c-9": nothing has been appended to it.`, "a poll is answered with %v %q", a.Header, a.body)
}

func TestRoutes_answerEveryMethodLikeTheOthers(t *testing.T) {
	s := ownSite(t).trouble()
	for _, r := range everyRequest(t, s) {
		deleting := r
		deleting.method = http.MethodDelete
		a := s.send(deleting)
		kind := "text/html; charset=utf-8"
		if s.srv.systemPath(httptest.NewRequest(r.method, r.target, nil)) != "" {
			kind = "text/plain; charset=utf-8"
		}
		if strings.HasPrefix(r.target, apiPrefix) {
			kind = "application/problem+json"
		}
		must.Hold(t, a.StatusCode == http.StatusMethodNotAllowed && a.Header.Get("Content-Type") == kind, "%s is answered with %d as %s, want 405 as %s", deleting, a.StatusCode, a.Header.Get("Content-Type"), kind)
		allow := strings.Join(a.Header.Values("Allow"), ",")
		must.Hold(t, strings.Contains(allow, r.method), "%s allows %q, and takes %s", r, allow, r.method)
		if r.method == http.MethodGet {
			asked := s.send(r)
			r.method = http.MethodHead
			a := s.send(r)
			must.Hold(t, a.StatusCode == asked.StatusCode && a.Header.Get("Content-Type") == asked.Header.Get("Content-Type"), "%s is answered with %d %v, GET with %d %v", r, a.StatusCode, a.Header, asked.StatusCode, asked.Header)
		}
	}
}

// A browser that comes back to the address of an action, such as from a login, is led to the page with its form.
func TestRoutes_thatTakeFormsLeadToTheirPage(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "/base"} {
		s := newSite(t, func(c *Config) { c.BasePath = base })
		for action, page := range map[string]string{
			"/rehearsals": "/rehearsals/new", "/campaigns/a%2Fb/pause": "/campaigns/a%2Fb", "/rows/c-1/2/skip": "/rows/c-1/2",
			"/publishers/t/p/pause": "/publishers/t/p", "/campaigns/c-1/events/2/reveal": "/campaigns/c-1/events/2",
		} {
			browser := header("Accept", "text/html,application/xhtml+xml")
			s.get(base+action, browser).want(t, 303).header(t, "Location", base+page)
			s.get(base+action).want(t, 405)
			s.get(base+"/api/v1"+action, browser).want(t, 405)
		}
	}
}

func TestRoutes_tellOfWhatIsNotThere(t *testing.T) {
	s := ownSite(t).trouble()
	absent := strings.NewReplacer("/c-1/events/2", "/c-1/events/99", "/campaigns/c-1/events/2", "/campaigns/c-1/events/99", "/c-1", "/nobody", "/operations/1", "/operations/99", "/runs/1", "/runs/99")
	for _, r := range everyRequest(t, s) {
		to := absent.Replace(r.target)
		if to == r.target || r.method == http.MethodPost && strings.HasSuffix(r.target, "/events") { // the first event makes a campaign
			continue
		}
		for _, target := range []string{to, strings.Replace(strings.Replace(to, "/c-1/", "/nobody/", 1), "/99", "/2", 1)} {
			r.target = target
			if path := strings.TrimPrefix(target, apiPrefix); strings.HasPrefix(path, "/operations/2") || strings.HasPrefix(path, "/runs/2") {
				continue
			}
			a := s.send(r)
			must.Equal(t, a.StatusCode, http.StatusNotFound, r, "is answered with", a.body)
			if !strings.HasPrefix(target, apiPrefix) {
				continue
			}
			p := decodeAs[problem](t, a)
			must.Hold(t, p.Detail != "" && p.RequestID != "" && !strings.Contains(p.Detail, "sql") && p.Type == "urn:outboxweb:not-found", "%s is answered with %+v", r, p)
		}
	}
}

// Whoever accepts it gets a long answer compressed, with the same text, except pages of other sites.
func TestAnswers_areCompressedForOurPagesAndForScripts(t *testing.T) {
	s := ownSite(t).trouble()
	for _, c := range []struct {
		target, accepts, site string
		compressed            bool
	}{
		{"/docs/operating", "gzip, br", "same-origin", true},
		{"/docs/operating", "gzip", "none", true},
		{"/docs/operating", "gzip", "cross-site", false},
		{"/docs/operating", "gzip", "same-site", false},
		{"/docs/operating", "gzip", "", false},
		{"/docs/operating", "gzip;q=0", "same-origin", false},
		{"/docs/operating", "br", "same-origin", false},
		{"/api/v1/rows", "gzip", "", false},
		{"/api/v1/openapi.json", "gzip", "cross-site", false},
		{"/api/v1/openapi.json", "gzip", "", true},
		{"/api/v1/export/rows?format=json", "gzip", "", true},
		{"/export/rows", "gzip", "same-origin", true},
		{"/api/v1/campaigns/c-1/events/1/payload", "gzip", "", false},
		{"/readyz", "gzip", "", false},
	} {
		plain := s.get(c.target)
		ask := func(r *http.Request) {
			r.Header.Set("Accept-Encoding", c.accepts)
			r.Header.Set("Sec-Fetch-Site", c.site)
			if c.site == "" {
				r.Header.Del("Sec-Fetch-Site")
			}
		}
		a := s.do(http.MethodGet, c.target, "", ask)
		text := a.body
		if (a.Header.Get("Content-Encoding") == "gzip") != c.compressed {
			t.Errorf("%+v: Content-Encoding is %q", c, a.Header.Get("Content-Encoding"))
		} else if c.compressed {
			text = string(must.Get(io.ReadAll(must.Get(gzip.NewReader(strings.NewReader(a.body))).Or(t))).Or(t))
			must.Hold(t, strings.Contains(strings.Join(a.Header.Values("Vary"), ","), "Accept-Encoding") && a.Header.Get("Content-Length") == "", "%+v: the headers are %v", c, a.Header)
		}
		must.Hold(t, a.StatusCode == 200 && len(text) == len(plain.body), "%+v is answered with %d and %d bytes, want %d", c, a.StatusCode, len(text), len(plain.body))
		s.do(http.MethodHead, c.target, "", ask).want(t, 200).header(t, "Content-Encoding", "")
	}
}

func TestBodies_thatAreCompressedAreRefused(t *testing.T) {
	s := ownSite(t).trouble()
	zipped := header("Content-Encoding", "gzip")
	s.post("/api/v1/campaigns/c-1/events", "\x1f\x8b", zipped).want(t, 415, "urn:outboxweb:media-type", "Content-Encoding: gzip is not read; send it uncompressed")
	s.submit("/campaigns/c-1/pause", "\x1f\x8b", zipped).want(t, 415, "send it uncompressed")
	s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`, header("Content-Encoding", "identity")).want(t, 200)
}
