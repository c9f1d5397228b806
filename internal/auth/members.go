package auth

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4/json" // refuses an object with a duplicate name
)

// Standard names: parameters of a header (RFC 7515, 7516, 7797) and claims (RFC 7519, and
// email_verified).
var (
	knownParameters = []string{"alg", "jku", "jwk", "kid", "x5u", "x5c", "x5t", "x5t#S256", "typ", "cty", "crit", "b64", "enc", "zip"}
	knownClaims     = []string{"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "email_verified"}
)

// wrongHead says what is wrong with the header of a three-part assertion; empty when nothing
// is. The verifier checks its algorithm and key.
func wrongHead(text string) string {
	head, _, _ := strings.Cut(text, ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return "has a JOSE header that is not in base64url"
	}
	parameters, wrong := members(raw, knownParameters)
	if wrong != "" {
		return "has a JOSE header that " + wrong
	}
	if critical, told := parameters["crit"]; told {
		if list, _ := critical.([]any); len(list) == 0 {
			return `has a JOSE header whose "crit" lists nothing`
		}
	}
	return ""
}

// members parses an object that every parser reads alike: it has no duplicate name, and no name
// that differs only in case from a known one. Known names may be paths as in claim. wrong is
// empty when nothing is wrong.
func members(raw []byte, known []string) (found map[string]any, wrong string) {
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, "is not a JSON object that has each name once"
	}
	for _, path := range known {
		if name, meant := lookalike(found, path); name != "" {
			return nil, fmt.Sprintf("has %q, which could be taken for %q", name, meant)
		}
	}
	return found, ""
}

// lookalike finds a name that differs only in case from one on the path of claim.
func lookalike(claims map[string]any, path string) (name, meant string) {
	first, rest, more := strings.Cut(path, ".")
	for name := range claims {
		for _, meant := range []string{path, first} {
			if name != meant && strings.EqualFold(name, meant) {
				return name, meant
			}
		}
	}
	if inner, is := claims[first].(map[string]any); more && is {
		return lookalike(inner, rest)
	}
	return "", ""
}
