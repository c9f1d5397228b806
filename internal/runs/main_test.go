package runs_test

import (
	"os"
	"testing"

	"outboxweb/internal/enginetest"
)

// differs matches tests about several processes.
const differs = "^Test(Postgres|Locks|Runs_leave|Rebuild_beside|StartRun_ofMany)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
