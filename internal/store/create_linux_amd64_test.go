package store_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// changing are the system calls that change files, with the index of the argument that names one, as a descriptor or as a path.
var changing = map[uint64]struct {
	argument int
	path     bool
}{
	syscall.SYS_WRITE: {0, false}, syscall.SYS_PWRITE64: {0, false}, syscall.SYS_FTRUNCATE: {0, false}, syscall.SYS_FALLOCATE: {0, false},
	syscall.SYS_FSYNC: {0, false}, syscall.SYS_FDATASYNC: {0, false},
	syscall.SYS_OPEN: {0, true}, syscall.SYS_OPENAT: {1, true}, syscall.SYS_UNLINK: {0, true}, syscall.SYS_UNLINKAT: {1, true},
}

// touches reports whether the system call that a thread is about to make changes a file in dir.
func touches(thread int, regs *syscall.PtraceRegs, dir string) bool {
	call, ok := changing[regs.Orig_rax]
	if entering := int64(regs.Rax) == -int64(syscall.ENOSYS); !ok || !entering {
		return false
	}
	argument := []uint64{regs.Rdi, regs.Rsi}[call.argument]
	if !call.path {
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", thread, argument))
		return err == nil && strings.HasPrefix(file, dir)
	}
	path := make([]byte, len(dir))
	_, err := syscall.PtracePeekData(thread, uintptr(argument), path)
	return err == nil && string(path) == dir
}

// createUntil runs createAndAppend in dir, and kills it when it is about to make its nth system
// call that changes a file there. It returns how many it made.
func createUntil(t *testing.T, dir string, nth int) (calls int, killed bool) {
	const onlyThisThread, exitKill, stoppedBySyscall = 0x20000000, 0x100000, syscall.SIGTRAP | 0x80
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), createIn+"="+dir, "GOMAXPROCS=1", "GOGC=off") // which leaves few system calls of the runtime to stop at
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	options := syscall.PTRACE_O_TRACESYSGOOD | syscall.PTRACE_O_TRACECLONE | exitKill
	for first := true; ; first = false {
		var status syscall.WaitStatus
		thread, err := syscall.Wait4(-1, &status, syscall.WALL|onlyThisThread, nil)
		if err == syscall.EINTR {
			continue
		}
		must.Need(t, err == nil, "wait: %v", err)
		if first {
			must.OK(t, syscall.PtraceSetOptions(thread, options))
		}
		switch {
		case thread == cmd.Process.Pid && (status.Exited() || status.Signaled()):
			must.Need(t, killed || status.ExitStatus() == 0, "creating ended with %v", status)
			_ = cmd.Process.Release()
			return calls, killed
		case !status.Stopped():
			continue
		}
		deliver := 0
		switch signal := status.StopSignal(); {
		case signal == stoppedBySyscall:
			var regs syscall.PtraceRegs
			if !killed && syscall.PtraceGetRegs(thread, &regs) == nil && touches(thread, &regs, dir) {
				if calls++; calls == nth {
					killed = true
					must.OK(t, cmd.Process.Kill())
					continue
				}
			}
		case signal != syscall.SIGTRAP && signal != syscall.SIGSTOP:
			deliver = int(signal)
		}
		_ = syscall.PtraceSyscall(thread, deliver) // a thread that was killed is not there
	}
}

// TestSQLiteOpen_killedAnywhereLeavesNoneOrAWholeDatabase kills a process at each system call by
// which it changes the files of the databases that it creates, or at some of them.
func TestSQLiteOpen_killedAnywhereLeavesNoneOrAWholeDatabase(t *testing.T) {
	cut := newCutOff(own(t))
	calls, killed := createUntil(t, t.TempDir(), 0)
	must.Need(t, !killed && calls >= 50, "creating takes %d system calls", calls)
	kills := min(calls, size.Of(3, 12, calls))
	first := rand.IntN(calls)
	for i := range kills {
		dir, nth := t.TempDir(), 1+(first+i*calls/kills)%calls
		if _, killed := createUntil(t, dir, nth); killed { // else it made fewer calls this time
			cut.look(t, dbtest.Files(dir), "killed at call", nth)
		}
	}
	must.Hold(t, size.Little() || cut.left["journal whole"] != 0 && cut.left["journal empty"] != 0, "what was left is %v", cut.left)
}
