package storetest

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
)

// TheStores are the stores' connections to the database of the test.
const TheStores = `
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'`

// Terminate ends the connections of all stores of this test, as the server's administrator
// would, and waits until they are gone.
func (f *Fixture) Terminate() {
	f.TB.Helper()
	n := f.Number(`select count(pg_terminate_backend(pid, 10000))` + TheStores)
	must.Need(f.TB, n != 0, "the store has no connection to end")
}

// EveryConnection changes a setting for new connections to the test's database and ends the
// store's connections.
func (f *Fixture) EveryConnection(setting string) {
	f.TB.Helper()
	f.Exec(`do $$ begin execute 'alter database ' || current_database() || ' ` + setting + `'; end $$`)
	f.Terminate()
}

// Overtime is the event timeout in tests that exceed it. Everything else in them must finish
// within it, even on a busy machine.
const Overtime = 5 * time.Second

// EventTimeout sets the time that an event may take.
func EventTimeout(d time.Duration) func(*store.Options) {
	return func(o *store.Options) { o.EventTimeout = d }
}
