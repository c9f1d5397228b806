package storetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Main runs the tests of a package on both databases, and fails when they leak a goroutine; see dbtest.Main. differs matches the tests in which PostgreSQL
// behaves differently.
func Main(m *testing.M, differs string) int {
	code := dbtest.Main(m, differs, Prepare)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Prepare migrates the pair that every test's pair is copied from.
func Prepare(p dbtest.Pair) error {
	s, err := store.Open(context.Background(), OptionsFor(p))
	if err != nil {
		return err
	}
	return s.Close()
}

// Killed is an instance of this host whose process has ended without recording it.
func Killed(tb testing.TB, id string, started time.Time) outbox.InstanceState {
	host := must.Get(os.Hostname()).Or(tb)
	ended := exec.Command("true")
	must.OK(tb, ended.Run())
	return outbox.InstanceState{ID: id, Host: host, PID: ended.ProcessState.Pid(), Mode: outbox.ModeOutbox, StartedAt: started}
}
