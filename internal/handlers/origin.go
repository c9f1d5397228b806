package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/hosts"
)

// protectHost refuses requests under foreign host names, such as those of a page whose name was
// rebound to this address. Probes and scrapers use a pod's address or service names that are not
// configured here, so probes are answered under every name, and metrics under those that
// fitForMetrics allows.
func (s *server) protectHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := s.systemPath(r)
		switch {
		case s.knownHost(r.Host), path == "/healthz", path == "/readyz", path == "/metrics" && hosts.FitForMetrics(r):
			next.ServeHTTP(w, r)
		case path == "/metrics":
			s.fail(w, r, &event.Refusal{Err: errHost, Detail: fmt.Sprintf("this server does not answer a browser's request for the host %s; if it should, add the host to %s", hosts.Quoted(r.Host), s.setting("--host", "Hosts"))})
		default:
			s.fail(w, r, &event.Refusal{Err: errHost, Detail: s.unknownHost(r.Host)})
		}
	})
}

// systemPath returns the probe or metrics path that a request asks for, which is answered with and
// without the base path; empty for others.
func (s *server) systemPath(r *http.Request) string {
	path := r.URL.EscapedPath()
	for _, at := range []string{"/healthz", "/readyz", "/metrics"} {
		if path == at || path == s.links.Base()+at {
			return at
		}
	}
	return ""
}

// unknownHost says how to allow a host name, if it is one.
func (s *server) unknownHost(hostport string) string {
	host, _ := hosts.Split(hostport)
	if !hosts.Nameable(host) {
		return fmt.Sprintf("this server does not answer for the host %s; use one of its own host names", hosts.Quoted(hostport))
	}
	names, origin := "--host ", "--public-origin "
	switch {
	case s.Embedded:
		names, origin = "Config.Hosts to ", "Config.PublicURL to "
	case s.Auth.Kind() == auth.KindLocal:
		origin = "--auth to authenticate its users, and then --public-origin "
	}
	return fmt.Sprintf("this server does not answer for the host %s; if it should, set %s%s or, when a proxy offers it to browsers under that name, %shttps://%s",
		hosts.Quoted(hostport), names, host, origin, hosts.Bracketed(host))
}

func (s *server) knownHost(hostport string) bool {
	host, port := hosts.Split(hostport)
	if host == "localhost" || host == "127.0.0.1" || host == "::1" {
		return true
	}
	if slices.Contains(s.Hosts, hosts.Any) {
		return true
	}
	return host != "" && slices.ContainsFunc(s.Hosts, func(allowed string) bool {
		name, only := hosts.Split(allowed)
		return name == host && (only == "" || only == port)
	})
}

// publicHost returns the host of PublicOrigin, or "".
func (c Config) publicHost() string {
	_, host, _ := strings.Cut(c.PublicOrigin, "://")
	name, _ := hosts.Split(host)
	return name
}

// origin returns scheme and host of the pages as the reader's browser sees them.
func (s *server) origin(r *http.Request) string {
	if s.PublicOrigin != "" {
		return s.PublicOrigin
	}
	return hosts.Scheme(r) + "://" + r.Host
}

// fromHere refuses a change requested by another site's page, and requests that no browser can have
// sent. Without Origin and Sec-Fetch-Site there was no browser, or one older than both; forms are
// refused even then.
func (s *server) fromHere(r *http.Request) error {
	for _, name := range []string{"Origin", "Sec-Fetch-Site"} {
		if n := len(r.Header.Values(name)); n > 1 {
			return foreign("the header %s appears %d times, and browsers send it once; nothing was changed", name, n)
		}
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	insecure := site == "" && origin != "" && s.onlyHTTPS(r) && !strings.HasPrefix(origin, "https://") && origin != s.PublicOrigin
	if !insecure && s.crossOrigin.Check(r) == nil { // Check compares hosts, not schemes
		return nil
	}
	switch {
	case origin == "null":
		return foreign(`the header Origin is "null", but this server expects %s: a privacy setting of the browser, the Referrer-Policy no-referrer, or a sandboxed frame `+
			"hides which page sent the request; nothing was changed", s.expected(r))
	case site != "":
		return foreign("the header Sec-Fetch-Site is %s, but this server expects \"same-origin\": %s (Origin %s); nothing was changed", hosts.Quoted(site), hosts.SiteMeans(site), hosts.Quoted(origin))
	}
	return foreign("the header Origin is %s, but this server expects %s%s; nothing was changed", hosts.Quoted(origin), s.expected(r), s.instead(r, origin))
}

func foreign(format string, args ...any) error {
	return &event.Refusal{Err: errOrigin, Detail: fmt.Sprintf(format, args...)}
}

// expected describes the origins from which changes are accepted, and why.
func (s *server) expected(r *http.Request) string {
	here := hosts.Quoted(hosts.Scheme(r)+"://"+r.Host) + " (from the Host header)"
	if s.PublicOrigin == "" {
		return here
	}
	public := hosts.Quoted(s.PublicOrigin) + " (from " + s.setting("--public-origin", "PublicURL") + ")"
	if r.TLS == nil && s.onlyHTTPS(r) {
		return public
	}
	return public + " or " + here
}

// onlyHTTPS reports whether browsers reach a request's host by HTTPS alone, so that pages of it
// that come by plain HTTP may be anybody's on the network.
func (s *server) onlyHTTPS(r *http.Request) bool {
	name, _ := hosts.Split(r.Host)
	return r.TLS != nil || strings.HasPrefix(s.PublicOrigin, "https://") && name == s.publicHost()
}

// instead says what to change if a proxy serves these pages. It does not name the request's origin,
// which may be an attacker's.
func (s *server) instead(r *http.Request, origin string) string {
	at, err := hosts.Origin(origin)
	if err != nil || at == s.PublicOrigin {
		return ""
	}
	return fmt.Sprintf("; if a proxy offers these pages at another address, set %s to that address or let the proxy pass the Host header on", s.setting("--public-origin", "PublicURL"))
}

// setting names a setting: a flag, or in a program that embeds the engine a field of Config.
func (s *server) setting(flag, field string) string {
	if s.Embedded {
		return "Config." + field
	}
	return flag
}
