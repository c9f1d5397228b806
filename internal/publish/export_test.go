package publish

import (
	"net/netip"
	"time"
)

// SetClock gives a webhook another clock.
func SetClock(p Publisher, now func() time.Time) { p.(*webhook).now = now }

// Connected reports whether a publisher to NATS has a connection.
func Connected(p Publisher) bool {
	conn := p.(*natsPublisher).conn
	return conn != nil && conn.IsConnected()
}

// Public reports whether webhooks go to the address.
func Public(address string) bool { return public(netip.MustParseAddr(address)) }
