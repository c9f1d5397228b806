package auth

import (
	"net/http"
	"slices"
)

// Peer is the other end of a request's socket: an address, or "unix".
func Peer(r *http.Request) string { return peerOf(r).String() }

// identityHeaders are the folded names of the headers in which known proxies name users: those of
// the presets, and others.
var identityHeaders = func() map[string]bool {
	known := map[string]bool{}
	names := []string{"Cf-Access-Authenticated-User-Email", "Remote-Email", "Remote-Name", "X-Amzn-Oidc-Data", "X-Amzn-Oidc-Identity", "X-Auth-Request-Email",
		"X-Auth-Request-Groups", "X-Auth-Request-Preferred-Username", "X-Auth-Request-User", "X-Authentik-Email", "X-Authentik-Groups", "X-Authentik-Jwt", "X-Authentik-Username",
		"X-Forwarded-Preferred-Username", "X-Forwarded-User", "X-Goog-Authenticated-User-Email", "X-Ms-Client-Principal", "X-Ms-Client-Principal-Name", "X-Pomerium-Claim-Email",
		"X-Pomerium-Claim-Groups", "X-Remote-User", "X-Vouch-User", "X-Webauth-User"}
	for _, p := range presets {
		names = append(names, p.header, p.userHeader, p.groupsHeader)
	}
	for _, name := range names {
		known[fold(name)] = name != ""
	}
	return known
}()

// IdentityHeaders lists, by name, the headers of a request that identify its sender, here or at a
// known proxy. One that is not read may be the one to configure.
func (g *Gate) IdentityHeaders(h http.Header) []string {
	names := []string{}
	for name, values := range h {
		folded := fold(name)
		read := folded == fold(authorization) || g != nil && g.watched[folded] != ""
		if len(values) > 0 && (read || identityHeaders[folded]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
