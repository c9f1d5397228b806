package worker_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/operations"
	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/readmodel"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
	"outboxweb/internal/worker"
)

// ledger writes down every application of every event, so that repeats and
// reorders show.
const ledger = `-- projection: ledger
-- tables: ledger_applied, ledger_history

-- schema
create table ledger_applied (campaign_id text not null, seq bigint not null, times bigint not null, primary key (campaign_id, seq));

-- schema @sqlite
create table ledger_history (id integer primary key, campaign_id text not null, seq bigint not null);

-- schema @postgres
create table ledger_history (id bigint generated always as identity primary key, campaign_id text not null, seq bigint not null);

-- on: *
insert into ledger_applied (campaign_id, seq, times) values (:campaign_id, :seq, 1)
on conflict (campaign_id, seq) do update set times = ledger_applied.times + 1;
insert into ledger_history (campaign_id, seq) values (:campaign_id, :seq);
`

// accounts fails on an event that spends more than there is, until somebody
// mends the balance.
const accounts = `-- projection: accounts
-- tables: accounts
-- on-failure: block

-- schema
create table accounts (campaign_id text primary key, balance bigint not null check (balance >= 0), spent bigint not null default 0);

-- on: opened
insert into accounts (campaign_id, balance) values (:campaign_id, :payload.balance!);

-- on: spent
update accounts set spent = spent + 1 where campaign_id = :campaign_id;
update accounts set balance = balance - :payload.amount! where campaign_id = :campaign_id;
`

// probing calls the test's probe of the event's key on every event of type
// probed, after it has written something. It does not mind being told twice.
const probing = `-- projection: probing
-- tables: probing

-- schema
create table probing (campaign_id text not null, seq bigint not null, answer text, primary key (campaign_id, seq));

-- on: probed
insert into probing (campaign_id, seq) values (:campaign_id, :seq) on conflict do nothing;
update probing set answer = probe(:payload.key!, :campaign_id, cast(:seq as text)) where campaign_id = :campaign_id and seq = :seq;
`

func opened(campaign string, balance int) outbox.Event {
	return eventOf(campaign, "opened", fmt.Sprintf(`{"balance":%d}`, balance))
}

func spent(campaign string, amount int) outbox.Event {
	return eventOf(campaign, "spent", fmt.Sprintf(`{"amount":%d}`, amount))
}

func probed(campaign, key string) outbox.Event {
	return eventOf(campaign, "probed", fmt.Sprintf(`{"key":%q}`, key))
}

func noted(campaign string) outbox.Event { return eventOf(campaign, "noted", `{}`) }

func eventOf(campaign, eventType, payload string) outbox.Event {
	return outbox.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(payload)}
}

// notes are n events of one campaign.
func notes(campaign string, n int) []outbox.Event {
	return slices.Repeat([]outbox.Event{noted(campaign)}, n)
}

// define writes each definition to a file of one directory and returns it as
// the sources of a set.
func define(tb testing.TB, definitions ...string) []string {
	tb.Helper()
	dir := tb.TempDir()
	for i, text := range definitions {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.sql", i)), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return []string{dir}
}

// clock is a time that only the test moves.
type clock struct{ *storetest.Clock }

func newClock() *clock { return &clock{storetest.NewClock()} }

func (c *clock) now() time.Time          { return c.Now() }
func (c *clock) advance(d time.Duration) { c.Advance(d) }

type option = func(*store.Options, *worker.Config)

// at makes the store tell the test's time.
func at(c *clock) option {
	return func(o *store.Options, _ *worker.Config) { o.Now = c.now }
}

func maxAttempts(n int) option {
	return func(o *store.Options, _ *worker.Config) { o.Retry.MaxAttempts = n }
}

func batchSize(rows int) option {
	return func(_ *store.Options, c *worker.Config) { c.BatchSize = rows }
}

func mode(m outbox.Mode) option {
	return func(_ *store.Options, c *worker.Config) { c.Mode = m }
}

// polling sets how long the worker sleeps unless it is woken.
func polling(d time.Duration) option {
	return func(_ *store.Options, c *worker.Config) { c.PollInterval = d }
}

// overtime is the time of an event in tests of one that exceeds it. Everything
// else in them has to end within it, on a machine that is busy with something
// else.
const overtime = 2 * time.Second

func cuttingOffAfter(d time.Duration) option {
	return func(o *store.Options, _ *worker.Config) { o.EventTimeout = d }
}

// waves sets how many waves a worker works on at a time.
func waves(n int) option {
	return func(o *store.Options, c *worker.Config) { o.Concurrency, c.Concurrency = n, n }
}

// leasing sets how long the worker's leases last.
func leasing(d time.Duration) option {
	return func(_ *store.Options, c *worker.Config) { c.Lease = d }
}

// bench is a store with a worker on it, and connections of somebody else to
// its databases.
type bench struct {
	*store.Store
	*readmodel.Database
	operations           *operations.Operations
	runs                 *store.Runs
	runWorker            *worker.RunWorker
	worker               *worker.Worker
	set                  *projection.Set
	sources              []string
	pair                 dbtest.Pair
	journal, projections *sql.DB
}

// open makes a store on databases of its own, and a worker that is not
// running.
func open(tb testing.TB, sources []string, options ...option) *bench {
	tb.Helper()
	return openPair(tb, dbtest.New(tb), sources, options...)
}

func openPair(tb testing.TB, p dbtest.Pair, sources []string, options ...option) *bench {
	tb.Helper()
	o := store.Options{Journal: p.Journal, Projections: p.Projections, EventTimeout: patience}
	c := worker.Config{Mode: outbox.ModeOutbox, Build: "test"}
	for _, change := range options {
		change(&o, &c)
	}
	o.Mode = c.Mode
	set, err := projection.Load(dialectOf(p), sources...)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	if err := worker.Install(tb.Context(), s, set); err != nil {
		tb.Fatal(err)
	}
	c.Store, c.Set = s, set
	b := &bench{Store: s, Database: s.ReadModel(), operations: operations.New(s), runs: store.NewRuns(s), worker: worker.New(c), set: set, sources: sources, pair: p,
		journal: dbtest.Open(tb, p.Journal), projections: dbtest.Open(tb, p.Projections)}
	w := b.worker
	b.runWorker = worker.NewRunWorker(worker.RunConfig{Runs: b.runs, Set: set, Worker: w.Name(), Logger: w.Logger, Lease: w.Lease, PollInterval: w.PollInterval,
		Applying: w.Applying, Failure: w.Failure})
	w.Beside = append(w.Beside, b.runWorker.Work)
	if w.Mode != outbox.ModeShadow {
		w.Beside = append(w.Beside, func(ctx context.Context) { b.operations.Work(ctx, w.PollInterval, w.Logger) })
	}
	return b
}

// beside is another process on the same databases.
func (b *bench) beside(tb testing.TB, options ...option) *bench {
	tb.Helper()
	return openPair(tb, b.pair, b.sources, options...)
}

// drain works until nothing is due.
func (b *bench) drain(tb testing.TB) {
	tb.Helper()
	for b.pass(tb) {
	}
}

// pass works off one wave and reports whether there was anything to do.
func (b *bench) pass(tb testing.TB) bool {
	tb.Helper()
	more, err := b.worker.Pass(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return more
}

// start runs the worker until stop is called or the test ends.
func (b *bench) start(tb testing.TB) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.worker.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("run: %v", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

func (b *bench) mustAppend(tb testing.TB, events ...outbox.Event) {
	tb.Helper()
	for chunk := range slices.Chunk(events, 500) {
		if _, err := b.Append(context.Background(), store.Append{Events: chunk}); err != nil {
			tb.Fatal(err)
		}
	}
}

// claim takes a wave for the bench's worker.
func (b *bench) claim(tb testing.TB) []store.Claim {
	tb.Helper()
	claims, err := b.Claim(context.Background(), b.worker.Who(), store.ClaimLimits{Rows: 1000, Lease: leaseTime})
	if err == nil && len(claims) == 0 {
		claims, err = b.ClaimSuspect(context.Background(), b.worker.Who(), leaseTime)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return claims
}

// leaseTime is how long the leases last that tests take themselves.
const leaseTime = 30 * time.Second

func (b *bench) mustBeSound(tb testing.TB) {
	tb.Helper()
	report, err := b.Check(context.Background(), func(int64, int64) {})
	if err != nil {
		tb.Fatal(err)
	}
	for _, v := range report.Violations {
		tb.Errorf("check: %+v", v)
	}
	if report.Checked["skipped"] > 0 {
		tb.Errorf("check skipped %d campaigns", report.Checked["skipped"])
	}
}

// mustHaveApplied makes sure that the ledger has seen events 1 to last of the
// campaign, each once and in order, and nothing else.
func (b *bench) mustHaveApplied(tb testing.TB, campaign string, last int) {
	tb.Helper()
	want := make([]int, last)
	for i := range want {
		want[i] = i + 1
	}
	history := column[int](tb, b.projections, `select seq from ledger_history where campaign_id = $1 order by id`, campaign)
	if diff := cmp.Diff(want, history); diff != "" {
		tb.Errorf("campaign %q was not applied as 1 to %d (-want +got):\n%s", campaign, last, diff)
	}
	if again := column[int](tb, b.projections, `select seq from ledger_applied where campaign_id = $1 and times <> 1`, campaign); len(again) > 0 {
		tb.Errorf("campaign %q: events %v were applied more than once", campaign, again)
	}
	if applied, err := b.AppliedSeq(context.Background(), campaign); err != nil || applied != int64(last) {
		tb.Errorf("the watermark of campaign %q is %d (%v), want %d", campaign, applied, err, last)
	}
}

func (b *bench) campaign(tb testing.TB, id string) outbox.Campaign {
	tb.Helper()
	c, err := b.Campaign(context.Background(), id)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (b *bench) row(tb testing.TB, campaign string, seq int64) outbox.RowDetail {
	tb.Helper()
	row, err := b.Row(context.Background(), campaign, seq)
	if err != nil {
		tb.Fatal(err)
	}
	return row
}

// mustStand compares a row's status and attempts.
func (b *bench) mustStand(tb testing.TB, campaign string, seq int64, status outbox.Status, attempts int) {
	tb.Helper()
	r := b.row(tb, campaign, seq)
	if r.Row.Status != status || r.Row.AttemptCount != attempts || len(r.Attempts) != attempts {
		tb.Errorf("campaign %q seq %d is %s after %d attempts with %d in its history, want %s after %d (%s)",
			campaign, seq, r.Row.Status, r.Row.AttemptCount, len(r.Attempts), status, attempts, r.Row.LastError)
	}
}

// mustWait waits until the projections have the event.
func (b *bench) mustWait(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := b.WaitApplied(ctx, campaign, seq); err != nil {
		tb.Fatal(err)
	}
}

// patience is how long tests wait for what must happen.
const patience = storetest.Patience

// eventually waits for a condition.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	storetest.Eventually(tb, what, holds)
}

var operator = outbox.Order{By: outbox.Operator{Name: "ana", Via: "cli"}, Reason: "mended"}

func (b *bench) mustRequeue(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	if _, err := b.RequeueRow(context.Background(), operator, campaign, seq); err != nil {
		tb.Fatal(err)
	}
}
