//go:build !linux

package e2e

import (
	"os"
	"syscall"
	"testing"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func withItsOwn() *syscall.SysProcAttr { return nil }

func killAll(p *os.Process) error { return p.Kill() }

func tinyDisk(t *testing.T) string {
	t.Skip("a small disk to fill up is mounted on Linux only")
	return ""
}

func limitFiles(t *testing.T, _ int, _ uint64) (lift func()) {
	t.Skip("the files of another process are limited on Linux only")
	return nil
}

func limitMemory(t *testing.T, _ int, _ uint64) {
	t.Skip("the memory of another process is limited on Linux only")
}
