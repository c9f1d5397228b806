package store_test

import (
	"context"
	"database/sql"
	"flag"
	"os"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/operations"
	"outboxweb/internal/outbox"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
	"outboxweb/internal/tokens"
)

// TestMain lowers how many random histories a test tries, and for how long it
// looks for a shorter one that fails as well, to what its time allows; the flags
// raise them.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crampedDir); dir != "" {
		os.Exit(appendCramped(dir))
	}
	if err := flag.Set("rapid.shrinktime", "10s"); err != nil {
		panic(err)
	}
	// Locks, copies and ranges are PostgreSQL's own; so is what statements that
	// several processes run at a time do to each other.
	const differs = "^Test(Postgres|Append_|Claim_|Condition_(of|holds)|Locks|RequeueRow|Scratch|Settle|SkipEvent|StartRun_ofMany|StepOperation|Swap|TwoStores)"
	os.Exit(dbtest.Main(m, differs, func(p dbtest.Pair) error {
		dbtest.Checks(30)
		s, err := store.Open(context.Background(), optionsFor(p))
		if err != nil {
			return err
		}
		return s.Close()
	}))
}

func optionsFor(p dbtest.Pair) store.Options {
	return store.Options{Journal: p.Journal, Projections: p.Projections}
}

func optionsIn(dir string) store.Options { return optionsFor(dbtest.Files(dir)) }

// clock is a time that stands still until it is moved.
type clock struct{ *storetest.Clock }

var began = storetest.Began

func newClock() clock { return clock{storetest.NewClock()} }

func (c clock) now() time.Time          { return c.Now() }
func (c clock) advance(d time.Duration) { c.Advance(d) }

// model keeps the methods of the database itself from those of the store.
type model struct{ *readmodel.Database }

// fixture is a store on files of its own, the clock it goes by, and raw
// connections that go past it.
type fixture struct {
	*storetest.Fixture
	model
	*tokens.Tokens
	operations  *operations.Operations
	runs        *runs.Runs
	tb          testing.TB
	ctx         context.Context
	pair        dbtest.Pair
	clock       clock
	journal     *sql.DB
	projections *sql.DB
	swaps       []store.Statement // prepared on a Scratch's own connection
}

// open makes an empty store. change adjusts its options.
func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	tb.Helper()
	return openPair(tb, dbtest.New(tb), newClock(), change...)
}

func openPair(tb testing.TB, p dbtest.Pair, c clock, change ...func(*store.Options)) *fixture {
	tb.Helper()
	return around(storetest.OpenPair(tb, p, c.Clock, change...), c)
}

// around puts the rooms around a store that nobody uses yet.
func around(s *storetest.Fixture, c clock) *fixture {
	return &fixture{Fixture: s, model: model{s.ReadModel()}, Tokens: tokens.New(s.Store), operations: operations.New(s.Store), runs: runs.New(s.Store),
		tb: s.TB, ctx: context.Background(), pair: s.Pair, clock: c, journal: s.JournalDB, projections: s.ProjectionsDB}
}

// release closes everything before the test's end, for tests that open many.
func (f *fixture) release() {
	f.Close()
	f.journal.Close()
	f.projections.Close()
}

// beside opens a second store on the same files, as another process would.
func (f *fixture) beside(change ...func(*store.Options)) *fixture {
	f.tb.Helper()
	return openPair(f.tb, f.pair, f.clock, change...)
}

func mode(m outbox.Mode) func(*store.Options) { return func(o *store.Options) { o.Mode = m } }

func maxAttempts(n int) func(*store.Options) {
	return func(o *store.Options) { o.Retry.MaxAttempts = n }
}

func readOnly(o *store.Options) { o.ReadOnly = true }

// raw runs a statement on the journal database past the store.
func (f *fixture) raw(query string, args ...any) {
	f.tb.Helper()
	if _, err := f.journal.Exec(query, args...); err != nil {
		f.tb.Fatalf("%s: %v", query, err)
	}
}

func (f *fixture) rawProjections(query string, args ...any) {
	f.tb.Helper()
	if _, err := f.projections.Exec(query, args...); err != nil {
		f.tb.Fatalf("%s: %v", query, err)
	}
}

// number reads one number from the journal database past the store.
func (f *fixture) number(query string, args ...any) int64 {
	f.tb.Helper()
	var n int64
	if err := f.journal.QueryRow(query, args...).Scan(&n); err != nil {
		f.tb.Fatalf("%s: %v", query, err)
	}
	return n
}

func (f *fixture) unchanged(act func()) { f.tb.Helper(); f.Unchanged(act) }

func texts(tb testing.TB, db *sql.DB, query string, args ...any) []string {
	tb.Helper()
	rows, err := db.Query(query, args...)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			tb.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// event is the least that can be appended.
func event(campaign, eventType string) outbox.Event { return storetest.Event(campaign, eventType) }

// append writes n events to a campaign and returns where they stand.
func (f *fixture) append(campaign string, n int) []store.Appended {
	f.tb.Helper()
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = event(campaign, "counted")
	}
	return f.appendAll(events...)
}

func (f *fixture) appendAll(events ...outbox.Event) []store.Appended {
	f.tb.Helper()
	return f.MustAppend(events...)
}

var (
	one = store.Worker{ID: "worker-1", Build: "v1"}
	two = store.Worker{ID: "worker-2", Build: "v2"}
)

const lease = storetest.Lease

func (f *fixture) claim(w store.Worker, rows int) []store.Claim {
	f.tb.Helper()
	return f.MustClaim(w, rows)
}

// claimOne claims when exactly one campaign must be due.
func (f *fixture) claimOne(w store.Worker, rows int) store.Claim {
	f.tb.Helper()
	claims := f.claim(w, rows)
	if len(claims) != 1 {
		f.tb.Fatalf("claimed %+v, want one campaign", claims)
	}
	return claims[0]
}

func (f *fixture) noClaim(w store.Worker) {
	f.tb.Helper()
	if claims := f.claim(w, 1000); len(claims) != 0 {
		f.tb.Fatalf("claimed %+v, want nothing", claims)
	}
}

// load reads the events of a claim.
func (f *fixture) load(c store.Claim) ([]outbox.Event, error) {
	loaded, _, err := f.Load(f.ctx, []store.Range{c.Range()}, 1<<30)
	if err != nil {
		return nil, err
	}
	return loaded[0].Events, nil
}

// apply moves the watermark of a claim's campaign over the claim's events up
// to last, the way a worker does, and returns where it then stands.
func (f *fixture) apply(c store.Claim, last int64) (int64, error) {
	f.tb.Helper()
	return f.ApplyClaim(c, last)
}

func (f *fixture) mustApply(c store.Claim, last int64) {
	f.tb.Helper()
	if reached, err := f.apply(c, last); err != nil || reached != last {
		f.tb.Fatalf("apply to %d: reached %d, %v", last, reached, err)
	}
}

func (f *fixture) settle(w store.Worker, results ...store.Result) store.Settled {
	f.tb.Helper()
	settled, err := f.Settle(f.ctx, w, results)
	if err != nil {
		f.tb.Fatalf("settle: %v", err)
	}
	return settled
}

// drain works everything off that is due.
func (f *fixture) drain() { f.tb.Helper(); f.Drain() }

func failure(message string) *readmodel.Failure {
	return &readmodel.Failure{Message: message, Fingerprint: outbox.Fingerprint(message)}
}

// fail lets the head of each named campaign fail once. They alone must be due.
func (f *fixture) fail(message string, campaigns ...string) {
	f.tb.Helper()
	claims := f.claim(one, 1000)
	if len(claims) != len(campaigns) {
		f.tb.Fatalf("claimed %+v, want %q", claims, campaigns)
	}
	for _, c := range claims {
		f.settle(one, store.Result{Claim: c, Applied: c.First - 1, Failure: failure(message)})
	}
}

// kill fails the heads of the named campaigns until they are dead. They alone
// must be due.
func (f *fixture) kill(campaigns ...string) {
	f.tb.Helper()
	for range f.Retry().Attempts() {
		f.fail("no such thing", campaigns...)
		f.clock.advance(5 * time.Minute)
	}
	for _, id := range campaigns {
		if c := f.campaign(id); c.HeadStatus != outbox.Dead {
			f.tb.Fatalf("head of %s is %s, want dead", id, c.HeadStatus)
		}
	}
}

func (f *fixture) campaign(id string) outbox.Campaign {
	f.tb.Helper()
	c, err := f.Campaign(f.ctx, id)
	if err != nil {
		f.tb.Fatal(err)
	}
	return c
}

func (f *fixture) row(campaign string, seq int64) outbox.RowDetail {
	f.tb.Helper()
	d, err := f.Row(f.ctx, campaign, seq)
	if err != nil {
		f.tb.Fatal(err)
	}
	return d
}

// sound fails when Check finds anything.
func (f *fixture) sound() { f.tb.Helper(); f.Sound() }

var (
	ana     = storetest.Ana
	refused = storetest.Refused
)

func ptr[T any](v T) *T { return &v }
