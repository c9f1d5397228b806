package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

type signer struct {
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

func newSigner(t testing.TB, id string, alg jose.SignatureAlgorithm) signer {
	var key crypto.Signer
	var err error
	switch alg {
	case jose.RS256, jose.PS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	must.OK(t, err)
	return signer{id: id, alg: alg, key: key}
}

func (s signer) public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: string(s.alg), Use: "sig"}
}

func (s signer) sign(t testing.TB, claims map[string]any) string {
	return s.signText(t, asJSON(t, claims), nil)
}

func (s signer) signText(t testing.TB, payload []byte, options *jose.SignerOptions) string {
	var key any = jose.JSONWebKey{Key: s.key, KeyID: s.id}
	if options != nil && options.EmbedJWK {
		key = s.key
	}
	by := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: key}, options)).Or(t)
	signed := must.Get(by.Sign(payload)).Or(t)
	return must.Get(signed.CompactSerialize()).Or(t)
}

func asJSON(t testing.TB, v any) []byte { return must.Get(json.Marshal(v)).Or(t) }

func keySet(t testing.TB, signers ...signer) []byte {
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, s.public())
	}
	return asJSON(t, set)
}

const issuer = "https://sso.example.org"

// good are the claims of a valid assertion; change replaces some, and nil removes one.
func good(change ...map[string]any) map[string]any {
	claims := map[string]any{"iss": issuer, "aud": []string{"other", "outboxweb"}, "sub": "1", "email": "ana@example.org",
		"groups": []string{"ops", "dev"}, "iat": now.Unix() - 10, "nbf": now.Unix() - 10, "exp": now.Unix() + 300}
	for _, c := range change {
		maps.Copy(claims, c)
	}
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

func jwtConfig(keys string) Config {
	return Config{Kind: KindJWT, Header: "X-Assertion", Issuer: issuer, Audience: []string{"outboxweb", "outboxweb-2"}, JWKS: keys,
		Algorithms: []string{"RS256", "ES256", "EdDSA"}, Grants: operator.Grants{operator.RoleOperator: {"group:ops"}, operator.RoleViewer: {"user:bea"}}}
}

func asserting(text string) *http.Request { return request("192.0.2.1:80", "X-Assertion", text) }

func encoded(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

// byHand creates a JWT with the given header, signed by HMAC or not at all.
func byHand(t testing.TB, head map[string]any, claims map[string]any, secret []byte) string {
	text := encoded(asJSON(t, head)) + "." + encoded(asJSON(t, claims))
	if secret == nil {
		return text + "."
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + encoded(mac.Sum(nil))
}

func TestAssertion_ofEveryKindOfKeyIsTaken(t *testing.T) {
	t.Parallel()
	signers := []signer{newSigner(t, "r", jose.RS256), newSigner(t, "e", jose.ES256), newSigner(t, "d", jose.EdDSA)}
	file := filepath.Join(t.TempDir(), "keys.json")
	must.OK(t, os.WriteFile(file, keySet(t, signers...), 0o600))
	remote := newKeyServer(t, signers...)
	for _, keys := range []string{file, remote.URL} {
		g, told := gate(t, jwtConfig(keys))
		for _, s := range signers {
			wantUser(t, g, asserting(s.sign(t, good())), "ana@example.org", operator.RoleOperator, "ops")
			wantUser(t, g, asserting("Bearer "+s.sign(t, good(map[string]any{"aud": "outboxweb-2"}))), "ana@example.org", operator.RoleOperator, "ops")
			s.id = ""
			wantUser(t, g, asserting(s.sign(t, good(map[string]any{"iat": now.Unix() + 59, "nbf": now.Unix() + 59}))), "ana@example.org", operator.RoleOperator, "ops")
		}
		wantDenied(t, g, told, asserting(signers[0].sign(t, good(map[string]any{"groups": "dev"}))), whyRole, `"dev"`)
	}
	must.Equal(t, remote.asked.Load(), 1, "how often the key server was asked")
}

func TestAssertion_thatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	rs, es, stranger := newSigner(t, "r", jose.RS256), newSigner(t, "e", jose.ES256), newSigner(t, "r", jose.RS256)
	ps := signer{id: "r", alg: jose.PS256, key: rs.key}
	config := jwtConfig(newKeyServer(t, rs, es).URL)
	der := must.Get(x509.MarshalPKIXPublicKey(rs.key.Public())).Or(t)
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	raw := func(payload string) string { return rs.signText(t, []byte(payload), nil) }
	changed := func(name string, value any) string { return rs.sign(t, good(map[string]any{name: value})) }
	embedded := signer{id: "", alg: jose.RS256, key: stranger.key}
	twice := func() string {
		by := must.Get(jose.NewMultiSigner([]jose.SigningKey{{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: rs.key, KeyID: "r"}}, {Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: es.key, KeyID: "e"}}}, nil)).Or(t)
		signed := must.Get(by.Sign(asJSON(t, good()))).Or(t)
		return signed.FullSerialize()
	}()
	one := must.Get(jose.ParseSignedCompact(rs.sign(t, good()), []jose.SignatureAlgorithm{jose.RS256})).Or(t)
	for _, c := range []struct{ name, text, why string }{
		{"none", byHand(t, map[string]any{"alg": "none"}, good(), nil), whyMalformed},
		{"None", byHand(t, map[string]any{"alg": "None", "kid": "r"}, good(), nil), whyMalformed},
		{"no algorithm", byHand(t, map[string]any{"kid": "r"}, good(), nil), whyMalformed},
		{"HS256 with PEM", byHand(t, map[string]any{"alg": "HS256", "kid": "r", "typ": "JWT"}, good(), asPEM), whyMalformed},
		{"RS256 in name, by HMAC", byHand(t, map[string]any{"alg": "RS256", "kid": "r"}, good(), asPEM), whySignature},
		{"PS256, which is not allowed", ps.sign(t, good()), whyMalformed},
		{"wrong audience", changed("aud", "outboxweb-3"), whyAudience},
		{"no audience", changed("aud", nil), whyAudience},
		{"part of an audience", changed("aud", "outbox"), whyAudience},
		{"wrong issuer", changed("iss", "https://sso.example.com"), whyIssuer},
		{"issuer with a slash", changed("iss", issuer+"/"), whyIssuer},
		{"no issuer", changed("iss", nil), whyIssuer},
		{"unknown key", signer{id: "x", alg: jose.RS256, key: stranger.key}.sign(t, good()), whySignature},
		{"known id, other key", stranger.sign(t, good()), whySignature},
		{"no id, other key", embedded.sign(t, good()), whySignature},
		{"known id, key of another", signer{id: "e", alg: jose.RS256, key: rs.key}.sign(t, good()), whySignature},
		{"embedded key", stranger.signText(t, asJSON(t, good()), &jose.SignerOptions{EmbedJWK: true}), whySignature},
		{"two signatures", twice, whyMalformed},
		{"one signature as an object", one.FullSerialize(), whyMalformed},
		{"twice in one header", rs.sign(t, good()) + "," + rs.sign(t, good()), whyMalformed},
		{"huge", changed("filler", strings.Repeat("x", 40<<10)), whyMalformed},
		{"no user", changed("email", nil), whyClaims},
		{"user that is a number", changed("email", 7), whyClaims},
		{"user that is a list", changed("email", []string{"ana"}), whyClaims},
		{"user with a newline", changed("email", "ana\nbea"), whyName},
		{"empty user", changed("email", ""), whyName},
		{"not verified", changed("email_verified", false), whyClaims},
		{"groups that are numbers", changed("groups", []int{1}), whyClaims},
		{"groups that are an object", changed("groups", map[string]any{"ops": true}), whyClaims},
		{"no JSON", raw("ops"), whyMalformed},
		{"empty", "..", whyMalformed},
		{"nothing after Bearer", "Bearer ", whyMalformed},
		{"Bearer twice", "Bearer Bearer " + rs.sign(t, good()), whyMalformed},
		{"critical header", rs.signText(t, asJSON(t, good()), (&jose.SignerOptions{}).WithCritical("x-new").WithHeader("x-new", true)), whySignature},
		{"critical header of nothing", withHeader(t, rs, "crit", []string{}), whyMalformed},
		{"critical header that is null", withHeader(t, rs, "crit", nil), whyMalformed},
		{"Crit", withHeader(t, rs, "Crit", []string{"x-new"}), whyMalformed},
		{"Kid", withHeader(t, rs, "Kid", "x"), whyMalformed},
		{"ALG", withHeader(t, rs, "ALG", "none"), whyMalformed},
		{"kid with the sign of Kelvin", withHeader(t, rs, "\u212aid", "x"), whyMalformed},
		{"kid twice", doubled(t, rs, `"kid":"r"`), whyMalformed},
		{"AUD", changed("AUD", "outboxweb"), whyMalformed},
		{"AUD of another's", raw(claimsAnd(t, good(map[string]any{"aud": "them"}), `"AUD":"outboxweb"`)), whyMalformed},
		{"Iss", raw(claimsAnd(t, good(map[string]any{"iss": "them"}), `"Iss":"`+issuer+`"`)), whyMalformed},
		{"EXP", raw(claimsAnd(t, good(map[string]any{"exp": now.Unix() - 1}), fmt.Sprintf(`"EXP":%d`, now.Unix()+300))), whyMalformed},
		{"NBF", changed("NBF", 0), whyMalformed},
		{"iAt", changed("iAt", 0), whyMalformed},
		{"Jti", changed("Jti", 0), whyMalformed},
		{"sub with a long s", changed("\u017fub", "bea"), whyMalformed},
		{"Email", changed("Email", "bea"), whyMalformed},
		{"Email_Verified", changed("Email_Verified", true), whyMalformed},
		{"groups with a long s", changed("group\u017f", "ops"), whyMalformed},
		{"aud twice", raw(claimsAnd(t, good(), `"aud":"outboxweb"`)), whyMalformed},
		{"aud twice, once escaped", raw(claimsAnd(t, good(map[string]any{"aud": "them"}), `"\u0061ud":"outboxweb"`)), whyMalformed},
		{"a claim of no meaning twice", raw(claimsAnd(t, good(), `"x":{"y":1,"y":2}`)), whyMalformed},
		{"a list of claims", raw("[" + string(asJSON(t, good())) + "]"), whyMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, told := gate(t, config) // which may fetch the keys
			wantDenied(t, g, told, asserting(c.text), c.why, "ssertion")
		})
	}
	g, told := gate(t, config)
	text := rs.sign(t, good())
	for cut := 0; cut < len(text); cut += 10 {
		who, err := g.Identify(asserting(text[:cut]))
		must.Hold(t, err != nil, "cut off after %d bytes it identifies %+v", cut, who)
	}
	wantDenied(t, g, told, request("192.0.2.1:80"), whyAbsent, "X-Assertion is missing")
	wantDenied(t, g, told, request("192.0.2.1:80", "X-Assertion", text, "X-Assertion", text), whyDuplicate, "2 times")
	wantDenied(t, g, told, request("192.0.2.1:80", "X-Assertion", text, "X_assertion", text), whyVariant, "X_assertion")
	wantDenied(t, g, told, request("192.0.2.1:80", "X-Assertion", text, "Authorization", token), whyTogether, "X-Assertion")
	wantUser(t, g, asserting(text), "ana@example.org", operator.RoleOperator, "ops")
}

func withHeader(t testing.TB, s signer, name string, value any) string {
	return s.signText(t, asJSON(t, good()), (&jose.SignerOptions{}).WithHeader(jose.HeaderKey(name), value))
}

// doubled repeats a raw member of the header.
func doubled(t testing.TB, s signer, member string) string {
	_, rest, _ := strings.Cut(s.sign(t, good()), ".")
	return encoded([]byte(`{"alg":"RS256",`+member+`,`+member+`}`)) + "." + rest
}

func claimsAnd(t testing.TB, claims map[string]any, member string) string {
	return strings.TrimSuffix(string(asJSON(t, claims)), "}") + "," + member + "}"
}

// An issuer's clock may be up to a minute ahead or behind.
func TestAssertion_isTakenWithinAMinuteOfItsTimes(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k", jose.ES256)
	g, told := gate(t, jwtConfig(newKeyServer(t, s).URL))
	at := func(name string, seconds float64) map[string]any {
		return map[string]any{name: float64(now.Unix()) + seconds}
	}
	for _, c := range []struct {
		claims    map[string]any
		why, text string // empty: taken
	}{
		{at("exp", 0), "", ""},
		{at("exp", -59.5), "", ""},
		{at("exp", -60), whyOutlived, "expired at 2026-11-21 06:59:00 UTC, 1 min ago, so the proxy's session outlives it: sign out and in again, and let the proxy refresh it"},
		{at("exp", -3600), whyOutlived, "expired at 2026-11-21 06:00:00 UTC, 1 h ago"},
		{at("exp", -1e300), whyOutlived, "expired at 1970-01-01 00:00:00 UTC"},
		{at("nbf", 60), "", ""},
		{at("nbf", 60.5), whyFuture, "compare the clocks"},
		{at("iat", 60), "", ""},
		{at("iat", 60.5), whyFuture, "compare the clocks"},
		{at("iat", 1e300), whyFuture, "compare the clocks"},
		{map[string]any{"nbf": nil, "iat": nil}, "", ""},
		{at("nbf", 3600), whyFuture, "compare the clocks"},
		{map[string]any{"exp": "soon"}, whyMalformed, "invalid claims"},
		{map[string]any{"nbf": "soon"}, whyMalformed, "invalid claims"},
		{map[string]any{"nbf": fmt.Sprint(now.Unix() + 3600)}, whyMalformed, `"nbf" is not a number`},
		{map[string]any{"exp": fmt.Sprint(now.Unix() + 3600)}, whyMalformed, `"exp" is not a number`},
		{map[string]any{"exp": nil}, whyMalformed, `"exp" is missing`},
		{map[string]any{"exp": now.Unix() - 3600, "aud": "other"}, whyAudience, "another audience"},
		{map[string]any{"exp": now.Unix() - 3600, "iss": "other"}, whyIssuer, "another issuer"},
	} {
		if r := asserting(s.sign(t, good(c.claims))); c.why == "" {
			wantUser(t, g, r, "ana@example.org", operator.RoleOperator, "ops")
		} else {
			wantDenied(t, g, told, r, c.why, c.text)
		}
	}
}

func TestAssertion_claimsByPath(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "e", jose.ES256)
	c := jwtConfig(newKeyServer(t, s).URL)
	c.UserClaim, c.GroupsClaim = "https://example.org/user", "custom.realm.groups"
	g, told := gate(t, c)
	wantUser(t, g, asserting(s.sign(t, good(map[string]any{"https://example.org/user": "bea", "email": nil,
		"custom": map[string]any{"realm": map[string]any{"groups": []string{"ops"}}}}))), "bea", operator.RoleOperator, "ops")
	wantUser(t, g, asserting(s.sign(t, good(map[string]any{"https://example.org/user": "bea", "custom": "none"}))), "bea", operator.RoleViewer)
	wantUser(t, g, asserting(s.sign(t, good(map[string]any{"https://example.org/user": "bea", "custom.realm.groups": "ops"}))), "bea", operator.RoleOperator, "ops")
	for _, claims := range []map[string]any{
		{"https://example.org/USER": "bea"},
		{"Custom.Realm.Groups": "ops"},
		{"Custom": "none"},
		{"custom": map[string]any{"Realm": map[string]any{"groups": []string{"ops"}}}},
		{"custom": map[string]any{"realm": map[string]any{"Groups": []string{"ops"}}}},
	} {
		claims["https://example.org/user"] = "bea"
		wantDenied(t, g, told, asserting(s.sign(t, good(claims))), whyMalformed, "could be taken for")
	}
	wantUser(t, g, asserting(s.sign(t, good(map[string]any{"https://example.org/user": "bea", "other": map[string]any{"Sub": 1, "AUD": 2}, "Email": "x"}))), "bea", operator.RoleViewer)
}

// Rules for groups that no assertion can match are a mistake of the configuration.
func TestAssertion_withoutTheGroupsThatRulesNameSaysSo(t *testing.T) {
	t.Parallel()
	s := newSigner(t, "k-1", jose.ES256)
	c := jwtConfig(newKeyServer(t, s).URL)
	c.GroupsClaim, c.Grants = "roles", operator.Grants{operator.RoleViewer: {"user:ana@example.org"}, operator.RoleOperator: {"group:ops"}}
	g, told := gate(t, c)
	who, err := g.Identify(asserting(s.sign(t, good())))
	must.Hold(t, err == nil && len(who.Hints) == 1 && strings.Contains(who.Hints[0], `no claim "roles"`) && strings.Contains(who.Lacks(operator.RoleOperator), who.Hints[0]), "%+v, %v", who, err)
	wantDenied(t, g, told, asserting(s.sign(t, good(map[string]any{"email": "eve@example.org"}))), whyRole, `no claim "roles"`)
}
