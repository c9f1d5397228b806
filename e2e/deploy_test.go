package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/must"
)

// container is what a manifest starts: the program's arguments and the variables.
type container struct {
	args []string
	env  map[string]string
}

func image(t *testing.T) container {
	t.Helper()
	text := must.Get(os.ReadFile("../deploy/Dockerfile")).Or(t)
	c := container{env: map[string]string{}}
	lines := strings.ReplaceAll(string(text), "\\\n", " ")
	for _, m := range regexp.MustCompile(`(?m)^(ENV|CMD) (.*)$`).FindAllStringSubmatch(lines, -1) {
		if m[1] == "CMD" {
			must.OK(t, yaml.Unmarshal([]byte(m[2]), &c.args))
			continue
		}
		for _, setting := range strings.Fields(m[2]) {
			name, value, _ := strings.Cut(setting, "=")
			c.env[name] = value
		}
	}
	must.Need(t, len(c.args) != 0 && len(c.env) != 0, "deploy/Dockerfile has %v", c)
	return c
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../deploy", file))
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	must.Need(t, err == nil, "%s: %v", file, err)
}

// composed is the image as a service of compose.yaml.
func composed(t *testing.T, service string) container {
	t.Helper()
	var file struct {
		Services map[string]struct{ Environment map[string]string }
	}
	readYAML(t, "compose.yaml", &file)
	c := image(t)
	for name, value := range file.Services[service].Environment {
		c.env[name] = value
	}
	return c
}

// orchestrated is the image as the container of a workload of Kubernetes.
func orchestrated(t *testing.T, file string) container {
	t.Helper()
	var workload struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args []string
						Env  []struct{ Name, Value string }
					}
				}
			}
		}
	}
	readYAML(t, "kubernetes/"+file, &workload)
	c, of := image(t), workload.Spec.Template.Spec.Containers[0]
	c.args = of.Args
	for _, setting := range of.Env {
		c.env[setting.Name] = setting.Value
	}
	return c
}

// running is a container's process, with its paths in directories of the test and on a free port.
type running struct {
	t       *testing.T
	url     string
	secrets string
	env     []string
	dir     string
}

// makeSecrets runs deploy/make-secrets, and puts the databases' URLs in.
func makeSecrets(t *testing.T, d databases) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	for range 2 { // what exists stays
		cmd := exec.Command("../deploy/make-secrets", dir)
		cmd.Env = append(os.Environ(), "OUTBOXWEB="+binary)
		out, err := cmd.CombinedOutput()
		must.Need(t, err == nil, "make-secrets: %v\n%s", err, out)
	}
	for name, url := range map[string]string{"journal-db": d.flags()[1], "projections-db": d.flags()[3]} {
		rewrite(t, dir, map[string]string{name: url + "\n"})
	}
	return dir
}

// The program may be named by a relative path, and another host is not taken for the one in the files.
func TestDeploy_makeSecretsFromAnywhere(t *testing.T) {
	t.Parallel()
	script := must.Get(filepath.Abs("../deploy/make-secrets")).Or(t)
	dir := t.TempDir()
	must.OK(t, os.Symlink(binary, filepath.Join(dir, "program")))
	run := func(host string) (string, error) {
		cmd := exec.Command(script, "secrets")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OUTBOXWEB=./program", "DATABASE_HOST="+host)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, host := range []string{"one.example:5433", "one.example:5433", ""} {
		out, err := run(host)
		must.Need(t, err == nil, "for %q: %v\n%s", host, err, out)
	}
	out, err := run("two.example")
	must.Hold(t, err != nil && strings.Contains(out, "secrets/journal-db exists and names another host than two.example"), "for another host: %v\n%s", err, out)
	url, err := os.ReadFile(filepath.Join(dir, "secrets", "journal-db"))
	must.Hold(t, err == nil && strings.Contains(string(url), "@one.example:5433/outboxweb?search_path=journal"), "%s, %v", url, err)
}

// runContainer starts a container and waits until its probe is content.
func runContainer(t *testing.T, c container, d databases, extra ...string) running {
	t.Helper()
	r := running{t: t, secrets: makeSecrets(t, d), dir: d.dir}
	address := freePort(t)
	_, port, _ := strings.Cut(address, ":")
	r.url = "http://" + address
	etc := t.TempDir()
	local := strings.NewReplacer("/run/secrets", r.secrets, "/etc/outboxweb", etc, "/data/", d.dir+"/", "0.0.0.0:8080", "0.0.0.0:"+port,
		"trusted_proxy: [", "trusted_proxy: [127.0.0.1/32, ").Replace
	config := must.Get(os.ReadFile("../deploy/kubernetes/base/outboxweb.yaml")).Or(t)
	rewrite(t, etc, map[string]string{"outboxweb.yaml": local(string(config))})
	for name, value := range c.env {
		r.env = append(r.env, name+"="+local(value))
	}
	cmd := exec.Command(binary, append(c.args, extra...)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = r.dir, r.env, dieWithParent()
	log := new(output)
	cmd.Stdout, cmd.Stderr = log, log
	must.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	eventually(t, patience, "outboxweb health exits 0", func() (bool, string) {
		text, err := r.health()
		return err == nil && strings.HasPrefix(text, "ready: "), text + log.String()
	})
	return r
}

func (r running) health() (string, error) {
	cmd := exec.Command(binary, "health")
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r running) secret(name string) string {
	r.t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(r.secrets, name))).Or(r.t)
	return strings.TrimSpace(string(text))
}

func (r running) want(status int, url string, prepare func(*http.Request)) {
	r.t.Helper()
	request := must.Get(http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)).Or(r.t)
	prepare(request)
	answer := must.Get(http.DefaultTransport.RoundTrip(request)).Or(r.t)
	defer answer.Body.Close()
	must.Hold(r.t, answer.StatusCode == status, "GET %s: %s, want %d", url, answer.Status, status)
}

// wantAccess checks that the proxy and Prometheus are let in, and nobody else.
func (r running) wantAccess() {
	r.t.Helper()
	r.want(http.StatusUnauthorized, r.url+"/", func(*http.Request) {})
	r.want(http.StatusUnauthorized, r.url+"/", func(q *http.Request) { q.Header.Set("X-Forwarded-Email", "admin") })
	r.want(http.StatusUnauthorized, r.url+"/metrics", func(*http.Request) {})
	r.want(http.StatusOK, r.url+"/metrics", func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+r.secret("prometheus-token")) })
	r.want(http.StatusOK, r.url+"/tokens", func(q *http.Request) {
		q.Header.Set("X-Forwarded-Email", "admin")
		q.Header.Set("X-Outboxweb-Proxy-Secret", r.secret("proxy-secret"))
		q.Host = "localhost"
	})
}

func TestDeploy_theImageStartsOnlyWithAuthentication(t *testing.T) {
	t.Parallel()
	c, d := image(t), newDatabases(t)
	cmd := exec.Command(binary, c.args...)
	cmd.Dir, cmd.Env = d.dir, []string{"OUTBOXWEB_LISTEN=" + c.env["OUTBOXWEB_LISTEN"]}
	out, err := cmd.CombinedOutput()
	must.Hold(t, err != nil && bytes.Contains(out, []byte("set --auth")), "without --auth: %v, %s", err, out)
	runContainer(t, c, d, "--auth", "token")
	for _, name := range []string{"journal.db", "projections.db"} { // in the volume
		if _, err := os.Stat(filepath.Join(d.dir, "data", name)); err != nil {
			t.Error(err)
		}
	}
}

func TestDeploy_kubernetesOnSQLite(t *testing.T) {
	t.Parallel()
	d := newDatabases(t)
	runContainer(t, orchestrated(t, "sqlite/statefulset.yaml"), d).wantAccess()
	_, err := os.Stat(d.journal())
	must.Hold(t, err == nil, "the journal is not in the volume: %v", err)
}

func TestDeploy_kubernetesOnPostgres(t *testing.T) {
	t.Parallel()
	d := newPostgres(t)
	for range 2 {
		runContainer(t, orchestrated(t, "postgres/deployment.yaml"), d).wantAccess()
	}
	eventually(t, patience, "both instances are in the journal database", func() (bool, string) {
		n := scalar[int64](t, d.journal(), "select count(*) from instances")
		return n == 2, fmt.Sprint(n)
	})
}

// The proxy of compose.yaml lets users in by their passwords, and tells the server who they are.
func TestDeploy_composeWithItsProxy(t *testing.T) {
	t.Parallel()
	r := runContainer(t, composed(t, "outboxweb-1"), newPostgres(t))
	runContainer(t, composed(t, "outboxweb-2"), databases{dir: r.dir, url: newPostgres(t).url}).wantAccess()
	text := must.Get(os.ReadFile("../deploy/nginx/outboxweb.conf.template")).Or(t)
	_, location, _ := strings.Cut(string(text), "    location / {")
	location = "location / {" + strings.TrimSuffix(strings.TrimSpace(location), "}")
	location = strings.NewReplacer("/run/secrets", r.secrets, "${PROXY_SECRET}", r.secret("proxy-secret"), "http://outboxweb;", r.url+";").Replace(location)
	proxy := startNginx(t, location)
	r.want(http.StatusUnauthorized, proxy+"/", func(q *http.Request) { q.Header.Set("X-Forwarded-Email", "admin") })
	as := func(user, password string) func(*http.Request) {
		return func(q *http.Request) {
			q.SetBasicAuth(user, password)
			q.Host = "localhost"
		}
	}
	r.want(http.StatusUnauthorized, proxy+"/", as("admin", "wrong"))
	r.want(http.StatusOK, proxy+"/tokens", as("admin", r.secret("admin-password")))
	health, err := r.health()
	must.Hold(t, err == nil, "health: %v, %s", err, fmt.Sprint(health))
}
