package publish_test

import (
	"testing"

	"outboxweb/internal/publish"
)

func TestAddress_tellsTheInternetFromWhatIsInside(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.255",
		"192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::",
		"fc00::1", "fd00::1", "fe80::1", "fe80::1%lo", "febf::1", "fec0::1", "fec0::1%eth0", "ff02::1",
	} {
		if publish.Public(address) {
			t.Errorf("%s passes for one of the internet", address)
		}
	}
	for _, address := range []string{"1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "::ffff:1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::1"} {
		if !publish.Public(address) {
			t.Errorf("%s does not pass for one of the internet", address)
		}
	}
}
