package worker_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

// differs matches tests with several processes and with random histories, since PostgreSQL lets transactions run concurrently.
const differs = "^Test(Postgres|Run_|Worker_drains|Pass_ofAStaleWorker|Pass_cutsAHangingEvent|Pass_leaves|ApplyInline_beside)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
