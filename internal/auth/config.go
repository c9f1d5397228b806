package auth

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// narrowest is the shortest prefix of a private network: fc00::/7.
const narrowest = 7

// minSecret is the minimum length of a proxy's secret, in bytes.
const minSecret = 16

// maxContact is the maximum length of Contact, in characters.
const maxContact = 200

// algorithms are the asymmetric ones. A symmetric algorithm would use the public key as its
// secret.
var algorithms = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}

// preset is the documented configuration of a proxy.
type preset struct {
	kind Kind
	name string

	header, issuer, user, groups string
	algorithms                   []string
	jwks                         func(issuer string) string // nil when it cannot be derived from the issuer

	refresh string // how the proxy renews its assertion, in parentheses after a space

	userHeader, groupsHeader string

	signOut string
}

var presets = []preset{
	{kind: KindJWT, name: "cloudflare-access", header: "Cf-Access-Jwt-Assertion", algorithms: []string{"RS256"}, user: "email", groups: "custom.groups",
		signOut: "/cdn-cgi/access/logout",
		jwks:    func(issuer string) string { return strings.TrimSuffix(issuer, "/") + "/cdn-cgi/access/certs" }},
	{kind: KindJWT, name: "google-iap", header: "X-Goog-Iap-Jwt-Assertion", issuer: "https://cloud.google.com/iap", algorithms: []string{"ES256"}, user: "email",
		signOut: "/?gcp-iap-mode=CLEAR_LOGIN_COOKIE",
		jwks:    func(string) string { return "https://www.gstatic.com/iap/verify/public_key-jwk" }},
	// Pomerium's issuer is a host name, unless it is configured to use a URL.
	{kind: KindJWT, name: "pomerium", header: "X-Pomerium-Jwt-Assertion", algorithms: []string{"ES256"}, user: "email", groups: "groups",
		signOut: "/.pomerium/sign_out",
		jwks: func(issuer string) string {
			host := strings.TrimPrefix(strings.TrimSuffix(issuer, "/"), "https://")
			return "https://" + host + "/.well-known/pomerium/jwks.json"
		}},
	{kind: KindJWT, name: "oauth2-proxy", header: "X-Outboxweb-Id-Token", algorithms: []string{"RS256"}, user: "email", groups: "groups", signOut: oauth2SignOut,
		refresh: " (oauth2-proxy: cookie_refresh below the token's lifetime, the scope offline_access, and pass the Set-Cookie of its answer on)"},
	{kind: KindProxyHeader, name: "oauth2-proxy", userHeader: "X-Forwarded-Email", groupsHeader: "X-Forwarded-Groups", signOut: oauth2SignOut},
	{kind: KindProxyHeader, name: "authelia", userHeader: "Remote-User", groupsHeader: "Remote-Groups"},
	{kind: KindProxyHeader, name: "tailscale", userHeader: "Tailscale-User-Login"},
}

// oauth2SignOut leads to oauth2-proxy's page with the login's button: without rd, or with a page of the
// console, a provider that is still signed in would lead straight back.
const oauth2SignOut = "/oauth2/sign_out?rd=%2Foauth2%2Fsign_in"

// PresetNames returns the names of a kind's presets.
func PresetNames(kind Kind) []string {
	var names []string
	for _, p := range presets {
		if p.kind == kind {
			names = append(names, p.name)
		}
	}
	return names
}

// check validates the configuration and fills in defaults.
func (c *Config) check() error {
	if !slices.Contains([]Kind{KindNone, KindLocal, KindJWT, KindProxyHeader, KindToken, KindHost}, c.Kind) {
		return event.Invalid("auth", "unknown kind %q; use local, none, jwt, proxy-header or token", c.Kind)
	}
	for _, step := range []func() error{c.readFlags, c.refuseStray, c.fillIn, c.checkPeers} {
		if err := step(); err != nil {
			return err
		}
	}
	err := CheckSignOut(c.SignOut)
	if err != nil {
		return err
	}
	switch c.Kind {
	case KindJWT:
		err = c.checkJWT()
	case KindProxyHeader:
		err = c.checkProxyHeader()
	case KindToken:
		if c.Tokens == nil {
			return event.Invalid("auth", "no token lookup is configured")
		}
		return nil
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if utf8.RuneCountInString(c.Contact) > maxContact || strings.TrimSpace(c.Contact) != c.Contact || strings.ContainsFunc(c.Contact, unicode.IsControl) {
		return event.Invalid("contact", "it must be one line of at most %d characters, such as “the platform team, #ops”", maxContact)
	}
	given := func(r operator.Role) bool { return len(c.Grants[r]) > 0 }
	if !slices.ContainsFunc(operator.Roles, given) {
		return event.Invalid(string(operator.Roles[0]), "nobody has a role, so every request would be refused; %s take user:NAME, group:NAME or *", operator.RoleFlags())
	}
	return c.Grants.Check()
}

// readFlags adds what the flags say about the proxy's secret, roles and addresses.
func (c *Config) readFlags() (err error) {
	if c.SecretFile != "" {
		if c.Secret, err = ReadSecret(c.SecretFile); err != nil {
			return event.Invalid("auth-secret-file", "%v", err)
		}
	}
	grants := operator.Grants{}
	for role, flag := range map[operator.Role][]string{operator.RoleViewer: c.Viewer, operator.RoleOperator: c.Operator, operator.RoleAdmin: c.Admin} {
		grants[role] = slices.Concat(c.Grants[role], flag)
	}
	c.Grants = grants
	for _, text := range c.TrustedProxy {
		prefix, unix, err := parsePeer(text)
		switch {
		case err != nil:
			return err
		case unix:
			c.TrustUnix = true
		default:
			c.Trusted = append(c.Trusted, prefix)
		}
	}
	return nil
}

// ReadSecret returns the content of a file without its last line break. The error completes a
// sentence that begins with the setting's name.
func ReadSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", file, event.Cause(err))
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if secret == "" {
		return "", errors.New(file + " is empty")
	}
	return secret, nil
}

// bound are the settings that belong to some kinds only.
var bound = slices.DeleteFunc(reflect.VisibleFields(reflect.TypeFor[Config]()), func(f reflect.StructField) bool { return f.Tag.Get("for") == "" })

// refuseStray refuses options of another kind, which would have no effect.
func (c *Config) refuseStray() error {
	stray := func(name, kinds string) error {
		if slices.Contains(strings.Split(kinds, ","), string(c.Kind)) {
			return nil
		}
		return event.Invalid(name, "it belongs to --auth %s, and this is --auth %s", strings.ReplaceAll(kinds, ",", " or --auth "), c.Kind)
	}
	for _, f := range bound {
		given := reflect.ValueOf(c).Elem().FieldByIndex(f.Index)
		if given.IsZero() || given.Kind() == reflect.Slice && given.Len() == 0 {
			continue
		}
		if err := stray(f.Tag.Get("name"), f.Tag.Get("for")); err != nil {
			return err
		}
	}
	for _, role := range operator.Roles {
		if len(c.Grants[role]) == 0 {
			continue
		}
		if err := stray(string(role), "jwt,proxy-header"); err != nil {
			return err
		}
	}
	return nil
}

// fillIn sets missing options from the preset or to their defaults.
func (c *Config) fillIn() error {
	p := preset{kind: c.Kind, algorithms: []string{"RS256", "ES256"}, user: "email", groups: "groups"}
	if c.Preset != "" {
		at := slices.IndexFunc(presets, func(p preset) bool { return p.kind == c.Kind && p.name == c.Preset })
		if at < 0 {
			return event.Invalid("auth-preset", "--auth %s has no preset %q; use %s", c.Kind, c.Preset, event.OrList(PresetNames(c.Kind)))
		}
		p = presets[at]
	}
	fill := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	fill(&c.SignOut, p.signOut)
	switch c.Kind {
	case KindJWT:
		c.refresh = p.refresh
		fill(&c.Header, p.header)
		fill(&c.Issuer, p.issuer)
		fill(&c.UserClaim, p.user)
		fill(&c.GroupsClaim, p.groups)
		if c.JWKS == "" && p.jwks != nil && c.Issuer != "" {
			c.JWKS = p.jwks(c.Issuer)
		}
		if len(c.Algorithms) == 0 {
			c.Algorithms = p.algorithms
		}
	case KindProxyHeader:
		fill(&c.UserHeader, p.userHeader)
		fill(&c.GroupsHeader, p.groupsHeader)
	}
	return nil
}

// CheckSignOut validates an address for Config.SignOut: empty, a path of the proxy's host, or an https
// URL. Its error is an event.ErrInvalid.
func CheckSignOut(text string) error {
	u, err := url.Parse(text)
	if err != nil || strings.ContainsAny(text, "\\ ") || u.User != nil ||
		text != "" && !(u.Scheme == "https" && u.Hostname() != "") && !(strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//")) {
		return event.Invalid("sign-out", "%q is neither a path that begins with one slash, such as /oauth2/sign_out, nor an https URL", text)
	}
	return nil
}

func (c *Config) checkJWT() error {
	if err := c.checkHeader("auth-header", &c.Header, "the header with the assertion, or --auth-preset"); err != nil {
		return err
	}
	for _, a := range c.Algorithms {
		switch {
		case strings.EqualFold(a, "none") || strings.HasPrefix(strings.ToUpper(a), "HS"):
			return event.Invalid("auth-algorithms", "with %q whoever knows the public key could sign; use %s", a, event.OrList(algorithms))
		case !slices.Contains(algorithms, a):
			return event.Invalid("auth-algorithms", "unknown algorithm %q; use %s", a, event.OrList(algorithms))
		}
	}
	for _, f := range []struct {
		name, what string
		missing    bool
	}{
		{"auth-issuer", "the issuer of the assertions", c.Issuer == ""},
		{"auth-audience", "the audience of the assertions; without it, assertions meant for other services would be accepted", len(c.Audience) == 0 || slices.Contains(c.Audience, "")},
	} {
		if f.missing {
			return event.Invalid(f.name, "it is missing: set %s", f.what)
		}
	}
	return nil
}

func (c *Config) checkProxyHeader() error {
	if err := c.checkHeaders(); err != nil {
		return err
	}
	if err := c.checkGroups(); err != nil {
		return err
	}
	if err := c.checkSecret(); err != nil {
		return err
	}
	if len(c.Trusted) == 0 && !c.TrustUnix {
		return event.Invalid("trusted-proxy", "it is missing: give the proxy's addresses as a CIDR such as 10.0.0.7/32, or unix")
	}
	for _, p := range c.Trusted {
		if p.Bits() < narrowest && c.Secret == "" {
			return event.Invalid("trusted-proxy", "%s trusts too many addresses; name the proxy's own, or give it a secret (--auth-secret-header, --auth-secret-file)", p)
		}
	}
	return nil
}

func (c *Config) checkHeaders() error {
	if err := c.checkHeader("auth-user-header", &c.UserHeader, "the header with the user's name, or --auth-preset"); err != nil {
		return err
	}
	if c.GroupsHeader != "" {
		if err := c.checkHeader("auth-groups-header", &c.GroupsHeader, ""); err != nil {
			return err
		}
	}
	if c.SecretHeader != "" {
		if err := c.checkHeader("auth-secret-header", &c.SecretHeader, ""); err != nil {
			return err
		}
	}
	switch {
	case c.UserHeader == c.GroupsHeader:
		return event.Invalid("auth-groups-header", "it is %s, which names the user", c.GroupsHeader)
	case c.SecretHeader != "" && (c.SecretHeader == c.UserHeader || c.SecretHeader == c.GroupsHeader):
		return event.Invalid("auth-secret-header", "it is %s, which names the user or the groups", c.SecretHeader)
	}
	return nil
}

// checkGroups refuses grants to groups whose names cannot be told apart.
func (c *Config) checkGroups() error {
	apart := c.GroupsFormat != "" || c.InsecureCommaGroups
	switch {
	case c.GroupsFormat != "" && !slices.Contains(GroupsFormats, c.GroupsFormat):
		return event.Invalid("auth-groups-format", "unknown format %q; use %s", c.GroupsFormat, event.OrList(GroupsFormats))
	case c.GroupsFormat != "" && c.InsecureCommaGroups:
		return event.Invalid("insecure-comma-groups", "with --auth-groups-format %s names are not separated by commas; leave out one of them", c.GroupsFormat)
	case apart && c.GroupsHeader == "":
		return event.Invalid("auth-groups-header", "it is missing: name the header with the user's groups")
	case apart || c.GroupsHeader == "":
		return nil
	}
	for _, role := range operator.Roles {
		for _, entry := range c.Grants[role] {
			if strings.HasPrefix(entry, "group:") {
				return event.Invalid(string(role), "the names in %s are separated by commas, so a group called “friends, %s” would count for %s; use --auth jwt, which reads a list, or --auth-groups-format if the proxy sends names apart, or accept the risk with --insecure-comma-groups",
					c.GroupsHeader, strings.TrimPrefix(entry, "group:"), entry)
			}
		}
	}
	return nil
}

func (c *Config) checkSecret() error {
	switch {
	case c.SecretHeader == "" && c.Secret != "":
		return event.Invalid("auth-secret-header", "it is missing: name the header that carries the proxy's secret")
	case c.SecretHeader != "" && c.Secret == "":
		return event.Invalid("auth-secret-file", "it is missing or empty: name the file with the secret that the proxy sends as %s", c.SecretHeader)
	case c.Secret != "" && len(c.Secret) < minSecret:
		return event.Invalid("auth-secret-file", "the secret is %d bytes long; it must be %d or more", len(c.Secret), minSecret)
	case c.Secret != "" && strings.ContainsFunc(c.Secret, func(r rune) bool { return r < '!' || r > '~' }):
		return event.Invalid("auth-secret-file", "the secret must be one line of printable ASCII without spaces, since it is sent in a header")
	}
	return nil
}

// checkPeers normalizes prefixes to the form that peers have: IPv4 never inside IPv6.
func (c *Config) checkPeers() error {
	trusted := make([]netip.Prefix, 0, len(c.Trusted))
	for _, p := range c.Trusted {
		switch addr := p.Addr(); {
		case !p.IsValid():
			return event.Invalid("trusted-proxy", "it is not a CIDR, such as 10.0.0.0/24")
		case addr.Is4In6() && p.Bits() < 96:
			return event.Invalid("trusted-proxy", "%s is neither IPv4 nor IPv6; write the IPv4 addresses as such", p)
		case addr.Is4In6():
			p = netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
		}
		trusted = append(trusted, p.Masked())
	}
	c.Trusted = trusted
	return nil
}

// checkHeader validates the name of a header and canonicalizes it.
func (c *Config) checkHeader(field string, name *string, missing string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	canonical := http.CanonicalHeaderKey(*name)
	switch {
	case *name == "":
		return event.Invalid(field, "it is missing: name %s", missing)
	case strings.Contains(*name, "_"):
		return event.Invalid(field, "%q has an underscore, which many servers drop or take for a hyphen; use hyphens", *name)
	case strings.ContainsFunc(*name, func(r rune) bool { return !strings.ContainsRune(letters, r) }):
		return event.Invalid(field, "%q is not the name of a header", *name)
	case canonical == authorization:
		return event.Invalid(field, "%s is for API tokens; let the proxy use another header", canonical)
	case slices.Contains([]string{"Host", "Cookie", "Origin", "Connection", "Content-Type", "Content-Length", "Transfer-Encoding", "X-Forwarded-For", "X-Forwarded-Prefix"}, canonical):
		return event.Invalid(field, "%s does not identify the user", canonical)
	}
	*name = canonical
	return nil
}

// parsePeer parses a trusted peer: a CIDR, a single address, or "unix" for the Unix socket.
func parsePeer(text string) (prefix netip.Prefix, unix bool, err error) {
	if text == "unix" {
		return netip.Prefix{}, true, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), false, nil
	}
	prefix, err = netip.ParsePrefix(text)
	if err != nil {
		return prefix, false, event.Invalid("trusted-proxy", "%q is neither a CIDR, such as 10.0.0.0/24, nor unix", text)
	}
	if prefix.Masked() != prefix {
		return prefix, false, event.Invalid("trusted-proxy", "%s has bits beyond its length; it means %s", text, prefix.Masked())
	}
	return prefix, false, nil
}
