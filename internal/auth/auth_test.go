package auth

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// now is the time of every test without its own clock.
var now = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// refusals has the reason of the last refusal.
type refusals struct{ atomic.Value }

func gate(t testing.TB, c Config) (*Gate, *refusals) {
	told := &refusals{}
	c.Refused = func(why string) { told.Store(why) }
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = func() time.Time { return now }
	}
	return must.Get(New(c)).Or(t), told
}

// request is a request from a peer, with name-value pairs of headers.
func request(from string, headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/rows", nil)
	r.RemoteAddr = from
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	return r
}

// onSocket is the request as it arrives on a Unix socket.
func onSocket(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "/run/o.sock", Net: "unix"})))
}

// wantDenied fails unless the request is refused for the reason, with a message that contains the text.
func wantDenied(t *testing.T, g *Gate, told *refusals, r *http.Request, why, text string) {
	who, err := g.Identify(r)
	var refusal *event.Refusal
	must.Need(t, errors.As(err, &refusal), "identified %+v with error %v, want a refusal", who, err)
	kind := kindOf(why) // TestKinds_ofUsersWhoAreSignedIn says which
	must.Hold(t, errors.Is(err, kind) && told.Load() == why && strings.Contains(refusal.Detail, text), "refused for %q with %q (%v), want %q with %q", told.Load(), refusal.Detail, refusal.Err, why, text)
	must.Hold(t, (refusal.RetryAfter > 0) == (why == whyUnavailable && g.remote() != nil), "refused for %q and to try again after %s", why, refusal.RetryAfter)
	asks := strings.Contains(refusal.Detail, "; ask ")
	must.Hold(t, asks == (kind == ErrRefused || kind == ErrNoRole), "refused for %q, the refusal names whom to ask: %v: %q", why, asks, refusal.Detail)
	must.Hold(t, who.Name == "" && who.Role == operator.RoleNone, "the refusal has an identity: %+v", who)
}

func wantUser(t *testing.T, g *Gate, r *http.Request, name string, role operator.Role, groups ...string) {
	who, err := g.Identify(r)
	must.Need(t, err == nil, "refused: %v", err)
	must.Hold(t, who.Name == name && who.Role == role && strings.Join(who.Groups, "|") == strings.Join(groups, "|"), "identified %+v, want %s as %s in %q", who, name, role, groups)
}

func tokens(all map[string]operator.Token) func(context.Context, string) (operator.Token, error) {
	return func(_ context.Context, hash string) (operator.Token, error) {
		if t, found := all[hash]; found {
			return t, nil
		}
		return operator.Token{}, event.NotFound("there is no such token")
	}
}

func TestIdentify_withoutAGateOrKindLetsEverybodyIn(t *testing.T) {
	t.Parallel()
	var none *Gate
	wantUser(t, none, request("192.0.2.1:80", "Authorization", "Bearer nonsense"), "local", operator.RoleAdmin)
	must.Hold(t, !none.Trusts(request("127.0.0.1:1")) && len(none.IdentityHeaders(http.Header{"Remote-User": {"ana"}})) == 1, "no gate trusts a peer, or knows no proxy")
	g, told := gate(t, Config{})
	wantUser(t, g, request("127.0.0.1:1"), "local", operator.RoleAdmin)
	wantUser(t, g, request("127.0.0.1:1", "Authorization", "Basic YW5hOmh1c2g="), "local", operator.RoleAdmin)
	wantDenied(t, g, told, request("127.0.0.1:1", "Authorization", "Bearer nonsense"), whyMalformed, "not issued by this server")
	wantDenied(t, g, told, request("127.0.0.1:1", "Authorization", "Bearer\tnonsense"), whyMalformed, "not issued by this server")
	text, _ := NewToken()
	wantDenied(t, g, told, request("127.0.0.1:1", "Authorization", "Bearer "+text), whyUnknown, "accepts no API tokens")
}

// A proxy connects from this machine for users who may be anywhere.
func TestIdentify_localRefusesWhatAProxyPassesOn(t *testing.T) {
	t.Parallel()
	good, hash := NewToken()
	g, told := gate(t, Config{Kind: KindLocal, Tokens: tokens(map[string]operator.Token{hash: {ID: 1, Role: operator.RoleViewer, ExpiresAt: now.Add(time.Hour)}})})
	wantUser(t, g, request("127.0.0.1:1", "Origin", "http://127.0.0.1:8080", "Authorization", "Basic YW5hOmh1c2g="), "local", operator.RoleAdmin)
	signs := []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X_forwarded_prefix", "X-Real-Ip", "Via", "X-Auth-Request-Email", "Remote_groups"}
	for _, p := range presets {
		for _, name := range []string{p.header, p.userHeader, p.groupsHeader} {
			if name != "" {
				signs = append(signs, name)
			}
		}
	}
	for _, name := range signs {
		wantDenied(t, g, told, request("127.0.0.1:1", name, ""), whyProxied, "it has the header "+name)
	}
	nginx := request("127.0.0.1:1")
	nginx.Proto, nginx.ProtoMinor = "HTTP/1.0", 0
	wantDenied(t, g, told, nginx, whyProxied, "it is HTTP/1.0, like those of nginx")
	wantUser(t, g, request("127.0.0.1:1", "X-Forwarded-For", "10.0.0.7", "Authorization", "Bearer "+good), "token 1", operator.RoleViewer)
	none, _ := gate(t, Config{Kind: KindNone})
	wantUser(t, none, request("127.0.0.1:1", "X-Forwarded-For", "10.0.0.7"), "local", operator.RoleAdmin)
}

func TestIdentify_byToken(t *testing.T) {
	t.Parallel()
	good, goodHash := NewToken()
	late, lateHash := NewToken()
	gone, goneHash := NewToken()
	unknown, _ := NewToken()
	revoked := now.Add(-time.Hour)
	g, told := gate(t, Config{Kind: KindToken, Tokens: tokens(map[string]operator.Token{
		goodHash: {ID: 3, Role: operator.RoleOperator, Note: "deploy", ExpiresAt: now.Add(time.Hour)},
		lateHash: {ID: 4, Role: operator.RoleAdmin, ExpiresAt: now},
		goneHash: {ID: 5, Role: operator.RoleAdmin, ExpiresAt: now.Add(time.Hour), RevokedAt: &revoked},
	})})
	bearing := func(text string) *http.Request { return request("192.0.2.1:80", "Authorization", text) }
	wantUser(t, g, bearing("Bearer "+good), "token 3: deploy", operator.RoleOperator)
	wantUser(t, g, bearing("bearer "+good), "token 3: deploy", operator.RoleOperator)
	for _, c := range []struct{ header, why, text string }{
		{"Bearer " + late, whyExpired, "token 4 expired on 2026-11-21"},
		{"Bearer " + gone, whyRevoked, "token 5 was revoked on 2026-11-21"},
		{"Bearer " + unknown, whyUnknown, "no such token"},
		{"Bearer", whyMalformed, "not issued by this server"},
		{"Bearer ", whyMalformed, "not issued by"},
		{"Bearer  " + good, whyMalformed, "not issued by"},
		{"Bearer " + good + " ", whyMalformed, "not issued by"},
		{"Bearer " + good + "A", whyMalformed, "not issued by"},
		{"Bearer " + good[:len(good)-1], whyMalformed, "not issued by"},
		{"Bearer " + strings.TrimPrefix(good, tokenPrefix), whyMalformed, "not issued by"},
		{"Bearer " + strings.ToUpper(good), whyMalformed, "not issued by"},
		{"Bearer " + good + "," + good, whyMalformed, "not issued by"},
		{"Bearer " + good[:20] + "\n" + good[20:], whyMalformed, "not issued by"},
		{good, whyAbsent, "accepts API tokens only"},
		{"Basic " + good, whyAbsent, "accepts API tokens only"},
		{"Bearer\t" + good, whyMalformed, "not issued by"},
	} {
		wantDenied(t, g, told, bearing(c.header), c.why, c.text)
	}
	wantDenied(t, g, told, request("192.0.2.1:80"), whyAbsent, "and a token (obw_…)")
	wantDenied(t, g, told, request("192.0.2.1:80", "Authorization", "Bearer "+good, "Authorization", "Bearer "+good), whyDuplicate, "appears 2 times")
	var log strings.Builder
	away, told := gate(t, Config{Kind: KindToken, Logger: slog.New(slog.NewTextHandler(&log, nil)), Tokens: func(context.Context, string) (operator.Token, error) {
		return operator.Token{}, errors.New("dial tcp 10.0.0.9:5432")
	}})
	for range 20 {
		wantDenied(t, away, told, bearing("Bearer "+good), whyUnavailable, "database is busy or unavailable")
	}
	must.Hold(t, strings.Count(log.String(), "\n") == 1 && strings.Contains(log.String(), "dial tcp 10.0.0.9:5432"), "the log is:\n%s", log.String())
}

func TestNewToken_isEachTimeAnother(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		text, hash := NewToken()
		must.Need(t, len(text) == 47 && len(hash) == 64 && HashToken(text) == hash && !seen[text], "token %q with hash %q", text, hash)
		seen[text] = true
	}
}

// behindProxy is a gate behind a proxy at 10.0.0.7, with a shared secret, which sends groups in a
// format; without one, with commas between.
func behindProxy(t testing.TB, format string) (*Gate, *refusals) {
	hash := HashToken(strings.TrimPrefix(token, "Bearer "))
	return gate(t, Config{
		Kind: KindProxyHeader, Preset: "authelia", SecretHeader: "x-proxy-secret", Secret: secret, GroupsFormat: format, InsecureCommaGroups: format == "",
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")},
		Grants:  operator.Grants{operator.RoleViewer: {"*"}, operator.RoleOperator: {"group:ops"}, operator.RoleAdmin: {"user:ana", "user:Ünal"}},
		Tokens:  tokens(map[string]operator.Token{hash: {ID: 1, Role: operator.RoleViewer, ExpiresAt: now.Add(time.Hour)}}),
	})
}

const (
	proxy  = "10.0.0.7:4444"
	secret = "correct-battery-staple"
	token  = "Bearer obw_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func TestIdentify_byProxyHeader(t *testing.T) {
	t.Parallel()
	g, told := behindProxy(t, "")
	from := func(headers ...string) *http.Request {
		return request(proxy, append([]string{"X-Proxy-Secret", secret}, headers...)...)
	}
	wantUser(t, g, from("Remote-User", "ana"), "ana", operator.RoleAdmin)
	wantUser(t, g, from("Remote-User", "Ana"), "Ana", operator.RoleViewer)
	wantUser(t, g, from("Remote-User", "Ünal", "Remote-Groups", "a b, ops,,ops2"), "Ünal", operator.RoleAdmin, "ops")
	wantUser(t, g, from("Remote-User", "bea", "Remote-Groups", "ops"), "bea", operator.RoleOperator, "ops")
	wantUser(t, g, from("Remote-User", "bea", "Remote-Groups", ""), "bea", operator.RoleViewer)
	wantUser(t, g, from("Remote-User", "bea", "X-Forwarded-For", "192.0.2.1"), "bea", operator.RoleViewer)
	wantUser(t, g, from("Remote-User", strings.Repeat("x", 200)), strings.Repeat("x", 200), operator.RoleViewer)
	wantUser(t, g, from("Authorization", token), "token 1", operator.RoleViewer)
	wantUser(t, g, request("192.0.2.1:80", "Authorization", token), "token 1", operator.RoleViewer)
	for _, c := range []struct {
		name, why, text string
		headers         []string
	}{
		{"absent", whyAbsent, "Remote-User is missing or empty", nil},
		{"empty", whyAbsent, "missing or empty", []string{"Remote-User", ""}},
		{"groups alone", whyAbsent, "Remote-User is missing", []string{"Remote-Groups", "ops"}},
		{"twice", whyDuplicate, "Remote-User appears 2 times", []string{"Remote-User", "ana", "Remote-User", "ana"}},
		{"list", whyName, `the header Remote-User says that you are "ana,bea", and that name is a list`, []string{"Remote-User", "ana,bea"}},
		{"control", whyName, "invisible characters", []string{"Remote-User", "ana\x01"}},
		{"newline", whyName, "invisible characters", []string{"Remote-User", "an\na"}},
		{"delete", whyName, "invisible characters", []string{"Remote-User", "ana\x7f"}},
		{"next line", whyName, "invisible characters", []string{"Remote-User", "an\u0085a"}},
		{"zero width", whyName, "invisible characters", []string{"Remote-User", "an\u200ba"}},
		{"turned round", whyName, "invisible characters", []string{"Remote-User", "an\u202ea"}},
		{"not UTF-8", whyName, "not valid UTF-8", []string{"Remote-User", "an\xffa"}},
		{"long", whyName, "longer than 200 bytes", []string{"Remote-User", strings.Repeat("x", 201)}},
		{"blank before", whyName, "whitespace", []string{"Remote-User", " ana"}},
		{"blank behind", whyName, "whitespace", []string{"Remote-User", "ana\u00a0"}},
		{"tab behind", whyName, "whitespace", []string{"Remote-User", "ana\t"}},
		{"groups twice", whyGroups, "Remote-Groups appears 2 times", []string{"Remote-User", "ana", "Remote-Groups", "a", "Remote-Groups", "ops"}},
		{"underscore", whyVariant, `"Remote_user"`, []string{"Remote-User", "bea", "Remote_user", "ana"}},
		{"underscore alone", whyVariant, "let the proxy remove it", []string{"Remote_user", "ana"}},
		{"letters", whyVariant, `"remote-user"`, []string{"remote-user", "ana"}},
		{"groups underscore", whyVariant, `"Remote_groups"`, []string{"Remote-User", "bea", "Remote_groups", "ops"}},
		{"secret underscore", whyVariant, `"X_proxy-Secret"`, []string{"Remote-User", "bea", "X_proxy-Secret", secret}},
		{"together", whyTogether, "both a bearer token and the header Remote-User", []string{"Remote-User", "bea", "Authorization", token}},
		{"together with groups", whyTogether, "Remote-Groups", []string{"Remote-Groups", "ops", "Authorization", token}},
		{"two authorizations", whyDuplicate, "Authorization appears 2 times", []string{"Authorization", token, "Authorization", "Basic eA=="}},
		{"secret twice", whyDuplicate, "X-Proxy-Secret appears 2 times", []string{"Remote-User", "ana", "X-Proxy-Secret", secret}},
	} {
		t.Run(c.name, func(t *testing.T) { wantDenied(t, g, told, from(c.headers...), c.why, c.text) })
	}
	wantDenied(t, g, told, request(proxy, "Remote-User", "ana"), whySecret, "missing or wrong")
	wantDenied(t, g, told, request(proxy, "Remote-User", "ana", "X-Proxy-Secret", secret+"x"), whySecret, "missing or wrong")
	wantDenied(t, g, told, request("192.0.2.1:80", "Remote-User", "ana", "X-Proxy-Secret", secret), whyUntrusted, "comes from 192.0.2.1")
	wantDenied(t, g, told, request("192.0.2.1:80", "Remote-User", "ana", "X-Forwarded-For", "10.0.0.7", "X-Proxy-Secret", secret), whyUntrusted, "comes from 192.0.2.1")
	wantDenied(t, g, told, request("192.0.2.1:80", "Remote-Groups", "ops"), whyUntrusted, "Remote-Groups")
	wantDenied(t, g, told, request("192.0.2.1:80"), whyAbsent, "use the proxy that sets")
}

// Whoever may name a group gains nothing where a format keeps names apart, and no foreign group keeps anybody out.
func TestGroups_countOnlyAsTheWholeNameThatARuleHas(t *testing.T) {
	t.Parallel()
	const raised = "book club, ops, and friends"
	many := slices.Repeat([]string{strings.Repeat("g", 60)}, 399)
	for _, format := range []string{FormatRepeated, FormatJSON, "", "jwt"} {
		var g *Gate
		var told *refusals
		var s signer
		if format == "jwt" {
			s = newSigner(t, "e", jose.ES256)
			c := jwtConfig(newKeyServer(t, s).URL)
			c.Grants = operator.Grants{operator.RoleViewer: {"*"}, operator.RoleOperator: {"group:ops", "group:ops"}}
			g, told = gate(t, c)
		} else {
			g, told = behindProxy(t, format)
		}
		in := func(groups ...string) *http.Request {
			r := request(proxy, "X-Proxy-Secret", secret, "Remote-User", "bea")
			switch format {
			case FormatRepeated:
				r.Header["Remote-Groups"] = groups
			case FormatJSON:
				r.Header.Set("Remote-Groups", string(asJSON(t, append([]string{}, groups...))))
			case "jwt":
				return asserting(s.sign(t, good(map[string]any{"email": "bea", "groups": groups})))
			default:
				r.Header.Set("Remote-Groups", strings.Join(groups, ","))
			}
			return r
		}
		gained := operator.RoleViewer
		var of []string
		if format == "" { // as its flag says
			gained, of = operator.RoleOperator, []string{"ops"}
		}
		wantUser(t, g, in(raised), "bea", gained, of...)
		wantUser(t, g, in("dev,ops"), "bea", gained, of...)
		wantUser(t, g, in(`["ops"]`, `"ops"`, "Ops", "ops2", "o\u017fs"), "bea", operator.RoleViewer)
		wantUser(t, g, in(), "bea", operator.RoleViewer)
		wantUser(t, g, in("dev", "ops", "ops"), "bea", operator.RoleOperator, "ops")
		wantUser(t, g, in(append(many, "ops")...), "bea", operator.RoleOperator, "ops")
		wantUser(t, g, in("\u202e", "a\tb", "", " ", strings.Repeat("x", 5000), "ops"), "bea", operator.RoleOperator, "ops")
		if format == "jwt" {
			continue
		}
		twice := in("dev")
		twice.Header.Add("Remote-Groups", "ops")
		if format == FormatRepeated {
			wantUser(t, g, twice, "bea", operator.RoleOperator, "ops")
			continue
		}
		wantDenied(t, g, told, twice, whyGroups, "Remote-Groups appears 2 times")
		for _, text := range []string{"ops", `"ops"`, `["ops"`, `["ops"] []`, `["ops",1]`, `["ops",null]`, "null", `{"ops":true}`, "[\"ops\xff\"]"} {
			if format == FormatJSON {
				twice.Header.Set("Remote-Groups", text)
				wantDenied(t, g, told, twice, whyGroups, "is not a JSON array of strings")
			}
		}
	}
}

// A proxy answers 401 with a sign-in, which would be for ever.
func TestKinds_ofUsersWhoAreSignedIn(t *testing.T) {
	t.Parallel()
	for why, want := range map[string]error{whyRole: ErrNoRole, whyName: ErrRefused, whyGroups: ErrRefused, whyClaims: ErrRefused,
		whyIssuer: ErrRefused, whyAudience: ErrRefused, whyFuture: ErrRefused, whyOutlived: ErrRefused, whyUnavailable: event.ErrBusy} {
		got := deny(why, "").refusal.Err
		must.Hold(t, got == want && kinds[why] == want, "%s is %v, want %v", why, got, want)
	}
	for _, why := range []string{whyAbsent, whyDuplicate, whyMalformed, whyVariant, whyUntrusted, whyProxied, whyTogether, whySecret, whySignature, whyExpired, whyUnknown, whyRevoked} {
		must.Equal(t, deny(why, "").refusal.Err, ErrUnidentified, why, "is")
	}
}

func TestIdentify_tellsWhoIsRefusedWhyAndWhomToAsk(t *testing.T) {
	t.Parallel()
	for contact, whom := range map[string]string{"": "an administrator of this server", "the platform team, #ops": "the platform team, #ops"} {
		g, told := gate(t, Config{Kind: KindProxyHeader, Preset: "oauth2-proxy", GroupsFormat: FormatJSON, TrustUnix: true, Contact: contact,
			Grants: operator.Grants{operator.RoleOperator: {"group:ops", "user:Bea@example.org"}, operator.RoleAdmin: {"group:root"}}})
		denied := func(user, groups, why, text string) {
			wantDenied(t, g, told, onSocket(request("@", "X-Forwarded-Email", user, "X-Forwarded-Groups", groups)), why, text+"; ask "+whom)
		}
		denied("cem@example.org", `["dev"]`, whyRole, `you are signed in as "cem@example.org", in the groups "dev", and have no role here: --viewer, --operator and --admin grant one to user:NAME or group:NAME, spelled exactly`)
		denied("bea@example.org", `["dev","Ops"]`, whyRole, `you are signed in as "bea@example.org", in the groups "dev", "Ops", and have no role here: --operator names group:ops, and your group is "Ops", which differs in upper and lower case, `+
			`and --operator names user:Bea@example.org, and your name is "bea@example.org", which differs in upper and lower case`)
		denied("cem,dan", "", whyName, "and that name is a list of names, with commas between")
		denied("cem", "dev", whyGroups, "the header X-Forwarded-Groups, which lists your groups, is not a JSON array of strings")
	}
}

func TestTrusts_onlyTheSocketsOtherEnd(t *testing.T) {
	t.Parallel()
	g, _ := gate(t, Config{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("::ffff:198.51.100.0/120"), netip.MustParsePrefix("fe80::/10")}})
	onUnix, _ := gate(t, Config{TrustUnix: true})
	for from, want := range map[string]bool{
		"10.0.0.7:1": true, "[::ffff:10.0.0.7]:1": true, "198.51.100.9:1": true, "[::ffff:198.51.100.9]:1": true, "[2001:db8::1]:1": true, "[fe80::1]:1": true,
		"10.0.1.7:1": false, "[::ffff:10.0.1.7]:1": false, "[2001:db9::1]:1": false, "[fe80::1%eth0]:1": false, "[::ffff:10.0.0.7%eth0]:1": false,
		"127.0.0.1:1": false, "10.0.0.7": false, "": false, "@": false, "10.0.0.7:x": false, "unix": false,
	} {
		r := request(from, "X-Forwarded-For", "10.0.0.7", "X-Real-Ip", "10.0.0.7", "Forwarded", "for=10.0.0.7")
		must.Equal(t, g.Trusts(r), want, from, "is trusted")
		must.Hold(t, !onUnix.Trusts(r), "%q counts as a Unix socket", from)
		local := onSocket(request(from))
		must.Hold(t, !g.Trusts(local) && onUnix.Trusts(local), "%q on a Unix socket is trusted by who does not, or not by who does", from)
	}
}

func TestIdentityHeaders_areThoseThatAreReadOrKnown(t *testing.T) {
	t.Parallel()
	g, _ := behindProxy(t, "")
	r := request("192.0.2.1:80", "Remote-User", "ana", "Remote-Groups", "ops", "X-Proxy-Secret", secret, "Authorization", token,
		"Cf-Access-Jwt-Assertion", "x", "X_proxy_secret", "x", "Accept", "*/*", "X-Auth-Request-Email", "x", "X-Forwarded-For", "x")
	must.Equal(t, strings.Join(g.IdentityHeaders(r.Header), " "), "Authorization Cf-Access-Jwt-Assertion Remote-Groups Remote-User X-Auth-Request-Email X-Proxy-Secret X_proxy_secret")
}

// Identity headers that nothing reads are logged once a minute, where no proxy is trusted to set them.
func TestIdentify_warnsOfIdentityThatNothingReads(t *testing.T) {
	t.Parallel()
	jwt := jwtConfig(newKeyServer(t, newSigner(t, "e", jose.ES256)).URL)
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}
	who := func(*http.Request) (operator.Identity, error) { return operator.Local(), nil }
	for name, c := range map[string]struct {
		config Config
		header string
		warns  bool
	}{
		"none":                       {Config{Kind: KindNone}, "X-Forwarded-Email", true},
		"none, an assertion":         {Config{Kind: KindNone}, "X-Outboxweb-Id-Token", true},
		"none, a trusted proxy":      {Config{Kind: KindNone, Trusted: trusted}, "X-Forwarded-Email", false},
		"none, not about a user":     {Config{Kind: KindNone}, "X-Forwarded-For", false},
		"none, a token":              {Config{Kind: KindNone}, "Authorization", false},
		"token":                      {Config{Kind: KindToken, Tokens: tokens(nil)}, "Remote_user", true},
		"jwt, another header":        {jwt, "X-Forwarded-Email", true},
		"jwt, its own":               {jwt, "X-Assertion", false},
		"local, which refuses":       {Config{Kind: KindLocal}, "X-Forwarded-Email", false},
		"the program that embeds it": {Config{Kind: KindHost, Who: who}, "X-Forwarded-Email", false},
	} {
		var log strings.Builder
		clock := now
		c.config.Now, c.config.Logger = func() time.Time { return clock }, slog.New(slog.NewTextHandler(&log, nil))
		g, _ := gate(t, c.config)
		warned := func() int { return strings.Count(log.String(), "identity headers arrived and are not read") }
		for range 3 {
			_, _ = g.Identify(request(proxy, c.header, "ana-secret"))
			clock = clock.Add(unreadPause / 3)
		}
		want := map[bool]int{true: 1}[c.warns]
		must.Hold(t, warned() == want && (!c.warns || strings.Contains(log.String(), "headers=["+c.header+"] peer=10.0.0.7")) && !strings.Contains(log.String(), "ana-secret"), "%s: %d lines, want %d:\n%s", name, warned(), want, log.String())
		_, _ = g.Identify(request(proxy, c.header, "ana"))
		must.Hold(t, warned() == 2*want && (!c.warns || strings.Contains(log.String(), "left_out=2")), "%s: a minute later there are %d lines, want %d:\n%s", name, warned(), 2*want, &log)
	}
}

func TestIdentify_logsOneLineASecondForEachReason(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	clock := now
	g, _ := gate(t, Config{Kind: KindProxyHeader, UserHeader: "X-User", Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")},
		Grants: operator.Grants{operator.RoleViewer: {"*"}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return clock }})
	forged := request("192.0.2.1:80", "X-User", "ana\nlevel=ERROR msg=forged")
	forged = forged.WithContext(operator.WithRequestID(forged.Context(), "r-1", "p-1"))
	for range 500 {
		_, _ = g.Identify(forged)
	}
	_, _ = g.Identify(request(proxy))
	clock = clock.Add(time.Second)
	_, _ = g.Identify(forged)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	must.Hold(t, len(lines) == 3 && strings.Contains(lines[0], "why=untrusted") && strings.Contains(lines[0], "peer=192.0.2.1") && strings.Contains(lines[0], "request_id=r-1 proxy_request_id=p-1") && strings.Contains(lines[1], "why=absent") && strings.Contains(lines[2], "left_out=499"), "the log is:\n%s", log.String())
}
