package publish

import (
	"fmt"
	"net/netip"
	"syscall"
)

// privateNetworks are those that netip does not tell from the internet by
// itself, or that lead to other addresses.
var privateNetworks = func() []netip.Prefix {
	var list []netip.Prefix
	for _, text := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:db8::/32", "2002::/16", "fec0::/10",
	} {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}()

// refusePrivate is the Control of a net.Dialer that goes to addresses of the
// internet alone. It sees the address that a name was resolved to, so a name
// cannot lead around it.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %q cannot be judged", address)
	}
	if !public(at.Addr()) {
		return fmt.Errorf("%s is not an address of the internet; webhooks go to private ones only with allow_private: true, so that nobody is made to call what is meant for the inside", at.Addr())
	}
	return nil
}

func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, network := range privateNetworks {
		if network.Contains(a) {
			return false
		}
	}
	return true
}
