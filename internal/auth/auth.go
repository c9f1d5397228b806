// Package auth identifies the sender of a request: by a proxy's signed assertion, by the header
// of a trusted proxy, or by an API token. Forwarding headers are never used to decide whether a
// peer is trusted: the peer is the other end of the socket.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Kinds of refusals.
var (
	// ErrUnidentified means that the request has no valid identity.
	ErrUnidentified = errors.New("not identified")
	// ErrNoRole means that the identity is valid and has no role.
	ErrNoRole = errors.New("no role")
	// ErrRefused means that a proxy or an issuer has named a user who cannot be admitted; signing in
	// again would change nothing.
	ErrRefused = errors.New("refused")
)

// Kind is the way browsers are identified. API tokens may be used beside each kind.
type Kind string

// The kinds. The empty kind is KindNone.
const (
	KindNone        Kind = "none"         // no authentication: every request is operator.Local()
	KindLocal       Kind = "local"        // the same, except that requests of a proxy are refused
	KindJWT         Kind = "jwt"          // a signed assertion in a header
	KindProxyHeader Kind = "proxy-header" // a plain header of a trusted proxy
	KindToken       Kind = "token"        // API tokens only
	KindHost        Kind = "host"         // by the program that embeds this server, with Config.Who
)

// Config says how requests are identified. Fields with a help are flags of serve; those that belong to some
// kinds only name them in the tag for.
type Config struct {
	Kind         Kind     `name:"auth" default:"local" enum:"local,none,jwt,proxy-header,token" placeholder:"KIND" help:"How users are authenticated: local (not at all; only for this machine, not for a proxy), jwt (a proxy's signed assertion), proxy-header (a trusted proxy's header), token (API tokens only), or none (not at all; everyone whom a proxy or the Unix socket admits is an admin)."`
	Preset       string   `name:"auth-preset" for:"jwt,proxy-header" placeholder:"PROXY" values:"preset" help:"Defaults for a known proxy. For jwt: cloudflare-access, google-iap, pomerium, oauth2-proxy; for proxy-header: oauth2-proxy, authelia, tailscale."`
	Header       string   `name:"auth-header" for:"jwt" placeholder:"NAME" help:"jwt: the header that carries the assertion. Not Authorization, which is for API tokens."`
	Issuer       string   `name:"auth-issuer" for:"jwt" placeholder:"TEXT" help:"jwt: the issuer, exactly as it appears in assertions. If it is an https address, its discovery document names the keys."`
	Audience     []string `name:"auth-audience" for:"jwt" placeholder:"TEXT" help:"jwt: an accepted audience. Repeatable."`
	JWKS         string   `name:"auth-jwks" for:"jwt" placeholder:"URL|FILE" help:"jwt: the issuer's public keys, a JSON Web Key Set: an https address or a file; needed where the issuer has no discovery document."`
	Algorithms   []string `name:"auth-algorithms" for:"jwt" placeholder:"NAME" help:"jwt: an accepted signature algorithm; RS256 and ES256 unless the preset says otherwise. Repeatable."`
	UserClaim    string   `name:"auth-user-claim" for:"jwt" placeholder:"NAME" help:"jwt: the claim that names the user; email unless the preset says otherwise. Use dots for nested claims."`
	GroupsClaim  string   `name:"auth-groups-claim" for:"jwt" placeholder:"NAME" help:"jwt: the claim that lists the user's groups; groups unless the preset says otherwise."`
	UserHeader   string   `name:"auth-user-header" for:"proxy-header" placeholder:"NAME" help:"proxy-header: the header that names the user."`
	GroupsHeader string   `name:"auth-groups-header" for:"proxy-header" placeholder:"NAME" help:"proxy-header: the header that lists the user's groups."`
	GroupsFormat string   `name:"auth-groups-format" for:"proxy-header" placeholder:"FORMAT" values:"groups-format" help:"proxy-header: how the header lists groups: repeated (the header once for each group) or json (an array of strings). Otherwise names are separated by commas, and roles cannot be granted to groups."`
	SecretHeader string   `name:"auth-secret-header" for:"proxy-header" placeholder:"NAME" help:"proxy-header: the header in which the proxy sends its secret."`
	SecretFile   string   `name:"auth-secret-file" placeholder:"FILE" help:"proxy-header: the file with the proxy's secret, at least 16 bytes."`
	SignOut      string   `name:"sign-out" for:"jwt,proxy-header" placeholder:"URL" help:"Where the pages' link Sign out leads: a path at the proxy's host, not below the base path, or an https URL. The presets oauth2-proxy, cloudflare-access, pomerium and google-iap have one."`
	Viewer       []string `placeholder:"ENTRY" help:"Who is a viewer: user:NAME, group:NAME, or * for every authenticated user. Repeatable."`
	Operator     []string `placeholder:"ENTRY" help:"Who is an operator: may also requeue, pause and repair. Repeatable."`
	Admin        []string `placeholder:"ENTRY" help:"Who is an admin: may also skip events, reveal redacted values and revoke API tokens. Repeatable."`
	Contact      string   `name:"contact" for:"jwt,proxy-header" placeholder:"TEXT" help:"Whom a signed-in user without a role is told to ask, such as “the platform team, #ops”. One line, at most 200 characters."`
	TrustedProxy []string `placeholder:"CIDR|unix" help:"The proxy's address, as seen by the socket, or unix for any client of the Unix socket. Repeatable."`

	InsecureCommaGroups bool `name:"insecure-comma-groups" for:"proxy-header" help:"proxy-header: split the header with the groups at commas, and accept the risk: a user who can name a group can gain the role of any other, since a group called “friends, ops” counts as ops."`

	// What the flags say, for programs that have it otherwise; New adds the flags' to it.
	Secret    string          `kong:"-" name:"auth-secret-file" for:"proxy-header"` // that of SecretFile, if there is one
	Grants    operator.Grants `kong:"-"`                                            // of roles, for KindJWT and KindProxyHeader
	Trusted   []netip.Prefix  `kong:"-"`                                            // proxies, by peer
	TrustUnix bool            `kong:"-"`                                            // any peer on the Unix socket

	// Who returns the identity of a request with its role, for KindHost, or an error, which is logged.
	Who func(*http.Request) (operator.Identity, error) `kong:"-"`
	// Tokens finds a token by the hash of its text. A missing one is event.ErrNotFound. nil
	// disables API tokens.
	Tokens func(ctx context.Context, hash string) (operator.Token, error) `kong:"-"`
	// Refused is called for every refusal, with the reason as one word. It may be nil.
	Refused func(why string) `kong:"-"`
	Logger  *slog.Logger     `kong:"-"` // nil means slog.Default()
	Now     func() time.Time `kong:"-"` // nil means time.Now

	refresh string // see preset
}

// Gate identifies requests. It is safe for concurrent use.
type Gate struct {
	config   Config
	watched  map[string]string // folded name → name, of all headers that identify
	assert   *assertions       // nil unless the kind is KindJWT
	headers  []string          // headers that identify a browser's user
	grumbles refusalLog
}

// New creates a gate. An invalid configuration is an *event.Refusal whose field is the name of
// the flag, without its dashes.
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

// Identify returns the identity of a request. Its error is an *event.Refusal of kind
// ErrUnidentified, ErrNoRole, ErrRefused or event.ErrBusy; it has been logged and counted. With a
// nil gate every request is the local operator.
func (g *Gate) Identify(r *http.Request) (operator.Identity, error) {
	if g == nil {
		return operator.Local(), nil
	}
	g.warnOfUnread(r)
	who, denied := g.identify(r)
	if denied != nil {
		g.recordRefusal(r, denied)
		if errors.Is(denied.refusal, ErrNoRole) || errors.Is(denied.refusal, ErrRefused) {
			denied.refusal.Detail += "; ask " + cmp.Or(g.config.Contact, "an administrator of this server")
		}
		return operator.Identity{}, denied.refusal
	}
	return who, nil
}

// SignOut is Config.SignOut, completed.
func (g *Gate) SignOut() string { return g.config.SignOut }

// Trusts reports whether the request's peer is a trusted proxy, which may name the user and the
// path prefix of the pages.
func (g *Gate) Trusts(r *http.Request) bool {
	return g != nil && g.trusts(peerOf(r))
}

// Kind returns how browsers are identified; KindNone for a nil gate.
func (g *Gate) Kind() Kind {
	if g == nil {
		return KindNone
	}
	return g.config.Kind
}

// denial is the reason why a request was refused.
type denial struct {
	why     string // the reason as one word, for counting
	refusal *event.Refusal
	cause   error // for the log, not for the client
}

// Error returns the sentence for the client.
func (d *denial) Error() string { return d.refusal.Error() }

func (d *denial) Unwrap() error { return d.refusal }

func deny(why, format string, args ...any) *denial {
	return &denial{why: why, refusal: &event.Refusal{Err: kindOf(why), Detail: fmt.Sprintf(format, args...)}}
}

// temporaryDenial is a denial that may end without a change by the client.
func temporaryDenial(cause error, format string, args ...any) *denial {
	denied := deny(whyUnavailable, format, args...)
	denied.cause = cause
	return denied
}

func (g *Gate) identify(r *http.Request) (operator.Identity, *denial) {
	if denied := g.refuseVariants(r.Header); denied != nil {
		return operator.Identity{}, denied
	}
	token, shown, denied := bearer(r.Header)
	if denied != nil {
		return operator.Identity{}, denied
	}
	if shown {
		for _, name := range g.headers {
			if len(r.Header.Values(name)) > 0 {
				return operator.Identity{}, deny(whyTogether, "the request has both a bearer token and the header %s; send one of them", name)
			}
		}
		return g.byToken(r.Context(), token)
	}
	switch g.config.Kind {
	case KindJWT:
		return g.byAssertion(r)
	case KindProxyHeader:
		return g.byHeader(r)
	case KindHost:
		return g.byHost(r)
	case KindLocal:
		return operator.Local(), refuseForwarded(r)
	case KindToken:
		return operator.Identity{}, deny(whyAbsent, "this server accepts API tokens only; send the header Authorization with “Bearer” and a token (%s…)", tokenPrefix)
	}
	return operator.Local(), nil
}

// admit gives a user the granted role. hints may say why a rule does not match.
func (g *Gate) admit(how operator.Auth, name string, groups []string, hints ...string) (operator.Identity, *denial) {
	grants := g.config.Grants
	who := operator.Identity{Name: name, Auth: how, Groups: grants.Naming(groups), Role: grants.RoleOf(name, groups), Hints: append(hints, grants.Misspelt(name, groups)...)}
	if who.Role != operator.RoleNone {
		return who, nil
	}
	why := fmt.Sprintf("%s grant one to user:NAME or group:NAME, spelled exactly", operator.RoleFlags())
	if len(who.Hints) > 0 {
		why = strings.Join(who.Hints, ", and ")
	}
	return operator.Identity{}, deny(whyRole, "you are signed in as %q, %s, and have no role here: %s", name, groupsText(groups), why)
}

// groupsNamed is the maximum number of groups listed in a message.
const groupsNamed = 20

func groupsText(groups []string) string {
	if len(groups) == 0 {
		return "in no groups"
	}
	var named []string
	for _, name := range groups[:min(len(groups), groupsNamed)] {
		named = append(named, fmt.Sprintf("%.*q", maxName, name))
	}
	text := "in the groups " + strings.Join(named, ", ")
	if more := len(groups) - groupsNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
