package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/hosts"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// arrivedHeaders are headers set by browsers and proxies. Host is not among a request's headers.
var arrivedHeaders = []string{"Origin", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", prefixHeader, "Via"}

// arrival describes how a request reached this server.
func (s *server) arrival(r *http.Request) operator.Arrival {
	a := operator.Arrival{Peer: auth.Peer(r), Trusted: s.Trusts(r), Why: "--trusted-proxy does not name it", IdentityHeaders: s.Auth.IdentityHeaders(r.Header), Me: me(r)}
	switch {
	case s.Embedded:
		a.Why = "the console of a service trusts none"
	case a.Trusted:
		a.Why = "--trusted-proxy names it"
	}
	if a.Me.Groups == nil {
		a.Me.Groups = []string{}
	}
	for _, name := range arrivedHeaders {
		h := operator.Arrived{Name: name, Times: len(r.Header.Values(name)), Value: hosts.Printable(r.Header.Get(name))}
		a.Headers = append(a.Headers, h)
	}
	for i, name := range a.IdentityHeaders {
		a.IdentityHeaders[i] = hosts.Printable(name)
	}
	prefix, _ := s.prefixOf(r) // a malformed prefix was refused earlier
	a.Address = operator.AddressFor{Scheme: hosts.Scheme(r), Host: hosts.Printable(r.Host), PublicOrigin: s.PublicOrigin, Prefix: prefix, Base: s.links.Base(),
		URL: s.origin(r) + string(s.linksOf(r).Overview())}
	a.Advice = append([]string{}, s.adviceFor(a)...)
	return a
}

// adviceFor says what to change so that links on pages work for their readers and requests are
// authenticated. It depends on a and on how settings are named.
func (s *server) adviceFor(a operator.Arrival) []string {
	var all []string
	for _, rule := range []func(operator.Arrival) string{s.warnAboutPrefix, s.warnAboutPublicOrigin, s.warnAboutIdentity, s.warnAboutKeys} {
		if sentence := rule(a); sentence != "" {
			all = append(all, sentence)
		}
	}
	return append(all, a.Me.Hints...)
}

func (s *server) warnAboutKeys(operator.Arrival) string { return s.Auth.Trouble() }

func (s *server) warnAboutPrefix(a operator.Arrival) string {
	h := a.Header(prefixHeader)
	told := strings.TrimSuffix(h.Value, "/")
	err := hosts.CheckPath(h.Value)
	switch {
	case h.Times == 0 || err == nil && told == "":
		return ""
	case h.Times > 1:
		return prefixHeader + " appears more than once: let the proxy replace it instead of adding to it"
	case err != nil:
		return fmt.Sprintf("%s is %q, which %v: let the proxy send the path it strips, such as /ops", prefixHeader, h.Value, err)
	case a.Trusted && told == a.Address.Base:
		return fmt.Sprintf("%s and --base-path both say %s, so that pages link below %s%s: leave out --base-path if the proxy strips the prefix, otherwise let the proxy not send it", prefixHeader, told, told, told)
	case a.Trusted || told == a.Address.Base:
		return ""
	case s.Embedded:
		return fmt.Sprintf("%s is %s, and the console of a service does not read it: let the proxy pass the path on as it is, and set Config.BasePath to where the pages are below %s", prefixHeader, told, told)
	}
	return fmt.Sprintf("%s is %s but %s is not trusted: add %s, or --base-path %s if the proxy does not strip it", prefixHeader, told, a.Peer, hosts.TrustFlag(a.Peer), told)
}

// warnAboutPublicOrigin compares the host that the proxy reports with the one this server assumes.
func (s *server) warnAboutPublicOrigin(a operator.Arrival) string {
	setting, to := "--public-origin", ""
	if s.Embedded {
		setting, to = "Config.PublicURL", "to "
	}
	scheme, host := a.Address.Scheme, a.Header("X-Forwarded-Host")
	proto := a.Header("X-Forwarded-Proto")
	if proto.Times == 1 && (proto.Value == "https" || proto.Value == "http") {
		scheme = proto.Value
	}
	name := a.Address.Host
	if host.Times == 1 {
		name = host.Value
	}
	outside, err := hosts.Origin(scheme + "://" + name)
	inside, insideErr := hosts.Origin(a.Address.Scheme + "://" + a.Address.Host)
	switch {
	case host.Times > 1:
		return "X-Forwarded-Host appears more than once: let the proxy replace it instead of adding to it"
	case err != nil || insideErr != nil || outside == a.Address.PublicOrigin || host.Times+proto.Times == 0:
		return ""
	case a.Address.PublicOrigin != "":
		return fmt.Sprintf("the browser requested %s, and %s is %s: set it to %s if that is where the pages are", outside, setting, a.Address.PublicOrigin, outside)
	case outside == inside:
		return ""
	case name == a.Address.Host || hosts.Same(name, a.Address.Host):
		return fmt.Sprintf("TLS ends at the proxy (X-Forwarded-Proto is %s), and curl lines say %s: set %s %s%s", proto.Value, a.Address.Scheme, setting, to, outside)
	}
	return fmt.Sprintf("Host is %s while X-Forwarded-Host says %s: set %s %s%s, or let the proxy pass the Host header on", a.Address.Host, host.Value, setting, to, outside)
}

func (s *server) warnAboutIdentity(a operator.Arrival) string {
	named := slices.DeleteFunc(slices.Clone(a.IdentityHeaders), func(name string) bool { return name == "Authorization" })
	if len(named) == 0 {
		return ""
	}
	list := strings.Join(named, ", ")
	assertion := slices.IndexFunc(named, func(name string) bool { return strings.HasSuffix(name, "-Jwt-Assertion") })
	switch {
	case a.Me.Auth == operator.AuthJWT || a.Me.Auth == operator.AuthProxyHeader:
		return ""
	case s.Embedded && a.Me.Auth == operator.AuthLocal:
		return fmt.Sprintf("the identity headers (%s) are ignored, and every user is %s with the role %s: give Engine.Handler a function that names the user", list, a.Me.Name, a.Me.Role)
	case s.Embedded: // its service reads them, or not
		return ""
	case a.Me.Auth == operator.AuthLocal && assertion >= 0:
		return fmt.Sprintf("the signed assertion in %s is ignored, and every user is %s with the role %s: set --auth jwt with the preset of the proxy", named[assertion], a.Me.Name, a.Me.Role)
	case a.Me.Auth == operator.AuthLocal:
		return fmt.Sprintf("the identity headers (%s) are ignored, and every user is %s with the role %s: set --auth proxy-header with the preset of the proxy, and %s", list, a.Me.Name, a.Me.Role, hosts.TrustFlag(a.Peer))
	case !a.Trusted:
		return fmt.Sprintf("the identity headers (%s) come from %s, which is not a trusted proxy, and are not read: add %s if it is the proxy, otherwise they are forged", list, a.Peer, hosts.TrustFlag(a.Peer))
	}
	return ""
}
