package timetravel_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

// differs matches tests of how rows are replayed and read; what is kept of them is the same code.
const differs = "^Test(Postgres|Travel_(shows|namesTheStatement|pages|goesOn))"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }
