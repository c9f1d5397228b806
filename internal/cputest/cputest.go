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

// Parts is how many times as much the whole is as a part in InProportion.
const Parts = 16

// InProportion fails unless work on the whole takes about Parts times as long as on a part. If the cost
// were quadratic, it would take Parts² times as long. It compares the least processor time of the calling
// thread of up to 100 calls of each, since other work and the collector only add to it. What the
// functions do in other goroutines does not count.
func InProportion(t testing.TB, what string, part, whole func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	one, all := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for round := range 100 {
		for least, fn := range map[*time.Duration]func(){&one: part, &all: whole} {
			began := used(t)
			fn()
			*least = min(*least, used(t)-began)
		}
		if round >= 5 && all <= 5*Parts*one {
			return
		}
	}
	t.Errorf("%s: a part takes %s and the whole %s", what, one, all)
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
