// Package enginetest opens a store, its operations and runs and a worker on databases of a test's own, for the tests of packages that use them together. It
// is used with its Main.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
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

// LenientAccounts is Accounts, but quarantined for a campaign where it fails.
var LenientAccounts = strings.ReplaceAll(Accounts, "on-failure: block", "on-failure: quarantine")

// Trail records every application of every event, like a ledger, with keys that a replay reproduces.
const Trail = `-- projection: trail
-- tables: trail

-- schema
create table trail (campaign_id text not null, place bigint not null, seq bigint not null, primary key (campaign_id, place));

-- on: *
insert into trail (campaign_id, place, seq)
select cast(:campaign_id as text), count(*) + 1, cast(:seq as bigint) from trail where campaign_id = :campaign_id;
`

// Opened is an event that sets a campaign's balance in accounts.
func Opened(campaign string, balance int) event.Event {
	return EventOf(campaign, "opened", fmt.Sprintf(`{"balance":%d}`, balance))
}

// Spent is an event that fails in accounts with a lower balance.
func Spent(campaign string, amount int) event.Event {
	return EventOf(campaign, "spent", fmt.Sprintf(`{"amount":%d}`, amount))
}

// Probed is an event that calls the probe of a key.
func Probed(campaign, key string) event.Event {
	return EventOf(campaign, "probed", fmt.Sprintf(`{"key":%q}`, key))
}

// Noted is an event that only the ledger records.
func Noted(campaign string) event.Event { return EventOf(campaign, "noted", `{}`) }

// EventOf is an event of a type.
func EventOf(campaign, eventType, payload string) event.Event {
	return event.Event{CampaignID: campaign, EventType: eventType, Payload: json.RawMessage(payload)}
}

// Notes are n events of each of the campaigns, which are separated by spaces.
func Notes(campaigns string, n int) (all []event.Event) {
	for campaign := range strings.FieldsSeq(campaigns) {
		all = append(all, slices.Repeat([]event.Event{Noted(campaign)}, n)...)
	}
	return all
}

// Define writes each definition to a file of one directory and returns the files as the sources of a set.
func Define(tb testing.TB, definitions ...string) []string {
	dir := tb.TempDir()
	for i, text := range definitions {
		must.OK(tb, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.sql", i)), []byte(text), 0o600))
	}
	return []string{dir}
}

// Options are of the store and the worker of an engine. The clock is the real one unless it is set.
type Options struct {
	store.Options
	Worker worker.Config
	Clock  *storetest.Clock
}

// Option adjusts the store and the worker of an engine.
type Option = func(*Options)

// At sets the store's clock.
func At(c *storetest.Clock) Option { return func(o *Options) { o.Clock, o.Now = c, c.Now } }

// MaxAttempts sets how often rows may fail.
func MaxAttempts(n int) Option { return func(o *Options) { o.Retry.MaxAttempts = n } }

// BatchSize bounds the waves, in rows.
func BatchSize(rows int) Option { return func(o *Options) { o.Worker.BatchSize = rows } }

// InMode sets the mode of the worker and its store.
func InMode(m campaign.Mode) Option { return func(o *Options) { o.Worker.Mode = m } }

// Polling sets the worker's poll interval.
func Polling(d time.Duration) Option { return func(o *Options) { o.Worker.PollInterval = d } }

// EventTimeout sets the time that an event may take.
func EventTimeout(d time.Duration) Option { return func(o *Options) { o.Options.EventTimeout = d } }

// Waves sets the number of concurrent waves of a worker.
func Waves(n int) Option { return func(o *Options) { o.Concurrency, o.Worker.Concurrency = n, n } }

// Leasing sets the duration of the worker's leases.
func Leasing(d time.Duration) Option { return func(o *Options) { o.Worker.Lease = d } }

// Logging calls f with each message of the worker's log.
func Logging(f func(message string)) Option {
	return func(o *Options) { o.Worker.Logger = slog.New(logged{slog.DiscardHandler, f}) }
}

// logged is a log that calls f with each message.
type logged struct {
	slog.Handler
	f func(message string)
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.f(r.Message)
	return nil
}

func (l logged) WithAttrs([]slog.Attr) slog.Handler { return l }

// Engine is Rooms with a worker. What it does and what it must have can be said in one chain of calls.
type Engine struct {
	*Rooms
	RunWorker *runs.Worker
	Worker    *worker.Worker
	Set       *projection.Set
	Sources   []string
}

// Open opens a store on databases of its own, and a worker that is not running.
func Open(tb testing.TB, sources []string, options ...Option) *Engine {
	return OpenPair(tb, dbtest.New(tb), sources, options...)
}

// Own is Open with projections of these definitions, for a test that runs beside others.
func Own(t *testing.T, definitions []string, options ...Option) *Engine {
	t.Parallel()
	return Open(t, Define(t, definitions...), options...)
}

// OpenPair is Open on given databases.
func OpenPair(tb testing.TB, p dbtest.Pair, sources []string, options ...Option) *Engine {
	b := openSet(tb, p, must.Get(projection.Load(storetest.DialectOf(p), sources...)).Or(tb), options)
	b.Sources = sources
	return b
}

// OpenCode is OpenPair with projections that are all written in Go.
func OpenCode(tb testing.TB, p dbtest.Pair, code []projection.Code, options ...Option) *Engine {
	return openSet(tb, p, must.Get(projection.Empty(storetest.DialectOf(p)).With(code...)).Or(tb), options)
}

func openSet(tb testing.TB, p dbtest.Pair, set *projection.Set, options []Option) *Engine {
	o := Options{Options: storetest.OptionsFor(p), Worker: worker.Config{Mode: campaign.ModeOutbox, Build: "test"}, Clock: new(storetest.Clock)}
	o.Now, o.Options.EventTimeout = time.Now, must.Patience
	for _, change := range options {
		change(&o)
	}
	o.Mode = o.Worker.Mode
	f := storetest.OpenBoth(tb, p, o.Clock, func(s *store.Options) { *s = o.Options })
	must.OK(tb, runs.Install(tb.Context(), f.Store, set))
	o.Worker.Queue, o.Worker.Samples, o.Worker.Set = f.Queue, f.Samples, set
	b := &Engine{Rooms: RoomsOf(f), Worker: worker.New(o.Worker), Set: set}
	b.Infos = set.Infos()
	w := b.Worker
	b.RunWorker = runs.NewWorker(runs.WorkerConfig{Runs: b.Runs, Set: set, Worker: w.Name(), Logger: w.Logger, Lease: w.Lease, PollInterval: w.PollInterval,
		Applying: w.Applying, Failure: w.Failure})
	w.Beside = append(w.Beside, b.RunWorker.Work)
	if w.Mode != campaign.ModeShadow {
		w.Beside = append(w.Beside, func(ctx context.Context) { b.Operations.Work(ctx, w.PollInterval, w.Logger) })
	}
	return b
}

// Beside is another process on the same databases, with the same clock.
func (b *Engine) Beside(options ...Option) *Engine {
	return OpenPair(b.TB, b.Pair, b.Sources, append([]Option{At(b.Clock)}, options...)...)
}

// Drain works until nothing is due.
func (b *Engine) Drain() *Engine {
	for b.MustPass() {
	}
	return b
}

// MustPass processes one wave and reports whether there was work.
func (b *Engine) MustPass() bool { return must.Get(b.Worker.Pass(b.Ctx)).Or(b.TB) }

// Pass appends events, if there are any, and processes one wave.
func (b *Engine) Pass(events ...event.Event) *Engine {
	b.MustAppend(events...)
	b.MustPass()
	return b
}

// UntilStuck applies everything that can be applied, however late the next attempts of heads are.
func (b *Engine) UntilStuck() *Engine {
	for range 8 {
		b.Drain()
		b.Clock.Advance(time.Hour)
	}
	return b
}

// Start runs the worker until stop is called or the test ends.
func (b *Engine) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := storetest.Begin(func() error { return b.Worker.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		err := <-ended
		must.Hold(b.TB, err == nil, "run: %v", err)
	})
	b.TB.Cleanup(stop)
	return stop
}

// Feed appends events and applies all that is due.
func (b *Engine) Feed(events ...event.Event) *Engine {
	b.MustAppend(events...)
	b.Drain()
	return b
}

// ClaimWave claims a wave for the engine's worker.
func (b *Engine) ClaimWave() []outbox.Claim { return b.MustClaim(b.Worker.Name(), 1000) }

// FinishClaims applies and settles claims, and calls between in the middle.
func (b *Engine) FinishClaims(ctx context.Context, claims []outbox.Claim, between ...func()) error {
	wave, err := b.Worker.Apply(ctx, claims)
	for _, happen := range between {
		happen()
	}
	return errors.Join(err, wave.Settle(ctx))
}

// MustHaveApplied fails unless the ledger has recorded events 1 to last of the campaign, each once and in order, and no others.
func (b *Engine) MustHaveApplied(campaign string, last int) *Engine {
	b.MustHaveTold("ledger", campaign, last)
	again := storetest.Column[int](b.TB, b.ProjectionsDB, `select seq from ledger_applied where campaign_id = $1 and times <> 1`, campaign)
	must.Hold(b.TB, len(again) == 0, "campaign %q: events %v were applied more than once", campaign, again)
	must.Equal(b.TB, must.Get(b.AppliedSeq(b.Ctx, campaign)).Or(b.TB), int64(last), "the watermark of campaign", campaign)
	return b
}

// MustHaveAppliedEach is MustHaveApplied of each of the campaigns, which are separated by spaces.
func (b *Engine) MustHaveAppliedEach(campaigns string, last int) *Engine {
	for campaign := range strings.FieldsSeq(campaigns) {
		b.MustHaveApplied(campaign, last)
	}
	return b
}

// Entries are the events of a campaign that a ledger of another name has recorded, in order.
func (b *Engine) Entries(name, campaign string) []int {
	return storetest.Column[int](b.TB, b.ProjectionsDB, `select seq from `+name+`_history where campaign_id = $1 order by id`, campaign)
}

// MustHaveTold fails unless a ledger of another name has recorded events 1 to last of the campaign, each once and in order, and no others.
func (b *Engine) MustHaveTold(name, campaign string, last int) *Engine {
	want := make([]int, last)
	for i := range want {
		want[i] = i + 1
	}
	must.Same(b.TB, b.Entries(name, campaign), want, "the events told to", name, "of campaign", campaign)
	return b
}

// MustHaveBalances fails unless accounts has these, each as "campaign balance".
func (b *Engine) MustHaveBalances(want ...string) *Engine {
	must.Same(b.TB, storetest.Column[string](b.TB, b.ProjectionsDB, `select campaign_id || ' ' || balance from accounts order by campaign_id`), want, "balances")
	return b
}

// OpenFailures are the open failures as "campaign projection seq attempts".
func (b *Engine) OpenFailures() []string {
	return storetest.Column[string](b.TB, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, seq, attempts) from failures where status = 'open' order by id`)
}

// MustHaveCursors fails unless these cursors are set aside, each as "campaign projection applied state".
func (b *Engine) MustHaveCursors(want ...string) *Engine {
	must.Same(b.TB, b.SetAsideCursors(), want, "cursors")
	return b
}

// SetAsideCursors are the cursors that are set aside.
func (b *Engine) SetAsideCursors() []string {
	return storetest.Column[string](b.TB, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors order by campaign_id, projection`)
}

// MustStand fails unless a row has this status and number of attempts, besides those that quarantined a projection.
func (b *Engine) MustStand(campaignID string, seq int64, status event.Status, attempts int) *Engine {
	r := b.MustRow(campaignID, seq)
	history := slices.DeleteFunc(r.Attempts, func(a campaign.Attempt) bool { return a.Quarantined })
	must.Hold(b.TB, r.Row.Status == status && r.Row.AttemptCount == attempts && len(history) == attempts,
		"campaign %q seq %d is %s after %d attempts with %d in its history, want %s after %d (%s)",
		campaignID, seq, r.Row.Status, r.Row.AttemptCount, len(history), status, attempts, r.Row.LastError)
	return b
}

// MustWait waits until the projections have applied the event.
func (b *Engine) MustWait(campaign string, seq int64) *Engine {
	ctx, cancel := context.WithTimeout(b.Ctx, must.Patience)
	defer cancel()
	must.Get(b.WaitApplied(ctx, campaign, seq)).Or(b.TB)
	return b
}

// Operator is a command of the operator in these tests.
var Operator = operator.Command{By: operator.Operator{Name: "ana", Via: "cli"}, Reason: "mended", Confirm: "rebuild all campaigns"}

// RunToEnd starts a run and works until no run is left.
func (b *Engine) RunToEnd(order replay.RunRequest) replay.Run {
	run := b.StartRun(order)
	b.StepRuns()
	return b.MustRun(run.ID)
}

// StepRuns works until no run is left.
func (b *Engine) StepRuns() *Engine {
	for must.Get(b.RunWorker.Step(b.Ctx)).Or(b.TB) {
	}
	return b
}

// RunResult is the result of a campaign in a run.
func (b *Engine) RunResult(run replay.Run, campaign string) replay.RunResult {
	return must.Get(b.Runs.ResultOf(b.Ctx, run.ID, campaign)).Or(b.TB)
}

// Skip skips an event.
func (b *Engine) Skip(campaign string, seq int64) error {
	return storetest.No(b.SkipEvent(b.Ctx, storetest.ToSkip(Operator, campaign, seq), campaign, seq))
}

// MustUnskip undoes a skip.
func (b *Engine) MustUnskip(campaign string, seq int64) {
	must.Get(b.UnskipEvent(b.Ctx, Operator, campaign, seq)).Or(b.TB)
}

// PauseProjection pauses a projection in a campaign.
func (b *Engine) PauseProjection(projection, campaign string) *Engine {
	must.Get(b.Runs.PauseProjection(b.Ctx, Operator, projection, campaign, b.Infos)).Or(b.TB)
	return b
}

// ResumeProjection undoes PauseProjection.
func (b *Engine) ResumeProjection(projection, campaign string) campaign.ProjectionPause {
	return must.Get(b.Runs.ResumeProjection(b.Ctx, Operator, projection, campaign, b.Infos)).Or(b.TB)
}

// Dump is the fixture's, without the samples, which depend on the clock.
func (b *Engine) Dump(except ...string) string {
	return b.Fixture.Dump(append(except, "samples", "campaign_samples", "series_samples", "projection_loads", "loaded_sets")...)
}

// CalledFrom reports whether a function whose name ends so is among the callers.
func CalledFrom(name string) bool {
	callers := make([]uintptr, 8)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, name) || !more {
			return more
		}
	}
}
