package e2e

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/pgtest"
)

// postgres is the PostgreSQL server shared by all tests except those that restart theirs.
var postgres struct {
	start  sync.Once
	server *pgtest.Server
	err    error
}

// postgresServer returns the server, which it starts on first use. Each process of the program has
// some twenty connections.
func postgresServer(t *testing.T) *pgtest.Server {
	t.Helper()
	postgres.start.Do(func() { postgres.server, postgres.err = pgtest.Start("max_connections=1000") })
	must.OK(t, postgres.err)
	return postgres.server
}

func stopPostgres() {
	if postgres.server == nil {
		return
	}
	if err := postgres.server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}

func newPostgres(t *testing.T) databases {
	t.Helper()
	return databases{dir: t.TempDir(), url: postgresServer(t).Empty(t)}
}
