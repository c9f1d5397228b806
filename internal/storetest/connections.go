package storetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
)

// TheStores are the stores' connections to the database of the test.
const TheStores = `
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'`

// Terminate ends the connections of all stores of this test, as the server's administrator would, and waits until they are gone. With a condition on
// pg_stat_activity it ends those that meet it, without waiting. It returns how many they were.
func (f *Fixture) Terminate(which ...string) int64 {
	query := `select count(pg_terminate_backend(pid, 60000))` + TheStores
	if len(which) > 0 {
		query = `select count(pg_terminate_backend(pid))` + TheStores + ` and ` + which[0]
	}
	n := f.Number(query)
	must.Need(f.TB, n != 0, "the store has no connection to end")
	return n
}

// Listening is the connection on which a process waits for hints.
const Listening = `query like 'listen %'`

// EveryConnection changes a setting for new connections to the test's database and ends the store's connections.
func (f *Fixture) EveryConnection(setting string) {
	f.Exec(`do $$ begin execute 'alter database ' || current_database() || ' ` + setting + `'; end $$`)
	f.Terminate()
}

// Overtime is the event timeout in tests that exceed it. Everything else in them must finish within it, even on a busy machine.
const Overtime = 5 * time.Second

// EventTimeout sets the time that an event may take.
func EventTimeout(d time.Duration) func(*store.Options) {
	return func(o *store.Options) { o.EventTimeout = d }
}

// UnusedDatabase is the URL of a database that does not exist. It is dropped at the test's end.
func UnusedDatabase(tb testing.TB, name string) string {
	address := dbtest.Server().URL(name)
	tb.Cleanup(func() { AtServer(tb, `drop database if exists `+pgx.Identifier{name}.Sanitize()+` with (force)`) })
	return address
}

// AtServer runs statements on the server, in no test's database.
func AtServer(tb testing.TB, statements ...string) {
	db := dbtest.Open(tb, dbtest.Server().URL("postgres"))
	defer db.Close()
	for _, statement := range statements {
		_, err := db.Exec(statement)
		must.Hold(tb, err == nil, "%s: %v", statement, err)
	}
}

// Role creates a user without privileges.
func Role(tb testing.TB, name string) string {
	AtServer(tb, `create role `+name+` login`)
	tb.Cleanup(func() { AtServer(tb, `drop role `+name) })
	return name
}

// Connect opens a separate connection, outside the fixture's pools, to a PostgreSQL database. It is closed at the test's end.
func Connect(tb testing.TB, url string) *pgx.Conn {
	conn := must.Get(pgx.Connect(context.Background(), url)).Or(tb)
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Run runs statements on a connection of Connect.
func Run(tb testing.TB, conn *pgx.Conn, statements ...string) {
	for _, statement := range statements {
		_, err := conn.Exec(context.Background(), statement)
		must.Need(tb, err == nil, "%s: %v", statement, err)
	}
}

// Begin calls f beside the test, and returns where its result comes.
func Begin(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

// AwaitLockWaits waits until this many connections of the test's stores wait for a lock, on PostgreSQL.
func (f *Fixture) AwaitLockWaits(n int64) {
	must.Eventually(f.TB, fmt.Sprintf("%d connections wait for a lock", n), func() bool {
		return f.Number(`
select count(*)
from pg_stat_activity
where datname = current_database()
  and application_name = 'outboxweb'
  and wait_event_type = 'Lock'`) == n
	})
}

// AtOnce runs calls concurrently. All of them block on what the statement lock, or SQLite's only lock, locks, until each has begun.
func (f *Fixture) AtOnce(db *sql.DB, lock string, calls ...func()) {
	holder := must.Get(db.Conn(f.Ctx)).Or(f.TB)
	defer holder.Close()
	hold := []string{`begin immediate`}
	if dbtest.Postgres() {
		hold = []string{`begin`, lock}
	}
	for _, statement := range hold {
		must.Get(holder.ExecContext(f.Ctx, statement)).Or(f.TB)
	}
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(call)
	}
	if dbtest.Postgres() {
		f.AwaitLockWaits(int64(len(calls)))
	}
	if _, err := holder.ExecContext(f.Ctx, `rollback`); err != nil {
		f.TB.Error(err)
	}
	running.Wait()
}

// OneWins does the same 16 times at once, on stores in turn: one must do it, and the others be told of a conflict.
func OneWins[F any](tb testing.TB, stores []F, act func(F) error) {
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			err := act(stores[i%len(stores)])
			if err == nil {
				won.Add(1)
			}
			must.Hold(tb, err == nil || errors.Is(err, event.ErrConflict), "got error %v", err)
		})
	}
	all.Wait()
	must.Equal(tb, won.Load(), 1, "that won")
}

// EveryCampaign locks all campaigns on PostgreSQL.
const EveryCampaign = `select 1 from campaigns for update`

// Shuffled is a copy in random order.
func Shuffled[T any](all []T) []T {
	other := slices.Clone(all)
	rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// Everybody runs each of the calls many times, all concurrently, and each on all stores at once.
func Everybody[F any](tb testing.TB, stores []F, times int, calls map[string]func(s F, i int) error) {
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			for i := 0; i < times && !tb.Failed(); i++ {
				var both sync.WaitGroup
				for _, s := range stores {
					both.Go(func() { err := call(s, i); must.Hold(tb, err == nil, "%s: %v", name, err) })
				}
				both.Wait()
			}
		})
	}
	all.Wait()
}

// Log is a log that may be read while it is written.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Says reports whether one line has all the words.
func (l *Log) Says(words ...string) bool {
	return slices.ContainsFunc(strings.Split(l.String(), "\n"), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}
