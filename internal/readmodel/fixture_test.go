package readmodel_test

import (
	"os"
	"testing"

	"outboxweb/internal/enginetest"
	"outboxweb/internal/storetest"
)

// Locks, copies and ranges are PostgreSQL's own; so is what statements that
// several processes run at a time do to each other.
const differs = "^Test(Postgres|Scratch|Swap)"

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, differs)) }

// fixture is a store whose read model the test looks at.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

const lease = storetest.Lease

var refused = storetest.Refused
