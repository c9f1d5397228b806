package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// Behind each proxy of deploy/proxy everything works that works without one, for those alone who signed in.
func TestSSO(t *testing.T) {
	size.Full(t, "TestProxy_nothingLeadsOutside has proxies without a login")
	t.Parallel()
	for _, p := range ssoProxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := startSSO(t, p, "10m", "4m")
			appendTo(t, s.scripts, outside, "poisoned", seats("ana", "ana", "cem"))
			awaitCounts(t, s.scripts, outside, 1, 0, 1)
			b := s.window()
			b.expect("401")
			for _, c := range []struct {
				name string
				run  func(*sso, *tab)
			}{
				{"a deep link keeps its filters through the login", (*sso).deepLink},
				{"HTTP/2 and compression", (*sso).quick},
				{"forms of every kind act", (*sso).forms},
				{"groups of the token decide", (*sso).groups},
				{"tokens pass, and nothing else without a session", (*sso).machines},
				{"nobody names himself", (*sso).spoofed},
				{"a session ends in both windows", (*sso).ended},
				{"two logins at once", (*sso).twoLogins},
			} {
				t.Run(c.name, func(t *testing.T) {
					s.t = t
					c.run(s, b.in(t))
				})
			}
			b.in(t)
		})
	}
}

func (s *sso) deepLink(b *tab) {
	const deep = outside + "/rows?status=dead&campaign=poisoned&q=a%26b%2B%20c"
	b.visit(deep).signInAs("ana")
	at := value[string](b, "location.pathname + location.search")
	must.Hold(s.t, at == deep, "the login led to %s", at)
	b.await("an admin by name", saying(marked("role"), "admin"))
}

func (s *sso) quick(b *tab) {
	b.open("/docs/operating")
	entry := value[struct {
		NextHopProtocol                  string
		EncodedBodySize, DecodedBodySize int
	}](b, `performance.getEntriesByType("navigation")[0].toJSON()`)
	must.Hold(s.t, entry.NextHopProtocol == "h2" && entry.EncodedBodySize*2 <= entry.DecodedBodySize, "%+v", entry)
}

func (s *sso) forms(b *tab) {
	b.open("/campaigns/poisoned/events/2").click(marked("requeue"))
	b.await("a button acts", telling(marked("flash"), "Requeued event 2 of campaign poisoned"))
	awaitCounts(s.t, s.scripts, outside, 1, 0, 1)

	b.open("/rehearsals/new")
	value[bool](b, `(() => {
		const chosen = new DataTransfer()
		chosen.items.add(new File([`+js(seatProjections["seats.sql"]+"\n-- changed\n")+`], "seats.sql"))
		document.querySelector("#files").files = chosen.files
		return true
	})()`)
	b.typeInto("#reason", "for the test").click(marked("rehearse-start"))
	b.await("an uploaded file is tried", telling("main", "0 of 1 blocked campaign would pass"))
}

// groups has a reader with the most groups of all, and one whose only group contains the name of
// another; in a soak one with some, and one with none, too.
func (s *sso) groups(*tab) {
	readers := map[string]string{"crowd": "operator", "club": "viewer"}
	if size.Soak() {
		readers["many"], readers["nobody"] = "operator", "viewer"
	}
	for name, role := range readers {
		b := s.window()
		b.visit(outside + "/").signInAs(name)
		b.await(name+" is a "+role, saying(marked("role"), role))
		tell(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: forged()})
		b.open("/about")
		b.await("headers of a client change nothing", saying(marked("me"), name+"@ops.example")+" && "+saying(marked("role"), role))
	}
}

// forged are headers by which proxies name a user, as a client may send them.
func forged() network.Headers {
	h := network.Headers{"X-Outboxweb-Id-Token": "e30.e30.e30"}
	for _, name := range []string{"Email", "User", "Groups", "Preferred-Username"} {
		h["X-Forwarded-"+name], h["X-Auth-Request-"+name] = "ana@ops.example", "ops"
	}
	return h
}

// machines are what has no session: scripts with a token, monitors, and others.
func (s *sso) machines(*tab) {
	for _, c := range []struct {
		server       *server
		path, header string
		status       int
		ours         bool // the answer is outboxweb's
	}{
		{s.scripts, "/api/v1/summary", "", http.StatusOK, true},
		{s.scripts, "/metrics", "", http.StatusOK, true},
		{s.scripts, "/rows", "", http.StatusOK, true},
		{s.outer, "/readyz", "", http.StatusOK, true},
		{s.outer, "/api/v1/summary", "", http.StatusUnauthorized, true},
		{s.outer, "/metrics", "", http.StatusUnauthorized, true},
		{s.outer, "/", "cors", http.StatusUnauthorized, false},
	} {
		a := s.ask(c.server, c.path, map[string]any{"Sec-Fetch-Mode": c.header})
		if s.proxy.blind && (c.path == "/" || c.path == "/rows") {
			c.status, c.ours = http.StatusFound, false
		}
		must.Hold(s.t, a.status == c.status && (a.header.Get("Outboxweb") != "") == c.ours && (!strings.HasPrefix(c.path, "/api") || json.Valid(a.body)), "%s is answered with %d %v %.300s", c.path, a.status, a.header, a.body)
	}
}

func (s *sso) ask(from *server, path string, headers network.Headers) answer {
	r := must.Get(http.NewRequestWithContext(s.t.Context(), http.MethodGet, from.url+outside+path, nil)).Or(s.t)
	for name, value := range headers {
		if value != "" {
			r.Header.Set(name, value.(string))
		}
	}
	return must.Get(from.send(r)).Or(s.t)
}

func withoutID(body []byte) string {
	return regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(string(body), "")
}

func (s *sso) spoofed(*tab) {
	for _, path := range []string{"/", "/rows", "/api/v1/summary", "/metrics", "/readyz"} {
		for from, of := range map[*server]string{s.outer: "from outside", s.scripts: "with a token"} {
			plain, claimed := s.ask(from, path, nil), s.ask(from, path, forged())
			if s.proxy.blind && claimed.status == http.StatusUnauthorized {
				continue // it empties no header of those to whom it asks no session
			}
			must.Hold(s.t, plain.status == claimed.status && (plain.status != http.StatusUnauthorized || withoutID(plain.body) == withoutID(claimed.body)), "%s %s: %d %.300s; with headers that name a user %d %.300s", path, of, plain.status, plain.body, claimed.status, claimed.body)
		}
	}
	a := s.ask(s.direct, "/api/v1/summary", forged())
	must.Hold(s.t, a.status == http.StatusUnauthorized, "past the proxy: %d %s", a.status, a.body)
}

func (s *sso) ended(b *tab) {
	other := b.another()
	b.open("/rows")
	other.open("/").await("both know who looks", saying(marked("me"), "ana@ops.example"))
	b.visit("/oauth2/sign_out?rd=%2Foauth2%2Fsign_in")
	b.await("the way out ends at the sign-in page", `!!document.querySelector('form[action="/oauth2/start"]')`)
	const poll = `fetch(location, {headers: {"HX-Request": "true"}}).then(r => r.status + " " + r.headers.get("Outboxweb"))`
	got := value[string](other, poll)
	must.Hold(s.t, got == "401 null" || s.proxy.blind && got == "200 null", "a poll without a session is answered with %s", got)
	other.visit(outside + "/export/rows?format=csv")
	other.await("an export is no file but a login", `!!document.querySelector('form[action="/oauth2/start"]')`)
	if s.proxy.blind {
		return // to the root of the site, which is not ours
	}
	b.visit("/oauth2/sign_out").await("so does the bare one", `!!document.querySelector('form[action="/oauth2/start"]')`)
}

func (s *sso) twoLogins(*tab) {
	b := s.window()
	other := b.another()
	for _, each := range []*tab{b, other} {
		each.visit(outside + "/").click(`form[action="/oauth2/start"] button`)
		each.await("the provider asks", `!!document.querySelector("input[name=name]")`)
	}
	other.logIn("ana")
	b.logIn("ana")
}

// A session lives longer than its token, whose successor is passed to the browser. A provider's new
// key is that of the next login.
func TestSSO_sessionOutlivesItsToken(t *testing.T) {
	size.Full(t, "internal/auth tests tokens without a proxy")
	t.Parallel()
	const lifetime = 4 * time.Second
	for _, p := range ssoProxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s, name := startSSO(t, p, lifetime.String(), "1s"), "crowd"
			if p.blind { // of a session's cookies it passes on the first one
				name = "nobody"
			}
			b := s.window()
			b.visit(outside + "/").signInAs(name)
			began := time.Now()
			b.eventually("a token that expired has a successor", func() (bool, string) {
				b.open("/")
				ok, last := b.holds(saying(marked("me"), name+"@ops.example"))
				return ok && time.Since(began) > lifetime+2*time.Second, last
			})
			response := must.Get(http.Post("http://"+s.provider+"/rotate", "", nil)).Or(t)
			response.Body.Close()
			b.expect("401") // of its poll: this provider's refresh tokens end with the key
			b = s.window()
			b.expect("503") // while the next fetch of keys is held back
			b.visit(outside+"/").click(`form[action="/oauth2/start"] button`).typeInto("input[name=name]", "ana").click("button")
			b.at("/")
			b.eventually("a token of the new key is taken", func() (bool, string) {
				b.visit(outside + "/")
				return b.holds(saying(marked("me"), "ana@ops.example"))
			})
		})
	}
}
