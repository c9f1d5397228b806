package destination

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// specialNetworks are those of IANA's registries of special-purpose addresses
// that netip does not tell from the internet by itself, or that lead to other
// addresses, and one that a cloud keeps for its machines.
var specialNetworks = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's platform, for each machine there
	"2001::/23",        // protocols, Teredo among them
	"2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

var (
	// global is what IANA gives out of IPv6 for the internet. All else is
	// special or nobody's, such as 5f00::/16, and the addresses that are
	// translated to IPv4 (::ffff:0:0:0/96) or embed one (::/96, 64:ff9b:1::/48).
	global = netip.MustParsePrefix("2000::/3")
	// translated leads to the IPv4 address in its last 32 bits: where a network
	// has IPv6 alone, the whole internet of IPv4 is there (RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// refusePrivate is the Control of a net.Dialer that goes to addresses of the
// internet alone. It sees the address that a name was resolved to, so a name
// cannot lead around it.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %q is not valid", address)
	}
	if !public(at.Addr()) {
		return fmt.Errorf("%s is not a public address; webhooks to private addresses need allow_private: true, since they can reach internal services", at.Addr())
	}
	return nil
}

func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if translated.Contains(a) {
		bytes := a.As16()
		a = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !global.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(specialNetworks, func(p netip.Prefix) bool { return p.Contains(a) })
}
