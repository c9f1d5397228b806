package auth

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestNew_namesWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	keys := file("keys.json", string(keySet(t, newSigner(t, "k", jose.ES256))))
	private := newSigner(t, "k", jose.ES256)
	secretKeys := file("private.json", string(asJSON(t, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.key, KeyID: "k"}}})))
	jwt := func(change func(*Config)) Config {
		c := jwtConfig(keys)
		change(&c)
		return c
	}
	header := func(change func(*Config)) Config {
		c := Config{Kind: KindProxyHeader, Preset: "authelia", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Grants: operator.Grants{operator.RoleViewer: {"*"}}}
		change(&c)
		return c
	}
	for _, c := range []struct {
		name        string
		config      Config
		field, text string
	}{
		{"kind", Config{Kind: "basic"}, "auth", `unknown kind "basic"`},
		{"stray preset", Config{Preset: "authelia"}, "auth-preset", "it belongs to --auth jwt or --auth proxy-header, and this is --auth none"},
		{"stray header", Config{UserHeader: "X-User"}, "auth-user-header", "--auth proxy-header"},
		{"stray grant", Config{Grants: operator.Grants{operator.RoleAdmin: {"user:ana"}}}, "admin", "--auth none"},
		{"tokens", Config{Kind: KindToken}, "auth", "no token lookup"},
		{"preset of the other kind", jwt(func(c *Config) { c.Preset = "authelia" }), "auth-preset", "use cloudflare-access, google-iap, pomerium or oauth2-proxy"},
		{"no header", jwt(func(c *Config) { c.Header = "" }), "auth-header", "missing"},
		{"authorization", jwt(func(c *Config) { c.Header = "authorization" }), "auth-header", "for API tokens"},
		{"cookie", jwt(func(c *Config) { c.Header = "Cookie" }), "auth-header", "does not identify the user"},
		{"underscore", jwt(func(c *Config) { c.Header = "X_Assertion" }), "auth-header", "underscore"},
		{"no name", jwt(func(c *Config) { c.Header = "X Assertion" }), "auth-header", "not the name of a header"},
		{"no issuer", jwt(func(c *Config) { c.Issuer = "" }), "auth-issuer", "missing"},
		{"no audience", jwt(func(c *Config) { c.Audience = nil }), "auth-audience", "missing"},
		{"empty audience", jwt(func(c *Config) { c.Audience = []string{""} }), "auth-audience", "missing"},
		{"no keys", jwt(func(c *Config) { c.Issuer, c.JWKS = "sso.example.org", "" }), "auth-jwks", "missing"},
		{"no keys of an issuer by http", jwt(func(c *Config) { c.Issuer, c.JWKS = "http://sso.example.org", "" }), "auth-jwks", "missing"},
		{"keys by http", jwt(func(c *Config) { c.JWKS = "http://sso.example.org/keys" }), "auth-jwks", "https"},
		{"keys with a password", jwt(func(c *Config) { c.JWKS = "https://a:b@sso.example.org/keys" }), "auth-jwks", "https"},
		{"keys by ftp", jwt(func(c *Config) { c.JWKS = "ftp://localhost/keys" }), "auth-jwks", "https"},
		{"no key file", jwt(func(c *Config) { c.JWKS = filepath.Join(dir, "none.json") }), "auth-jwks", "no such file"},
		{"key file of nothing", jwt(func(c *Config) { c.JWKS = file("nothing.json", "{}") }), "auth-jwks", "no public key"},
		{"key file of text", jwt(func(c *Config) { c.JWKS = file("text.json", "keys") }), "auth-jwks", "not a JSON Web Key Set"},
		{"key file of secrets", jwt(func(c *Config) { c.JWKS = secretKeys }), "auth-jwks", "no public key"},
		{"none", jwt(func(c *Config) { c.Algorithms = []string{"RS256", "none"} }), "auth-algorithms", `"none"`},
		{"HS256", jwt(func(c *Config) { c.Algorithms = []string{"hs256"} }), "auth-algorithms", "could sign"},
		{"no algorithm", jwt(func(c *Config) { c.Algorithms = []string{"RS1"} }), "auth-algorithms", "unknown algorithm"},
		{"no grants", jwt(func(c *Config) { c.Grants = nil }), "viewer", "every request would be refused"},
		{"wrong grant", jwt(func(c *Config) { c.Grants = operator.Grants{operator.RoleAdmin: {"ana"}} }), "admin", `"ana" is not`},
		{"no user header", header(func(c *Config) { c.Preset = "" }), "auth-user-header", "missing"},
		{"one header for both", header(func(c *Config) { c.GroupsHeader = "remote-user" }), "auth-groups-header", "names the user"},
		{"secret in the user header", header(func(c *Config) { c.SecretHeader, c.Secret = "Remote-User", secret }), "auth-secret-header", "names the user"},
		{"secret without header", header(func(c *Config) { c.Secret = secret }), "auth-secret-header", "missing"},
		{"header without secret", header(func(c *Config) { c.SecretHeader = "X-Secret" }), "auth-secret-file", "missing"},
		{"short secret", header(func(c *Config) { c.SecretHeader, c.Secret = "X-Secret", secret[:15] }), "auth-secret-file", "15 bytes"},
		{"secret of two lines", header(func(c *Config) { c.SecretHeader, c.Secret = "X-Secret", secret+"\nmore" }), "auth-secret-file", "one line"},
		{"no proxy", header(func(c *Config) { c.Trusted = nil }), "trusted-proxy", "missing"},
		{"everybody", header(func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} }), "trusted-proxy", "trusts too many"},
		{"every other", header(func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("128.0.0.0/1")} }), "trusted-proxy", "trusts too many"},
		{"everybody by IPv6", header(func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("2000::/3")} }), "trusted-proxy", "trusts too many"},
		{"everybody in IPv6", header(func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/96")} }), "trusted-proxy", "trusts too many"},
		{"no prefix", header(func(c *Config) { c.Trusted = []netip.Prefix{{}} }), "trusted-proxy", "not a CIDR"},
		{"half IPv4", header(func(c *Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("::ffff:0:0/90")} }), "trusted-proxy", "neither"},
		{"groups by commas", header(func(c *Config) { c.Grants[operator.RoleOperator] = []string{"user:ana", "group:ops"} }), "operator", "the names in Remote-Groups are separated by commas, so a group called “friends, ops” would count for group:ops; use --auth jwt"},
		{"groups in a format of none", header(func(c *Config) { c.GroupsFormat = "commas" }), "auth-groups-format", "use repeated or json"},
		{"groups in a format and by commas", header(func(c *Config) { c.GroupsFormat, c.InsecureCommaGroups = FormatJSON, true }), "insecure-comma-groups", "leave out one of them"},
		{"format of no header", header(func(c *Config) { c.Preset, c.GroupsFormat = "tailscale", FormatRepeated }), "auth-groups-header", "missing"},
		{"groups' format for jwt", jwt(func(c *Config) { c.GroupsFormat = FormatJSON }), "auth-groups-format", "--auth proxy-header"},
		{"commas for jwt", jwt(func(c *Config) { c.InsecureCommaGroups = true }), "insecure-comma-groups", "--auth proxy-header"},
		{"contact of nobody", Config{Contact: "me"}, "contact", "--auth jwt or --auth proxy-header"},
		{"contact of two lines", jwt(func(c *Config) { c.Contact = "me\nyou" }), "contact", "one line"},
		{"long contact", jwt(func(c *Config) { c.Contact = strings.Repeat("é", 201) }), "contact", "at most 200 characters"},
		{"stray sign-out", Config{SignOut: "/logout"}, "sign-out", "it belongs to --auth jwt or --auth proxy-header"},
		{"sign-out elsewhere", jwt(func(c *Config) { c.SignOut = "//evil.example" }), "sign-out", "neither a path"},
		{"issuer for a header", header(func(c *Config) { c.Issuer = issuer }), "auth-issuer", "--auth jwt"},
	} {
		_, err := New(c.config)
		var refusal *event.Refusal
		must.Hold(t, errors.As(err, &refusal) && refusal.Field == c.field && strings.Contains(refusal.Detail, c.text), "%s: %v, want field %s and %q", c.name, err, c.field, c.text)
		must.Hold(t, err == nil || !strings.Contains(err.Error(), secret[:12]), "%s: the sentence tells the secret: %v", c.name, err)
	}
	must.Get(New(header(func(*Config) {}))).Or(t)
}

func TestNew_presetsKnowTheirProxies(t *testing.T) {
	t.Parallel()
	everybody := operator.Grants{operator.RoleViewer: {"*"}}
	for _, c := range []struct {
		config                                          Config
		header, keys, user, groups, algorithms, signOut string
	}{
		{Config{Preset: "cloudflare-access", Issuer: "https://team.cloudflareaccess.com"},
			"Cf-Access-Jwt-Assertion", "https://team.cloudflareaccess.com/cdn-cgi/access/certs", "email", "custom.groups", "RS256", "/cdn-cgi/access/logout"},
		{Config{Preset: "google-iap"}, "X-Goog-Iap-Jwt-Assertion", "https://www.gstatic.com/iap/verify/public_key-jwk", "email", "", "ES256", "/?gcp-iap-mode=CLEAR_LOGIN_COOKIE"},
		{Config{Preset: "pomerium", Issuer: "ops.example.org"}, "X-Pomerium-Jwt-Assertion", "https://ops.example.org/.well-known/pomerium/jwks.json", "email", "groups", "ES256", "/.pomerium/sign_out"},
		{Config{Preset: "pomerium", Issuer: "https://ops.example.org/"}, "X-Pomerium-Jwt-Assertion", "https://ops.example.org/.well-known/pomerium/jwks.json", "email", "groups", "ES256", "/.pomerium/sign_out"},
		{Config{Preset: "oauth2-proxy", Issuer: issuer, JWKS: issuer + "/keys", Header: "x-id-token", UserClaim: "sub"}, "X-Id-Token", issuer + "/keys", "sub", "groups", "RS256", oauth2SignOut},
		{Config{Preset: "oauth2-proxy", Issuer: issuer}, "X-Outboxweb-Id-Token", "", "email", "groups", "RS256", oauth2SignOut},
		{Config{Header: "X-Assertion", Issuer: issuer, JWKS: issuer + "/keys", Algorithms: []string{"EdDSA"}, SignOut: "/bye"}, "X-Assertion", issuer + "/keys", "email", "groups", "EdDSA", "/bye"},
	} {
		c.config.Kind, c.config.Audience, c.config.Grants = KindJWT, []string{"outboxweb"}, everybody
		g, _ := gate(t, c.config)
		got := g.config
		must.Hold(t, got.Header == c.header && got.JWKS == c.keys && got.UserClaim == c.user && got.GroupsClaim == c.groups && strings.Join(got.Algorithms, " ") == c.algorithms && g.SignOut() == c.signOut, "%s: %s, %s, %s, %s, %v, %s", c.config.Preset, got.Header, got.JWKS, got.UserClaim, got.GroupsClaim, got.Algorithms, g.SignOut())
	}
	for name, want := range map[string]string{"oauth2-proxy": "X-Forwarded-Email X-Forwarded-Groups " + oauth2SignOut, "authelia": "Remote-User Remote-Groups ", "tailscale": "Tailscale-User-Login  "} {
		g, _ := gate(t, Config{Kind: KindProxyHeader, Preset: name, TrustUnix: true, Grants: everybody})
		must.Equal(t, g.config.UserHeader+" "+g.config.GroupsHeader+" "+g.SignOut(), want, name, "reads")
	}
}

func TestCheckSignOut(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "/", "/oauth2/sign_out?rd=%2Foauth2%2Fsign_in", "https://sso.example/logout?client=outboxweb"} {
		must.OK(t, CheckSignOut(text))
	}
	for _, text := range []string{"oauth2/sign_out", "//evil.example", `/\evil.example`, "http://sso.example", "https:", "https:///logout", "https://user@sso.example", "javascript:alert(1)", "/a b", "/a\nb"} {
		must.Hold(t, errors.Is(CheckSignOut(text), event.ErrInvalid), "%q is taken", text)
	}
}

func TestParsePeer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"10.0.0.7": "10.0.0.7/32", "10.0.0.0/24": "10.0.0.0/24", "::1": "::1/128", "fd00::/8": "fd00::/8", "unix": "invalid Prefix"} {
		prefix, unix, err := parsePeer(text)
		must.Hold(t, err == nil && unix == (text == "unix") && prefix.String() == want, "%s is %s, %t, %v", text, prefix, unix, err)
	}
	for _, text := range []string{"", "proxy", "10.0.0.7/24", "10.0.0.0/33", "fe80::1%eth0", "10.0.0.7:80", "UNIX"} {
		prefix, _, err := parsePeer(text)
		must.Hold(t, errors.Is(err, event.ErrInvalid), "%q is %s, %v", text, prefix, err)
	}
}

// FuzzIdentify searches for a request that is wrongly admitted.
func FuzzIdentify(f *testing.F) {
	s := newSigner(f, "k", jose.ES256)
	file := filepath.Join(f.TempDir(), "keys.json")
	must.OK(f, os.WriteFile(file, keySet(f, s), 0o600))
	byHeader, _ := behindProxy(f, FormatJSON)
	byAssertion, _ := gate(f, jwtConfig(file))
	signed := s.sign(f, good())
	for _, from := range []string{proxy, "192.0.2.1:80", "[::ffff:10.0.0.7]:1", "[fe80::1%0]:1", "", "@"} {
		f.Add(from, "Remote-User", "ana", "Remote-Groups", `["ops"]`, secret)
		f.Add(from, "X-Assertion", signed, "Authorization", token, "")
		f.Add(from, "Remote_User", "ana", "remote-user", "ana", secret)
		f.Add(from, "X-Assertion", signed[:60], "X-Assertion", `{"payload":"e30","signatures":[]}`, "")
	}
	f.Fuzz(func(t *testing.T, from, nameA, valueA, nameB, valueB, proof string) {
		r := request(from, http.CanonicalHeaderKey(nameA), valueA, http.CanonicalHeaderKey(nameB), valueB, "X-Proxy-Secret", proof)
		for _, g := range []*Gate{byHeader, byAssertion} {
			who, err := g.Identify(r)
			if err != nil {
				continue
			}
			bearing := r.Header.Get("Authorization")
			at, err := netip.ParseAddrPort(from)
			byProxy := err == nil && at.Addr().Unmap() == netip.MustParseAddr("10.0.0.7") && g.Trusts(r) && proof == secret
			must.Hold(t, who.Role != operator.RoleNone && who.Name != "", "let in without name or role: %+v", who)
			must.Hold(t, who.Auth != operator.AuthToken || strings.EqualFold(bearing, token), "%q is taken for a token", bearing)
			must.Hold(t, who.Auth != operator.AuthProxyHeader || byProxy, "%q with secret %q is let in by header as %+v", from, proof, who)
			must.Hold(t, who.Auth != operator.AuthJWT || strings.TrimPrefix(r.Header.Get("X-Assertion"), "Bearer ") == signed, "%q is taken for an assertion of %+v", r.Header.Get("X-Assertion"), who)
		}
	})
}
