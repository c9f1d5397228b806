package storetest

import (
	"time"

	"outboxweb/internal/store"
)

// TheStores are the connections of stores to the database of the test.
const TheStores = `
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'`

// Terminate ends the connections of all stores of this test, as the
// administrator of the server would, and waits until they are gone.
func (f *Fixture) Terminate() {
	f.TB.Helper()
	if n := f.Number(`select count(pg_terminate_backend(pid, 10000))` + TheStores); n == 0 {
		f.TB.Fatal("the store has no connection to end")
	}
}

// EveryConnection changes a setting for connections to the test's database that
// are made from now on, and ends those of the store.
func (f *Fixture) EveryConnection(setting string) {
	f.TB.Helper()
	f.Exec(`do $$ begin execute 'alter database ' || current_database() || ' ` + setting + `'; end $$`)
	f.Terminate()
}

// Overtime is the time of an event in tests of what exceeds it. Everything else
// in them has to end within it, on a machine that is busy with something else.
const Overtime = 5 * time.Second

// EventTimeout is the time that an event may take.
func EventTimeout(d time.Duration) func(*store.Options) {
	return func(o *store.Options) { o.EventTimeout = d }
}
