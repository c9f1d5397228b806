package auth

import (
	"fmt"
	"net/http"
	"strings"
)

// refuseForwarded refuses a request that a proxy has passed on: it connects from this machine, and
// its users may be anywhere. nginx adds no header by default, but speaks HTTP/1.0, which browsers do
// not.
func refuseForwarded(r *http.Request) *denial {
	sign := ""
	for name := range r.Header {
		switch folded := fold(name); {
		case folded == "forwarded", folded == "via", folded == "x-real-ip", strings.HasPrefix(folded, "x-forwarded-"), identityHeaders[folded]:
			if said := "it has the header " + name; sign == "" || said < sign {
				sign = said
			}
		}
	}
	if sign == "" && !r.ProtoAtLeast(1, 1) {
		sign = fmt.Sprintf("it is %s, like those of nginx", r.Proto)
	}
	if sign == "" {
		return nil
	}
	return deny(whyProxied, "this request came through a proxy (%s), and users are not authenticated here: everyone who reaches the proxy would be an admin. Start outboxweb with --auth jwt, proxy-header or token; or with --auth none if the proxy admits admins only", sign)
}
