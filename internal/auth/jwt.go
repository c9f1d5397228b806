package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

const (
	maxAssertion = 48 << 10    // bytes: some 500 groups of 60 characters
	skew         = time.Minute // tolerated difference of an issuer's clock, in both directions
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
		SkipExpiryCheck:      true, // untimely checks it
	}}, nil
}

// byAssertion identifies the user named by a signed assertion. The peer does not matter, only
// the signature.
func (g *Gate) byAssertion(r *http.Request) (operator.Identity, *denial) {
	text, denied := single(r.Header, g.config.Header)
	if denied != nil {
		return operator.Identity{}, denied
	}
	claims, denied := g.assert.verifiedClaims(r.Context(), strings.TrimPrefix(text, "Bearer "))
	if denied != nil {
		return operator.Identity{}, denied
	}
	name, groups, denied := g.assert.user(claims)
	if denied != nil {
		return operator.Identity{}, denied
	}
	var hints []string
	if of := g.config.GroupsClaim; claim(claims, of) == nil && g.config.Grants.NameGroups() {
		hints = []string{fmt.Sprintf("rules name groups, and the assertion has no claim %q: let the proxy ask the issuer for it, or name another with --auth-groups-claim", of)}
	}
	return g.admit(operator.AuthJWT, name, groups, hints...)
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
		return nil, deny(whyMalformed, "the assertion in the header %s is not a signed JWT of three parts and at most 48 KiB", a.config.Header)
	}
	if wrong := wrongHead(text); wrong != "" {
		return nil, deny(whyMalformed, "the assertion in the header %s %s", a.config.Header, wrong)
	}
	ask := &asked{keys: a.keys}
	token, err := oidc.NewVerifier(a.config.Issuer, ask, &a.verify).Verify(ctx, text)
	unknown, _ := errors.AsType[*denial](ask.err)
	switch {
	case unknown != nil:
		return nil, unknown
	case ask.err != nil:
		return nil, deny(whySignature, "the assertion in the header %s is not signed with one of the issuer's keys", a.config.Header)
	case !ask.called:
		return nil, deny(whyMalformed, "the assertion in the header %s is not a JWT signed with %s", a.config.Header, event.OrList(a.config.Algorithms))
	}
	// The verifier matches claim names case-insensitively.
	claims, wrong := members(ask.signed, append([]string{a.config.UserClaim, a.config.GroupsClaim}, knownClaims...))
	switch {
	case wrong != "":
		return nil, deny(whyMalformed, "the assertion in the header %s has invalid claims: their object %s", a.config.Header, wrong)
	case err != nil && claims["iss"] != a.config.Issuer:
		return nil, deny(whyIssuer, "the assertion in the header %s is from another issuer, %.200q: --auth-issuer is %q", a.config.Header, fmt.Sprint(claims["iss"]), a.config.Issuer)
	case err != nil:
		return nil, deny(whyMalformed, "the assertion in the header %s has invalid claims", a.config.Header)
	case !slices.ContainsFunc(token.Audience, func(of string) bool { return slices.Contains(a.config.Audience, of) }):
		return nil, deny(whyAudience, "the assertion in the header %s is for another audience, %.200q: --auth-audience is %q", a.config.Header, token.Audience, a.config.Audience)
	}
	return claims, a.untimely(claims)
}

// untimely refuses claims whose time has passed or is to come.
func (a *assertions) untimely(claims map[string]any) *denial {
	now := a.config.Now()
	for _, name := range []string{"exp", "nbf", "iat"} {
		value, told := claims[name]
		at, isNumber := value.(float64)
		switch off := at - float64(now.UnixMicro())/1e6; {
		case !told && name == "exp":
			return deny(whyMalformed, "the assertion in the header %s has invalid claims: %q is missing", a.config.Header, name)
		case !told:
		case !isNumber:
			return deny(whyMalformed, "the assertion in the header %s has invalid claims: %q is not a number", a.config.Header, name)
		case name == "exp" && off <= -skew.Seconds():
			expired := time.Unix(int64(max(at, 0)), 0)
			return deny(whyOutlived, "the assertion in the header %s expired at %s, %s ago, so the proxy's session outlives it: sign out and in again, and let the proxy refresh it%s; or compare the clocks of both machines",
				a.config.Header, event.Second(expired), event.Age(now.Sub(expired)), a.config.refresh)
		case name != "exp" && off > skew.Seconds():
			return deny(whyFuture, "the assertion in the header %s is not valid yet: compare the clocks of both machines", a.config.Header)
		}
	}
	return nil
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
		return "", nil, denyName(name, wrong, fmt.Sprintf("the assertion's claim %q", a.config.UserClaim))
	}
	if verified, told := claims["email_verified"]; a.config.UserClaim == "email" && told && verified != true && verified != "true" {
		return "", nil, deny(whyClaims, "you are signed in as %q, and the assertion says that this e-mail address is not verified", name)
	}
	groups, denied = a.groups(claims)
	return name, groups, denied
}

// groups reads a list of strings or one string; without the claim there are no groups.
func (a *assertions) groups(claims map[string]any) ([]string, *denial) {
	if a.config.GroupsClaim == "" {
		return nil, nil
	}
	found := claim(claims, a.config.GroupsClaim)
	if one, isText := found.(string); isText {
		return []string{one}, nil
	}
	groups, isList := texts(found)
	if found != nil && !isList {
		return nil, deny(whyClaims, "the assertion's claim %q, which lists your groups, is not a list of strings", a.config.GroupsClaim)
	}
	return groups, nil
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
