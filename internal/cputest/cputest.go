//go:build linux

// Package cputest measures processor time in tests, which other work on the
// machine does not add to.
package cputest

import (
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Least is the least processor time of the calling thread that a call of fn
// takes, of so many calls. What fn does in other goroutines does not count.
func Least(t testing.TB, calls int, fn func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Duration(math.MaxInt64)
	for range calls {
		began := used(t)
		fn()
		least = min(least, used(t)-began)
	}
	return least
}

// used is not from getrusage, which on some kernels counts in ticks.
func used(t testing.TB) time.Duration {
	t.Helper()
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}
