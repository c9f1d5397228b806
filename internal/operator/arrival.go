package operator

// Arrival is one request as it arrived and how it was interpreted, to help with setting up a proxy.
type Arrival struct {
	Peer            string     `json:"peer"`    // the socket's peer: an address, or "unix"
	Trusted         bool       `json:"trusted"` // it is a proxy that may set the user and the path prefix
	Why             string     `json:"why"`     // why it is trusted or not
	Headers         []Arrived  `json:"headers"`
	IdentityHeaders []string   `json:"identity_headers"` // names of identity headers in the request, trusted or not
	Address         AddressFor `json:"address"`
	Me              Identity   `json:"me"`
	Advice          []string   `json:"advice"` // what to change, one sentence each
}

// Arrived is a header that proxies and browsers set.
type Arrived struct {
	Name  string `json:"name"`
	Times int    `json:"times"` // how many times it was present; 0 when absent
	Value string `json:"value"` // the first value, made printable and truncated
}

// AddressFor is how the address of the pages is composed.
type AddressFor struct {
	Scheme       string `json:"scheme"`        // of this connection
	Host         string `json:"host"`          // from the request
	PublicOrigin string `json:"public_origin"` // from --public-origin, or empty; it overrides scheme and host
	Prefix       string `json:"prefix"`        // from X-Forwarded-Prefix of a trusted proxy, or empty
	Base         string `json:"base"`          // from --base-path; empty for /
	URL          string `json:"url"`           // the complete address
}

// Header returns the received header of that name.
func (a Arrival) Header(name string) Arrived {
	for _, h := range a.Headers {
		if h.Name == name {
			return h
		}
	}
	return Arrived{Name: name}
}
