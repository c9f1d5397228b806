package storetest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Killed is an instance of this host whose process has ended without recording it.
func Killed(tb testing.TB, id string, started time.Time) outbox.InstanceState {
	tb.Helper()
	host, err := os.Hostname()
	if err != nil {
		tb.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		tb.Fatal(err)
	}
	return outbox.InstanceState{ID: id, Host: host, PID: ended.ProcessState.Pid(), Mode: outbox.ModeOutbox, StartedAt: started}
}
