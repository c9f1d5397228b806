package timetravel_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, "^Test(Postgres|Travel)")) }
