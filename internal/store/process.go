package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

var thisHost = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return host
})

// processOf looks for a process of this host. A number that was given to another process since looks
// alive.
func processOf(host string, pid int) outbox.ProcessState {
	switch {
	case host == "" || host != thisHost():
		return outbox.ProcessUnknown
	case errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid):
		return outbox.ProcessGone
	default:
		return outbox.ProcessAlive
	}
}

// zombie reports whether a process has ended and only waits to be collected by its parent, which some
// containers never do. It is known on Linux only.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := bytes.LastIndex(stat, []byte(") ")) // the name in parentheses may have some itself
	return after >= 0 && bytes.HasPrefix(stat[after+2:], []byte("Z"))
}
