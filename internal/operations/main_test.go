package operations_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// differs matches tests about several processes.
const differs = "^Test(Postgres|Operation_runs|StepOperation)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }

// fixture is a store without a worker on it.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	one     = storetest.One
)
