package auth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

const (
	maxAssertion = 16 << 10    // bytes
	skew         = time.Minute // tolerated advance of an issuer's clock
)

// assertions verifies signed assertions.
type assertions struct {
	config Config
	keys   oidc.KeySet
	verify oidc.Config
}

func newAssertions(c Config) (*assertions, error) {
	keys, err := openKeys(c)
	if err != nil {
		return nil, err
	}
	return &assertions{config: c, keys: keys, verify: oidc.Config{
		SupportedSigningAlgs: c.Algorithms,
		SkipClientIDCheck:    true, // there may be several audiences, which verifiedClaims compares
		Now:                  c.Now,
	}}, nil
}

// byAssertion identifies the user named by a signed assertion. The peer does not matter, only
// the signature.
func (g *Gate) byAssertion(r *http.Request) (outbox.Identity, *denial) {
	text, denied := single(r.Header, g.config.Header)
	if denied != nil {
		return outbox.Identity{}, denied
	}
	claims, denied := g.assert.verifiedClaims(r.Context(), strings.TrimPrefix(text, "Bearer "))
	if denied != nil {
		return outbox.Identity{}, denied
	}
	name, groups, denied := g.assert.user(claims)
	if denied != nil {
		return outbox.Identity{}, denied
	}
	return g.admit(outbox.AuthJWT, name, groups)
}

// asked is one verification against a key set. The verifier formats errors as text; asked keeps
// the original error and the signed payload.
type asked struct {
	keys   oidc.KeySet
	called bool
	err    error
	signed []byte
}

// VerifySignature implements oidc.KeySet.
func (a *asked) VerifySignature(ctx context.Context, text string) ([]byte, error) {
	a.called = true
	a.signed, a.err = a.keys.VerifySignature(ctx, text)
	return a.signed, a.err
}

// verifiedClaims returns the claims of an assertion that is signed by the issuer, for this
// audience, and currently valid.
func (a *assertions) verifiedClaims(ctx context.Context, text string) (map[string]any, *denial) {
	if len(text) > maxAssertion || !compact(text) {
		return nil, deny(whyMalformed, "the assertion in the header %s is not a signed JWT of three parts and at most 16 KiB", a.config.Header)
	}
	if wrong := wrongHead(text); wrong != "" {
		return nil, deny(whyMalformed, "the assertion in the header %s %s", a.config.Header, wrong)
	}
	ask := &asked{keys: a.keys}
	token, err := oidc.NewVerifier(a.config.Issuer, ask, &a.verify).Verify(ctx, text)
	switch {
	case errors.Is(ask.err, errNoKeys):
		return nil, temporaryDenial(ask.err, "the issuer's keys cannot be read at the moment, so the signature cannot be checked; try again in a few seconds")
	case ask.err != nil:
		return nil, deny(whySignature, "the assertion in the header %s is not signed with one of the issuer's keys", a.config.Header)
	case !ask.called:
		return nil, deny(whyMalformed, "the assertion in the header %s is not a JWT signed with %s", a.config.Header, outbox.OrList(a.config.Algorithms))
	}
	// The verifier matches claim names case-insensitively.
	claims, wrong := members(ask.signed, append([]string{a.config.UserClaim, a.config.GroupsClaim}, knownClaims...))
	switch expired := (*oidc.TokenExpiredError)(nil); {
	case wrong != "":
		return nil, deny(whyMalformed, "the assertion in the header %s has invalid claims: their object %s", a.config.Header, wrong)
	case errors.As(err, &expired):
		return nil, deny(whyExpired, "the assertion in the header %s has expired, or has no expiry", a.config.Header)
	case err != nil:
		return nil, a.refused(ask.signed)
	case !slices.ContainsFunc(token.Audience, func(of string) bool { return slices.Contains(a.config.Audience, of) }):
		return nil, deny(whyAudience, "the assertion in the header %s is for another audience", a.config.Header)
	}
	latest := float64(a.config.Now().Add(skew).Unix())
	for _, name := range []string{"nbf", "iat"} {
		if from, told := claims[name].(float64); told && from > latest {
			return nil, deny(whyFuture, "the assertion in the header %s is not valid yet: compare the clocks of both machines", a.config.Header)
		}
	}
	return claims, nil
}

// refused says why the verifier refused an assertion with a valid signature.
func (a *assertions) refused(signed []byte) *denial {
	var claims struct {
		Issuer    string  `json:"iss"`
		NotBefore float64 `json:"nbf"`
	}
	err := json.Unmarshal(signed, &claims)
	switch {
	case err == nil && claims.Issuer != a.config.Issuer:
		return deny(whyIssuer, "the assertion in the header %s is from another issuer", a.config.Header)
	case err == nil && claims.NotBefore > float64(a.config.Now().Unix()):
		return deny(whyFuture, "the assertion in the header %s is not valid yet: compare the clocks of both machines", a.config.Header)
	}
	return deny(whyMalformed, "the assertion in the header %s has invalid claims", a.config.Header)
}

// compact reports whether text is three parts in base64url. The other form of a JWS, an object,
// may have several signatures and unsigned headers.
func compact(text string) bool {
	return strings.Count(text, ".") == 2 && !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
	})
}

// user reads the user from claims.
func (a *assertions) user(claims map[string]any) (name string, groups []string, denied *denial) {
	name, isText := claim(claims, a.config.UserClaim).(string)
	if !isText {
		return "", nil, deny(whyClaims, "the assertion's claim %q, which names the user, is missing or not a string", a.config.UserClaim)
	}
	if wrong := wrongName(name); wrong != "" {
		return "", nil, deny(whyClaims, "the assertion's claim %q, which names the user, %s", a.config.UserClaim, wrong)
	}
	if verified, told := claims["email_verified"]; a.config.UserClaim == "email" && told && verified != true && verified != "true" {
		return "", nil, deny(whyClaims, "the assertion says that its e-mail address is not verified")
	}
	groups, denied = a.groups(claims)
	return name, groups, denied
}

// groups reads a list of strings or one string; without the claim there are no groups.
func (a *assertions) groups(claims map[string]any) ([]string, *denial) {
	if a.config.GroupsClaim == "" {
		return nil, nil
	}
	var groups []string
	switch found := claim(claims, a.config.GroupsClaim).(type) {
	case nil:
		return nil, nil
	case string:
		groups = []string{found}
	case []any:
		for _, one := range found {
			name, isText := one.(string)
			if !isText {
				return nil, deny(whyClaims, "the assertion's claim %q is not a list of strings", a.config.GroupsClaim)
			}
			groups = append(groups, name)
		}
	default:
		return nil, deny(whyClaims, "the assertion's claim %q is not a list of strings", a.config.GroupsClaim)
	}
	denied := wrongGroups(groups, "the assertion")
	if denied != nil {
		denied.why = whyClaims
	}
	return groups, denied
}

// claim finds a claim by its name or, when there is none, by a path of object names separated
// by dots.
func claim(claims map[string]any, path string) any {
	if found, is := claims[path]; is {
		return found
	}
	first, rest, more := strings.Cut(path, ".")
	inner, is := claims[first].(map[string]any)
	if !more || !is {
		return nil
	}
	return claim(inner, rest)
}
