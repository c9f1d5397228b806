package runs_test

import (
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// fixture is a store without a worker on it.
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
