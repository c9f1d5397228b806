package outboxweb

import (
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Operator is the person or program that a request is from. The name is shown and kept in the audit
// log.
type Operator struct {
	Name string
	Role Role
}

// Role is what an operator may do. Each includes the ones before it.
type Role string

// The roles.
const (
	RoleViewer   Role = Role(operator.RoleViewer)   // may read
	RoleOperator Role = Role(operator.RoleOperator) // may also append, requeue, pause and repair
	RoleAdmin    Role = Role(operator.RoleAdmin)    // may also skip events, move publishers, reveal hidden values and revoke API tokens
)

// ProxyHeader says how a proxy in front of your program names the user of a request: in a header that
// it sets, whatever the client sent. Fields that Preset fills in may be empty.
type ProxyHeader struct {
	Preset       string // oauth2-proxy, authelia or tailscale
	UserHeader   string // such as X-Forwarded-Email
	GroupsHeader string // such as X-Forwarded-Groups. Empty means no groups
	GroupsFormat string // repeated: the header once for each group; json: an array of strings
	// InsecureCommaGroups reads groups with commas between, and accepts that a user who may name a group
	// gains the roles of others: "a, ops" is also in "ops".
	InsecureCommaGroups bool
	SecretHeader        string // carries Secret, which the proxy alone sends. Empty means that the address suffices
	Secret              string // 16 bytes or more
	// Trusted are the addresses of the proxy. They are compared with Request.RemoteAddr as net/http sets
	// it, so no middleware in front may rewrite it. Unix trusts every peer of a Unix socket.
	Trusted []netip.Prefix
	Unix    bool
	// Roles are the users who have a role, as user:NAME, group:NAME or * for everyone. The highest counts.
	Roles map[Role][]string
}

// FromProxyHeader returns a function for Engine.Handler that identifies operators by the header of a
// trusted proxy. It may be called concurrently. Its errors are sentences that the console shows:
// ErrUnidentified without a valid header (401), ErrNoRole for a user without a role (403), and ErrRefused
// for one whose name, groups or assertion cannot be used (403). A configuration that cannot work, or that
// anybody could abuse, is ErrSetup.
func FromProxyHeader(h ProxyHeader) (func(*http.Request) (Operator, error), error) {
	return identifying(h.Roles, auth.Config{Kind: auth.KindProxyHeader, Preset: h.Preset, UserHeader: h.UserHeader, GroupsHeader: h.GroupsHeader,
		GroupsFormat: h.GroupsFormat, InsecureCommaGroups: h.InsecureCommaGroups, SecretHeader: h.SecretHeader, Secret: h.Secret, Trusted: h.Trusted, TrustUnix: h.Unix})
}

// Assertion says how a proxy or an identity provider signs who the user of a request is: in a JWT.
// Fields that Preset fills in may be empty.
type Assertion struct {
	Preset      string   // cloudflare-access, google-iap, pomerium or oauth2-proxy
	Header      string   // that carries the JWT, such as X-Goog-Iap-Jwt-Assertion
	Issuer      string   // exactly as in the JWT
	Audience    []string // the JWT must have one of them
	JWKS        string   // the issuer's public keys: an https URL, or the name of a file, which is read once
	Algorithms  []string // empty means those of the preset, or RS256 and ES256
	UserClaim   string   // empty means that of the preset, or email
	GroupsClaim string   // empty means that of the preset, or groups
	// Roles are the users who have a role, as user:NAME, group:NAME or * for everyone. The highest counts.
	Roles map[Role][]string
}

// FromAssertion is FromProxyHeader for signed assertions, which need no trusted address. While the
// issuer's keys cannot be had, its error is ErrBusy (503).
func FromAssertion(a Assertion) (func(*http.Request) (Operator, error), error) {
	return identifying(a.Roles, auth.Config{Kind: auth.KindJWT, Preset: a.Preset, Header: a.Header, Issuer: a.Issuer, Audience: a.Audience, JWKS: a.JWKS,
		Algorithms: a.Algorithms, UserClaim: a.UserClaim, GroupsClaim: a.GroupsClaim})
}

func identifying(roles map[Role][]string, c auth.Config) (func(*http.Request) (Operator, error), error) {
	c.Grants, c.Logger = operator.Grants{}, slog.New(slog.DiscardHandler)
	for role, users := range roles {
		known, err := operator.ParseRole(string(role))
		if err != nil {
			return nil, event.Setup("Roles: %v", err)
		}
		c.Grants[known] = users
	}
	who, err := auth.ForHost(c)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (Operator, error) {
		is, err := who(r)
		return Operator{Name: is.Name, Role: Role(is.Role)}, err
	}, nil
}
