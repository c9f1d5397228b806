package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/must"
)

// ask sends a request with name-value pairs of headers, and returns the answer's status and its body.
func (s *served) ask(path string, headers ...string) (int, string) {
	r := must.Get(http.NewRequest("GET", s.url+path, nil)).Or(s.t)
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Add(pair[0], pair[1])
	}
	response := must.Get(http.DefaultClient.Do(r)).Or(s.t)
	defer response.Body.Close()
	return response.StatusCode, string(must.Get(io.ReadAll(response.Body)).Or(s.t))
}

// answers fails the test unless a request is answered so.
func (s *served) answers(status int, text, path string, headers ...string) {
	got, answer := s.ask(path, headers...)
	must.Hold(s.t, got == status && strings.Contains(answer, text), "%s with %v: %d, want %d with %q: %s", path, headers, got, status, text, answer)
}

func TestServe_knowsWhoAsks(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(secret, []byte("correct-battery-staple\r\n"), 0o600))
	s := serve(t, "--auth", "proxy-header", "--auth-preset", "oauth2-proxy", "--trusted-proxy", "127.0.0.1", "--viewer", "*", "--admin", "group:ops,user:ana", "--auth-groups-format", "repeated",
		"--auth-secret-header", "X-Secret", "--auth-secret-file", secret)
	user, proof := []string{"X-Forwarded-Email", "ana"}, []string{"X-Secret", "correct-battery-staple"}
	text, stderr, code := runIn(t, s.dir, "token", "create", "--role", "viewer", "--note", "watch")
	must.Need(t, code == 0, "token create: %s", stderr)
	bearer := []string{"Authorization", "Bearer " + strings.TrimSpace(text)}
	for _, c := range []struct {
		headers []string
		path    string
		want    int
	}{
		{nil, "/", 401},                          // nobody
		{nil, "/healthz", 200},                   // a probe
		{user, "/", 401},                         // no secret
		{append(user, proof...), "/", 200},       // a user
		{append(user, proof...), "/tokens", 200}, // an admin
		{append([]string{"X-Forwarded-Email", "bea", "X-Forwarded-Groups", "dev", "X-Forwarded-Groups", "ops"}, proof...), "/tokens", 200}, // a member
		{append([]string{"X-Forwarded-Email", "bea", "X-Forwarded-Groups", "dev,ops"}, proof...), "/tokens", 403},                          // a group with the members' name among commas
		{append([]string{"X-Forwarded-Email", "bea"}, proof...), "/tokens", 403},                                                           // a viewer
		{bearer, "/api/v1/summary", 200},                                   // a machine
		{bearer, "/api/v1/tokens", 403},                                    // a machine, as an admin
		{append(bearer, user...), "/", 401},                                // both
		{append([]string{"X_Forwarded_Email", "ana"}, proof...), "/", 401}, // an underscore
	} {
		s.answers(c.want, "", c.path, c.headers...)
	}
	_, stderr, code = runIn(t, s.dir, "token", "revoke", "1")
	must.Need(t, code == 0, "token revoke: %s", stderr)
	s.answers(401, "", "/api/v1/summary", bearer...) // it is revoked
	_, scrape := s.ask("/metrics", append([]string{"X-Forwarded-Email", "bea"}, proof...)...)
	for _, line := range []string{`outboxweb_identity_refused_total{why="secret"} 2`, `{why="variant"} 1`, `{why="together"} 1`, `{why="revoked"} 1`} {
		must.Hold(t, strings.Contains(scrape, line), "the scrape lacks %s", line)
	}
	must.Hold(t, !strings.Contains(scrape, "battery"), "the scrape has the secret")
}

// A server whose issuer is away starts, says so before anybody asks, and ends.
func TestServe_startsWithoutItsIssuer(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer issuer.Close()
	s := serve(t, "--auth", "jwt", "--auth-preset", "oauth2-proxy", "--auth-issuer", issuer.URL, "--auth-audience", "outboxweb", "--viewer", "*")
	trouble := "the issuer's keys have not been read yet, so every user is refused: " + issuer.URL + "/.well-known/openid-configuration: the answer is 502 Bad Gateway"
	must.Eventually(t, "the fetch at start has failed", func() bool {
		status, text := s.ask("/readyz?verbose")
		return status == http.StatusOK && strings.Contains(text, trouble)
	})
	s.stop()
	must.Equal(t, strings.Count(s.stderr.String(), trouble), 1, "how often it says so in", s.stderr.String())
}

func TestAuthFlags_placesWhereNobodyElseCanAsk(t *testing.T) {
	t.Parallel()
	const socket = "unix:/run/outboxweb.sock"
	by := func(kind string) serveCmd {
		return serveCmd{authFlags: authFlags{Config: auth.Config{Kind: auth.Kind(kind)}}}
	}
	insecure := func(readOnly bool, kind string) serveCmd {
		return serveCmd{ReadOnly: readOnly, authFlags: authFlags{InsecureNoAuth: true, Config: auth.Config{Kind: auth.Kind(kind)}}}
	}
	for _, c := range []struct {
		listen string
		serve  serveCmd
		fine   bool
	}{
		{"127.0.0.1:8080", by(""), true}, {"127.9.9.9:80", by(""), true}, {"[::1]:0", by(""), true}, {"localhost:80", by(""), true},
		{socket, by(""), false}, {socket, by("local"), false}, {socket, by("none"), true}, {socket, by("token"), true}, {"unix:@x", by("none"), false},
		{"systemd", by(""), true}, // until its socket is known
		{"0.0.0.0:80", by(""), false}, {"[::]:80", by(""), false}, {":80", by(""), false}, {"10.0.0.7:80", by("none"), false},
		{"ops.example.org:80", by(""), false}, {"127.0.0.1.evil:80", by(""), false},
		{"10.0.0.7:80", by("token"), true}, {"10.0.0.7:80", by("jwt"), true}, {"localhost", by("token"), false}, {"nonsense", by("token"), false},
		{"0.0.0.0:80", insecure(false, ""), false}, {"0.0.0.0:80", insecure(true, ""), true}, {socket, insecure(true, ""), true}, {socket, insecure(true, "token"), false},
	} {
		c.serve.Listen = c.listen
		err := c.serve.checkListening()
		must.Hold(t, (err == nil) == c.fine, "%s with %+v: %v", c.listen, c.serve.authFlags, err)
	}
}

// A proxy that signs users in looks safe although everyone it admits becomes the local admin.
func TestServe_warnsThatAProxyLetsInAdmins(t *testing.T) {
	t.Parallel()
	for flags, warns := range map[string]bool{
		"":                                    false,
		"--public-origin https://ops.example": true,
		"--trusted-proxy 127.0.0.1":           true,
		"--public-origin https://ops.example --read-only":  false,
		"--public-origin https://ops.example --auth token": false,
		"--auth none":             true,
		"--auth none --read-only": false,
	} {
		c := must.Get(parsed(append([]string{"serve"}, strings.Fields(flags)...)...)).Or(t)
		must.Equal(t, c.Serve.letsProxiesAct(), warns, flags, "warns")
	}
	s := serve(t, "--auth", "none")
	s.answers(200, "", "/", "X-Forwarded-For", "203.0.113.7")
	s.stop()
	must.Hold(t, strings.Contains(s.stderr.String(), "everyone whom a proxy lets through is an admin"), "it warns: %s", s.stderr.String())
}

// A proxy on this machine connects from loopback, and its users may be anywhere.
func TestServe_admitsNoProxyWithoutAuthentication(t *testing.T) {
	t.Parallel()
	forwarded, s := []string{"X-Forwarded-For", "203.0.113.7"}, serve(t)
	s.answers(200, "", "/")
	s.answers(401, "This request came through a proxy (it has the header X-Forwarded-For)", "/", forwarded...)
	s.answers(401, "--auth jwt, proxy-header or token", "/", forwarded...)
	s.answers(200, "", "/healthz", forwarded...)
	got, answer := s.old("GET / HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	must.Hold(t, got == http.StatusUnauthorized && strings.Contains(answer, "it is HTTP/1.0, like those of nginx"), "nginx with its defaults: %d %s", got, answer)
	serve(t, "--read-only", "--insecure-no-auth").answers(200, "", "/", forwarded...)
}

// old sends a request as it is written.
func (s *served) old(request string) (int, string) {
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))).Or(s.t)
	defer conn.Close()
	must.Get(io.WriteString(conn, request)).Or(s.t)
	response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil)).Or(s.t)
	body := must.Get(io.ReadAll(response.Body)).Or(s.t)
	return response.StatusCode, string(body)
}

// A page with a rebound name would be the local admin if every host name is answered without
// authentication.
func TestHostFlag_isRefusedWhereItLetsPagesAct(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hosts []string
		flags serveCmd
		says  string
	}{
		{[]string{"ops.example", "10.0.0.3:8080", "[fd00::1]:80", "fd00::1", "fqdn.example."}, serveCmd{}, ""},
		{[]string{"*"}, serveCmd{}, "--host: * without authentication"},
		{[]string{"*"}, serveCmd{ReadOnly: true}, ""},
		{[]string{"*"}, serveCmd{authFlags: authFlags{Config: auth.Config{Kind: auth.KindJWT}}}, ""},
		{[]string{"*.ops.example"}, serveCmd{}, `--host: "*.ops.example" is not a host name`},
		{[]string{"https://ops.example"}, serveCmd{}, "is not a host name"},
		{[]string{"ops.example:http"}, serveCmd{}, "is not a host name"},
		{[]string{""}, serveCmd{}, "is not a host name"},
	} {
		c.flags.Host = c.hosts
		err := c.flags.checkHosts()
		must.Hold(t, (err == nil) == (c.says == "") && (err == nil || strings.Contains(err.Error(), c.says)), "%v with --auth %s: %v", c.hosts, c.flags.Kind, err)
	}
}

// Tokens of the file authenticate beside those of the database, are listed as from the file, and
// cannot be revoked.
func TestServe_takesTokensOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	var admin struct{ Token, Line string }
	text, _, _ := here(t.Context(), "token", "hash", "deploy", "--role", "admin", "--json")
	must.OK(t, json.Unmarshal([]byte(text), &admin))
	must.OK(t, os.WriteFile(file, []byte("# for the deploys\n\n"+admin.Line+"\n"), 0o600))
	s := serve(t, "--auth", "token", "--tokens-file", file)
	bearer := []string{"Authorization", "Bearer " + admin.Token}
	s.answers(401, "", "/api/v1/tokens")
	status, list := s.ask("/api/v1/tokens", bearer...)
	must.Hold(t, status == http.StatusOK && strings.Contains(list, `"name":"deploy"`) && !strings.Contains(list, "expires_at") && !strings.Contains(list, "created_at"), "the list: %s", list)
	status, page := s.ask("/tokens", bearer...)
	must.Hold(t, status == http.StatusOK && strings.Contains(page, "in the server's tokens file") && !strings.Contains(page, "revoke-form"), "the page: %d %s", status, page)
	s.answers(200, "token deploy", "/about", bearer...)
}
