package e2e

import (
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

const outside = "/ops/outbox" // where the proxy offers the pages

// stripped is a location that forwards the path after the prefix, byte by byte: a proxy_pass with a
// path would decode an escaped slash in it, and a rewrite or set escapes what it captured.
const stripped = `
		location = /ops/outbox { return 308 /ops/outbox/; }
		location /ops/outbox/ {
			proxy_pass %s$rest;
			proxy_set_header Host $http_host;
			proxy_set_header X-Forwarded-Prefix /ops/outbox;
			%s
		}
`

// behind is a way to put a proxy in front. The upstream is a Unix socket, so that the proxy can start first.
type behind struct {
	name      string
	locations func(upstream string) string
	flags     func(origin string) []string
}

var proxies = []behind{
	{name: "prefix passed on and Host rewritten",
		locations: func(upstream string) string {
			return "location /ops/outbox { proxy_pass " + upstream + "; proxy_set_header Host internal:8080; }"
		},
		flags: func(origin string) []string {
			return []string{"--auth", "none", "--base-path", outside, "--host", "internal", "--public-origin", origin}
		}},
	{name: "prefix stripped and identity",
		locations: func(upstream string) string {
			return fmt.Sprintf(stripped, upstream, "proxy_set_header X-Forwarded-Email ana@example.org; proxy_set_header X-Forwarded-Groups ops;")
		},
		flags: func(string) []string {
			return []string{"--trusted-proxy", "unix", "--auth", "proxy-header", "--auth-preset", "oauth2-proxy", "--auth-groups-format", "repeated", "--admin", "group:ops"}
		}},
}

func (p behind) start(t *testing.T, more ...string) *server {
	dir := must.Get(os.MkdirTemp("", "")).Or(t) // the path of a socket is at most 107 bytes long
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "o.sock")
	origin := startNginx(t, p.locations("http://unix:"+socket+":"))
	s, _ := startSeats(t, slices.Concat(quickDeath, more, []string{"--listen", "unix:" + socket}, p.flags(origin))...)
	return s.through(origin)
}

// Behind a real proxy no reference in a page, an answer or a header leads outside the prefix. That what they lead to
// exists is tested without one.
func TestProxy_nothingLeadsOutside(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			s := p.start(t, partnerConfig(t, databases{}, newPartner(t, always(http.StatusServiceUnavailable)))...)
			appendTo(t, s, outside, "healthy", seats("ana", "ben"))
			appendTo(t, s, outside, "a/b?c=%2F é", seats("ana"))
			appendTo(t, s, outside, "poisoned", seats("ana", "ana", "cem"))
			awaitCounts(t, s, outside, 1, 0, 1)
			s.post(t, http.StatusOK, outside+"/api/v1/campaigns/healthy/pause", map[string]any{"reason": "for the test"})
			must.Equal(t, s.staysInside(t, "/rows/poisoned/2"), http.StatusSeeOther, "the way to an event is")
			for _, page := range troubledPages("poisoned", 2) {
				s.staysInside(t, page) // some are of other campaigns
			}
			style := styleSheet.FindStringSubmatch(string(fetch(t, s, outside+"/").body))
			for _, page := range []string{strings.TrimPrefix(style[1], outside), "/runs/new?all_campaigns=true&kind=verify", "/campaigns/a%2Fb%3Fc=%252F%20%C3%A9/events/1",
				"/publishers/sales/partner", "/publishers/sales/partner/seek", "/api/v1/summary", "/api/v1/openapi.json", "/metrics"} {
				must.Equal(t, s.staysInside(t, page), http.StatusOK, page, "answers")
			}
		})
	}
}

var (
	styleSheet = regexp.MustCompile(`<link rel="stylesheet" href="([^"]*)"`)
	reference  = regexp.MustCompile(`(?:\s(?:href|src|action|formaction|poster|data|(?:data-)?hx-(?:get|post|put|patch|delete|push-url|replace-url))="|url\(['"]?)([^"')]*)`)
)

// staysInside checks the references of an answer, and the addresses in its text, such as those of curl commands. The
// configuration on /about may contain the origin as such.
func (s *server) staysInside(t *testing.T, path string) (status int) {
	a := do(t, s, http.MethodGet, outside+path, nil)
	at := must.Get(url.Parse(s.url + outside + path)).Or(t)
	for _, m := range append(reference.FindAllStringSubmatch(string(a.body), -1), []string{"", a.header.Get("Location")}) {
		to := html.UnescapeString(m[1])
		if strings.HasPrefix(to, "/oauth2/") || strings.HasPrefix(to, "data:") || to == "true" {
			continue
		}
		leads := must.Get(at.Parse(to)).Or(t)
		leads.Fragment = ""
		must.Hold(t, strings.HasPrefix(leads.String()+"/", s.url+outside+"/"), "%s refers to %s", path, to)
	}
	text := html.UnescapeString(string(a.body))
	for _, rest := range strings.Split(text, s.url)[1:] {
		must.Hold(t, strings.HasPrefix(rest, outside+"/") || path == "/about", "%s mentions %s%.60s", path, s.url, rest)
	}
	curl := strings.Count(text, "curl -s")
	must.Hold(t, curl <= strings.Count(text, s.url), "%s has %d curl commands, of which some are for another server", path, curl)
	return a.status
}

// nginxFrame is a complete configuration around a server's locations. The single process writes
// only below its prefix.
const nginxFrame = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 256; }
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	underscores_in_headers off;
	map $request_uri $rest { ~^/ops/outbox(?<path>/.*)$ $path; }
	server {
		listen %s;
		server_name _;
%s
	}
}
`

// startNginx starts a proxy on a port of its own and returns its origin. The process ends with the test.
func startNginx(t *testing.T, locations string) string {
	path, dir := installed(t, nginx...), t.TempDir()
	file, address := filepath.Join(dir, "nginx.conf"), portOfOurs(t)
	must.OK(t, os.WriteFile(file, fmt.Appendf(nil, nginxFrame, address, locations), 0o600))
	listens(t, exec.Command(path, "-p", dir, "-e", "stderr", "-c", file), address)
	return "http://" + address
}

// listens starts a program, whose process ends with the test, and waits until it listens at an address. It returns a
// channel that is closed once it has ended.
func listens(t *testing.T, cmd *exec.Cmd, address string) (ended chan struct{}) {
	said, ended := background(t, cmd)
	eventually(t, cmd.String()+" listens", func() (bool, string) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return true, ""
		}
		select {
		case <-ended:
			must.Need(t, false, "%s ended\n%s", cmd, said)
		default:
		}
		return false, said.String()
	})
	return ended
}

// background starts a process that is killed at the end of the test, and returns what it says, and a channel that is
// closed once it has ended. Its log is printed when the test failed.
func background(t *testing.T, cmd *exec.Cmd) (said *output, ended chan struct{}) {
	said, ended = new(output), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = said, said, dieWithParent()
	must.OK(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // how it ended is in the process state
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("note: log of %s:\n%s", filepath.Base(cmd.Path), tail(said.String(), 4000))
		}
	})
	return said, ended
}

func (s *server) through(origin string) *server {
	return &server{url: origin, cmd: s.cmd, stderr: s.stderr, up: s.up, exited: s.exited,
		client: &http.Client{Timeout: s.client.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}
