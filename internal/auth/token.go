package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

const (
	authorization = "Authorization"
	tokenPrefix   = "obw_"
	tokenBytes    = 32 // of randomness
)

// NewToken generates a token: its text, which is shown once, and the hash to store.
func NewToken() (text, hash string) {
	var chance [tokenBytes]byte
	_, _ = rand.Read(chance[:]) // never fails: the program ends instead
	text = tokenPrefix + base64.RawURLEncoding.EncodeToString(chance[:])
	return text, HashToken(text)
}

// WellFormed reports whether a text looks like a token's.
func WellFormed(text string) bool {
	secret, found := strings.CutPrefix(text, tokenPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	return found && err == nil && len(raw) == tokenBytes && !strings.ContainsAny(secret, "\r\n")
}

// HashToken is the SHA-256 of a token's text, in hex. The text is random, so a slower hash is
// not needed.
func HashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// bearer returns the bearer token of the Authorization header. Other schemes are ignored: they
// belong to proxies in front of this server.
func bearer(h http.Header) (text string, shown bool, denied *denial) {
	scheme, denied := once(h, authorization)
	if end := strings.IndexAny(scheme, " \t"); end >= 0 {
		scheme, text = scheme[:end], strings.TrimPrefix(scheme[end:], " ") // a tab stays and makes the token invalid
	}
	return text, strings.EqualFold(scheme, "Bearer"), denied
}

// byToken identifies the owner of an API token.
func (g *Gate) byToken(ctx context.Context, text string) (operator.Identity, *denial) {
	var nobody operator.Identity
	if !WellFormed(text) {
		return nobody, deny(whyMalformed, "the bearer token was not issued by this server: its tokens are %s and 43 characters; create one with outboxweb token create", tokenPrefix)
	}
	if g.config.Tokens == nil {
		return nobody, deny(whyUnknown, "this server accepts no API tokens")
	}
	token, err := g.config.Tokens(ctx, HashToken(text))
	now := g.config.Now()
	switch {
	case errors.Is(err, event.ErrNotFound):
		return nobody, deny(whyUnknown, "there is no such token; list them with outboxweb token list")
	case err != nil:
		return nobody, temporaryDenial(err, "the token cannot be looked up at the moment: the database is busy or unavailable; try again in a moment")
	case token.RevokedAt != nil:
		return nobody, deny(whyRevoked, "token %d was revoked on %s", token.ID, token.RevokedAt.UTC().Format(time.DateOnly))
	case token.State(now) != "valid":
		return nobody, deny(whyExpired, "token %d expired on %s", token.ID, token.ExpiresAt.UTC().Format(time.DateOnly))
	}
	return token.Identity(), nil
}
