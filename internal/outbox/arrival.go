package outbox

// Arrival is what came in with one request, and what became of it: what
// somebody needs who sets up a proxy in front.
type Arrival struct {
	Peer            string     `json:"peer"`    // the other end of the socket: an address, or "unix"
	Trusted         bool       `json:"trusted"` // it is a proxy that may say who asks and under which prefix
	Why             string     `json:"why"`     // it is trusted, or not
	Headers         []Arrived  `json:"headers"`
	IdentityHeaders []string   `json:"identity_headers"` // names of those that say who somebody is, whoever sent them
	Address         AddressFor `json:"address"`
	Me              Identity   `json:"me"`
	Advice          []string   `json:"advice"` // what to change, a sentence each
}

// Arrived is a header that proxies and browsers tell of themselves with.
type Arrived struct {
	Name  string `json:"name"`
	Times int    `json:"times"` // how often it was there; 0 when it was not
	Value string `json:"value"` // the first, made printable and cut
}

// AddressFor is how the address of the pages is made.
type AddressFor struct {
	Scheme       string `json:"scheme"`        // of this connection
	Host         string `json:"host"`          // as the request named it
	PublicOrigin string `json:"public_origin"` // from --public-origin, or empty; it goes before scheme and host
	Prefix       string `json:"prefix"`        // from X-Forwarded-Prefix of a trusted proxy, or empty
	Base         string `json:"base"`          // from --base-path; empty for /
	URL          string `json:"url"`           // all of it
}

// Header is what arrived under a name.
func (a Arrival) Header(name string) Arrived {
	for _, h := range a.Headers {
		if h.Name == name {
			return h
		}
	}
	return Arrived{Name: name}
}
