package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/outboxweb/outboxweb/internal/must"
)

// dieWithParent makes a process end with the test binary, even if that is killed by its own
// deadline and runs no clean-up.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// withItsOwn makes a process end like dieWithParent, in a group with its child processes.
func withItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

func killAll(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }

// tinyDisk is a directory with space for a megabyte. Mounting one requires root; otherwise the test is skipped.
func tinyDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := syscall.Mount("outboxweb-e2e", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a small disk to fill up cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		err := syscall.Unmount(dir, syscall.MNT_DETACH)
		must.Hold(t, err == nil, "unmount %s: %v", dir, err)
	})
	return dir
}

// limitFiles keeps the files of a process from growing beyond some bytes, until the limit is lifted.
func limitFiles(t *testing.T, pid int, bytes uint64) (lift func()) {
	return limit(t, pid, syscall.RLIMIT_FSIZE, bytes)
}

// limitMemory lets a process have so many bytes of address space more than it has.
func limitMemory(t *testing.T, pid int, more uint64) {
	statm := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))).Or(t)
	pages := must.Get(strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)).Or(t)
	limit(t, pid, syscall.RLIMIT_AS, pages*uint64(os.Getpagesize())+more)
}

func limit(t *testing.T, pid int, resource uintptr, most uint64) (lift func()) {
	set := func(limit *syscall.Rlimit, former *syscall.Rlimit) {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), resource, uintptr(unsafe.Pointer(limit)), uintptr(unsafe.Pointer(former)), 0, 0)
		must.Need(t, errno == 0, "limit process %d: %v", pid, errno)
	}
	var former, limit syscall.Rlimit
	set(nil, &former)
	limit = former
	limit.Cur = most
	set(&limit, nil)
	return func() { set(&former, nil) }
}
