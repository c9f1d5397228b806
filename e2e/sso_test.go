package e2e

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/must"
)

// sso is a console behind a proxy with single sign-on, made of the files in deploy/proxy, in
// which only addresses and paths are changed.
type sso struct {
	t        *testing.T
	proxy    ssoProxy
	d        databases
	dir      string
	front    string // address of the proxy
	gate     string // address of oauth2-proxy
	provider string // address of the identity provider
	names    *strings.Replacer
	direct   *server // past the proxy
	outer    *server // through the proxy, without a session
	scripts  *server // through the proxy, with the token of an operator
}

// A ssoProxy is a proxy in front of a console; start starts it at s.front, for https://localhost.
type ssoProxy struct {
	name  string
	start func(s *sso) *exec.Cmd
	alpha string // the structured configuration of oauth2-proxy; oauth2-proxy-alpha.yaml unless given
	tcp   bool   // it reaches no Unix sockets
	blind bool   // it leads everything without a session to the sign-in page, and tokens open the API alone
	code  string // of the sign-in page in place of a page of the console; 200 unless given
}

var ssoProxies = []ssoProxy{
	{name: "nginx", start: func(s *sso) *exec.Cmd {
		s.write("frame.conf", "daemon off;\nmaster_process off;\npid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n"+
			"client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\ninclude "+s.file("nginx.conf")+";\n}\n")
		return exec.Command(installed(s.t, nginx...), "-p", s.dir, "-e", "stderr", "-c", filepath.Join(s.dir, "frame.conf"))
	}},
	{name: "Caddy", start: func(s *sso) *exec.Cmd {
		return exec.Command(proxyProgram(s.t, "caddy"), "run", "--adapter", "caddyfile", "--config", s.file("Caddyfile"))
	}},
	{name: "HAProxy", code: "403", alpha: "oauth2-proxy-upstream.yaml", start: func(s *sso) *exec.Cmd {
		return exec.Command(installed(s.t, "haproxy", "/usr/sbin/haproxy"), "-db", "-f", s.file("haproxy.cfg"))
	}},
	{name: "ingress-nginx", blind: true, start: ingressNginx},
}

// traefik cannot be built from its module alone, so that its recipe is run where it is installed.
var traefik = ssoProxy{name: "Traefik", code: "403", tcp: true, start: func(s *sso) *exec.Cmd {
	s.file("traefik-outboxweb.yaml")
	return exec.Command("traefik", "--configFile="+s.file("traefik.yaml"))
}}

func init() {
	if _, err := exec.LookPath("traefik"); err == nil {
		ssoProxies = append(ssoProxies, traefik)
	}
}

// startSSO starts the provider, oauth2-proxy, the server, and a proxy in front. Tokens
// live for lifetime and are refreshed after refresh.
func startSSO(t *testing.T, p ssoProxy, lifetime, refresh string) *sso {
	s := &sso{t: t, proxy: p, d: newDatabases(t), dir: t.TempDir(), front: portOfOurs(t), gate: portOfOurs(t), provider: portOfOurs(t)}
	origin := "https://localhost" + s.front[strings.LastIndex(s.front, ":"):]
	network, address := "unix", filepath.Join(s.dir, "http.sock")
	listen := []string{"--listen", "unix:" + address}
	if p.tcp {
		network, address = "tcp", portOfOurs(t)
		listen = []string{"--listen", address, "--trusted-proxy", "127.0.0.1/32"}
	}
	pair := filepath.Join(s.dir, "pair.pem")
	certificate(t, pair)
	s.write("secret", "secret")
	s.names = strings.NewReplacer("groups offline_access", "groups", // which this provider refuses
		"https://sso.example", "http://"+s.provider+"/oidc",
		`"4m"`, `"`+refresh+`"`, "https://ops.example", origin, "/run/outboxweb/http.sock", address, "127.0.0.1:8080", address, "127.0.0.1:4180", s.gate, "/etc/oauth2-proxy/client-secret", filepath.Join(s.dir, "secret"),
		"listen 443 ssl", "listen "+s.front+" ssl", "server_name ops.example", "server_name localhost", "/etc/nginx/ops.example.pem", pair, "/etc/nginx/ops.example.key", pair,
		"bind :443", "bind "+s.front, "/etc/haproxy/ops.example.pem", pair,
		"address: :443", "address: "+s.front, "Host(`ops.example`)", "Host(`localhost`)", "/etc/traefik/ops.example.pem", pair, "/etc/traefik/ops.example.key", pair, "/etc/traefik/outboxweb.yaml", filepath.Join(s.dir, "traefik-outboxweb.yaml"),
		"# Caddyfile\n{", "{\n\tadmin off\n\tauto_https off", "\nops.example {", "\n"+origin+" {\n\ttls "+pair+" "+pair)

	run := func(address string, cmd *exec.Cmd) {
		cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "OAUTH2_PROXY_COOKIE_SECRET=0123456789abcdef", "HOME="+s.dir)
		listens(t, cmd, address)
	}
	run(s.provider, exec.Command(proxyProgram(t, "provider"), s.provider, lifetime))
	run(s.gate, exec.Command(proxyProgram(t, "oauth2-proxy"), "--config", s.file("oauth2-proxy.cfg"), "--alpha-config", s.file(cmp.Or(p.alpha, "oauth2-proxy-alpha.yaml"))))
	s.direct = start(t, s.d, slices.Concat(quickDeath, writeProjections(t, seatProjections), []string{"--config", s.file("outboxweb.yaml")}, listen)...)
	run(s.front, p.start(s))

	s.direct = s.reach(origin, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	})
	s.outer = s.reach(origin, nil)
	eventually(t, "the proxy knows its routes", func() (bool, string) {
		response, err := s.outer.client.Get(origin + outside + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	s.scripts = s.reach(origin, nil)
	s.scripts.client.Transport = bearer{strings.TrimSpace(mustCommand(t, s.d, nil, "token", "create", "--role", "operator", "--note", "test")), s.scripts.client.Transport}
	return s
}

// reach is the server as reached at an origin by connections of dial, without following redirects.
func (s *sso) reach(origin string, dial func(context.Context, string, string) (net.Conn, error)) *server {
	reached := s.direct.through(origin)
	if dial != nil {
		reached.url = "http" + strings.TrimPrefix(origin, "https")
	}
	reached.client.Transport = &http.Transport{DialContext: dial, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return reached
}

type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// file writes a file of deploy/proxy with the addresses and paths of the test, and returns its name.
func (s *sso) file(name string) string {
	text := must.Get(os.ReadFile(filepath.Join("../deploy/proxy", name))).Or(s.t)
	return s.write(name, s.names.Replace(string(text)))
}

func (s *sso) write(name, text string) string {
	name = filepath.Join(s.dir, name)
	must.OK(s.t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func (s *sso) window() *tab {
	b := openTab(s.t, s.outer)
	b.base = outside
	if s.proxy.code != "" {
		b.expect(s.proxy.code)
	}
	return b
}

// signInAs goes from oauth2-proxy's sign-in page through the provider's to the console.
func (b *tab) signInAs(name string) { b.click(`form[action="/oauth2/start"] button`).logIn(name) }

// logIn fills in the provider's page, which leads to the console.
func (b *tab) logIn(name string) {
	b.typeInto("input[name=name]", name).click("button")
	b.await("the console is there", b.loaded()+` && `+saying(marked("me"), name+"@ops.example"))
}

// in makes a test the one that a tab fails.
func (b *tab) in(t *testing.T) *tab {
	b.t = t
	return b
}

// nginx are the names of Debian's nginx, which is only in root's search path.
var nginx = []string{"nginx", "/usr/sbin/nginx"}

// installed is the path of a program that is on PATH or at one of the names. Without it the test is
// skipped, and in CI it fails.
func installed(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	must.Need(t, os.Getenv("CI") == "", "%s must be there in CI", names[0])
	t.Skipf("there is no %s", names[0])
	return ""
}

// building lets one program be built at a time: two at once would both compile what they have in common.
var building sync.Mutex

// proxyProgram is the path of a program of tools/proxies. The go command builds it, unless its cache has it.
func proxyProgram(t *testing.T, name string) string {
	building.Lock()
	defer building.Unlock()
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir, cmd.Stderr = "../tools/proxies", new(output)
	path, err := cmd.Output()
	must.Need(t, err == nil, "build %s: %v\n%s", name, err, cmd.Stderr)
	return strings.TrimSpace(string(path))
}

var nextPort atomic.Int64

// portOfOurs is a free address whose port no system gives to connections, and which this process returns only once,
// so that programs can be told of one another before they listen.
func portOfOurs(t *testing.T) string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+(int64(os.Getpid())*50+nextPort.Add(1))%10000)
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
}

func certificate(t *testing.T, name string) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	secret := must.Get(x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)).Or(t)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})...)
	must.OK(t, os.WriteFile(name, text, 0o600))
}

// An ingress is what ingressLocations reads of one.
type (
	ingress struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			Rules []struct{ HTTP struct{ Paths []ingressPath } }
		}
	}
	ingressPath struct {
		Path     string
		PathType string `yaml:"pathType"`
		Backend  struct{ Service struct{ Name string } }
	}
)

// ingressFrame is what ingress-nginx says once, as far as it matters here, with the ConfigMap's
// large-client-header-buffers of the documentation.
const ingressFrame = `daemon off; master_process off; pid nginx.pid;
load_module /usr/lib/nginx/modules/ndk_http_module.so; load_module /usr/lib/nginx/modules/ngx_http_set_misc_module.so;
events {}
http {
	access_log off;
	client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
	large_client_header_buffers 8 64k;
	server {
		listen %s ssl http2;
		ssl_certificate %[2]s; ssl_certificate_key %[2]s;
		proxy_http_version 1.1;
%s
	}
}
`

// ingressNginx writes the configuration that the template of ingress-nginx makes of the overlay's
// annotations, and starts nginx with it.
func ingressNginx(s *sso) *exec.Cmd {
	program := installed(s.t, nginx...)
	if _, err := os.Stat("/usr/lib/nginx/modules/ngx_http_set_misc_module.so"); err != nil {
		must.Need(s.t, os.Getenv("CI") == "", "%v", err)
		s.t.Skipf("ingress-nginx escapes by a module of nginx: %v", err)
	}
	text := must.Get(os.ReadFile("../deploy/kubernetes/ingress-nginx/ingress.yaml")).Or(s.t)
	var locations strings.Builder
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var i ingress
		if err := d.Decode(&i); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			s.t.Fatal(err)
		}
		s.locations(&locations, i)
	}
	config := fmt.Sprintf(ingressFrame, s.front, filepath.Join(s.dir, "pair.pem"), s.names.Replace(locations.String()))
	return exec.Command(program, "-p", s.dir, "-e", "stderr", "-c", s.write("nginx.conf", config))
}

// locations writes those of one Ingress.
func (s *sso) locations(w io.Writer, i ingress) {
	has := map[string]string{}
	for key, value := range i.Metadata.Annotations {
		has[strings.TrimPrefix(key, "nginx.ingress.kubernetes.io/")] = value
	}
	buffers := fmt.Sprintf("proxy_buffer_size %[1]s; proxy_buffers 4 %[1]s; client_max_body_size %[2]s;", cmp.Or(has["proxy-buffer-size"], "4k"), cmp.Or(has["proxy-body-size"], "1m"))
	auth := ""
	if url := has["auth-url"]; url != "" {
		_, path, _ := strings.Cut(url, ":4180")
		auth = "auth_request /_external-auth; auth_request_set $auth_cookie $upstream_http_set_cookie; add_header Set-Cookie $auth_cookie;\n"
		for n, name := range strings.Split(has["auth-response-headers"], ",") {
			auth += fmt.Sprintf("auth_request_set $authHeader%d $upstream_http_%s; proxy_set_header '%s' $authHeader%[1]d;\n", n, strings.ToLower(strings.ReplaceAll(name, "-", "_")), name)
		}
		auth += "set_escape_uri $escaped_request_uri $request_uri; error_page 401 = @signin;\n"
		fmt.Fprintf(w, `location = /_external-auth { internal; proxy_pass_request_body off; proxy_set_header Content-Length "";
			proxy_set_header Host %s; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Auth-Request-Redirect $request_uri;
			%s proxy_pass http://127.0.0.1:4180%s; }
		location @signin { internal; add_header Set-Cookie $auth_cookie; return 302 %s; }
		`, strings.TrimPrefix(strings.TrimSuffix(url, ":4180"+path), "http://"), buffers, path, has["auth-signin"])
	}
	for _, p := range i.Spec.Rules[0].HTTP.Paths {
		to := map[string]string{"outboxweb": "http://unix:/run/outboxweb/http.sock:", "oauth2-proxy": "http://127.0.0.1:4180"}[p.Backend.Service.Name]
		matches := []string{"= " + p.Path}
		if p.PathType == "Prefix" {
			matches = append(matches, p.Path+"/")
		}
		for _, match := range matches {
			fmt.Fprintf(w, `location %s { %s
			proxy_set_header Host $http_host; proxy_set_header X-Request-ID $request_id; proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Host $http_host; proxy_set_header X-Forwarded-Port 443; proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Scheme $scheme;
			%s proxy_pass %s; }
		`, match, auth, buffers, to)
		}
	}
}
