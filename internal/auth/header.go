package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

const maxName = 200 // bytes of a user's name

// Formats of the header with the groups, in which no name can be taken for several.
const (
	FormatRepeated = "repeated" // the header once for each group
	FormatJSON     = "json"     // an array of strings
)

// GroupsFormats are the formats.
var GroupsFormats = []string{FormatRepeated, FormatJSON}

// peer is the other end of a request's socket.
type peer struct {
	unix bool
	ip   netip.Addr // not valid when unknown
	text string
}

func (p peer) String() string {
	switch {
	case p.unix:
		return "unix"
	case p.ip.IsValid():
		return p.ip.String()
	}
	return p.text
}

// peerOf uses only the socket, never a header.
func peerOf(r *http.Request) peer {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return peer{unix: true}
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return peer{text: r.RemoteAddr}
	}
	ip := at.Addr()
	if ip.Zone() == "" { // unmapping would lose the zone
		ip = ip.Unmap()
	}
	return peer{ip: ip}
}

// trusts reports whether a peer is a trusted proxy. An address with a zone belongs to one of
// several networks, which a prefix cannot tell apart, so it is not trusted.
func (g *Gate) trusts(p peer) bool {
	if p.unix {
		return g.config.TrustUnix
	}
	return p.ip.IsValid() && slices.ContainsFunc(g.config.Trusted, func(of netip.Prefix) bool { return of.Contains(p.ip) })
}

// fold maps names that some servers treat as the same header to one name.
func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// refuseVariants refuses headers that a proxy may have passed on because their names differ
// slightly from those that it sets.
func (g *Gate) refuseVariants(h http.Header) *denial {
	for name := range h {
		if of, near := g.watched[fold(name)]; near && name != of {
			return deny(whyVariant, "the request has the header %q, which some servers treat as %s; let the proxy remove it", name, of)
		}
	}
	return nil
}

// byHeader identifies the user named by a trusted proxy.
func (g *Gate) byHeader(r *http.Request) (operator.Identity, *denial) {
	var nobody operator.Identity
	if denied := g.refuseStranger(r); denied != nil {
		return nobody, denied
	}
	name, denied := single(r.Header, g.config.UserHeader)
	if denied != nil {
		return nobody, denied
	}
	wrong := wrongName(name)
	if strings.Contains(name, ",") {
		wrong = "is a list of names, with commas between"
	}
	if wrong != "" {
		return nobody, denyName(name, wrong, "the header "+g.config.UserHeader)
	}
	groups, denied := g.groupsOf(r.Header)
	if denied != nil {
		return nobody, denied
	}
	return g.admit(operator.AuthProxyHeader, name, groups)
}

// refuseStranger refuses a peer that is not the proxy.
func (g *Gate) refuseStranger(r *http.Request) *denial {
	from := peerOf(r)
	if !g.trusts(from) {
		for _, name := range g.headers {
			if len(r.Header.Values(name)) > 0 {
				return deny(whyUntrusted, "the header %s comes from %s, which is not a trusted proxy; see --trusted-proxy", name, from)
			}
		}
		return deny(whyAbsent, "not authenticated: use the proxy that sets the header %s, or send an API token", g.config.UserHeader)
	}
	if g.config.SecretHeader == "" {
		return nil
	}
	given, denied := once(r.Header, g.config.SecretHeader)
	if denied == nil && !sameSecret(given, g.config.Secret) {
		denied = deny(whySecret, "the header %s with the proxy's secret is missing or wrong", g.config.SecretHeader)
	}
	return denied
}

// sameSecret compares in constant time.
func sameSecret(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// once reads a header that may occur at most once; empty when it is missing.
func once(h http.Header, name string) (string, *denial) {
	if times := len(h.Values(name)); times > 1 {
		return "", deny(whyDuplicate, "the header %s appears %d times; it may appear once", name, times)
	}
	return h.Get(name), nil
}

// single reads a header that must occur exactly once.
func single(h http.Header, name string) (string, *denial) {
	value, denied := once(h, name)
	if denied == nil && value == "" {
		denied = deny(whyAbsent, "the header %s is missing or empty, so you are not authenticated: sign in at the proxy that sets it, or send an API token in the header Authorization, as “Bearer %s…”", name, tokenPrefix)
	}
	return value, denied
}

// denyName refuses a user whose name is wrong.
func denyName(name, wrong, where string) *denial {
	return deny(whyName, "%s says that you are %.*q, and that name %s", where, maxName, name, wrong)
}

// wrongName says what is wrong with a user's name; it completes a sentence.
func wrongName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return "is longer than 200 bytes"
	case !utf8.ValidString(name):
		return "is not valid UTF-8"
	case strings.TrimSpace(name) != name:
		return "begins or ends with whitespace"
	}
	if _, found := event.UnseenIn(name); found {
		return "contains invisible characters"
	}
	return ""
}

// groupsOf reads the header with the user's groups. Without a format, and unless splitting at commas
// was accepted, nobody is in a group.
func (g *Gate) groupsOf(h http.Header) (groups []string, denied *denial) {
	name := g.config.GroupsHeader
	if g.config.GroupsFormat == FormatRepeated {
		return h.Values(name), nil
	}
	list, denied := once(h, name)
	switch {
	case denied != nil:
		denied.why, denied.refusal.Err = whyGroups, kindOf(whyGroups)
	case g.config.GroupsFormat == FormatJSON && list != "":
		var found any
		err := json.Unmarshal([]byte(list), &found)
		groups, isList := texts(found)
		if err != nil || !isList || !utf8.ValidString(list) {
			return nil, deny(whyGroups, "the header %s, which lists your groups, is not a JSON array of strings", name)
		}
		return groups, nil
	case g.config.InsecureCommaGroups:
		for part := range strings.SplitSeq(list, ",") {
			if part = strings.Trim(part, " "); part != "" {
				groups = append(groups, part)
			}
		}
	}
	return groups, denied
}

// texts returns a decoded JSON array of strings; ok is false for anything else.
func texts(found any) (list []string, ok bool) {
	all, ok := found.([]any)
	for _, one := range all {
		text, isText := one.(string)
		ok, list = ok && isText, append(list, text)
	}
	return list, ok
}
