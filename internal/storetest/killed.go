package storetest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Killed is an instance of this host whose process has ended without recording it.
func Killed(tb testing.TB, id string, started time.Time) outbox.InstanceState {
	tb.Helper()
	host := must.Get(os.Hostname()).Or(tb)
	ended := exec.Command("true")
	must.OK(tb, ended.Run())
	return outbox.InstanceState{ID: id, Host: host, PID: ended.ProcessState.Pid(), Mode: outbox.ModeOutbox, StartedAt: started}
}
