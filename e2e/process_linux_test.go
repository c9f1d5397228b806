package e2e

import "syscall"

// dieWithParent makes a process end with the test binary, also when that is
// killed by its own deadline and runs no clean-up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
