package metrics

import (
	"context"

	"github.com/outboxweb/outboxweb/internal/database"
)

// WatchConnections adds the gauges of database connections, which call list at each scrape.
func (m *Metrics) WatchConnections(list func() []database.Connections) {
	m.watch("list the connections", func(_ context.Context, gauge gauge) error {
		for _, c := range list() {
			gauge(connectionsDesc, float64(c.Idle), c.Database, c.Use, "idle")
			gauge(connectionsDesc, float64(c.InUse), c.Database, c.Use, "in_use")
			gauge(mostConnectionsDesc, float64(c.Limit), c.Database, c.Use)
			gauge(waitingConnectionsDesc, float64(c.Waiting), c.Database, c.Use)
		}
		return nil
	}, connectionsDesc, mostConnectionsDesc, waitingConnectionsDesc)
}

// WatchWALs adds the gauge of the sizes of the databases' logs, by database.
func (m *Metrics) WatchWALs(sizes func() map[string]int64) {
	m.watch("look at the logs", func(_ context.Context, gauge gauge) error {
		for database, size := range sizes() {
			gauge(walDesc, float64(size), database)
		}
		return nil
	}, walDesc)
}

var (
	connectionsDesc = desc("connections", "Connections of this process to a database for write and read transactions, by whether they are in use. Digests, migrations and notifications use a few more.",
		"database", "use", "state")
	mostConnectionsDesc    = desc("connections_limit", "Maximum number of those connections.", "database", "use")
	walDesc                = desc("wal_bytes", "Size of the log (-wal) beside the file of a SQLite database; absent on PostgreSQL.", "database")
	waitingConnectionsDesc = desc("connections_waiting", "Transactions of this process waiting for a connection.", "database", "use")
)
