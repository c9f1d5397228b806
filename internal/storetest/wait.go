package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/must"
)

// Patience is how long tests wait for a condition.
const Patience = time.Minute

// Eventually waits until a condition holds and fails after Patience.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.After(Patience)
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 32*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-deadline:
			tb.Fatalf("not within %s: %s", Patience, what)
		}
	}
}

// Connect opens a separate connection, outside the fixture's pools, to a PostgreSQL database.
// It is closed at the test's end.
func Connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn := must.Get(pgx.Connect(context.Background(), url)).Or(tb)
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Run runs statements on a connection of Connect.
func Run(tb testing.TB, conn *pgx.Conn, statements ...string) {
	tb.Helper()
	for _, statement := range statements {
		_, err := conn.Exec(context.Background(), statement)
		must.Need(tb, err == nil, "%s: %v", statement, err)
	}
}

// AwaitLockWaits waits until this many connections of the test's stores wait for a lock, on
// PostgreSQL.
func (f *Fixture) AwaitLockWaits(n int64) {
	f.TB.Helper()
	Eventually(f.TB, fmt.Sprintf("%d connections wait for a lock", n), func() bool {
		return f.Number(`
select count(*)
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'
  and wait_event_type = 'Lock'`) == n
	})
}
