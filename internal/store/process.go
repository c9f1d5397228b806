package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

var thisHost = sync.OnceValue(func() string {
	host, _ := os.Hostname()
	return host
})

// thisProcess is when this process began.
var thisProcess = time.Now()

// processOf looks for the process of an instance, on this host. A number that was given to another
// process since looks alive, unless it is this one: in a container every process may be number 1. Those
// that promised heartbeats may live in another container of the same host name.
func processOf(i campaign.InstanceState) campaign.ProcessState {
	switch host, pid := i.Host, i.PID; {
	case host == "" || host != thisHost():
		return campaign.ProcessUnknown
	case i.BeatEvery == 0 && pid == os.Getpid() && i.StartedAt.Before(thisProcess):
		return campaign.ProcessGone
	case errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid):
		return campaign.ProcessGone
	default:
		return campaign.ProcessAlive
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
