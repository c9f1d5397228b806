package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/must"
)

// An ingress is what ingressLocations reads of one.
type ingress struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct {
		Rules []struct {
			HTTP struct {
				Paths []struct {
					Path     string
					PathType string `yaml:"pathType"`
					Backend  struct{ Service struct{ Name string } }
				}
			}
		}
	}
}

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
	s.t.Helper()
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
	s.t.Helper()
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
