package enginetest

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// Infos are the loaded projections in the store's form.
func (b *Engine) Infos() []outbox.ProjectionInfo { return b.Set.Infos() }

func (b *Engine) MustStartRun(tb testing.TB, order outbox.RunRequest) outbox.Run {
	tb.Helper()
	return must.Get(b.Runs.Start(context.Background(), Operator, order, b.Infos())).Or(tb)
}

// MustRun starts a run and works until no run is left.
func (b *Engine) MustRun(tb testing.TB, order outbox.RunRequest) outbox.Run {
	tb.Helper()
	run := b.MustStartRun(tb, order)
	b.StepRuns(tb)
	return b.MustReadRun(tb, run.ID)
}

func (b *Engine) StepRuns(tb testing.TB) {
	tb.Helper()
	for {
		more := must.Get(b.RunWorker.Step(context.Background())).Or(tb)
		if !more {
			return
		}
	}
}

func (b *Engine) MustReadRun(tb testing.TB, id int64) outbox.Run {
	tb.Helper()
	return must.Get(b.Runs.Get(context.Background(), id)).Or(tb)
}

func (b *Engine) Skip(campaign string, seq int64) error {
	o := Operator
	o.Confirm = outbox.ActionSkip.Phrase(outbox.Reach{Skipped: outbox.RowKey{CampaignID: campaign, Seq: seq}})
	_, err := b.SkipEvent(context.Background(), o, campaign, seq)
	return err
}

func (b *Engine) MustSkip(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	must.OK(tb, b.Skip(campaign, seq))
}

func (b *Engine) MustUnskip(tb testing.TB, campaign string, seq int64) {
	tb.Helper()
	must.Get(b.UnskipEvent(context.Background(), Operator, campaign, seq)).Or(tb)
}

// Failures are the open failures as "campaign projection seq attempts".
func Failures(t *testing.T, b *Engine) []string {
	t.Helper()
	return Column[string](t, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, seq, attempts) from failures where status = 'open' order by id`)
}

func MustHaveBalances(t *testing.T, b *Engine, want ...string) {
	t.Helper()
	must.Same(t, Column[string](t, b.ProjectionsDB, `select campaign_id || ' ' || balance from accounts order by campaign_id`), want, "balances")
}

func CalledFrom(name string) bool {
	callers := make([]uintptr, 8)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, name) {
			return true
		}
		if !more {
			return false
		}
	}
}

// Terminate ends the server's side of the program's connections to the engine's database and returns how many.
func (b *Engine) Terminate(tb testing.TB, which string) int {
	tb.Helper()
	return len(Column[bool](tb, b.JournalDB, `select pg_terminate_backend(pid) from `+Programs+` and `+which))
}

const (
	// Programs are the program's connections to this database.
	Programs = `pg_stat_activity where datname = current_database() and application_name = 'outboxweb'`
	// Listening is the connection on which a process waits for hints.
	Listening = `query like 'listen %'`
)

// Disconnect ends all connections and returns when they are gone.
func (b *Engine) Disconnect(tb testing.TB) {
	tb.Helper()
	gone := Column[bool](tb, b.JournalDB, `select pg_terminate_backend(pid, $1) from `+Programs, storetest.Patience.Milliseconds())
	must.Hold(tb, len(gone) != 0, "there was no connection to take away")
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

func Logging(f func(message string)) Option {
	return func(_ *store.Options, c *worker.Config) { c.Logger = slog.New(logged{slog.DiscardHandler, f}) }
}

// UntilStuck applies everything that can be applied, however late the next attempts of heads are.
func UntilStuck(tb RapidTB, b *Engine, now *storetest.Clock) {
	for range 8 {
		b.Drain(tb)
		now.Advance(time.Hour)
	}
}

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

// FinishClaims applies and settles claims, and calls between in the middle.
func (b *Engine) FinishClaims(ctx context.Context, claims []store.Claim, between ...func()) error {
	wave, err := b.Worker.Apply(ctx, claims)
	for _, happen := range between {
		happen()
	}
	return errors.Join(err, wave.Settle(ctx))
}

func (b *Engine) MustPause(tb testing.TB, projection, campaign string) outbox.ProjectionPause {
	tb.Helper()
	return must.Get(b.Runs.PauseProjection(context.Background(), Operator, projection, campaign, b.Infos())).Or(tb)
}

func (b *Engine) MustResume(tb testing.TB, projection, campaign string) outbox.ProjectionPause {
	tb.Helper()
	return must.Get(b.Runs.ResumeProjection(context.Background(), Operator, projection, campaign, b.Infos())).Or(tb)
}

func (b *Engine) SetAsideCursors(tb testing.TB) []string {
	tb.Helper()
	return Column[string](tb, b.ProjectionsDB, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors order by campaign_id, projection`)
}

func (b *Engine) MustHaveCursors(tb testing.TB, want ...string) {
	tb.Helper()
	must.Same(tb, b.SetAsideCursors(tb), want, "cursors")
}

func (b *Engine) RunResult(tb testing.TB, run outbox.Run, campaign string) outbox.RunResult {
	tb.Helper()
	return must.Get(b.Runs.ResultOf(context.Background(), run.ID, campaign)).Or(tb)
}

func (b *Engine) Meddle(tb testing.TB, statement string) {
	tb.Helper()
	must.Get(b.ProjectionsDB.ExecContext(context.Background(), statement)).Or(tb)
}

var Everything = outbox.RunRequest{Kind: outbox.RunVerify, All: true}
