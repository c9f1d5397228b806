package store_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/operations"
	"outboxweb/internal/outbox"
	"outboxweb/internal/publishing"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
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
type clock struct{ micros atomic.Int64 }

var began = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func newClock() *clock {
	c := new(clock)
	c.micros.Store(began.UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// fixture is a store on files of its own, the clock it goes by, and raw
// connections that go past it.
type fixture struct {
	*store.Store
	*publishing.Progress
	*readmodel.Database
	operations  *operations.Operations
	runs        *store.Runs
	tb          testing.TB
	ctx         context.Context
	pair        dbtest.Pair
	clock       *clock
	journal     *sql.DB
	projections *sql.DB
	swaps       []store.Statement // prepared on a Scratch's own connection
}

// open makes an empty store. change adjusts its options.
func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	tb.Helper()
	return openPair(tb, dbtest.New(tb), newClock(), change...)
}

func openPair(tb testing.TB, p dbtest.Pair, c *clock, change ...func(*store.Options)) *fixture {
	tb.Helper()
	o := optionsFor(p)
	o.Now = c.now
	for _, f := range change {
		f(&o)
	}
	s, err := store.Open(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	f := &fixture{Store: s, Progress: publishing.NewProgress(s), Database: s.ReadModel(), operations: operations.New(s), runs: store.NewRuns(s), tb: tb, ctx: context.Background(), pair: p, clock: c,
		journal: dbtest.Open(tb, p.Journal), projections: dbtest.Open(tb, p.Projections)}
	tb.Cleanup(func() { s.Close() })
	return f
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

// dump is the whole content of both databases, to be compared. The counter
// behind positions is left out: an answered repeat uses a number up.
func (f *fixture) dump() string {
	f.tb.Helper()
	return dumpBut(f.tb, f.journal, "operator_acts where outcome = 'refused'") + dumpOf(f.tb, f.projections)
}

func dumpOf(tb testing.TB, db *sql.DB) string {
	tb.Helper()
	return dumpBut(tb, db, "")
}

// dumpBut leaves out the rows of one table that match a condition, written as
// TABLE where CONDITION.
func dumpBut(tb testing.TB, db *sql.DB, but string) string {
	tb.Helper()
	but, condition, _ := strings.Cut(but, " where ")
	var lines []string
	for _, table := range dbtest.Tables(tb, db) {
		query := `select * from "` + table + `"`
		if table == but {
			query += ` where not (` + condition + `)`
		}
		rows, err := db.Query(query)
		if err != nil {
			tb.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values, dest := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := rows.Scan(dest...); err != nil {
				tb.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %v\n", table, values))
		}
		if err := rows.Err(); err != nil {
			tb.Fatal(err)
		}
		rows.Close()
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

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

// unchanged fails when act changes anything in either database.
func (f *fixture) unchanged(act func()) {
	f.tb.Helper()
	before := f.dump()
	act()
	if after := f.dump(); after != before {
		f.tb.Errorf("the databases changed:\n%s", lineDiff(before, after))
	}
}

func lineDiff(before, after string) string {
	var b strings.Builder
	had, has := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range had {
		if !slices.Contains(has, line) {
			fmt.Fprintln(&b, "-", line)
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			fmt.Fprintln(&b, "+", line)
		}
	}
	return b.String()
}

// event is the least that can be appended.
func event(campaign, eventType string) outbox.Event {
	return outbox.Event{CampaignID: campaign, EventType: eventType, Payload: []byte(`{"amount":1}`)}
}

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
	got, err := f.Append(f.ctx, store.Append{Events: events})
	if err != nil {
		f.tb.Fatalf("append: %v", err)
	}
	return got
}

var (
	one = store.Worker{ID: "worker-1", Build: "v1"}
	two = store.Worker{ID: "worker-2", Build: "v2"}
)

const lease = 30 * time.Second

func (f *fixture) claim(w store.Worker, rows int) []store.Claim {
	f.tb.Helper()
	claims, err := f.Claim(f.ctx, w, store.ClaimLimits{Rows: rows, Lease: lease})
	if err == nil && len(claims) == 0 {
		claims, err = f.ClaimSuspect(f.ctx, w, lease)
	}
	if err != nil {
		f.tb.Fatalf("claim: %v", err)
	}
	return claims
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
	loaded, err := f.load(c)
	if err != nil {
		f.tb.Fatalf("load: %v", err)
	}
	var reached int64
	err = f.Apply(f.ctx, func(tx *readmodel.ApplyTx) error {
		w, err := tx.Watermark(c.CampaignID)
		if err != nil {
			return err
		}
		reached = w.AppliedSeq
		if err := tx.Fence(c.CampaignID, c.Epoch); err != nil {
			return err
		}
		if last <= w.AppliedSeq {
			return nil
		}
		if err := tx.Advance(c.CampaignID, c.Epoch, w.AppliedSeq, last, loaded[last-c.First].ChainHash); err != nil {
			return err
		}
		for i := range loaded {
			if e := &loaded[i]; e.Skipped != nil && e.Seq > w.AppliedSeq && e.Seq <= last {
				if err := tx.PassOver(e); err != nil {
					return err
				}
			}
		}
		reached = last
		return nil
	})
	return reached, err
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
func (f *fixture) drain() {
	f.tb.Helper()
	for {
		claims := f.claim(one, 1000)
		if len(claims) == 0 {
			return
		}
		for _, c := range claims {
			reached, err := f.apply(c, c.Last)
			if err != nil || reached < c.Last {
				f.tb.Fatalf("apply %+v: reached %d, %v", c, reached, err)
			}
			f.settle(one, store.Result{Claim: c, Applied: reached})
		}
	}
}

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
func (f *fixture) sound() {
	f.tb.Helper()
	report, err := f.Check(f.ctx, func(int64, int64) {})
	if err != nil {
		f.tb.Fatal(err)
	}
	for _, v := range report.Violations {
		f.tb.Errorf("check: %+v", v)
	}
}

func ana(reason string) outbox.Order {
	return outbox.Order{By: outbox.Operator{Name: "ana", Via: "page", From: "10.0.0.7"}, Reason: reason, RequestID: "r-1"}
}

// refused fails unless err is a refusal of the kind whose sentence has every
// fragment.
func refused(tb testing.TB, err, kind error, fragments ...string) *outbox.Refusal {
	tb.Helper()
	var r *outbox.Refusal
	if !errors.Is(err, kind) || !errors.As(err, &r) {
		tb.Fatalf("got error %v, want a refusal: %v", err, kind)
	}
	for _, fragment := range fragments {
		if !strings.Contains(r.Error(), fragment) {
			tb.Errorf("the sentence %q lacks %q", r.Error(), fragment)
		}
	}
	return r
}

func ptr[T any](v T) *T { return &v }
