package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

const outside = "/ops/outbox" // where the proxy offers the pages

// stripped is a location that forwards the path after the prefix, byte by byte: a proxy_pass with a
// path would decode an escaped slash in it, and a rewrite or set escapes what it captured.
const stripped = `
		location = /ops/outbox { return 308 /ops/outbox/; }
		location /ops/outbox/ {
			proxy_pass %s$rest;
			proxy_set_header Host $http_host;
			proxy_set_header X-Forwarded-Prefix /ops/outbox;
			%s
		}
`

// behind is a way to put a proxy in front.
type behind struct {
	name      string
	locations func(upstream string) string
	unix      bool // the upstream is a Unix socket, so that the proxy can start first
	flags     func(origin string) []string

	everything []string // flags that give every user all roles
}

var proxies = []behind{
	{name: "prefix passed on",
		locations: func(upstream string) string {
			return "location /ops/outbox { proxy_pass " + upstream + "; proxy_set_header Host $http_host; }"
		},
		flags: func(string) []string { return []string{"--auth", "none", "--base-path", outside} }},
	{name: "prefix stripped",
		locations: func(upstream string) string { return fmt.Sprintf(stripped, upstream, "") },
		flags:     func(string) []string { return []string{"--auth", "none", "--trusted-proxy", "127.0.0.1/32"} }},
	{name: "Host rewritten", unix: true,
		locations: func(upstream string) string {
			return "location /ops/outbox { proxy_pass " + upstream + "; proxy_set_header Host internal:8080; }"
		},
		flags: func(origin string) []string {
			return []string{"--auth", "none", "--base-path", outside, "--host", "internal", "--public-origin", origin}
		}},
	{name: "Unix socket and identity", unix: true,
		locations: func(upstream string) string {
			return fmt.Sprintf(stripped, upstream, "proxy_set_header X-Forwarded-Email ana@example.org; proxy_set_header X-Forwarded-Groups ops;")
		},
		flags: func(string) []string {
			return []string{"--trusted-proxy", "unix", "--auth", "proxy-header", "--auth-preset", "oauth2-proxy", "--auth-groups-format", "repeated", "--operator", "group:ops", "--admin", "user:root"}
		},
		everything: []string{"--admin", "group:ops"}},
}

func (p behind) start(t *testing.T, more ...string) *server {
	t.Helper()
	flags := slices.Concat(quickDeath, more)
	if !p.unix {
		s, _ := startSeats(t, slices.Concat(flags, p.flags(""))...)
		return s.through(startNginx(t, p.locations(s.url)))
	}
	socket := filepath.Join(t.TempDir(), "o.sock")
	origin := startNginx(t, p.locations("http://unix:"+socket+":"))
	s, _ := startSeats(t, slices.Concat(flags, []string{"--listen", "unix:" + socket}, p.flags(origin))...)
	return s.through(origin)
}

// Behind a real proxy no reference in a page, an answer or a header leads outside the prefix, and
// every reference works. But in a soak, one page of each kind is read.
func TestProxy_nothingLeadsOutside(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			destination := newPartner(t, always(http.StatusServiceUnavailable))
			s := p.start(t, slices.Concat(partnerConfig(t, databases{}, destination), p.everything)...)
			appendTo(t, s, outside, "healthy", seats("ana", "ben"))
			appendTo(t, s, outside, "a/b?c=%2F é", seats("ana"))
			appendTo(t, s, outside, "poisoned", seats("ana", "ana", "cem"))
			awaitCounts(t, s, outside, 1, 0, 1)
			s.post(t, http.StatusOK, outside+"/api/v1/campaigns/healthy/pause", map[string]any{"reason": "for the test"})
			c := &crawl{t: t, s: s, seen: map[string]string{}, kinds: map[string]bool{}}
			c.run(outside)
			for _, must := range []string{"/rows", "/campaigns/poisoned/events/2", "/operations/new", "/runs/new?all=1&kind=verify", "/campaigns/a%2Fb%3Fc=%252F%20%C3%A9/events/1",
				"/publishers/sales/partner/seek", "/audit", "/about", "/docs/operating", "/api/v1/summary", "/api/v1/openapi.json", "/metrics"} {
				if _, seen := c.seen[outside+must]; !seen {
					t.Errorf("nothing leads to %s", must)
				}
			}
		})
	}
}

type crawl struct {
	t     *testing.T
	s     *server
	seen  map[string]string // path → what referred to it
	kinds map[string]bool   // paths without numbers and parameters
	queue []string
}

func (c *crawl) run(from string) {
	c.t.Helper()
	c.refer("the test", from)
	for len(c.queue) > 0 {
		path := c.queue[0]
		c.queue = c.queue[1:]
		kind := pathShape(path)
		if !size.Soak() && c.kinds[kind] {
			continue // a page like this one was read
		}
		c.kinds[kind] = true
		a := do(c.t, c.s, http.MethodGet, path, nil)
		if a.status >= 400 {
			c.t.Errorf("%s, which %s refers to, answers %d", path, c.seen[path], a.status)
		}
		if to := a.header.Get("Location"); to != "" {
			c.refer(path+" by its Location", c.relative(path, to))
		}
		for name, values := range a.header {
			if strings.HasPrefix(name, "Hx-") && strings.HasPrefix(values[0], "/") {
				c.refer(path+" by "+name, values[0])
			}
		}
		c.read(path, a)
	}
}

func (c *crawl) read(path string, a answer) {
	switch kind := a.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/html"):
		c.page(path, a.body)
	case strings.HasPrefix(kind, "text/css"):
		for _, m := range styleURL.FindAllSubmatch(a.body, -1) {
			if !bytes.HasPrefix(m[1], []byte("data:")) {
				c.refer(path, c.relative(path, string(m[1])))
			}
		}
	case strings.HasSuffix(path, "/openapi.json"):
		var document struct{ Servers []struct{ URL string } }
		if err := json.Unmarshal(a.body, &document); err != nil || len(document.Servers) != 1 || document.Servers[0].URL != outside+"/api/v1" {
			c.t.Errorf("%s names the servers %v (%v)", path, document.Servers, err)
		}
	}
}

var (
	styleURL  = regexp.MustCompile(`url\(\s*['"]?([^'")]+)`)
	reference = regexp.MustCompile(`^(href|src|action|formaction|poster|data|(data-)?hx-(get|post|put|patch|delete|push-url|replace-url))$`)
)

func (c *crawl) page(path string, body []byte) {
	var text strings.Builder
	for tokens := html.NewTokenizer(bytes.NewReader(body)); ; {
		switch tokens.Next() {
		case html.ErrorToken:
			if err := tokens.Err(); err != io.EOF {
				c.t.Errorf("%s: %v", path, err)
			}
			c.mentions(path, text.String())
			return
		case html.TextToken:
			text.Write(tokens.Text())
		case html.StartTagToken, html.SelfClosingTagToken:
			c.element(path, tokens.Token())
		}
	}
}

// element checks the references of an element. It does not follow POST-only targets.
func (c *crawl) element(path string, e html.Token) {
	if slices.Contains(e.Attr, html.Attribute{Key: "data-testid", Val: "sign-out"}) {
		return // the proxy's own page
	}
	posts := e.Data == "form" && slices.ContainsFunc(e.Attr, func(a html.Attribute) bool { return a.Key == "method" && strings.EqualFold(a.Val, "post") })
	for _, a := range e.Attr {
		switch {
		case !reference.MatchString(a.Key) || strings.HasPrefix(a.Val, "#") || strings.HasSuffix(a.Key, "-url") && (a.Val == "true" || a.Val == "false"):
		case posts || a.Key == "formaction" || strings.HasSuffix(a.Key, "hx-post"):
			c.inside(path, c.relative(path, a.Val))
		default:
			c.refer(path, c.relative(path, a.Val))
		}
	}
}

// mentions checks addresses in the text, such as those of curl commands. The configuration on
// /about may contain the origin as such.
func (c *crawl) mentions(path, text string) {
	for _, rest := range strings.Split(html.UnescapeString(text), c.s.url)[1:] {
		if !strings.HasPrefix(rest, outside+"/") && path != outside+"/about" {
			c.t.Errorf("%s mentions %s%.60s", path, c.s.url, rest)
		}
	}
	if curl := strings.Count(text, "curl -s"); curl > strings.Count(text, c.s.url) {
		c.t.Errorf("%s has %d curl commands, of which some are for another server", path, curl)
	}
}

// relative resolves an address against its page; an address on another server stays unchanged.
func (c *crawl) relative(path, to string) string {
	base := must.Get(url.Parse(c.s.url + path)).Or(c.t)
	u, err := base.Parse(to)
	if err != nil {
		c.t.Errorf("%s refers to %q: %v", path, to, err)
		return path
	}
	u.Fragment = ""
	return strings.TrimPrefix(u.String(), c.s.url)
}

func (c *crawl) inside(from, to string) bool {
	ok := to == outside || strings.HasPrefix(to, outside+"/")
	if !ok && !cites(from, to) {
		c.t.Errorf("%s refers to %s", from, to)
	}
	return ok
}

func (c *crawl) refer(from, to string) {
	if _, seen := c.seen[to]; !seen && c.inside(from, to) {
		c.seen[to] = from
		c.queue = append(c.queue, to)
	}
}
