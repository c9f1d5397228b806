package runs_test

import (
	"outboxweb/internal/enginetest"
	"outboxweb/internal/storetest"
)

// fixture is a store with its rooms, without a worker on them.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)
