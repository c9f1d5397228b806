package runs_test

import (
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// fixture is a store without a worker on it.
type fixture = enginetest.Rooms

var open = enginetest.OpenRooms

// allApplied changes a journal as if a worker had applied all of it.
const allApplied = `update campaigns set applied_seq = high_water_seq`

const lease = storetest.Lease

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	began   = storetest.Began
	one     = storetest.One
	two     = storetest.Two
)
