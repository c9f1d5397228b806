package handlers

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/must"
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
	// The page's script takes an answer without the mark for a proxy's, and never shows it.
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
	s.post("/api/v1/operations", `{"reason":"`+strings.Repeat("x", maxSelectionBody)+`"}`).want(t, 413)
	s.post("/api/v1/campaigns/c-2/pause", `{"why":"x"}`).want(t, 422, `unknown field \"why\"; allowed are for, reason or expected`)
	s.post("/api/v1/campaigns/c-2/pause", `{"expected":{"status":"gone"}}`).want(t, 422, `"expected.status":`)

	zipped := header("Content-Encoding", "gzip")
	s.post("/api/v1/campaigns/c-1/events", "\x1f\x8b", zipped).want(t, 415, "urn:outboxweb:media-type", "Content-Encoding: gzip is not read; send it uncompressed")
	s.submit("/campaigns/c-1/pause", "\x1f\x8b", zipped).want(t, 415, "send it uncompressed")
	s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`, header("Content-Encoding", "identity")).want(t, 200)

	id, many := strings.Repeat("c", event.MaxIDLength), []string{} // what an act may name fits
	s.seed(id, poison).work().submit("/rows/"+id+"/1/skip", "reason=gone&confirm=skip+"+id+"+1").want(t, http.StatusSeeOther)
	for i := range event.MaxRunCampaigns {
		many = append(many, `"`+strings.Repeat("x", 190)+fmt.Sprint(i)+`"`)
	}
	s.post("/api/v1/runs", `{"kind":"verify","campaign_ids":[`+strings.Join(many, ",")+`]}`).want(t, 404, "there is no campaign")
}

func TestErrors_haveOneStatusEach(t *testing.T) {
	s := ownSite(t)
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{event.NotFound("gone"), 404, "gone"},
		{event.Invalid("f", "bad"), 422, "bad"},
		{&event.Refusal{Err: event.ErrTooLarge, Detail: "large"}, 413, "large"},
		{fmt.Errorf("list rows: %w", event.Conflict("changed")), 409, `"detail":"changed"`},
		{&event.Refusal{Err: event.ErrNotYet, Detail: "later"}, 504, "later"},
		{&event.Refusal{Err: event.ErrReadOnly, Detail: "no"}, 403, "no"},
		{fmt.Errorf("secret table: %w: %w", event.ErrBusy, context.DeadlineExceeded), 503, "try again"},
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
	}).seed("c-1", "a")
	prefix := header("X-Forwarded-Prefix", "/ops")
	const events = "/base/events?since=2026-11-22&until=2026-11-20&q=kept&cursor=x"
	s.get(events, prefix).want(t, 422, "Since must be before until.", ">kept</dd>", ">2026-11-22</dd>", `href="/ops/base/events" data-testid="whole"`).lacks(t, "event-1", "<dt>cursor")
	s.get(events, byForm).want(t, 200, `data-fields="since"`).lacks(t, "<html")
	s.get("/base/runs/new?kind=verify&campaigns=c-1%0D%0Ac-2&rate=fast").want(t, 422, ">fast</dd>", "c-1\r\nc-2</dd>")
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
		a, kind := s.send(deleting), "text/html; charset=utf-8"
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

func TestOrigin_isReadAsBrowsersWriteIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://ops.example": "https://ops.example", "HTTPS://OPS.Example/": "https://ops.example", "https://ops.example:443": "https://ops.example",
		"http://ops.example:80": "http://ops.example", "http://ops.example:443": "http://ops.example:443", "https://my_host:8443": "https://my_host:8443",
		"http://[::1]:8080": "http://[::1]:8080", "http://[0:0:0:0:0:0:0:1]": "http://[0:0:0:0:0:0:0:1]", "https://10.0.0.3": "https://10.0.0.3",
		"": "", "ops.example": "", "https://": "", "https://ops.example/x": "", "https://ops.example?": "", "https://ops.example#": "", "https://a@ops.example": "",
		"ftp://ops.example": "", "null": "", "https://ops.example:": "", "https://ops.example:0": "", "https://ops.example:99999": "", "https://a b": "", "https://a..b": "",
		"https://*.example": "", "https://a,https://b": "", "https://a; script-src *": "", "https://ä.example": "", "https://[fe80::1%25eth0]": "", "//ops.example": "",
	} {
		got, err := hosts.Origin(text)
		must.Hold(t, got == want && (err == nil) == (want != ""), "%q is read as %q (%v), want %q", text, got, err, want)
	}
}

// A page that came by plain HTTP may be the work of anybody on the network; older browsers, which
// do not send Sec-Fetch-Site, are told apart by the scheme of Origin.
func TestOrigin_refusalsNameTheHeaderAndTheWayOut(t *testing.T) {
	t.Parallel()
	at := func(origin string, change ...func(*Config)) *site {
		return newSite(t, append(change, func(c *Config) { c.PublicOrigin, c.Hosts = origin, []string{"ops.internal"} })...).trouble()
	}
	direct, public, port, plain := at(""), at("https://ops.example"), at("https://ops.example:8443"), at("http://ops.example")
	embedded := at("https://ops.example", func(c *Config) { c.Embedded = true })
	private := at("", func(c *Config) { c.Embedded = true })
	type changes = []func(*http.Request)
	from := func(name, origin string) changes { return changes{host(name), header("Origin", origin)} }
	overTLS := func(name, origin string) changes {
		return append(from(name, origin), func(r *http.Request) { r.TLS = &tls.ConnectionState{} })
	}
	fetched := func(site string, more ...func(*http.Request)) changes {
		return append(more, header("Sec-Fetch-Site", site))
	}
	twice := func(name, value string) changes {
		return changes{func(r *http.Request) { r.Header[name] = []string{value, value} }}
	}
	const local, flag, byFlag, hostHeader = "127.0.0.1:8080", "--public-origin", `expects "https://ops.example" (from --public-origin)`, ` (from the Host header)`
	for _, c := range []struct {
		site   *site
		change changes
		says   []string // none if it is accepted
		lacks  string
	}{
		{direct, from("ops.internal:8080", "https://ops.example"), []string{`the header Origin is "https://ops.example", but this server expects "http://ops.internal:8080"` + hostHeader,
			"if a proxy offers these pages at another address, set --public-origin to that address or let the proxy pass the Host header on"}, "Sec-Fetch-Site is"},
		{public, from(local, "https://old.example"), []string{byFlag + ` or "http://127.0.0.1:8080"` + hostHeader, "set --public-origin to that address"}, "to https://old.example"},
		{public, from(local, "http://ops.example"), []string{`Origin is "http://ops.example"`}, ""},
		{private, from(local, "https://evil.example"), []string{"set Config.PublicURL to that address"}, flag},
		{direct, fetched("cross-site", header("Origin", "https://evil.example")),
			[]string{`the header Sec-Fetch-Site is "cross-site", but this server expects "same-origin": the browser reports that a page of another site sent this (Origin "https://evil.example")`}, flag},
		{direct, fetched("same-site"), []string{"of another host or scheme of the same site"}, flag},
		{direct, fetched("same-origin, cross-site"), []string{"no browser sends that"}, flag},
		{direct, from(local, "null"), []string{`the header Origin is "null"`, "Referrer-Policy no-referrer", "sandboxed frame"}, flag},
		{direct, fetched("cross-site", header("Origin", "null")), []string{`the header Origin is "null"`}, flag},
		{direct, twice("Origin", "http://127.0.0.1:8080"), []string{"the header Origin appears 2 times"}, ""},
		{direct, twice("Sec-Fetch-Site", "same-origin"), []string{"the header Sec-Fetch-Site appears 2 times"}, ""},
		{direct, from(local, "https://é<script>\x01"), []string{`\u00e9<script>\x01`}, flag},
		{direct, from(local, "x"+strings.Repeat("y", 5000)), []string{"y\" (cut)"}, strings.Repeat("y", 200)},
		{public, from("ops.example", "http://ops.example"), []string{byFlag + "; if a proxy"}, ""},
		{public, from("OPS.example.", "http://OPS.example."), []string{byFlag}, ""},
		{public, from("ops.example:8080", "http://ops.example:8080"), []string{byFlag}, ""},
		{port, from("ops.example:8443", "http://ops.example:8443"), []string{`expects "https://ops.example:8443" (from --public-origin)`}, ""},
		{embedded, from("ops.example", "http://ops.example"), []string{`expects "https://ops.example" (from Config.PublicURL)`}, ""},
		{public, overTLS("ops.internal", "http://ops.internal"), []string{`or "https://ops.internal"` + hostHeader}, ""},
		{direct, overTLS("ops.internal", "http://ops.internal"), []string{`expects "https://ops.internal"` + hostHeader}, ""},
		{public, fetched("same-site", from("ops.example", "http://ops.example")...), []string{`expects "same-origin"`}, ""},

		{public, from("ops.example", "https://ops.example"), nil, ""},
		{public, from(local, "https://ops.example"), nil, ""}, // the proxy does not pass Host on
		{public, from("ops.example:8443", "https://ops.example:8443"), nil, ""},
		{public, from("ops.internal:8080", "http://ops.internal:8080"), nil, ""}, // past the proxy, by a name of its own
		{public, from(local, "http://127.0.0.1:8080"), nil, ""},
		{public, overTLS("ops.internal", "https://ops.internal"), nil, ""},
		{direct, from("ops.internal", "https://ops.internal"), nil, ""}, // a proxy terminates TLS and passes Host on
		{direct, from(local, "http://127.0.0.1:8080"), nil, ""},
		{plain, from("ops.example", "http://ops.example"), nil, ""},
		{plain, overTLS("ops.example", "http://ops.example"), nil, ""}, // a proxy without TLS connects with TLS
		{public, fetched("same-origin", from("ops.example", "http://ops.example")...), nil, ""},
		{direct, fetched("same-origin", header("Origin", "https://evil.example")), nil, ""}, // only browsers set it
		{direct, fetched("none", header("Origin", "https://evil.example")), nil, ""},
		{public, fetched("cross-site", header("Origin", "https://ops.example")), nil, ""},
	} {
		form := c.site.do("POST", "/campaigns/c-2/pause", "", append(changes{header("Content-Type", "application/x-www-form-urlencoded")}, c.change...)...)
		api := c.site.do("POST", "/api/v1/campaigns/c-2/pause", "{}", append(changes{header("Content-Type", "application/json")}, c.change...)...)
		if c.says == nil {
			must.Hold(t, form.StatusCode == http.StatusSeeOther && api.StatusCode != http.StatusForbidden, "public origin %q: form %d, API %d %s", c.site.srv.PublicOrigin, form.StatusCode, api.StatusCode, api.body)
			c.site.submit("/campaigns/c-2/resume", "").want(t, http.StatusSeeOther)
			continue
		}
		form.want(t, http.StatusForbidden, "nothing was changed")
		p := decodeAs[problem](t, api.want(t, http.StatusForbidden))
		must.Equal(t, p.Type, "urn:outboxweb:origin", c.says)
		for _, says := range append(c.says, "nothing was changed") {
			must.Hold(t, strings.Contains(p.Detail, says), "%q lacks %q", p.Detail, says)
		}
		must.Hold(t, c.lacks == "" || !strings.Contains(p.Detail, c.lacks), "%q has %q", p.Detail, c.lacks)
		c.site.get("/api/v1/campaigns/c-2").want(t, 200, `"paused":null`)
	}
	direct.do("POST", "/campaigns/c-2/pause", "", header("Content-Type", "application/x-www-form-urlencoded")).want(t, http.StatusForbidden, "neither an Origin nor a Sec-Fetch-Site header")
	public.get("/campaigns/c-2").want(t, 200, "curl -s https://ops.example/api/v1/campaigns/c-2")
}

func TestHeaders_sayWhoMayFrameThePages(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.FrameAncestors = []string{"'self'", "https://portal.example"} }).trouble()
	for target, status := range map[string]int{"/": 200, "/nope": 404, "/api/v1/summary": 200, "/healthz": 200, "/static/nope": 404} {
		h := s.get(target).want(t, status).Header
		got := h.Get("Content-Security-Policy")
		must.Hold(t, strings.HasSuffix(got, "; frame-ancestors 'self' https://portal.example") && strings.HasPrefix(got, "default-src 'none'; script-src 'self'; "), "%s: the policy is %q", target, got)
		must.Hold(t, h.Get("X-Frame-Options") == "" && h.Get("Cross-Origin-Opener-Policy") == "same-origin", "%s: %v", target, h)
	}
	refused := s.get("/", host("evil.example")).want(t, 421).Header
	must.Hold(t, strings.Contains(refused.Get("Content-Security-Policy"), "https://portal.example"), "a refused host: %v", refused)
}

func TestHost_isReadLikeBrowsersWriteIt(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Hosts, c.PublicOrigin = []string{"my_host", "2001:db8::1", "fqdn.example.", "port.example:8443"}, "https://ops.example:8443"
	})
	for name, status := range map[string]int{
		"my_host": 200, "MY_HOST:9": 200, "[2001:db8::1]:8080": 200, "[2001:DB8:0::1]": 200, "[2001:db8::2]": 421, "fqdn.example": 200, "fqdn.example.:80": 200,
		"ops.example": 200, "ops.example:8443": 200, "OPS.EXAMPLE.": 200, "localhost.": 200, "[0:0:0:0:0:0:0:1]:1": 200, "ops.example..": 421, "x.ops.example": 421, ".": 421, "[]": 421,
		"127.0.0.1:8080": 200, "LOCALHOST:1": 200, "[::1]:8080": 200, "port.example:8443": 200, "port.example:80": 421, "port.example": 421, "ops.example.evil": 421, "": 421, "127.0.0.1.evil": 421,
	} {
		must.Equal(t, s.get("/", host(name)).StatusCode, status, "host", name)
	}
	newSite(t, func(c *Config) { c.Hosts = []string{"*"} }).get("/", host("x")).want(t, 200)
	s.get("/api/v1/summary", host("Evil.example:80")).want(t, 421, "urn:outboxweb:host", "--host evil.example", "--public-origin https://evil.example")
	s.get("/api/v1/summary", host("[2001:db8::2]")).want(t, 421, "--host 2001:db8::2", "--public-origin https://[2001:db8::2]")
	s.get("/api/v1/summary", host("<b>")).want(t, 421, "use one of its own host names").lacks(t, "--host")
}

// TestHost_ofTheRequestTargetCounts connects to a real server: a target in absolute form names the host, and Host does not.
func TestHost_ofTheRequestTargetCounts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newSite(t).http)
	t.Cleanup(server.Close)
	for request, want := range map[string]int{
		"GET http://evil.example/rows HTTP/1.1\r\nHost: 127.0.0.1":    421,
		"GET http://127.0.0.1/rows HTTP/1.1\r\nHost: evil.example":    200,
		"GET /rows HTTP/1.1\r\nHost: evil.example":                    421,
		"GET //evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1":      404,
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1": 400,
		"GET /rows HTTP/1.0":    421,
		"GET /healthz HTTP/1.0": 200,
		"GET /healthz HTTP/1.1\r\nHost: evil.example@127.0.0.1":                      400,
		"GET http://u@127.0.0.1/healthz HTTP/1.1\r\nHost: 127.0.0.1":                 200,
		"GET http://127.0.0.1:x/healthz HTTP/1.1\r\nHost: 127.0.0.1":                 400,
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Host: evil.example": 200,
	} {
		status, _ := saying(t, server, request+"\r\nConnection: close\r\n\r\n")
		must.Equal(t, status, want, request)
	}
}

// Kubelet and Prometheus use a pod's address, and service names that are not configured here. A rebound page sends what every browser sends and
// no page can omit; its own name cannot be an address, so addresses are answered.
func TestHost_probesAndScrapersAskByWhateverNameAndReboundPagesInVain(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.BasePath = "/ops" })
	for _, name := range []string{"10.244.1.17:8080", "[fd00::17]:8080", "outboxweb.prod.svc:8080", ""} {
		for _, base := range []string{"", "/ops"} {
			s.get(base+"/healthz", host(name)).want(t, 200, "ok\n")
			s.get(base+"/readyz", host(name)).want(t, 200, `"ready":true`)
			s.get(base+"/metrics", host(name)).want(t, 200, "outboxweb_lag_events 0")
		}
		s.get("/ops/", host(name)).want(t, 421)
	}
	for _, h := range []func(*http.Request){header("Origin", "http://evil.example"), header("Sec-Fetch-Site", "same-origin"), header("Accept-Language", "en")} {
		a := s.get("/metrics", host("evil.example"), h).want(t, 421, "421 Misdirected Request: this server does not answer a browser's request for the host \"evil.example\"")
		a.header(t, "Content-Type", "text/plain; charset=utf-8")
		s.get("/metrics", host("10.244.1.17:8080"), h).want(t, 200)
		s.get("/metrics", h).want(t, 200)
	}
}

// Whoever follows the advice of a refusal must not open the server to everyone.
func TestHost_refusalsNameTheWayOut(t *testing.T) {
	t.Parallel()
	const foreign = `this server does not answer for the host \"ops.example\"; if it should, set `
	const proxied = " or, when a proxy offers it to browsers under that name, "
	local := must.Get(auth.New(auth.Config{Kind: auth.KindLocal})).Or(t)
	for want, change := range map[string]func(*Config){
		foreign + "--host ops.example" + proxied + "--public-origin https://ops.example":                                            func(*Config) {},
		foreign + "Config.Hosts to ops.example" + proxied + "Config.PublicURL to https://ops.example":                               func(c *Config) { c.Embedded = true },
		foreign + "--host ops.example" + proxied + "--auth to authenticate its users, and then --public-origin https://ops.example": func(c *Config) { c.Auth = local },
	} {
		newSite(t, change).get("/api/v1/summary", host("ops.example")).want(t, 421, want)
	}
}

func TestPrefix_isTakenFromATrustedProxyOnly(t *testing.T) {
	t.Parallel()
	trusted := func(c *Config) { c.Trusts = func(*http.Request) bool { return true } }
	s := newSite(t, trusted).trouble()
	below := newSite(t, trusted, func(c *Config) { c.BasePath = "/console" }).trouble()
	deaf := newSite(t).trouble()
	told := header(prefixHeader, "/ops/outbox/")
	s.get("/campaigns", told).want(t, 200, `href="/ops/outbox/campaigns/c-1"`, `action="/ops/outbox/campaigns"`, `hx-get="/ops/outbox/campaigns"`, `src="/ops/outbox/static/`).lacks(t, `"/campaigns`, `"/static`)
	below.get("/console/campaigns", told).want(t, 200, `href="/ops/outbox/console/campaigns/c-1"`)
	deaf.get("/campaigns", told).want(t, 200, `href="/campaigns/c-1"`).lacks(t, "/ops/outbox/campaigns")
	s.get("/campaigns", header(prefixHeader, "/")).want(t, 200, `href="/campaigns/c-1"`)

	s.submit("/campaigns/c-2/pause", "", told).want(t, http.StatusSeeOther).leads(t, "/ops/outbox/campaigns/c-2?act=")
	below.get("/console", told).want(t, http.StatusMovedPermanently).header(t, "Location", "/ops/outbox/console/")
	s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true}`, told).want(t, http.StatusAccepted).leads(t, "/ops/outbox/api/v1/runs/")
	s.get("/nope", told).want(t, 404, `href="/ops/outbox/"`)
	s.get("/", told, host("evil.example")).want(t, 421, `href="/ops/outbox/"`)
	s.get("/ops/outbox/rows", told).want(t, 404, "says that it strips /ops/outbox, but the address still begins with it", "--base-path /ops/outbox")
	s.srv.router.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	s.get("/panic", told).want(t, 500, `href="/ops/outbox/"`)
	s.get("/api/v1/nope", told).want(t, 404, "urn:outboxweb:not-found")
	for at, want := range map[*site]string{s: "/ops/outbox/api/v1", below: "/ops/outbox/console/api/v1"} {
		at.get(at.srv.links.Base()+"/api/v1/openapi.json", told).want(t, 200, `"url": "`+want+`"`).lacks(t, `"url": "/api/v1"`)
	}
}

func TestPrefix_thatIsMalformedIsRefused(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Trusts = func(*http.Request) bool { return true } }).trouble()
	deaf := newSite(t).trouble()
	for _, bad := range []string{"", "ops", "//evil.example", "/ops//x", "/ops//", "/.", "/..", "/ops/../x", "/a,/b", "/ops, /x", "/a b", "/%2e%2e", "/é", "/<b>", `/"`, "/a\\b", "/a?b", "/a#b", "/a:b@c", "/ops\x00", "https://evil.example/", "/" + strings.Repeat("x", 200)} {
		s.get("/api/v1/summary", header(prefixHeader, bad)).want(t, 400, "urn:outboxweb:prefix", "the header X-Forwarded-Prefix is", "let the proxy send the path it strips")
		s.get("/", header(prefixHeader, bad)).want(t, 400, "X-Forwarded-Prefix", `href="/"`)
		deaf.get("/api/v1/summary", header(prefixHeader, bad)).want(t, 200)
	}
	twice := func(r *http.Request) { r.Header[prefixHeader] = []string{"/ops", "/ops"} }
	s.get("/api/v1/summary", twice).want(t, 400, "more than once")
	for _, good := range []string{"/ops", "/ops/", "/o.p_s~-1/x", "/...", "/" + strings.Repeat("x", 199)} {
		s.get("/", header(prefixHeader, good)).want(t, 200, `href="`+strings.TrimSuffix(good, "/")+`/rows"`)
	}
}
