package worker_test

import (
	"context"
	"database/sql/driver"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"modernc.org/sqlite"
)

func TestMain(m *testing.M) {
	sqlite.MustRegisterScalarFunction("probe", -1, probe)
	sqlite.RegisterConnectionHook(arrange)
	// Each check opens four databases; -rapid.checks on the command line wins.
	for name, value := range map[string]string{"rapid.checks": "40", "rapid.steps": "25", "rapid.nofailfile": "true", "rapid.shrinktime": "5s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// probes are what probe(KEY, …) in a projection's statement calls, by key.
var probes sync.Map

// onProbe makes probe(key, …) call f, from inside the transaction that applies
// the event. Its result is the function's value.
func onProbe(tb testing.TB, key string, f func(args []driver.Value) (driver.Value, error)) {
	tb.Helper()
	if _, taken := probes.LoadOrStore(key, f); taken {
		tb.Fatalf("probe %q is taken", key)
	}
	tb.Cleanup(func() { probes.Delete(key) })
}

func probe(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	f, ok := probes.Load(args[0])
	if !ok {
		return nil, fmt.Errorf("no probe %v", args[0])
	}
	return f.(func([]driver.Value) (driver.Value, error))(args[1:])
}

const (
	// hurried is part of the path of databases that must not wait for locks.
	hurried = "hurried"
	// cramped is part of the path of databases that must stay small.
	cramped      = "cramped"
	crampedPages = 100
	crampedBytes = crampedPages * 4096
)

// arrange is called for every new connection, and makes contention and full
// disks show within the test's patience where the path asks for it.
func arrange(c sqlite.ExecQuerierContext, dsn string) error {
	pragma := ""
	switch {
	case strings.Contains(dsn, hurried):
		pragma = "pragma busy_timeout = 50"
	case strings.Contains(dsn, cramped):
		pragma = fmt.Sprintf("pragma max_page_count = %d", crampedPages)
	default:
		return nil
	}
	_, err := c.ExecContext(context.Background(), pragma, nil)
	return err
}
