package handlers

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/must"
)

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
		got, err := Origin(text)
		must.Hold(t, got == want && (err == nil) == (want != ""), "%q is read as %q (%v), want %q", text, got, err, want)
	}
}

// pausing are the requests for one action: the form's and the API's.
func (s *site) pausing(method string, change ...func(*http.Request)) (form, api answer) {
	form = s.do(method, "/campaigns/c-2/pause", "", append([]func(*http.Request){header("Content-Type", "application/x-www-form-urlencoded")}, change...)...)
	api = s.do(method, "/api/v1/campaigns/c-2/pause", "{}", append([]func(*http.Request){header("Content-Type", "application/json")}, change...)...)
	return form, api
}

func TestOrigin_refusalsNameTheHeaderAndTheWayOut(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Hosts = []string{"10.0.0.3"} }).trouble()
	public := newSite(t, func(c *Config) { c.PublicOrigin = "https://ops.example" }).trouble()
	embedded := newSite(t, func(c *Config) { c.Embedded = true }).trouble()
	internal := host("10.0.0.3:8080")
	twice := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header[name] = []string{value, value} }
	}
	for _, c := range []struct {
		name   string
		site   *site
		change []func(*http.Request)
		says   []string
		lacks  string
	}{
		{"a proxy rewrote Host", s, []func(*http.Request){internal, header("Origin", "https://ops.example")},
			[]string{`the header Origin is "https://ops.example", but this server expects "http://10.0.0.3:8080" (from the Host header)`, "if a proxy offers these pages at another address, set --public-origin to that address or let the proxy pass the Host header on"}, "Sec-Fetch-Site is"},
		{"another public origin", public, []func(*http.Request){header("Origin", "https://old.example")},
			[]string{`expects "https://ops.example" (from --public-origin) or "http://127.0.0.1:8080" (from the Host header)`, "set --public-origin to that address"}, "to https://old.example"},
		{"the other scheme of the public origin", public, []func(*http.Request){header("Origin", "http://ops.example")}, []string{`Origin is "http://ops.example"`}, ""},
		{"another program's", embedded, []func(*http.Request){header("Origin", "https://evil.example")}, []string{"set Config.PublicURL to that address"}, "--public-origin"},
		{"cross-site", s, []func(*http.Request){header("Sec-Fetch-Site", "cross-site"), header("Origin", "https://evil.example")},
			[]string{`the header Sec-Fetch-Site is "cross-site", but this server expects "same-origin": the browser reports that a page of another site sent this (Origin "https://evil.example")`}, "--public-origin"},
		{"same-site", s, []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, []string{"of another host or scheme of the same site"}, "--public-origin"},
		{"made up", s, []func(*http.Request){header("Sec-Fetch-Site", "same-origin, cross-site")}, []string{"no browser sends that"}, "--public-origin"},
		{"null", s, []func(*http.Request){header("Origin", "null")}, []string{`the header Origin is "null"`, "Referrer-Policy no-referrer", "sandboxed frame"}, "--public-origin"},
		{"null in a frame", s, []func(*http.Request){header("Origin", "null"), header("Sec-Fetch-Site", "cross-site")}, []string{`the header Origin is "null"`}, "--public-origin"},
		{"Origin twice", s, []func(*http.Request){twice("Origin", "http://127.0.0.1:8080")}, []string{"the header Origin appears 2 times"}, ""},
		{"Sec-Fetch-Site twice", s, []func(*http.Request){twice("Sec-Fetch-Site", "same-origin")}, []string{"the header Sec-Fetch-Site appears 2 times"}, ""},
		{"odd bytes", s, []func(*http.Request){header("Origin", "https://é<script>\x01")}, []string{`\u00e9<script>\x01`}, "--public-origin"},
		{"long", s, []func(*http.Request){header("Origin", "x"+strings.Repeat("y", 5000))}, []string{"y\" (cut)"}, strings.Repeat("y", 200)},
	} {
		form, api := c.site.pausing("POST", c.change...)
		must.Hold(t, form.StatusCode == http.StatusForbidden && strings.Contains(form.body, "nothing was changed"), "%s: the form is answered with %d", c.name, form.StatusCode)
		p := decodeAs[problem](t, api.want(t, http.StatusForbidden))
		must.Equal(t, p.Type, "urn:outboxweb:origin", c.name)
		for _, says := range append(c.says, "nothing was changed") {
			must.Hold(t, strings.Contains(p.Detail, says), "%s: %q lacks %q", c.name, p.Detail, says)
		}
		must.Hold(t, c.lacks == "" || !strings.Contains(p.Detail, c.lacks), "%s: %q has %q", c.name, p.Detail, c.lacks)
	}
	s.do("POST", "/campaigns/c-2/pause", "", header("Content-Type", "application/x-www-form-urlencoded")).
		want(t, http.StatusForbidden, "neither an Origin nor a Sec-Fetch-Site header")
	for _, s := range []*site{s, public} {
		s.get("/api/v1/campaigns/c-2").want(t, 200, `"paused":null`)
	}
	public.get("/campaigns/c-2").want(t, 200, "curl -s https://ops.example/api/v1/campaigns/c-2")
}

// A page that came by plain HTTP may be the work of anybody on the network; older browsers, which
// do not send Sec-Fetch-Site, are told apart by the scheme of Origin.
func TestOrigin_ofPlainHTTPIsForeignWhereBrowsersUseHTTPS(t *testing.T) {
	t.Parallel()
	at := func(origin string, change ...func(*Config)) *site {
		return newSite(t, append(change, func(c *Config) { c.PublicOrigin, c.Hosts = origin, []string{"ops.internal"} })...).trouble()
	}
	direct, public, port, plain := at(""), at("https://ops.example"), at("https://ops.example:8443"), at("http://ops.example")
	embedded := at("https://ops.example", func(c *Config) { c.Embedded = true })
	overTLS := func(r *http.Request) { r.TLS = &tls.ConnectionState{} }
	asIs := func(*http.Request) {}
	for _, c := range []struct {
		site         *site
		host, origin string
		change       func(*http.Request)
		refusedSince string // empty if it is accepted
	}{
		{public, "ops.example", "http://ops.example", asIs, `expects "https://ops.example" (from --public-origin); if a proxy`},
		{public, "OPS.example.", "http://OPS.example.", asIs, `expects "https://ops.example" (from --public-origin)`},
		{public, "ops.example:8080", "http://ops.example:8080", asIs, `expects "https://ops.example" (from --public-origin)`},
		{port, "ops.example:8443", "http://ops.example:8443", asIs, `expects "https://ops.example:8443" (from --public-origin)`},
		{embedded, "ops.example", "http://ops.example", asIs, `expects "https://ops.example" (from Config.PublicURL)`},
		{public, "ops.internal", "http://ops.internal", overTLS, `or "https://ops.internal" (from the Host header)`},
		{direct, "ops.internal", "http://ops.internal", overTLS, `expects "https://ops.internal" (from the Host header)`},
		{public, "ops.example", "http://ops.example", header("Sec-Fetch-Site", "same-site"), `expects "same-origin"`},

		{public, "ops.example", "https://ops.example", asIs, ""},
		{public, "127.0.0.1:8080", "https://ops.example", asIs, ""}, // the proxy does not pass Host on
		{public, "ops.example:8443", "https://ops.example:8443", asIs, ""},
		{public, "ops.internal:8080", "http://ops.internal:8080", asIs, ""}, // past the proxy, by a name of its own
		{public, "127.0.0.1:8080", "http://127.0.0.1:8080", asIs, ""},
		{public, "ops.internal", "https://ops.internal", overTLS, ""},
		{direct, "ops.internal", "https://ops.internal", asIs, ""}, // a proxy terminates TLS and passes Host on
		{direct, "127.0.0.1:8080", "http://127.0.0.1:8080", asIs, ""},
		{plain, "ops.example", "http://ops.example", asIs, ""},
		{plain, "ops.example", "http://ops.example", overTLS, ""}, // a proxy without TLS connects with TLS
		{public, "ops.example", "http://ops.example", header("Sec-Fetch-Site", "same-origin"), ""},
	} {
		form, api := c.site.pausing("POST", host(c.host), header("Origin", c.origin), c.change)
		if c.refusedSince == "" {
			must.Hold(t, form.StatusCode == http.StatusSeeOther && api.StatusCode != http.StatusForbidden, "public origin %q, host %s, origin %s: form %d, API %d %s", c.site.srv.PublicOrigin, c.host, c.origin, form.StatusCode, api.StatusCode, api.body)
			c.site.submit("/campaigns/c-2/resume", "").want(t, http.StatusSeeOther)
			continue
		}
		must.Equal(t, form.StatusCode, http.StatusForbidden, "public origin", c.site.srv.PublicOrigin, "host", c.host, "origin", c.origin, "the form is answered with")
		p := decodeAs[problem](t, api.want(t, http.StatusForbidden))
		must.Hold(t, p.Type == "urn:outboxweb:origin" && strings.Contains(p.Detail, c.refusedSince), "public origin %q, host %s, origin %s: %s, lacks %s", c.site.srv.PublicOrigin, c.host, c.origin, p.Detail, c.refusedSince)
	}
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
	for request, want := range map[string]string{
		"GET http://evil.example/rows HTTP/1.1\r\nHost: 127.0.0.1":    "421",
		"GET http://127.0.0.1/rows HTTP/1.1\r\nHost: evil.example":    "200",
		"GET /rows HTTP/1.1\r\nHost: evil.example":                    "421",
		"GET //evil.example/healthz HTTP/1.1\r\nHost: 127.0.0.1":      "404",
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1": "400",
		"GET /rows HTTP/1.0":    "421",
		"GET /healthz HTTP/1.0": "200",
		"GET /healthz HTTP/1.1\r\nHost: evil.example@127.0.0.1":                      "400",
		"GET http://u@127.0.0.1/healthz HTTP/1.1\r\nHost: 127.0.0.1":                 "200",
		"GET http://127.0.0.1:x/healthz HTTP/1.1\r\nHost: 127.0.0.1":                 "400",
		"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Host: evil.example": "200",
	} {
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String())).Or(t)
		fmt.Fprintf(conn, "%s\r\nConnection: close\r\n\r\n", request)
		line, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		fields := strings.Fields(line)
		must.Hold(t, (err == nil || err == io.EOF) && len(fields) >= 2 && fields[1] == want, "%q is answered with %q (%v), want %s", request, line, err, want)
	}
}

// TestHost_probesAndScrapersAskByWhateverName: kubelet and Prometheus use a pod's address, and
// service names that are not configured here.
func TestHost_probesAndScrapersAskByWhateverName(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.BasePath = "/ops" })
	for _, name := range []string{"10.244.1.17:8080", "[fd00::17]:8080", "outboxweb.prod.svc:8080", ""} {
		for _, base := range []string{"", "/ops"} {
			s.get(base+"/healthz", host(name)).want(t, 200, "ok\n")
			s.get(base+"/readyz", host(name)).want(t, 200, `"ready":true`)
			s.get(base+"/metrics", host(name)).want(t, 200, "outboxweb_lag_events 0")
		}
		s.get("/ops/", host(name)).want(t, 421)
	}
}

// TestHost_aReboundPageReadsNoMetrics sends what every browser sends and no page can omit. A page's
// own name cannot be an address, so addresses are answered.
func TestHost_aReboundPageReadsNoMetrics(t *testing.T) {
	s := ownSite(t)
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
