//go:build !linux

package e2e

import (
	"syscall"
	"testing"
)

func dieWithParent() *syscall.SysProcAttr { return nil }

func tinyDisk(t *testing.T) string {
	t.Skip("a small disk to fill up is mounted on Linux only")
	return ""
}
