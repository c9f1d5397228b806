package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
)

// poolerConfig forwards every database to the server in the named directory. Several server
// connections are kept open per database and used in turn, so that even a single client's
// transactions move between them.
const poolerConfig = `[databases]
* = host=%s port=5432 user=postgres

[pgbouncer]
unix_socket_dir = %s
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 4
min_pool_size = 4
server_round_robin = 1
max_client_conn = 1000
server_login_retry = 1
`

// Pooler starts a pgbouncer in front of the server, in transaction pooling mode, and stops it
// when the test ends. The function it returns rewrites a URL of the server to go through it. It
// opens at most four connections to each database at a time.
func (s *Server) Pooler(tb testing.TB) func(url string) string {
	tb.Helper()
	j, err := s.startPooler()
	must.Need(tb, err == nil, "start pgbouncer: %v", err)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("pgbouncer wrote:\n%s", j.logTail())
		}
		if err := j.end(); err != nil {
			tb.Errorf("stop pgbouncer: %v", err)
		}
	})
	return func(direct string) string { return ledBy(direct, "host", j.dir, "port", "6432") }
}

func (s *Server) startPooler() (*janitor, error) {
	program, err := poolerProgram()
	if err != nil {
		return nil, err
	}
	j, err := newJanitor(filepath.Dir(program), "KILL")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf(poolerConfig, s.janitor.dir, j.dir)
	err = os.WriteFile(filepath.Join(j.dir, "pgbouncer.ini"), []byte(config), 0o644)
	if err == nil {
		err = j.run("launch 60 'grep -q \"process up\" log' pgbouncer pgbouncer.ini")
	}
	if err != nil {
		return nil, errors.Join(err, j.end())
	}
	return j, nil
}

func poolerProgram() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", errors.New("pgbouncer is needed for these tests: apt-get install pgbouncer")
}
