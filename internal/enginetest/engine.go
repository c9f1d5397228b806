// Package enginetest opens a store, its operations and runs and a worker on databases of a
// test's own, for the tests of packages that use them together. It is used with its Main.
package enginetest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// Ledger records every application of every event, so that repeats and reordering show.
const Ledger = `-- projection: ledger
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

// Tally is a second ledger.
var Tally = strings.ReplaceAll(Ledger, "ledger", "tally")

// Accounts fails on an event that spends more than the balance, until the balance is corrected.
const Accounts = `-- projection: accounts
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

// Probing calls the test's probe for the event's key on every event of type probed, after writing a row. Applying an event twice is harmless.
const Probing = `-- projection: probing
-- tables: probing

-- schema
create table probing (campaign_id text not null, seq bigint not null, answer text, primary key (campaign_id, seq));

-- on: probed
insert into probing (campaign_id, seq) values (:campaign_id, :seq) on conflict do nothing;
update probing set answer = probe(:payload.key!, :campaign_id, cast(:seq as text)) where campaign_id = :campaign_id and seq = :seq;
`

// Opened is an event that sets a campaign's balance in accounts.
func Opened(campaign string, balance int) outbox.Event {
	return EventOf(campaign, "opened", fmt.Sprintf(`{"balance":%d}`, balance))
}

// Spent is an event that fails in accounts with a lower balance.
func Spent(campaign string, amount int) outbox.Event {
	return EventOf(campaign, "spent", fmt.Sprintf(`{"amount":%d}`, amount))
}

// Probed is an event that calls the probe of a key.
func Probed(campaign, key string) outbox.Event {
	return EventOf(campaign, "probed", fmt.Sprintf(`{"key":%q}`, key))
}

// Noted is an event that only the ledger records.
func Noted(campaign string) outbox.Event { return EventOf(campaign, "noted", `{}`) }

// EventOf is an event of a type.
func EventOf(campaign, eventType, payload string) outbox.Event {
	return outbox.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(payload)}
}

// Notes are n events of one campaign.
func Notes(campaign string, n int) []outbox.Event {
	return slices.Repeat([]outbox.Event{Noted(campaign)}, n)
}

// Define writes each definition to a file of one directory and returns the files as the sources of a set.
func Define(tb testing.TB, definitions ...string) []string {
	tb.Helper()
	dir := tb.TempDir()
	for i, text := range definitions {
		must.OK(tb, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.sql", i)), []byte(text), 0o600))
	}
	return []string{dir}
}

// Option adjusts the store and the worker of an engine.
type Option = func(*store.Options, *worker.Config)

// At sets the store's clock.
func At(c *storetest.Clock) Option {
	return func(o *store.Options, _ *worker.Config) { o.Now = c.Now }
}

// MaxAttempts sets how often rows may fail.
func MaxAttempts(n int) Option {
	return func(o *store.Options, _ *worker.Config) { o.Retry.MaxAttempts = n }
}

// BatchSize bounds the waves, in rows.
func BatchSize(rows int) Option {
	return func(_ *store.Options, c *worker.Config) { c.BatchSize = rows }
}

// InMode sets the mode of the worker and its store.
func InMode(m outbox.Mode) Option {
	return func(_ *store.Options, c *worker.Config) { c.Mode = m }
}

// Polling sets the worker's poll interval.
func Polling(d time.Duration) Option {
	return func(_ *store.Options, c *worker.Config) { c.PollInterval = d }
}

// Overtime is the event timeout in tests that exceed it. Everything else in them must finish within it, even on a busy machine.
const Overtime = 2 * time.Second

// CuttingOffAfter sets the time that an event may take.
func CuttingOffAfter(d time.Duration) Option {
	return func(o *store.Options, _ *worker.Config) { o.EventTimeout = d }
}

// Waves sets the number of concurrent waves of a worker.
func Waves(n int) Option {
	return func(o *store.Options, c *worker.Config) { o.Concurrency, c.Concurrency = n, n }
}

// Leasing sets the duration of the worker's leases.
func Leasing(d time.Duration) Option {
	return func(_ *store.Options, c *worker.Config) { c.Lease = d }
}

// Engine is a store with a worker, and separate connections to its databases.
type Engine struct {
	*store.Store
	*maintenance.Maintenance
	*readmodel.Database
	Operations               *operations.Operations
	Runs                     *runs.Runs
	RunWorker                *runs.Worker
	Worker                   *worker.Worker
	Set                      *projection.Set
	Sources                  []string
	Pair                     dbtest.Pair
	JournalDB, ProjectionsDB *sql.DB
}

// Open opens a store on databases of its own, and a worker that is not running.
func Open(tb testing.TB, sources []string, options ...Option) *Engine {
	tb.Helper()
	return OpenPair(tb, dbtest.New(tb), sources, options...)
}

func settings(p dbtest.Pair, options []Option) (store.Options, worker.Config) {
	o := store.Options{Journal: p.Journal, Projections: p.Projections, EventTimeout: storetest.Patience}
	c := worker.Config{Mode: outbox.ModeOutbox, Build: "test"}
	for _, change := range options {
		change(&o, &c)
	}
	o.Mode = c.Mode
	return o, c
}

// OpenPair is Open on given databases.
func OpenPair(tb testing.TB, p dbtest.Pair, sources []string, options ...Option) *Engine {
	tb.Helper()
	o, c := settings(p, options)
	set := must.Get(projection.Load(DialectOf(p), sources...)).Or(tb)
	return openSet(tb, p, set, sources, o, c)
}

// OpenCode is OpenPair with projections that are all written in Go.
func OpenCode(tb testing.TB, p dbtest.Pair, code []projection.Code, options ...Option) *Engine {
	tb.Helper()
	o, c := settings(p, options)
	set := must.Get(projection.Empty(DialectOf(p)).With(code...)).Or(tb)
	return openSet(tb, p, set, nil, o, c)
}

func openSet(tb testing.TB, p dbtest.Pair, set *projection.Set, sources []string, o store.Options, c worker.Config) *Engine {
	tb.Helper()
	s := must.Get(store.Open(tb.Context(), o)).Or(tb)
	tb.Cleanup(func() { s.Close() })
	must.OK(tb, runs.Install(tb.Context(), s, set))
	c.Store, c.Set = s, set
	b := &Engine{Store: s, Maintenance: maintenance.New(s), Database: s.ReadModel(), Operations: operations.New(s), Runs: runs.New(s), Worker: worker.New(c), Set: set, Sources: sources, Pair: p,
		JournalDB: dbtest.Open(tb, p.Journal), ProjectionsDB: dbtest.Open(tb, p.Projections)}
	w := b.Worker
	b.RunWorker = runs.NewWorker(runs.WorkerConfig{Runs: b.Runs, Set: set, Worker: w.Name(), Logger: w.Logger, Lease: w.Lease, PollInterval: w.PollInterval,
		Applying: w.Applying, Failure: w.Failure})
	w.Beside = append(w.Beside, b.RunWorker.Work)
	if w.Mode != outbox.ModeShadow {
		w.Beside = append(w.Beside, func(ctx context.Context) { b.Operations.Work(ctx, w.PollInterval, w.Logger) })
	}
	return b
}

// OpenPaused is an engine with a ledger and a tally that has applied three events of campaign a, with the tally paused there.
func OpenPaused(tb testing.TB) *Engine {
	tb.Helper()
	b := Open(tb, Define(tb, Ledger, Tally))
	b.MustApply(tb, Notes("a", 3)...)
	b.MustPause(tb, "tally", "a")
	return b
}

// Beside is another process on the same databases.
func (b *Engine) Beside(tb testing.TB, options ...Option) *Engine {
	tb.Helper()
	return OpenPair(tb, b.Pair, b.Sources, options...)
}

// Drain works until nothing is due.
func (b *Engine) Drain(tb testing.TB) {
	tb.Helper()
	for b.MustPass(tb) {
	}
}

// MustPass processes one wave and reports whether there was work.
func (b *Engine) MustPass(tb testing.TB) bool {
	tb.Helper()
	return must.Get(b.Worker.Pass(context.Background())).Or(tb)
}

// Start runs the worker until stop is called or the test ends.
func (b *Engine) Start(tb testing.TB) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Worker.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		err := <-ended
		must.Hold(tb, err == nil, "run: %v", err)
	}
	tb.Cleanup(stop)
	return stop
}

// MustAppend appends events, 500 at a time.
func (b *Engine) MustAppend(tb testing.TB, events ...outbox.Event) {
	tb.Helper()
	for chunk := range slices.Chunk(events, 500) {
		must.Get(b.Append(context.Background(), store.Append{Events: chunk})).Or(tb)
	}
}

// MustApply appends events and applies all that is due.
func (b *Engine) MustApply(tb testing.TB, events ...outbox.Event) {
	tb.Helper()
	b.MustAppend(tb, events...)
	b.Drain(tb)
}

// MustClaim claims a wave for the engine's worker.
func (b *Engine) MustClaim(tb testing.TB) []store.Claim {
	tb.Helper()
	claims, err := b.Claim(context.Background(), b.Worker.Name(), store.ClaimLimits{Rows: 1000, Lease: LeaseTime})
	if err == nil && len(claims) == 0 {
		claims, err = b.ClaimSuspect(context.Background(), b.Worker.Name(), LeaseTime)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return claims
}

// LeaseTime is the duration of leases that tests claim themselves.
const LeaseTime = 30 * time.Second

// MustBeSound fails when check finds something.
func (b *Engine) MustBeSound(tb testing.TB) {
	tb.Helper()
	report := must.Get(b.Check(context.Background(), func(int64, int64) {})).Or(tb)
	for _, v := range report.Violations {
		tb.Errorf("check: %+v", v)
	}
	if report.Checked["skipped"] > 0 {
		tb.Errorf("check skipped %d campaigns", report.Checked["skipped"])
	}
}

// MustHaveApplied fails unless the ledger has recorded events 1 to last of the campaign, each once and in order, and no others.
func (b *Engine) MustHaveApplied(tb testing.TB, campaign string, last int) {
	tb.Helper()
	b.MustHaveTold(tb, "ledger", campaign, last)
	again := Column[int](tb, b.ProjectionsDB, `select seq from ledger_applied where campaign_id = $1 and times <> 1`, campaign)
	must.Hold(tb, len(again) == 0, "campaign %q: events %v were applied more than once", campaign, again)
	must.Equal(tb, must.Get(b.AppliedSeq(context.Background(), campaign)).Or(tb), int64(last), "the watermark of campaign", campaign)
}

// Told is the events of a campaign that a ledger of another name has recorded, in order.
func (b *Engine) Told(tb testing.TB, name, campaign string) []int {
	tb.Helper()
	return Column[int](tb, b.ProjectionsDB, `select seq from `+name+`_history where campaign_id = $1 order by id`, campaign)
}

// MustHaveTold fails unless a ledger of another name has recorded events 1 to last of the campaign, each once and in order, and no others.
func (b *Engine) MustHaveTold(tb testing.TB, name, campaign string, last int) {
	tb.Helper()
	want := make([]int, last)
	for i := range want {
		want[i] = i + 1
	}
	must.Same(tb, b.Told(tb, name, campaign), want, "the events told to", name, "of campaign", campaign)
}

// MustCampaign reads a campaign.
func (b *Engine) MustCampaign(tb testing.TB, id string) outbox.Campaign {
	tb.Helper()
	return must.Get(b.Campaign(context.Background(), id)).Or(tb)
}

// MustRow reads a row.
func (b *Engine) MustRow(tb testing.TB, campaign string, seq int64) outbox.RowDetail {
	tb.Helper()
	return must.Get(b.Row(context.Background(), campaign, seq)).Or(tb)
}

// MustStand fails unless a row has this status and number of attempts, besides those that quarantined a projection.
func (b *Engine) MustStand(tb testing.TB, campaign string, seq int64, status outbox.Status, attempts int) {
	tb.Helper()
	r := b.MustRow(tb, campaign, seq)
	history := slices.DeleteFunc(r.Attempts, func(a outbox.Attempt) bool { return a.Quarantined })
	if r.Row.Status != status || r.Row.AttemptCount != attempts || len(history) != attempts {
		tb.Errorf("campaign %q seq %d is %s after %d attempts with %d in its history, want %s after %d (%s)",
			campaign, seq, r.Row.Status, r.Row.AttemptCount, len(history), status, attempts, r.Row.LastError)
	}
}

// MustWait waits until the projections have applied the event.
func (b *Engine) MustWait(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), storetest.Patience)
	defer cancel()
	must.Get(b.WaitApplied(ctx, campaign, seq)).Or(tb)
}

// Operator is a command of the operator in these tests.
var Operator = outbox.Command{By: outbox.Operator{Name: "ana", Via: "cli"}, Reason: "mended", Confirm: "rebuild all campaigns"}

// MustRequeue requeues a dead row.
func (b *Engine) MustRequeue(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	must.Get(b.RequeueRow(context.Background(), Operator, campaign, seq)).Or(tb)
}
