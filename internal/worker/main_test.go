package worker_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

// differs matches tests with several processes and with random histories, since PostgreSQL lets transactions run concurrently.
const differs = "^Test(Postgres(Pass_(applies|counts|tells)|Pause|Run_(hands|spreads|isWoken))|Run_(applies|recordsWhat)|Worker_drains|Pass_ofAStaleWorker|Pass_leavesNothing|ApplyInline_beside)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
