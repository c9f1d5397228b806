package auth

import (
	"net/http"
	"slices"
	"strings"
)

// Report is how a request arrived and was judged, for people who set up a proxy. It contains no
// assertion, secret or token.
type Report struct {
	Kind    Kind    `json:"kind"`
	Preset  string  `json:"preset"`
	Peer    string  `json:"peer"`    // the other end of the socket: an address, or "unix"
	Trusted bool    `json:"trusted"` // it is a trusted proxy
	Headers []Shown `json:"headers"` // the identifying headers that arrived, by name

	// The configuration; empty where the kind does not use it.
	Header       string   `json:"header"`
	Issuer       string   `json:"issuer"`
	Audience     []string `json:"audience"`
	UserHeader   string   `json:"user_header"`
	GroupsHeader string   `json:"groups_header"`
	SecretHeader string   `json:"secret_header"`
	Proxies      []string `json:"proxies"` // the trusted ones: CIDRs, and "unix"

	Refusal string `json:"refusal"` // why the request would be refused, or empty
}

// Shown is a header of a request.
type Shown struct {
	Name  string `json:"name"`
	Times int    `json:"times"` // number of occurrences
	Value string `json:"value"` // only of the header that names the user
	Read  bool   `json:"read"`  // the configuration uses it
}

// knownHeaders are the identity headers of known proxies. One that arrives and is not used may
// be the one to configure.
var knownHeaders = []string{authorization, "Cf-Access-Authenticated-User-Email", "Remote-Email", "X-Auth-Request-Email", "X-Auth-Request-Groups",
	"X-Auth-Request-User", "X-Forwarded-User", "X-Goog-Authenticated-User-Email", "X-Pomerium-Claim-Email", "X-Remote-User"}

// Report describes how a request is judged, without counting or logging it. For a nil gate the
// kind is none.
func (g *Gate) Report(r *http.Request) Report {
	if g == nil {
		return Report{Kind: KindNone, Peer: peerOf(r).String(), Headers: (&Gate{}).arrived(r.Header), Audience: []string{}, Proxies: []string{}}
	}
	c := g.config
	report := Report{Kind: c.Kind, Preset: c.Preset, Peer: peerOf(r).String(), Trusted: g.Trusts(r), Headers: g.arrived(r.Header),
		Header: c.Header, Issuer: c.Issuer, Audience: append([]string{}, c.Audience...), UserHeader: c.UserHeader, GroupsHeader: c.GroupsHeader,
		SecretHeader: c.SecretHeader, Proxies: []string{}}
	for _, p := range c.Trusted {
		report.Proxies = append(report.Proxies, p.String())
	}
	if c.TrustUnix {
		report.Proxies = append(report.Proxies, "unix")
	}
	if _, denied := g.identify(r); denied != nil {
		report.Refusal = denied.refusal.Detail
	}
	return report
}

// arrived lists the identity headers of a request.
func (g *Gate) arrived(h http.Header) []Shown {
	telling := map[string]bool{}
	for _, name := range knownHeaders {
		telling[fold(name)] = true
	}
	for _, p := range presets {
		for _, name := range []string{p.header, p.userHeader, p.groupsHeader} {
			telling[fold(name)] = name != ""
		}
	}
	shown := []Shown{}
	for name, values := range h {
		of, watched := g.watched[fold(name)]
		if len(values) == 0 || !watched && !telling[fold(name)] {
			continue
		}
		s := Shown{Name: name, Times: len(values), Read: watched && of == name}
		if name == g.config.UserHeader {
			s.Value = strings.ToValidUTF8(values[0][:min(len(values[0]), maxName)], "�")
		}
		shown = append(shown, s)
	}
	slices.SortFunc(shown, func(a, b Shown) int { return strings.Compare(a.Name, b.Name) })
	return shown
}
