package outbound

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// specialNetworks are the networks of IANA's special-purpose address registries that netip does not
// distinguish from the internet, or that lead to other addresses, and one that a cloud reserves for
// its machines.
var specialNetworks = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's platform, reachable from each machine there
	"2001::/23",        // protocols, including Teredo
	"2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

var (
	// global is the IPv6 space that IANA allocates for the internet. Everything else is special or
	// unallocated, such as 5f00::/16, and the addresses that are translated to IPv4
	// (::ffff:0:0:0/96) or embed one (::/96, 64:ff9b:1::/48).
	global = netip.MustParsePrefix("2000::/3")
	// translated leads to the IPv4 address in its last 32 bits: on an IPv6-only network it reaches
	// the whole IPv4 internet (RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// refusePrivate is the Control of a net.Dialer that connects only to internet addresses. It sees
// the resolved address, so a host name cannot bypass it.
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
