// Package must ends tests at errors that they do not expect, and says where a value is not the one that they want.
//
//	must.OK(t, engine.Close())
//	events := must.Get(store.Load(ctx, "a")).Or(t)
//	must.Equal(t, len(events), 3, "events of", "a")
//	must.Hold(t, events[0].Seq < events[1].Seq, "the events are %+v", events)
//
// Where a helper of tests calls it, a failure also names the line of the test: helpers need no tb.Helper.
package must

import (
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TB is what every kind of test can do: testing.TB, and rapid.TB.
type TB interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
}

// OK ends the test if err is one.
func OK(tb TB, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatal(at() + err.Error())
	}
}

// at is the line of a test that leads to a call of this package by another function; it is empty where the test itself calls it.
func at() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	var nearest, outermost runtime.Frame
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if nearest.File == "" && !strings.HasSuffix(frame.File, "/must/must.go") {
			nearest = frame
		}
		if strings.HasSuffix(frame.File, "_test.go") {
			outermost = frame
		}
	}
	if outermost.File == "" || outermost == nearest {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", filepath.Base(outermost.File), outermost.Line)
}

// Result is what a call returned.
type Result[T any] struct {
	value T
	err   error
}

// Get takes the two results of a call; Or tells the test to end at an error.
func Get[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Or returns the value, or ends the test.
func (r Result[T]) Or(tb TB) T {
	tb.Helper()
	OK(tb, r.err)
	return r.value
}

// Equal fails the test if the values differ, and says what they are values of. The test goes on.
func Equal[T any](tb TB, got, want T, what ...any) {
	if diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		tb.Helper()
		tb.Errorf("%s%s (-want +got):\n%s", at(), strings.TrimSpace(fmt.Sprintln(what...)), diff)
	}
}

// Same is Equal of lists, of which one may be nil and the other empty.
func Same[T any](tb TB, got, want []T, what ...any) {
	tb.Helper()
	if len(got)+len(want) > 0 {
		Equal(tb, got, want, what...)
	}
}

// Hold fails the test with a message if what must hold does not. The test goes on.
func Hold(tb TB, holds bool, format string, args ...any) {
	if !holds {
		tb.Helper()
		tb.Errorf("%s", at()+fmt.Sprintf(format, args...))
	}
}

// Patience bounds every wait for what should happen soon. It is generous, since the machine may be
// many times slower than usual; only a test that fails waits for so long.
const Patience = 5 * time.Minute

// Eventually waits until a condition holds, and ends the test if it does not within Patience.
func Eventually(tb TB, what string, holds func() bool) {
	tb.Helper()
	Within(tb, Patience, what, holds)
}

// Within is Eventually with another limit.
func Within(tb TB, limit time.Duration, what string, holds func() bool) {
	deadline := time.After(limit)
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 32*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-deadline:
			tb.Helper()
			tb.Fatal(at() + fmt.Sprintf("not within %s: %s", limit, what))
		}
	}
}

// Receive returns what comes on a channel, or ends the test with a message if nothing does within Patience.
func Receive[T any](tb TB, from <-chan T, format string, args ...any) (value T) {
	select {
	case value = <-from:
	case <-time.After(Patience):
		tb.Helper()
		tb.Fatal(at() + fmt.Sprintf(format, args...))
	}
	return value
}

// Need ends the test with a message if what the rest of it needs does not hold.
func Need(tb TB, holds bool, format string, args ...any) {
	if !holds {
		tb.Helper()
		tb.Fatal(at() + fmt.Sprintf(format, args...))
	}
}

// Serve accepts connections and serves each, until the test ends. It returns where.
func Serve(tb testing.TB, serve func(net.Conn)) string {
	listener := Get(net.Listen("tcp", "127.0.0.1:0")).Or(tb)
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}
