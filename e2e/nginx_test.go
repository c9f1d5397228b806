package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

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

// startNginx starts a proxy on a port of its own and returns its origin. The
// process ends with the test.
func startNginx(t *testing.T, locations string) string {
	t.Helper()
	path, dir := installed(t, nginx...), t.TempDir()
	file := filepath.Join(dir, "nginx.conf")
	for attempt := 0; ; attempt++ { // another process may take the port first
		address := freePort(t)
		must.OK(t, os.WriteFile(file, fmt.Appendf(nil, nginxFrame, address, locations), 0o600))
		if listens(t, exec.Command(path, "-p", dir, "-e", "stderr", "-c", file), address) {
			return "http://" + address
		}
		must.Need(t, attempt != 5, "nginx found no free port")
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer l.Close()
	return l.Addr().String()
}

// listens starts a program and reports whether it listens at an address; it fails the test unless
// that was taken.
func listens(t *testing.T, cmd *exec.Cmd, address string) bool {
	t.Helper()
	stderr := new(output)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = stderr, stderr, dieWithParent()
	err := cmd.Start()
	must.Need(t, err == nil, "start %s: %v", cmd, err)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			t.Cleanup(func() {
				_ = cmd.Process.Kill() // it has nothing to finish
				<-ended
				if t.Failed() {
					t.Logf("note: log of %s:\n%s", filepath.Base(cmd.Path), tail(stderr.String(), 4000))
				}
			})
			return true
		}
		select {
		case err := <-ended:
			if strings.Contains(strings.ToLower(stderr.String()), "address already in use") {
				return false
			}
			t.Fatalf("%s ended: %v\n%s", cmd, err, stderr)
		case <-ctx.Done():
			t.Fatalf("%s does not listen after %s\n%s", cmd, patience, stderr)
		case <-look.C:
		}
	}
}

func (s *server) through(origin string) *server {
	return &server{url: origin, cmd: s.cmd, stderr: s.stderr, up: s.up, exited: s.exited,
		client: &http.Client{Timeout: s.client.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}
