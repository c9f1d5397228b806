package readmodel_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// These tests run on PostgreSQL too in a short run: locks, copies, ranges, and concurrent
// statements of several processes behave differently there.
const differs = "^Test(Postgres|Scratch|Swap)"

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, differs)) }

// fixture is a store whose read model is tested.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

var refused = storetest.Refused

// must ends a test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// only is the error of a call whose answer does not matter.
func only[T any](_ T, err error) error { return err }
