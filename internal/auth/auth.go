// Package auth tells who makes a request: by a proxy's signed assertion, by
// the header of a trusted proxy, or by the bearer token of a machine. Who
// somebody is is never taken from where a forwarding header says that the
// request came from: the peer is the other end of the socket.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

// Kinds of refusals.
var (
	// ErrUnidentified is that it is not known who asks.
	ErrUnidentified = errors.New("not identified")
	// ErrNoRole is that it is known who asks, and that one has no role.
	ErrNoRole = errors.New("no role")
)

// Kind is how browsers are identified. Machines may show a token beside each.
type Kind string

// The kinds. The empty kind is KindNone.
const (
	KindNone        Kind = "none"         // nobody is asked: everybody is outbox.Local()
	KindJWT         Kind = "jwt"          // a signed assertion in a header
	KindProxyHeader Kind = "proxy-header" // a plain header of a trusted proxy
	KindToken       Kind = "token"        // only machines, by their tokens
)

// Config says how requests are identified.
type Config struct {
	Kind   Kind
	Preset string // cloudflare-access, google-iap, pomerium, oauth2-proxy; or oauth2-proxy, authelia, tailscale

	// For KindJWT. What is empty is filled in by the preset.
	Header      string   // the header with the assertion
	Issuer      string   // as the assertions name it, to the letter
	Audience    []string // one of them must be among an assertion's audiences
	JWKS        string   // the issuer's public keys: an https URL, or the name of a file that New reads
	Algorithms  []string // asymmetric ones; RS256 and ES256 when there is no preset either
	UserClaim   string   // "email" when there is no preset either; a path with dots leads into objects
	GroupsClaim string   // "groups" when there is no preset either

	// For KindProxyHeader.
	UserHeader   string
	GroupsHeader string // a list with commas; no groups when empty
	SecretHeader string // how the proxy proves itself, beside its address; no such proof when empty
	Secret       string // at least 16 bytes

	// Trusted and TrustUnix are the peers that are proxies of ours.
	Trusted   []netip.Prefix
	TrustUnix bool // whoever can reach the Unix socket

	Grants outbox.Grants // for KindJWT and KindProxyHeader

	// Tokens finds a token by the hash of its text. One that is not there is
	// outbox.ErrNotFound. nil means that tokens are not taken.
	Tokens func(ctx context.Context, hash string) (outbox.Token, error)
	// Refused is told of every refusal, with a word for why. nil is nobody.
	Refused func(why string)
	Logger  *slog.Logger     // nil means slog.Default()
	Now     func() time.Time // nil means time.Now
}

// Gate identifies requests. It is safe for concurrent use.
type Gate struct {
	config   Config
	watched  map[string]string // folded name → name, of every header that counts
	assert   *assertions       // nil unless the kind is KindJWT
	headers  []string          // those that say who a browser's user is
	grumbles refusalLog
}

// New makes a gate. A wrong configuration is an *outbox.Refusal with the name
// of the flag at fault, without its dashes, as its field.
func New(c Config) (*Gate, error) {
	if c.Kind == "" {
		c.Kind = KindNone
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	g := &Gate{config: c, watched: map[string]string{}}
	switch c.Kind {
	case KindJWT:
		g.headers = []string{c.Header}
		var err error
		if g.assert, err = newAssertions(c); err != nil {
			return nil, err
		}
	case KindProxyHeader:
		g.headers = []string{c.UserHeader}
		if c.GroupsHeader != "" {
			g.headers = append(g.headers, c.GroupsHeader)
		}
	}
	for _, name := range append([]string{authorization, c.SecretHeader}, g.headers...) {
		if name != "" {
			g.watched[fold(name)] = name
		}
	}
	return g, nil
}

// Identify tells who makes a request. Its error is an *outbox.Refusal of kind
// ErrUnidentified, ErrNoRole or outbox.ErrBusy; it has been logged and counted.
// A nil gate lets everybody in as the local operator.
func (g *Gate) Identify(r *http.Request) (outbox.Identity, error) {
	if g == nil {
		return outbox.Local(), nil
	}
	who, denied := g.identify(r)
	if denied != nil {
		g.recordRefusal(r, denied)
		return outbox.Identity{}, denied.refusal
	}
	return who, nil
}

// Trusts reports whether the other end of the request's socket is a proxy that
// may say who the user is, and under which prefix it offers the pages.
func (g *Gate) Trusts(r *http.Request) bool {
	return g != nil && g.trusts(peerOf(r))
}

// denial is why a request was not let in.
type denial struct {
	why     string // a word by which it is counted
	refusal *outbox.Refusal
	cause   error // for the log, not for whoever asked
}

func deny(why, format string, args ...any) *denial {
	return &denial{why: why, refusal: &outbox.Refusal{Err: ErrUnidentified, Detail: fmt.Sprintf(format, args...)}}
}

// temporaryDenial is a denial that may end by itself.
func temporaryDenial(cause error, format string, args ...any) *denial {
	return &denial{why: whyUnavailable, cause: cause, refusal: &outbox.Refusal{Err: outbox.ErrBusy, Detail: fmt.Sprintf(format, args...)}}
}

func (g *Gate) identify(r *http.Request) (outbox.Identity, *denial) {
	if denied := g.refuseVariants(r.Header); denied != nil {
		return outbox.Identity{}, denied
	}
	token, shown, denied := bearer(r.Header)
	if denied != nil {
		return outbox.Identity{}, denied
	}
	if shown {
		for _, name := range g.headers {
			if len(r.Header.Values(name)) > 0 {
				return outbox.Identity{}, deny(whyTogether, "the request has both a bearer token and the header %s; send one of them", name)
			}
		}
		return g.byToken(r.Context(), token)
	}
	switch g.config.Kind {
	case KindJWT:
		return g.byAssertion(r)
	case KindProxyHeader:
		return g.byHeader(r)
	case KindToken:
		return outbox.Identity{}, deny(whyAbsent, "this server accepts API tokens only; send one as Authorization: Bearer %s…", tokenPrefix)
	}
	return outbox.Local(), nil
}

// admit gives a user the role that is granted.
func (g *Gate) admit(how outbox.Auth, name string, groups []string) (outbox.Identity, *denial) {
	who := outbox.Identity{Name: name, Auth: how, Groups: groups, Role: g.config.Grants.RoleOf(name, groups)}
	if who.Role != outbox.RoleNone {
		return who, nil
	}
	denied := deny(whyRole, "user %q, %s, has no role here; %s give one to user:NAME or group:NAME, to the letter", name, groupsText(groups), outbox.RoleFlags())
	denied.refusal.Err = ErrNoRole
	return outbox.Identity{}, denied
}

// groupsNamed is how many groups a sentence names.
const groupsNamed = 20

func groupsText(groups []string) string {
	if len(groups) == 0 {
		return "seen in no group"
	}
	var b strings.Builder
	b.WriteString("seen in the groups ")
	for i, name := range groups[:min(len(groups), groupsNamed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	if more := len(groups) - groupsNamed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
