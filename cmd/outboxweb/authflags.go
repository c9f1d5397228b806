package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// authFlags configure how serve authenticates requests.
type authFlags struct {
	Auth             string   `default:"local" enum:"local,none,jwt,proxy-header,token" placeholder:"KIND" help:"How users are authenticated: local (not at all; only for this machine, not for a proxy), jwt (a proxy's signed assertion), proxy-header (a trusted proxy's header), token (API tokens only), or none (not at all; everyone whom a proxy or the Unix socket admits is an admin)."`
	AuthPreset       string   `placeholder:"PROXY" values:"preset" help:"Defaults for a known proxy. For jwt: cloudflare-access, google-iap, pomerium, oauth2-proxy; for proxy-header: oauth2-proxy, authelia, tailscale."`
	AuthHeader       string   `placeholder:"NAME" help:"jwt: the header that carries the assertion. Not Authorization, which is for API tokens."`
	AuthIssuer       string   `placeholder:"TEXT" help:"jwt: the issuer, exactly as it appears in assertions. If it is an https address, its discovery document names the keys."`
	AuthAudience     []string `placeholder:"TEXT" help:"jwt: an accepted audience. Repeatable."`
	AuthJWKS         string   `name:"auth-jwks" placeholder:"URL|FILE" help:"jwt: the issuer's public keys, a JSON Web Key Set: an https address or a file; needed where the issuer has no discovery document."`
	AuthAlgorithms   []string `placeholder:"NAME" help:"jwt: an accepted signature algorithm; RS256 and ES256 unless the preset says otherwise. Repeatable."`
	AuthUserClaim    string   `placeholder:"NAME" help:"jwt: the claim that names the user; email unless the preset says otherwise. Use dots for nested claims."`
	AuthGroupsClaim  string   `placeholder:"NAME" help:"jwt: the claim that lists the user's groups; groups unless the preset says otherwise."`
	AuthUserHeader   string   `placeholder:"NAME" help:"proxy-header: the header that names the user."`
	AuthGroupsHeader string   `placeholder:"NAME" help:"proxy-header: the header that lists the user's groups."`
	AuthGroupsFormat string   `placeholder:"FORMAT" values:"groups-format" help:"proxy-header: how the header lists groups: repeated (the header once for each group) or json (an array of strings). Otherwise names are separated by commas, and roles cannot be granted to groups."`
	AuthSecretHeader string   `placeholder:"NAME" help:"proxy-header: the header in which the proxy sends its secret."`
	AuthSecretFile   string   `placeholder:"FILE" help:"proxy-header: the file with the proxy's secret, at least 16 bytes."`
	SignOut          string   `placeholder:"URL" help:"Where the pages' link Sign out leads: a path at the proxy's host, not below the base path, or an https URL. The presets oauth2-proxy, cloudflare-access, pomerium and google-iap have one."`
	Viewer           []string `placeholder:"ENTRY" help:"Who is a viewer: user:NAME, group:NAME, or * for every authenticated user. Repeatable."`
	Operator         []string `placeholder:"ENTRY" help:"Who is an operator: may also requeue, pause and repair. Repeatable."`
	Admin            []string `placeholder:"ENTRY" help:"Who is an admin: may also skip events, reveal redacted values and revoke API tokens. Repeatable."`
	Contact          string   `placeholder:"TEXT" help:"Whom a signed-in user without a role is told to ask, such as “the platform team, #ops”. One line, at most 200 characters."`
	TrustedProxy     []string `placeholder:"CIDR|unix" help:"The proxy's address, as seen by the socket, or unix for any client of the Unix socket. Repeatable."`
	TokensFile       string   `placeholder:"FILE" help:"API tokens in addition to those in the database: lines with name, role and hash, as token hash prints them. Read at start."`
	InsecureNoAuth   bool     `help:"Listen on non-loopback addresses without authentication; only with --read-only."`

	InsecureCommaGroups bool `help:"proxy-header: split the header with the groups at commas, and accept the risk: a user who can name a group can gain the role of any other, since a group called “friends, ops” counts as ops."`
}

// kind is how users are authenticated. --insecure-no-auth admits everyone, also through a proxy.
func (f *authFlags) kind() auth.Kind {
	switch {
	case f.InsecureNoAuth && !f.authenticates():
		return auth.KindNone
	case f.Auth == "":
		return auth.KindLocal
	}
	return auth.Kind(f.Auth)
}

// authenticates reports whether users are told apart.
func (f *authFlags) authenticates() bool {
	return !slices.Contains([]auth.Kind{"", auth.KindLocal, auth.KindNone}, auth.Kind(f.Auth))
}

// letsProxiesAct reports whether the flags admit, or indicate, a proxy in front while no
// authentication tells its users apart.
func (c *serveCmd) letsProxiesAct() bool {
	return !c.authenticates() && !c.ReadOnly && (c.kind() == auth.KindNone || c.PublicOrigin != "" || len(c.TrustedProxy) > 0)
}

// config returns the authentication that the flags configure, without what only a running server
// has.
func (f *authFlags) config() (auth.Config, error) {
	c := auth.Config{Kind: f.kind(), Preset: f.AuthPreset, Header: f.AuthHeader, Issuer: f.AuthIssuer, Audience: f.AuthAudience, JWKS: f.AuthJWKS,
		Algorithms: f.AuthAlgorithms, UserClaim: f.AuthUserClaim, GroupsClaim: f.AuthGroupsClaim, UserHeader: f.AuthUserHeader,
		GroupsHeader: f.AuthGroupsHeader, GroupsFormat: f.AuthGroupsFormat, InsecureCommaGroups: f.InsecureCommaGroups, SecretHeader: f.AuthSecretHeader, Contact: f.Contact, SignOut: f.SignOut,
		Grants: outbox.Grants{outbox.RoleViewer: f.Viewer, outbox.RoleOperator: f.Operator, outbox.RoleAdmin: f.Admin}}
	for _, text := range f.TrustedProxy {
		prefix, unix, err := auth.ParsePeer(text)
		if err != nil {
			return c, err
		}
		if unix {
			c.TrustUnix = true
		} else {
			c.Trusted = append(c.Trusted, prefix)
		}
	}
	if f.AuthSecretFile == "" {
		return c, nil
	}
	var err error
	if c.Secret, err = readSecret(f.AuthSecretFile); err != nil {
		return c, outbox.Invalid("auth-secret-file", "%v", err)
	}
	return c, nil
}

// gate returns the authenticator of requests. st, collectors and log may be nil when only the flags
// are validated.
func (f *authFlags) gate(st *engine.Engine, collectors *metrics.Metrics, log *slog.Logger) (*auth.Gate, error) {
	c, err := f.config()
	if err != nil {
		return nil, asFlag(err)
	}
	c.Logger = log
	c.Tokens = func(ctx context.Context, hash string) (outbox.Token, error) { return st.ValidToken(ctx, hash) }
	if collectors != nil {
		c.Refused = func(why string) { collectors.IdentityRefused.WithLabelValues(why).Inc() }
	}
	g, err := auth.New(c)
	return g, asFlag(err)
}

// asFlag reports a refused configuration as wrong usage of its flag.
func asFlag(err error) error {
	if refusal, ok := errors.AsType[*outbox.Refusal](err); ok && refusal.Field != "" {
		return asUsage("--"+refusal.Field, refusal)
	}
	return err
}
