package timetravel_test

import (
	"os"
	"testing"

	"outboxweb/internal/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, "^Test(Postgres|Travel)")) }
