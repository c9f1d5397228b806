package hosts

import (
	"net/http"
	"net/netip"
)

// FitForMetrics reports whether a request under an unknown name may read the metrics, that is
// whether no page of a rebound name can have sent it. Such a page has a name, so a Host that is an
// address is not its. And browsers send Accept-Language with every request, which a page can change
// but not omit; scrapers do not send it. Sec-Fetch-Site is not enough: browsers omit it over plain
// HTTP.
func FitForMetrics(r *http.Request) bool {
	host, _ := Split(r.Host)
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, name := range []string{"Origin", "Sec-Fetch-Site", "Accept-Language"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	return true
}

// Scheme is https if this server terminates the connection's TLS, and http otherwise.
func Scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// SiteMeans explains a value of Sec-Fetch-Site.
func SiteMeans(site string) string {
	switch site {
	case "cross-site":
		return "the browser reports that a page of another site sent this"
	case "same-site":
		return "the browser reports that a page of another host or scheme of the same site sent this"
	}
	return "no browser sends that"
}

// Trusting accepts changes from pages of the server's own host, and of one further origin
// unless it is empty. It panics on an origin that is not normalized by Origin.
func Trusting(origin string) *http.CrossOriginProtection {
	protection := http.NewCrossOriginProtection()
	if origin != "" {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			panic(err)
		}
	}
	return protection
}

// TrustFlag returns the flag setting that trusts a peer.
func TrustFlag(peer string) string {
	addr, err := netip.ParseAddr(peer)
	if err != nil {
		return "--trusted-proxy " + peer
	}
	addr = addr.Unmap().WithZone("")
	return "--trusted-proxy " + netip.PrefixFrom(addr, addr.BitLen()).String()
}
