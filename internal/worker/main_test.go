package worker_test

import (
	"os"
	"testing"

	"outboxweb/internal/enginetest"
)

// differs names what several processes do to each other, random histories among
// it, since PostgreSQL lets them go on at the same time.
const differs = "^Test(Postgres|Run_|Worker_drains|Worker_never|Pass_fences|Pass_leaves|Fence|ApplyInline_keeps)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
