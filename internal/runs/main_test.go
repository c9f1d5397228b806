package runs_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

// differs matches tests about several processes, and of what depends on how rows are stored.
const differs = "^Test(Postgres|Locks|Runs_leave|Rebuild_beside|StartRun_ofMany|Rehearse_saysWhatTheCanaryFinds|Rehearse_doesNotVouch)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
