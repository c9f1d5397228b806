package readmodel_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// These tests run on PostgreSQL too in a short run: locks, copies, ranges, and concurrent
// statements of several processes behave differently there.
const differs = "^Test(Postgres(Advance|Apply_(deadlock|nothing|gathered|statementAfter)|Watermark)|Scratch_(anEventThatFails|replays)|Swap)"

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, differs)) }

// fixture is a store whose read model is tested.
type fixture = enginetest.Rooms

var own = enginetest.OwnRooms

var refused = storetest.Refused
