package outboxweb_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/outboxweb/outboxweb"
	"github.com/outboxweb/outboxweb/internal/must"
)

// Routers differ in whether a handler sees the path that it is mounted at.
func TestHandler_worksBelowAnyMount(t *testing.T) {
	t.Parallel()
	e := open(t)
	const odd = "o/1 ä%2F"
	must.Get(e.Append(t.Context(), placed(odd, "tea"))).Or(t)
	const base = "/admin/outbox"
	console := e.Handler(byUser)
	kept, stripped, nested, both := http.NewServeMux(), http.NewServeMux(), chi.NewRouter(), chi.NewRouter()
	kept.Handle(base+"/", console)
	stripped.Handle(base+"/", http.StripPrefix(base, console))
	nested.Route("/{campaign}", func(r chi.Router) { r.Mount("/outbox", console) })
	both.Mount(base, http.StripPrefix(base, console))
	page := base + "/campaigns/" + url.PathEscape(odd)
	for name, router := range map[string]http.Handler{"kept by ServeMux": kept, "stripped by ServeMux": stripped, "kept by chi": nested, "stripped below chi": both} {
		b := serveHandler(t, router)
		_, overview, _ := b.ask("GET", base+"/", "vera", nil, "")
		for _, link := range regexp.MustCompile(`(?:href|src|action|hx-get)="(/[^"]*)"`).FindAllStringSubmatch(overview, -1) {
			must.Hold(t, strings.HasPrefix(link[1], base+"/"), "%s: a link to %s", name, link[1])
		}
		asset := regexp.MustCompile(`src="([^"]+\.js)"`).FindStringSubmatch(overview)
		must.Need(t, asset != nil, "%s: the overview has no script: %.500s", name, overview)
		post := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
		for _, tt := range []struct {
			method, path string
			status       int
			leadsTo      string
		}{
			{"GET", asset[1], 200, ""},
			{"GET", base + "/healthz", 200, ""},
			{"GET", page, 200, ""},
			{"GET", base + "/api/v1/campaigns/" + url.PathEscape(odd), 200, ""},
			{"GET", base + "/nope", 404, ""},
			{"POST", page + "/pause", 303, page + "?act="},
			{"POST", page + "/resume", 303, page + "?act="},
		} {
			status, text, header := b.ask(tt.method, tt.path, "otto", post, "reason=x")
			must.Hold(t, status == tt.status && strings.HasPrefix(header.Get("Location"), tt.leadsTo), "%s: %s %s is answered with %d, to %q: %.200s", name, tt.method, tt.path, status, header.Get("Location"), text)
		}
		_, text, _ := b.ask("GET", base+"/metrics", "vera", nil, "")
		must.Hold(t, strings.Contains(text, `route="/campaigns/{campaign}/pause"`) && !strings.Contains(text, `route="/{campaign}`), "%s: the metrics name routes as the host does", name)
	}
}

var (
	here      = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	elsewhere = []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}
	granted   = map[outboxweb.Role][]string{outboxweb.RoleViewer: {"user:vera@shop.example"}, outboxweb.RoleOperator: {"group:ops"}}
)

// issuer signs assertions; keys is the file with its public key.
func issuer(t *testing.T) (sign func(claims map[string]any) string, keys string) {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	set := must.Get(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256", Use: "sig"}}})).Or(t)
	keys = filepath.Join(t.TempDir(), "keys.json")
	must.OK(t, os.WriteFile(keys, set, 0o600))
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)).Or(t)
	return func(claims map[string]any) string {
		return must.Get(jwt.Signed(signer).Claims(claims).Serialize()).Or(t)
	}, keys
}

// An embedded console refuses with the statuses and the sentences of the command, which name the
// fields of this package, and counts why.
func TestHandler_identifiesByAProxyAsTheCommandDoes(t *testing.T) {
	t.Parallel()
	sign, keys := issuer(t)
	claims := func(name string, change ...any) string {
		all := map[string]any{"iss": "https://id.example", "aud": "outbox", "email": name, "exp": time.Now().Add(time.Hour).Unix()}
		for i := 0; i < len(change); i += 2 {
			all[change[i].(string)] = change[i+1]
		}
		return sign(all)
	}
	header := outboxweb.ProxyHeader{UserHeader: "X-User", GroupsHeader: "X-Groups", GroupsFormat: "repeated", Trusted: here, Roles: granted}
	far, secret := header, header
	far.Trusted, secret.SecretHeader, secret.Secret = elsewhere, "X-Proxy", "0123456789abcdef"
	signed := outboxweb.Assertion{Header: "X-User", Issuer: "https://id.example", Audience: []string{"outbox"}, JWKS: keys, Roles: granted}
	keyless := signed
	keyless.JWKS = "http://127.0.0.1:1/keys"
	e := open(t)
	made := func(who func(*http.Request) (outboxweb.Operator, error), err error) browser {
		must.OK(t, err)
		return serveHandler(t, e.Handler(who))
	}
	byHeader, byFar, bySecret := made(outboxweb.FromProxyHeader(header)), made(outboxweb.FromProxyHeader(far)), made(outboxweb.FromProxyHeader(secret))
	byAssertion, byKeyless := made(outboxweb.FromAssertion(signed)), made(outboxweb.FromAssertion(keyless))
	counted := func(why string) string {
		_, text, _ := byHeader.ask("GET", "/admin/outbox/metrics", "vera@shop.example", nil, "")
		return regexp.MustCompile(`identity_refused_total\{why="` + why + `"\} .*`).FindString(text)
	}
	for _, tt := range []struct {
		what   string
		at     browser
		user   string
		header map[string]string
		status int
		says   string
		why    string // as counted; empty for a user with a role
	}{
		{"header", byHeader, "vera@shop.example", nil, 403, "you are vera@shop.example, a viewer", ""},
		{"header with a group", byHeader, "otto@shop.example", map[string]string{"X-Groups": "ops"}, 404, "nope", ""},
		{"header, no role", byHeader, "nemo@shop.example", nil, 403, "Roles grant one to user:NAME or group:NAME", "role"},
		{"header, nobody", byHeader, "", nil, 401, "the header X-User is missing", "absent"},
		{"header, underscore", byHeader, "vera@shop.example", map[string]string{"X_user": "ada"}, 401, "which some servers treat as X-User", "variant"},
		{"header from elsewhere", byFar, "vera@shop.example", nil, 401, "comes from 127.0.0.1, which is not a trusted proxy; see Trusted", "untrusted"},
		{"header without the secret", bySecret, "vera@shop.example", nil, 401, "the proxy's secret is missing or wrong", "secret"},
		{"header with the secret", bySecret, "vera@shop.example", map[string]string{"X-Proxy": "0123456789abcdef"}, 403, "viewer", ""},
		{"assertion", byAssertion, claims("vera@shop.example"), nil, 403, "viewer", ""},
		{"assertion with a group", byAssertion, claims("otto@shop.example", "groups", []string{"ops"}), nil, 404, "nope", ""},
		{"assertion, no role", byAssertion, claims("nemo@shop.example"), nil, 403, "the assertion has no claim \"groups\"", "role"},
		{"assertion of others", byAssertion, claims("vera@shop.example", "iss", "https://evil.example"), nil, 403, "another issuer", "issuer"},
		{"assertion for others", byAssertion, claims("vera@shop.example", "aud", "shop"), nil, 403, "another audience", "audience"},
		{"assertion, keys away", byKeyless, claims("vera@shop.example"), nil, 503, "keys", "unavailable"},
	} {
		before := counted(tt.why)
		header := map[string]string{"Content-Type": "application/json"}
		for name, value := range tt.header {
			header[name] = value
		}
		status, text, answer := tt.at.ask("POST", "/admin/outbox/api/v1/campaigns/nope/pause", tt.user, header, "{}")
		var p struct{ Detail string }
		err := json.Unmarshal([]byte(text), &p)
		must.Need(t, err == nil, "%s: %v: %s", tt.what, err, text)
		if status != tt.status || !strings.Contains(p.Detail, tt.says) || strings.Contains(p.Detail, "--") || (answer.Get("Retry-After") != "") != (status == 503) {
			t.Errorf("%s: %d, want %d: %s", tt.what, status, tt.status, p.Detail)
		}
		if tt.why == "" {
			continue
		}
		after := counted(tt.why)
		must.Hold(t, after != before, "%s: it is not counted as %s", tt.what, tt.why)
		status, page, _ := tt.at.ask("GET", "/admin/outbox/", tt.user, tt.header, "")
		must.Hold(t, status == tt.status && strings.Contains(page, "<h1"), "%s: the page is answered with %d: %.300s", tt.what, status, page)
	}
}

// The examples of the documentation are those that compile here.
func TestDocs_examplesOfIdentifyCompile(t *testing.T) {
	t.Parallel()
	squeezed := func(name string) string {
		text := must.Get(os.ReadFile(name)).Or(t)
		return strings.Join(strings.Fields(string(text)), " ")
	}
	tested, found := squeezed("example_test.go"), 0
	for _, block := range regexp.MustCompile("``` ?go (.*?)```").FindAllStringSubmatch(squeezed("docs/embedding.md"), -1) {
		if strings.Contains(block[1], "outboxweb.From") {
			found++
			must.Hold(t, strings.Contains(tested, block[1]), "example_test.go lacks %s", block[1])
		}
	}
	must.Equal(t, found, 2, "examples")
}

// What cannot work, or would let anybody in, is refused before the first request, in the words of this
// package.
func TestIdentify_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	header := outboxweb.ProxyHeader{UserHeader: "X-User", GroupsHeader: "X-Groups", GroupsFormat: "repeated", Trusted: here, Roles: granted}
	_, keys := issuer(t)
	signed := outboxweb.Assertion{Header: "X-User", Issuer: "https://id.example", Audience: []string{"outbox"}, JWKS: keys, Roles: granted}
	for want, change := range map[string]func(*outboxweb.ProxyHeader, *outboxweb.Assertion){
		"UserHeader: it is missing": func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) { h.UserHeader = "" },
		"Trusted: it is missing":    func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) { h.Trusted = nil },
		"Trusted: 0.0.0.0/0 trusts too many": func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) {
			h.Trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		},
		"Secret: the secret is 3 bytes":     func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) { h.SecretHeader, h.Secret = "X-Proxy", "abc" },
		"Preset: ProxyHeader has no preset": func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) { h.Preset = "google-iap" },
		"Roles: nobody has a role":          func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) { h.Roles = nil },
		`Roles: "vera" is not user:NAME`: func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) {
			h.Roles = map[outboxweb.Role][]string{outboxweb.RoleAdmin: {"vera"}}
		},
		`Roles: unknown role "owner"`: func(h *outboxweb.ProxyHeader, _ *outboxweb.Assertion) {
			h.Roles = map[outboxweb.Role][]string{"owner": {"*"}}
		},
		"Audience: it is missing":   func(_ *outboxweb.ProxyHeader, a *outboxweb.Assertion) { a.Audience = nil },
		"JWKS: cannot read":         func(_ *outboxweb.ProxyHeader, a *outboxweb.Assertion) { a.JWKS = keys + ".none" },
		"Header: it is missing":     func(_ *outboxweb.ProxyHeader, a *outboxweb.Assertion) { a.Header = "" },
		"Algorithms: with \"none\"": func(_ *outboxweb.ProxyHeader, a *outboxweb.Assertion) { a.Algorithms = []string{"none"} },
	} {
		h, a := header, signed
		change(&h, &a)
		_, byHeader := outboxweb.FromProxyHeader(h)
		_, byAssertion := outboxweb.FromAssertion(a)
		err := errors.Join(byHeader, byAssertion)
		must.Hold(t, errors.Is(err, outboxweb.ErrSetup) && strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), "--"), "%v, want ErrSetup: %s", err, want)
	}
	who := must.Get(outboxweb.FromProxyHeader(header)).Or(t)
	for name, want := range map[string]error{"": outboxweb.ErrUnidentified, "nemo": outboxweb.ErrNoRole} {
		_, err := who(&http.Request{RemoteAddr: "127.0.0.1:5", Header: http.Header{"X-User": {name}}})
		must.Hold(t, errors.Is(err, want), "user %q: %v, want %v", name, err, want)
	}
}
