// Package hosts reads what settings and requests say of the addresses of the pages: host names, origins and
// path prefixes.
package hosts

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// shownHeader is how much of a header's value is repeated in a sentence, in bytes.
const shownHeader = 120

// Quoted formats a value from a client for a sentence: quoted, in printable ASCII, truncated if
// long.
func Quoted(value string) string {
	if len(value) > shownHeader {
		return strconv.QuoteToASCII(value[:shownHeader]) + " (cut)"
	}
	return strconv.QuoteToASCII(value)
}

// Origin normalizes scheme and host of an address as browsers do in the header Origin: lower case,
// without the scheme's default port. An address with anything more is an event.ErrInvalid.
func Origin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || !bare(*u) || strings.Contains(text, "#") {
		return "", event.Invalid("", "%s is not scheme://host or scheme://host:port, such as https://ops.example", Quoted(text))
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if !Nameable(host) || strings.HasSuffix(u.Host, ":") || port != "" && !isPort(port) {
		return "", event.Invalid("", "%s does not name a host", Quoted(text))
	}
	origin := u.Scheme + "://" + Bracketed(host)
	if port == "" || port == ownPorts[u.Scheme] {
		return origin, nil
	}
	return origin + ":" + port, nil
}

// FrameAncestors normalizes origins for handlers.Config.FrameAncestors; 'self' in single quotes is one too. Its
// error is an event.ErrInvalid.
func FrameAncestors(texts []string) ([]string, error) {
	origins := slices.Clone(texts)
	for i, text := range origins {
		if text == "'self'" {
			continue
		}
		at, err := Origin(text)
		if err != nil {
			return nil, event.Invalid("", "%v, and not 'self' either", err)
		}
		origins[i] = at
	}
	return origins, nil
}

// ownPorts are the default ports that browsers omit, by scheme.
var ownPorts = map[string]string{"http": "80", "https": "443"}

// bare reports whether an address is only a supported scheme and a host.
func bare(u url.URL) bool {
	if u.Path == "/" {
		u.Path = ""
	}
	return u.Host != "" && ownPorts[u.Scheme] != "" && u == url.URL{Scheme: u.Scheme, Host: u.Host}
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// Nameable reports whether a host is an IP address, or a name of letters, digits, hyphens,
// underscores and dots.
func Nameable(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Zone() == ""
	}
	return host != "" && len(host) <= 253 && strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.Contains(host, "..") && host[0] != '.'
}

// Any in handlers.Config.Hosts allows every name.
const Any = "*"

// CheckHost validates a name for handlers.Config.Hosts: a name or an address, with or without a port, or
// Any. Its error is an event.ErrInvalid.
func CheckHost(text string) error {
	host, port := Split(text)
	if text != Any && !Nameable(host) || port != "" && !isPort(port) {
		return event.Invalid("", "%s is not a host name or an address, such as ops.example or 10.0.0.3:8080, nor * for all of them", Quoted(text))
	}
	return nil
}

// Bracketed returns a host as written in an address.
func Bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// Split parses a Host header: the name in lower case without a trailing dot, or the address in
// its shortest form, and the port, if any.
func Split(hostport string) (host, port string) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = hostport, ""
		if inner, v6 := strings.CutPrefix(host, "["); v6 {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String(), port
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), port
}

// maxPrefix is the maximum length of a forwarded prefix, in bytes.
const maxPrefix = 200

// CheckPath validates a path prefix: segments of letters, digits and . _ ~ - that each begin with a
// slash. A trailing slash is tolerated. Its error completes a sentence that begins with the text.
func CheckPath(path string) error {
	trimmed := strings.TrimSuffix(path, "/")
	switch {
	case !strings.HasPrefix(path, "/"):
		return event.Invalid("", "does not begin with /")
	case len(path) > maxPrefix:
		return event.Invalid("", "is longer than %d bytes", maxPrefix)
	case trimmed == "":
		return nil
	}
	for segment := range strings.SplitSeq(trimmed[1:], "/") {
		switch {
		case segment == "":
			return event.Invalid("", "has an empty segment")
		case segment == "." || segment == "..":
			return event.Invalid("", "has the segment %s", segment)
		case strings.ContainsFunc(segment, notInSegment):
			return event.Invalid("", "may hold letters, digits and . _ ~ - between its slashes")
		}
	}
	return nil
}

func notInSegment(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._~-", c)
}

// Printable returns a value in printable ASCII, truncated if long.
func Printable(value string) string {
	text, more := value, ""
	if len(text) > shownHeader {
		text, more = text[:shownHeader], "…"
	}
	quoted := strconv.QuoteToASCII(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`) + more
}

// Same compares the names in two Host headers.
func Same(a, b string) bool {
	nameA, _ := Split(a)
	nameB, _ := Split(b)
	return nameA == nameB
}
