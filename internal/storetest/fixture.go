// Package storetest opens stores on databases of a test's own, for the tests of internal/store and of the packages with tables beside its own. It is used
// with dbtest.Main.
package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Main runs the tests of a package on both databases, and fails when they leak a goroutine; see dbtest.Main. differs matches the tests in which PostgreSQL
// behaves differently.
func Main(m *testing.M, differs string) int { return NoLeak(dbtest.Main(m, differs, Prepare)) }

// NoLeak is an exit code; 0 becomes 1 when a goroutine is left.
func NoLeak(code int) int {
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Prepare migrates the pair that every test's pair is copied from.
func Prepare(p dbtest.Pair) error {
	s, err := store.Open(context.Background(), OptionsFor(p))
	if err != nil {
		return err
	}
	return s.Close()
}

// Killed is an instance of this host whose process has ended without recording it.
func Killed(tb testing.TB, id string, started time.Time) campaign.InstanceState {
	host := must.Get(os.Hostname()).Or(tb)
	ended := exec.Command("true")
	must.OK(tb, ended.Run())
	return campaign.InstanceState{ID: id, Host: host, PID: ended.ProcessState.Pid(), Mode: campaign.ModeOutbox, StartedAt: started}
}

// Clock is a time that changes only by Advance; the zero value is the real time. It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// Began is the initial time of a Clock.
var Began = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// NewClock returns a Clock set to Began.
func NewClock() *Clock {
	c := new(Clock)
	c.micros.Store(Began.UnixMicro())
	return c
}

// Now is the clock's time.
func (c *Clock) Now() time.Time {
	if now := c.micros.Load(); now != 0 {
		return time.UnixMicro(now).UTC()
	}
	return time.Now().UTC()
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// model keeps the methods of readmodel.Database below those of the store.
type model struct{ *readmodel.Database }

// Fixture is a store on databases of its own, with its clock and raw connections that bypass it.
type Fixture struct {
	*outbox.Queue
	*store.Store
	*maintenance.Maintenance
	*samples.Samples
	model
	TB            testing.TB
	Ctx           context.Context // for calls of the store
	Pair          dbtest.Pair
	Clock         *Clock
	JournalDB     *sql.DB
	ProjectionsDB *sql.DB
}

// OptionsFor are the options of a store on given databases.
func OptionsFor(p dbtest.Pair) store.Options {
	return store.Options{Journal: p.Journal, Projections: p.Projections}
}

// InMode opens a store in a mode.
func InMode(m campaign.Mode) func(*store.Options) { return func(o *store.Options) { o.Mode = m } }

// MaxAttempts sets how often rows may fail.
func MaxAttempts(n int) func(*store.Options) {
	return func(o *store.Options) { o.Retry.MaxAttempts = n }
}

// ReadOnly opens a store that refuses every change.
func ReadOnly(o *store.Options) { o.ReadOnly = true }

// Open opens a store on empty databases of its own. change adjusts its options.
func Open(tb testing.TB, change ...func(*store.Options)) *Fixture {
	return OpenBoth(tb, dbtest.New(tb), NewClock(), change...)
}

// Own is Open for a test that runs beside others.
func Own(t *testing.T, change ...func(*store.Options)) *Fixture {
	t.Parallel()
	return Open(t, change...)
}

// Each tells every story on a fixture of its own, all beside one another.
func Each[F, S any](t *testing.T, own func(*testing.T, ...func(*store.Options)) F, stories map[string]S, tell func(*testing.T, F, S), change ...func(*store.Options)) {
	t.Parallel()
	for name, story := range stories {
		t.Run(name, func(t *testing.T) { tell(t, own(t, change...), story) })
	}
}

// OpenBoth opens a store on given databases. It is closed at the test's end.
func OpenBoth(tb testing.TB, p dbtest.Pair, c *Clock, change ...func(*store.Options)) *Fixture {
	o := OptionsFor(p)
	o.Now = c.Now
	for _, f := range change {
		f(&o)
	}
	s := must.Get(store.Open(context.Background(), o)).Or(tb)
	tb.Cleanup(func() { s.Close() })
	return Around(tb, s, p, c)
}

// Around is a fixture of an open store on given databases.
func Around(tb testing.TB, s *store.Store, p dbtest.Pair, c *Clock) *Fixture {
	q := outbox.New(s)
	return &Fixture{Queue: q, Store: s, Maintenance: maintenance.New(q), Samples: samples.New(s), model: model{s.ReadModel()}, TB: tb, Ctx: context.Background(), Pair: p, Clock: c,
		JournalDB: dbtest.Open(tb, p.Journal), ProjectionsDB: dbtest.Open(tb, p.Projections)}
}

// Beside opens a second store on the same databases, as another process would.
func (f *Fixture) Beside(change ...func(*store.Options)) *Fixture {
	return OpenBoth(f.TB, f.Pair, f.Clock, change...)
}

// CloseNow closes everything before the test's end, for tests that open many.
func (f *Fixture) CloseNow() {
	f.Close()
	f.JournalDB.Close()
	f.ProjectionsDB.Close()
}

// OnPostgres reports whether the databases are on PostgreSQL; a test there may use others, too.
func (f *Fixture) OnPostgres() bool { return DialectOf(f.Pair) == "postgres" }

// DialectOf is the dialect of the pair's projections.
func DialectOf(p dbtest.Pair) string {
	if strings.HasPrefix(p.Projections, "sqlite:") {
		return "sqlite"
	}
	return "postgres"
}

// Exec runs a statement on the journal database, bypassing the store.
func (f *Fixture) Exec(query string, args ...any) {
	_, err := f.JournalDB.Exec(query, args...)
	must.Need(f.TB, err == nil, "%s: %v", query, err)
}

// ExecProjections runs a statement on the projections database, bypassing the store.
func (f *Fixture) ExecProjections(query string, args ...any) {
	_, err := f.ProjectionsDB.Exec(query, args...)
	must.Need(f.TB, err == nil, "%s: %v", query, err)
}

// Number reads one number from the journal database, bypassing the store.
func (f *Fixture) Number(query string, args ...any) int64 {
	return Column[int64](f.TB, f.JournalDB, query, args...)[0]
}

// Texts is the first column of a query's result; nil when that is empty.
func Texts(tb testing.TB, db *sql.DB, query string, args ...any) []string {
	return append([]string(nil), Column[string](tb, db, query, args...)...)
}

// Column reads the first column of a query's result.
func Column[T any](tb testing.TB, db *sql.DB, query string, args ...any) []T {
	all := []T{}
	eachRow(tb, db, query, args, func(rows *sql.Rows) error {
		var v T
		err := rows.Scan(&v)
		all = append(all, v)
		return err
	})
	return all
}

func eachRow(tb testing.TB, db *sql.DB, query string, args []any, do func(*sql.Rows) error) {
	rows := must.Get(db.Query(query, args...)).Or(tb)
	defer rows.Close()
	for rows.Next() {
		must.OK(tb, do(rows))
	}
	must.OK(tb, rows.Err())
}

// Event is a minimal event to append.
func Event(campaign, eventType string) event.Event {
	return event.Event{CampaignID: campaign, EventType: eventType, Payload: []byte(`{"amount":1}`)}
}

// MustAppend appends events, 500 at a time, and returns their positions.
func (f *Fixture) MustAppend(events ...event.Event) (all []store.Appended) {
	for chunk := range slices.Chunk(events, 500) {
		got, err := f.Append(f.Ctx, store.Append{Events: chunk})
		must.Need(f.TB, err == nil, "append: %v", err)
		all = append(all, got...)
	}
	return all
}

// Lease is the duration of claims made by fixtures.
const Lease = 30 * time.Second

// MustClaim claims due campaigns for a worker, or a suspect when none is due.
func (f *Fixture) MustClaim(w outbox.Worker, rows int) []outbox.Claim {
	claims, err := f.Claim(f.Ctx, w, outbox.ClaimLimits{Rows: rows, Lease: Lease})
	if err == nil && len(claims) == 0 {
		claims, err = f.ClaimSuspect(f.Ctx, w, Lease)
	}
	must.Need(f.TB, err == nil, "claim: %v", err)
	return claims
}

// ApplyClaim advances the watermark of a claim's campaign over the claim's events up to last, as a worker does, and returns the watermark's seq.
func (f *Fixture) ApplyClaim(c outbox.Claim, last int64) (reached int64, err error) {
	loaded := must.Get(f.LoadClaim(c)).Or(f.TB)
	err = f.ReadModel().Apply(context.Background(), func(tx *readmodel.ApplyTx) error {
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

// Drain processes everything that is due.
func (f *Fixture) Drain() {
	w := outbox.Worker{ID: "worker-1", Build: "v1"}
	for {
		claims := f.MustClaim(w, 1000)
		if len(claims) == 0 {
			return
		}
		for _, c := range claims {
			reached, err := f.ApplyClaim(c, c.Last)
			must.Need(f.TB, err == nil && reached >= c.Last, "apply %+v: reached %d, %v", c, reached, err)
			f.MustSettle(w, outbox.Result{Claim: c, Applied: reached})
		}
	}
}

// Sound fails when Check finds anything.
func (f *Fixture) Sound() {
	report := must.Get(f.Check(f.Ctx, func(int64, int64) {})).Or(f.TB)
	must.Hold(f.TB, len(report.Violations) == 0 && report.Checked["skipped"] == 0, "check: %+v", report)
}

// Quiet is a progress function that does nothing.
func Quiet(int64, int64) {}

// Impatient opens a store whose actions wait for no lease.
func Impatient(o *store.Options) { o.Patience = time.Millisecond }
