package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestAdviceFor_saysWhatToChange(t *testing.T) {
	t.Parallel()
	const public = "https://ops.example"
	type headers map[string]string
	for _, c := range []struct {
		name         string
		trusted      bool
		auth         operator.Auth
		public, base string
		headers      headers
		identity     []string
		want         []string // the beginning and the end of each sentence
	}{
		{name: "no proxy"},
		{name: "an untrusted prefix", headers: headers{prefixHeader: "/ops"},
			want: []string{"X-Forwarded-Prefix is /ops but 10.0.0.3 is not trusted: add --trusted-proxy 10.0.0.3/32, or --base-path /ops if the proxy does not strip it"}},
		{name: "a trusted prefix", trusted: true, headers: headers{prefixHeader: "/ops/"}},
		{name: "a prefix that is passed on", base: "/ops", headers: headers{prefixHeader: "/ops"}},
		{name: "the prefix is root", headers: headers{prefixHeader: "/"}},
		{name: "twice below the prefix", trusted: true, base: "/ops", headers: headers{prefixHeader: "/ops"}, want: []string{"X-Forwarded-Prefix and --base-path both say /ops, so that pages link below /ops/ops"}},
		{name: "a malformed prefix", headers: headers{prefixHeader: "ops"}, want: []string{`X-Forwarded-Prefix is "ops", which does not begin with /`}},
		{name: "another host", headers: headers{"X-Forwarded-Host": "ops.example", "X-Forwarded-Proto": "https"},
			want: []string{"Host is internal:8080 while X-Forwarded-Host says ops.example: set --public-origin https://ops.example"}},
		{name: "another host, told", public: public, headers: headers{"X-Forwarded-Host": "ops.example", "X-Forwarded-Proto": "https"}},
		{name: "another public origin", public: public, headers: headers{"X-Forwarded-Host": "new.example", "X-Forwarded-Proto": "https"},
			want: []string{"the browser requested https://new.example, and --public-origin is https://ops.example"}},
		{name: "TLS ends at the proxy", headers: headers{"X-Forwarded-Host": "internal:8080", "X-Forwarded-Proto": "https"}, want: []string{"TLS ends at the proxy (X-Forwarded-Proto is https), and curl lines say http: set --public-origin https://internal:8080"}},
		{name: "the same, without a host", headers: headers{"X-Forwarded-Proto": "https"}, want: []string{"TLS ends at the proxy"}},
		{name: "the same host", headers: headers{"X-Forwarded-Host": "Internal:8080", "X-Forwarded-Proto": "http"}},
		{name: "nonsense", headers: headers{"X-Forwarded-Host": "a b, c", "X-Forwarded-Proto": "gopher"}},
		{name: "nobody reads who it is", identity: []string{"Authorization", "X-Forwarded-User"}, want: []string{"the identity headers (X-Forwarded-User) are ignored, and every user is me with the role admin: set --auth proxy-header"}},
		{name: "nobody reads the assertion", identity: []string{"Cf-Access-Jwt-Assertion"}, want: []string{"the signed assertion in Cf-Access-Jwt-Assertion is ignored, and every user is me with the role admin: set --auth jwt"}},
		{name: "an untrusted identity", auth: operator.AuthToken, identity: []string{"Remote_User"}, want: []string{"the identity headers (Remote_User) come from 10.0.0.3, which is not a trusted proxy, and are not read: add --trusted-proxy 10.0.0.3/32"}},
		{name: "a trusted identity", auth: operator.AuthProxyHeader, trusted: true, identity: []string{"Remote-User"}},
		{name: "an assertion that is read", auth: operator.AuthJWT, identity: []string{"Cf-Access-Jwt-Assertion"}},
		{name: "everything", headers: headers{prefixHeader: "/x", "X-Forwarded-Host": "ops.example", "X-Forwarded-Proto": "https"}, identity: []string{"Remote-User"}, want: []string{"X-Forwarded-Prefix is /x", "Host is internal:8080", "the identity headers"}},
	} {
		a := operator.Arrival{Peer: "10.0.0.3", Trusted: c.trusted, IdentityHeaders: c.identity, Me: operator.Identity{Name: "me", Auth: c.auth, Role: operator.RoleAdmin},
			Address: operator.AddressFor{Scheme: "http", Host: "internal:8080", PublicOrigin: c.public, Base: c.base}}
		if c.auth == "" {
			a.Me.Auth = operator.AuthLocal
		}
		for name, value := range c.headers {
			a.Headers = append(a.Headers, operator.Arrived{Name: name, Times: 1, Value: value})
		}
		got := new(server).adviceFor(a)
		fits := slices.EqualFunc(got, c.want, strings.HasPrefix)
		must.Hold(t, fits, "%s: %q, want %q", c.name, got, c.want)
	}
	for peer, want := range map[string]string{"10.0.0.3": "10.0.0.3/32", "2001:db8::1": "2001:db8::1/128", "::ffff:10.0.0.3": "10.0.0.3/32", "unix": "unix"} {
		must.Equal(t, hosts.TrustFlag(peer), "--trusted-proxy "+want, peer)
	}
}

// A service has no flags: advice names what it can set.
func TestAdviceFor_anEmbeddedConsoleNamesNoFlag(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Embedded = true })
	arrived := []func(*http.Request){header(prefixHeader, "/ops"), header("X-Forwarded-Host", "ops.example"), header("X-Forwarded-Proto", "https"), header("Remote-User", "ana")}
	const prefix = "X-Forwarded-Prefix is /ops, and the console of a service does not read it: let the proxy pass the path on as it is, and set Config.BasePath to where the pages are below /ops"
	s.get("/about", arrived...).want(t, 200, prefix, "set Config.PublicURL to https://ops.example", "give Engine.Handler a function that names the user", "not a trusted proxy: the console of a service trusts none").
		lacks(t, "--trusted-proxy", "--public-origin", "--base-path", "--auth")
	s.get("/about", header("X-Forwarded-Proto", "https")).want(t, 200, "curl lines say http: set Config.PublicURL to https://127.0.0.1:8080")
	told := newSite(t, func(c *Config) { c.Embedded, c.PublicOrigin = true, "https://old.example" })
	told.get("/about", arrived...).want(t, 200, "and Config.PublicURL is https://old.example").lacks(t, "--public-origin")
	for _, by := range []operator.Auth{operator.AuthHost, operator.AuthToken} { // the service has read who it is, or need not
		got := (&server{Config: Config{Embedded: true}}).adviceFor(operator.Arrival{IdentityHeaders: []string{"Remote-User"}, Me: operator.Identity{Auth: by}})
		must.Hold(t, got == nil, "%s: %q", by, got)
	}
}

// A rule that is spelled otherwise than the proxy spells the user or a group is pointed out to its user.
func TestAbout_pointsOutRulesThatDifferInCase(t *testing.T) {
	g := newGuarded(t)
	const group = "--operator names group:ops, and your group is %sOps%[1]s, which differs in upper and lower case"
	g.get("/about", byProxy("zoe", "Ops")).want(t, 200, "The proxy or this server needs a change.", fmt.Sprintf(group, "&#34;"))
	a := g.get("/api/v1/about", byProxy("zoe", "Ops", "dev")).want(t, 200)
	got := decodeAs[campaign.About](t, a).Request
	must.Hold(t, slices.Equal(got.Advice, []string{fmt.Sprintf(group, `"`)}) && len(got.Me.Groups) == 0, "%q in %q", got.Advice, got.Me.Groups)
	g.get("/about", byProxy("otto", "Ops", "ops")).want(t, 200, "Nothing to change")
	g.get("/", byProxy("Zoe")).want(t, 403, "--viewer names user:zoe, and your name is", "Zoe")
}

func TestAbout_tellsWhatArrived(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.BasePath = "/console" })
	odd := []func(*http.Request){header("X-Forwarded-For", "10.9.9.9, <script>\x01é"), header("X-Forwarded-User", "ana-secret"), header("X_forwarded_email", "ana-secret"),
		header("Authorization", "Basic c2VjcmV0"), header(prefixHeader, "/ops"), header("Via", strings.Repeat("v", 500)), header("Cookie", "ana-secret"), header("X-Forwarded-Host", "ops.example")}
	a := s.get("/console/api/v1/about", odd...).want(t, 200, `"peer":"127.0.0.1"`).lacks(t, "ana-secret", "c2VjcmV0", strings.Repeat("v", 200))
	about := decodeAs[campaign.About](t, a).Request
	must.Equal(t, about.Header("X-Forwarded-For").Value, `10.9.9.9, <script>\x01\u00e9`)
	must.Equal(t, about.IdentityHeaders, []string{"Authorization", "X-Forwarded-User", "X_forwarded_email"})
	must.Hold(t, about.Address.URL == "http://127.0.0.1:8080/console/" && about.Me.Name == "local" && !about.Trusted && len(about.Advice) == 3, "%+v", about)
	s.get("/console/about", odd...).want(t, 200, `id="request"`, "X-Forwarded-Prefix is /ops but 127.0.0.1 is not trusted: add --trusted-proxy 127.0.0.1/32", "&lt;script&gt;", "The proxy or this server needs a change.").lacks(t, "ana-secret", "<script>\\")
	s.get("/console/about").want(t, 200, "Nothing to change")
	trusted := newSite(t, func(c *Config) {
		c.Trusts, c.PublicOrigin = func(*http.Request) bool { return true }, "https://ops.example"
	})
	trusted.get("/about", header(prefixHeader, "/ops")).want(t, 200, "https://ops.example/ops/", "from --public-origin, /ops from X-Forwarded-Prefix", "a trusted proxy", "Nothing to change")
}

// Who has a session at the proxy can end it, also a user who is refused here.
func TestPages_nameTheReaderWhoMaySignOutAtTheProxy(t *testing.T) {
	g, local := newGuarded(t, func(c *Config) { c.SignOut = "/bye?rd=%2F" }), newSite(t, func(c *Config) { c.SignOut = "/bye?rd=%2F" })
	const link = `<a href="/bye?rd=%2F" data-testid="sign-out">Sign out</a>`
	g.get("/rows", people[operator.RoleOperator]).want(t, 200, link, `title="otto, operator (proxy-header); groups: ops"`, "<bdi>otto</bdi>", `data-testid="role">operator<`)
	g.get("/about", people[operator.RoleOperator]).want(t, 200, link, "<bdi>otto, operator (proxy-header); groups: ops</bdi>")
	g.get("/about", byProxy("dan")).want(t, 403, link)
	g.get("/rows", g.byToken("viewer")).want(t, 200, "token 1: viewer, viewer (token)").lacks(t, link)
	local.get("/").want(t, 200).lacks(t, link, `data-testid="me"`)
}

func TestTokens_areListedAndRevokedByAdmins(t *testing.T) {
	s, empty, ada := newGuarded(t), newSite(t), people[operator.RoleAdmin]
	empty.get("/tokens").want(t, 200, "No API tokens yet")
	s.addToken("<deploy>", operator.RoleOperator, time.Hour) // the fifth
	s.seed("c-1", "a").post("/api/v1/campaigns/c-1/pause", `{}`, s.byToken("operator")).want(t, 200)
	s.get("/api/v1/audit?action=pause", ada).want(t, 200, `"actor":"token 2: operator"`, `"auth":"token"`, `"role":"operator"`)
	s.get("/api/v1/tokens", ada).want(t, 200, `{"items":[{"id":5,`, `"id":1`, `"note":"viewer"`).lacks(t, s.tokens["viewer"], auth.HashToken(s.tokens["viewer"]))
	s.get("/tokens", ada).want(t, 200, `data-testid="token-5"`, "&lt;deploy&gt;", `data-testid="revoke-5"`, "never", "outboxweb token revoke").lacks(t, s.tokens["<deploy>"], "<deploy>")
	to := s.submit("/tokens/5/revoke", "reason=leaked", ada).want(t, http.StatusSeeOther).Header.Get("Location")
	s.get(to, ada).want(t, 200, "Revoked token 5, with the role operator (&lt;deploy&gt;)", "by ada", "revoked").lacks(t, `data-testid="revoke-5"`)
	s.get("/rows", s.byToken("<deploy>")).want(t, 401, "oken 5 was revoked on")
	s.get("/api/v1/audit?action=token_revoke", ada).want(t, 200, `"target":"token 5"`, `"reason":"leaked"`).lacks(t, auth.HashToken(s.tokens["<deploy>"]))
	for role, as := range people {
		must.Equal(t, strings.Contains(s.get("/", as).want(t, 200).body, `href="/tokens"`), role == operator.RoleAdmin, role, "sees the way to the tokens")
	}
}

// While the issuer is away the console says so where an operator looks, and stays ready: API tokens are accepted.
func TestIdentity_keysThatCannotBeReadAreReported(t *testing.T) {
	const trouble = "the issuer's keys have not been read yet, so every user is refused: http://127.0.0.1:1/keys: connection refused; the next try is at "
	g := newGuarded(t, func(c *Config) {
		var err error
		c.Auth, err = auth.New(auth.Config{Kind: auth.KindJWT, Header: "X-Assertion", Issuer: "https://sso.example", Audience: []string{"outboxweb"}, JWKS: "http://127.0.0.1:1/keys",
			Grants: operator.Grants{operator.RoleViewer: {"*"}}, Tokens: c.Tokens.TokenByHash, Logger: c.Logger, Now: c.Now})
		must.OK(t, err)
	})
	g.get("/readyz?verbose").want(t, 200, `{"ready":true,"reasons":[],"warnings":["No worker is running: nothing is applied"]}`)
	const signed = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.c2lnbmVk"
	a := g.get("/api/v1/rows", header("X-Assertion", signed)).want(t, 503, "urn:outboxweb:busy", "keys cannot be read at the moment, so the signature cannot be checked; try again in 10 s")
	a.header(t, "Retry-After", "10")
	g.get("/readyz?verbose").want(t, 200, `"ready":true`, `"warnings":["`+trouble)
	g.get("/readyz").want(t, 200).lacks(t, "warnings")
	about := decodeAs[campaign.About](t, g.get("/api/v1/about", g.byToken("viewer")).want(t, 200))
	must.Hold(t, len(about.Request.Advice) == 1 && strings.HasPrefix(about.Request.Advice[0], trouble), "advice: %q", about.Request.Advice)
}
