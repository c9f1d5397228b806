package auth

import (
	"net/http"
	"slices"
	"strings"
)

// Report is what arrived of a request and how it is judged, for people who set
// up a proxy. It holds no assertion, secret or token.
type Report struct {
	Kind    Kind    `json:"kind"`
	Preset  string  `json:"preset"`
	Peer    string  `json:"peer"`    // the other end of the socket: an address, or "unix"
	Trusted bool    `json:"trusted"` // it is a trusted proxy
	Headers []Shown `json:"headers"` // that say who somebody is and arrived, by name

	// What is configured; empty where the kind has no use for it.
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
	Times int    `json:"times"` // how often it is there
	Value string `json:"value"` // of the header that names the user alone
	Read  bool   `json:"read"`  // it is one that the configuration names
}

// knownHeaders say who somebody is, somewhere or other. One that arrives and is
// not read may be the one that should be configured.
var knownHeaders = []string{authorization, "Cf-Access-Authenticated-User-Email", "Remote-Email", "X-Auth-Request-Email", "X-Auth-Request-Groups",
	"X-Auth-Request-User", "X-Forwarded-User", "X-Goog-Authenticated-User-Email", "X-Pomerium-Claim-Email", "X-Remote-User"}

// Report tells how a request is judged; it neither counts nor logs it. Of a nil
// gate it tells of the kind none.
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

// arrived lists the headers that say who somebody is.
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
