package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

const tallySchema = `
create table tally_types (
  campaign_id text not null,
  event_type text not null,
  n bigint not null,
  last_seq bigint not null,
  primary key (campaign_id, event_type)
);
create table tally_campaigns (
  campaign_id text primary key,
  name text,
  events bigint not null,
  last_actor text not null
);
`

const tallyFile = `-- projection: tally
-- tables: tally_types, tally_campaigns
-- schema` + tallySchema + `
-- on: *
insert into tally_types (campaign_id, event_type, n, last_seq) values (:campaign_id, :event_type, 1, :seq)
on conflict (campaign_id, event_type) do update set n = tally_types.n + 1, last_seq = excluded.last_seq;
insert into tally_campaigns (campaign_id, events, last_actor) values (:campaign_id, 1, :actor_id)
on conflict (campaign_id) do update set events = tally_campaigns.events + 1, last_actor = excluded.last_actor;
-- on: campaign.created
update tally_campaigns set name = :payload.name! where campaign_id = :campaign_id;
`

// tallyCode is tallyFile in Go. It counts in Go what the file counts in SQL.
func tallyCode(change ...func(*projection.Code)) []projection.Code {
	c := projection.Code{Name: "tally", Version: "1", Tables: []string{"tally_types", "tally_campaigns"}, Schema: tallySchema, On: map[string]projection.Handler{
		"*":                tallyEvent,
		"campaign.created": tallyName,
	}}
	for _, f := range change {
		f(&c)
	}
	return []projection.Code{c}
}

func tallyEvent(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
	rows, err := tx.Query(ctx, `select n from tally_types where campaign_id = $1 and event_type = $2`, e.CampaignID, e.EventType)
	if err != nil {
		return err
	}
	n := 0
	if rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return err
		}
	}
	err = tx.Exec(ctx, `insert into tally_types (campaign_id, event_type, n, last_seq) values ($1, $2, $3, $4)
on conflict (campaign_id, event_type) do update set n = $3, last_seq = $4`, e.CampaignID, e.EventType, n+1, e.Seq)
	if err != nil {
		return err
	}
	return tx.Exec(ctx, `insert into tally_campaigns (campaign_id, events, last_actor) values ($1, 1, $2)
on conflict (campaign_id) do update set events = tally_campaigns.events + 1, last_actor = excluded.last_actor`, e.CampaignID, e.ActorID)
}

func tallyName(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
	var payload struct{ Name string }
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return err
	}
	return tx.Exec(ctx, `update tally_campaigns set name = $2 where campaign_id = $1`, e.CampaignID, payload.Name)
}

func TestGoProjection_makesTheRowsOfItsSQLTwin(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Long, func(t *testing.T, j corpus.Journal) {
		events := j.Parse(t)
		events = events[:len(events)/size.Of(8, 4, 1)]
		code := enginetest.OpenCode(t, dbtest.New(t), tallyCode())
		file := enginetest.Open(t, enginetest.Define(t, tallyFile))
		for _, b := range []*enginetest.Engine{code, file} {
			b.Feed(events...).Sound()
		}
		want := digestsOf(t, file, events)
		must.Equal(t, digestsOf(t, code, events), want, "digests by campaign")

		run := code.RunToEnd(enginetest.Everything)
		must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == campaign.VerdictMatch && run.Counts.Matched == int64(len(want)), "verify %+v", run)
		code.ExecProjections(`update tally_types set n = n + 1 where event_type = 'campaign.created'`)
		code.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		must.Equal(t, digestsOf(t, code, events), want, "digests by campaign")
	})
}

func TestGoProjection_panicNamesItsLineAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var rooms map[string]int // nobody made it
	var log strings.Builder
	b := enginetest.OpenCode(t, dbtest.New(t), tallyCode(func(c *projection.Code) {
		c.On["nil"] = func(context.Context, *projection.CodeTx, *event.Event) error {
			rooms["a"]++ // the line that panics
			return nil
		}
		c.On["error"] = func(context.Context, *projection.CodeTx, *event.Event) error { return errors.New("no such room") }
	}), enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(3), func(o *enginetest.Options) { o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b.MustAppend(enginetest.EventOf("a", "nil", `{}`), enginetest.EventOf("b", "error", `{}`))
	for range 3 {
		b.Drain()
		n := strings.Count(log.String(), "a projection panicked")
		must.Need(t, n == 1, "the panic is logged %d times, want once:\n%s", n, log.String())
		b.Clock.Advance(time.Hour)
	}
	for _, want := range []string{"level=WARN", "campaign=a seq=1", `projection=tally panic="assignment to entry in nil map"`, "code_test.go:"} {
		must.Hold(t, strings.Contains(log.String(), want), "the log lacks %q:\n%s", want, log.String())
	}
	must.Equal(t, b.MustRow("a", 1).Row.Status, event.Dead, "the row")
	source := must.Get(os.ReadFile("code_test.go")).Or(t)
	before, _, _ := strings.Cut(string(source), "// the line that panics")
	said, stack, _ := strings.Cut(b.MustRow("a", 1).Row.LastError, "\n")
	want := fmt.Sprintf("on nil: panic: assignment to entry in nil map at code_test.go:%d", strings.Count(before, "\n")+1)
	must.Hold(t, strings.HasSuffix(said, want), "recorded %q, want it to end with %q", said, want)
	must.Hold(t, strings.HasPrefix(stack, "goroutine "), "no stack follows: %q", stack)
	for campaign, want := range map[string]string{"a": "The function panicked.", "b": "The function returned an error."} {
		x, err := runs.Explain(t.Context(), b.Queue, b.Set, redact.Of(redact.Builtin()), campaign, 1)
		must.Hold(t, err == nil && len(x.Failures) == 1 && x.Failures[0].Reason == want, "campaign %s: %+v, %v, want %q", campaign, x, err, want)
	}
}

// Everybody waits while an event hangs, so it is not tried twice in one attempt.
func TestGoProjection_thatHangsIsCalledOnceForEachAttempt(t *testing.T) {
	t.Parallel()
	calls := 0
	b := enginetest.OpenCode(t, dbtest.New(t), tallyCode(func(c *projection.Code) {
		c.On["hanging"] = func(ctx context.Context, _ *projection.CodeTx, _ *event.Event) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		}
	}), enginetest.MaxAttempts(1), enginetest.EventTimeout(300*time.Millisecond))
	b.Feed(append([]event.Event{enginetest.EventOf("a", "hanging", `{}`)}, enginetest.Notes("a", 3)...)...)
	row := b.MustRow("a", 1).Row
	must.Hold(t, row.Status == event.Dead && calls == 1, "the event is %s after %d calls in one attempt, want it dead after one", row.Status, calls)
}

func TestGoProjection_failureIsItsOwn(t *testing.T) {
	t.Parallel()
	var kept *projection.CodeTx
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	for _, tt := range []struct {
		name, want string
		handler    projection.Handler
		options    []enginetest.Option
	}{
		{"a panic", "panic: boom", func(context.Context, *projection.CodeTx, *event.Event) error { panic("boom") }, nil},
		{"an error", "no such wallet", func(context.Context, *projection.CodeTx, *event.Event) error { return errors.New("no such wallet") }, nil},
		{"an error of a statement that it ignores", "tally_campaigns", func(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
			_ = tx.Exec(ctx, `insert into tally_campaigns (campaign_id, events, last_actor) values ($1, 1, null)`, e.CampaignID)
			return nil
		}, nil},
		{"a hang that ignores its context", "was cut off", func(ctx context.Context, tx *projection.CodeTx, _ *event.Event) error {
			kept = tx
			<-release
			return nil
		}, []enginetest.Option{enginetest.EventTimeout(300 * time.Millisecond)}},
		{"a query that does not end", "was cut off", func(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
			return storetest.No(tx.Query(ctx, `with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n`))
		}, []enginetest.Option{enginetest.EventTimeout(300 * time.Millisecond)}},
		{"rows of another table", `changes table "campaigns"`, func(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
			return tx.Exec(ctx, `delete from campaigns where campaign_id = $1`, e.CampaignID)
		}, nil},
		{"rows of every campaign", "does not name campaign_id", func(ctx context.Context, tx *projection.CodeTx, _ *event.Event) error {
			return tx.Exec(ctx, `update tally_types set n = 0`)
		}, nil},
		{"a change in a query", "use Exec to change rows", func(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
			return storetest.No(tx.Query(ctx, `delete from tally_types where campaign_id = $1 returning n`, e.CampaignID))
		}, nil},
		{"a query of another's table", `table "other_rows" belongs to projection "other"`, func(ctx context.Context, tx *projection.CodeTx, e *event.Event) error {
			return storetest.No(tx.Query(ctx, `select n from other_rows where campaign_id = $1`, e.CampaignID))
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code := append(tallyCode(func(c *projection.Code) { c.On["poison"] = tt.handler }), projection.Code{Name: "other", Version: "1", Tables: []string{"other_rows"},
				Schema: `create table other_rows (campaign_id text primary key, n bigint)`, On: map[string]projection.Handler{"never": tallyName}})
			b := enginetest.OpenCode(t, dbtest.New(t), code, append(tt.options, enginetest.MaxAttempts(1))...)
			b.MustAppend(enginetest.Notes("a", 3)...)
			b.MustAppend(enginetest.Noted("culprit"), enginetest.EventOf("culprit", "poison", `{}`), enginetest.Noted("culprit"))
			b.Feed(enginetest.Notes("z", 3)...)
			must.Equal(t, b.MustCampaign("a").AppliedSeq+b.MustCampaign("z").AppliedSeq, 6, "the events of others that are applied")
			row := b.MustRow("culprit", 2).Row
			must.Hold(t, row.Status == event.Dead && strings.Contains(row.LastError, tt.want) && strings.Contains(row.LastError, "projection tally (code_test.go:"), "row %s: %q, want it dead of %q in code_test.go", row.Status, row.LastError, tt.want)
			must.Equal(t, b.MustCampaign("culprit").AppliedSeq, 1, "the campaign is at event")
			must.Equal(t, b.RunToEnd(enginetest.Everything).Counts.Matched, 3, "verify")
		})
	}
	t.Cleanup(func() {
		if kept != nil {
			err := kept.Exec(context.Background(), `delete from tally_types where campaign_id = $1`, "a")
			must.Hold(t, err != nil, "a handler that was cut off can still change rows")
		}
	})
}

// Calls that never return are bounded: the process keeps a few of them, and other events then wait, without an attempt, until some return.
func TestGoProjection_hungCallsAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := enginetest.OpenCode(t, dbtest.New(t), tallyCode(func(c *projection.Code) {
		c.On["poison"] = func(context.Context, *projection.CodeTx, *event.Event) error { <-release; return nil }
	}), enginetest.EventTimeout(300*time.Millisecond), enginetest.MaxAttempts(1))
	const campaigns = 60 // a busy machine cuts off some before they are called
	for i := range campaigns {
		b.MustAppend(enginetest.EventOf(fmt.Sprint("c-", i), "poison", `{}`))
	}
	b.Drain()
	cut, waiting := 0, 0
	for i := range campaigns {
		row := b.MustRow(fmt.Sprint("c-", i), 1)
		switch text := row.Row.LastError; {
		case row.Row.Status == event.Dead && strings.Contains(text, "was cut off") && len(row.Attempts) == 1:
			cut++
		case row.Row.Status == event.Failed && strings.Contains(text, "calls of this projection's functions have not returned, the last of them for poison at code_test.go:") &&
			row.Row.AttemptCount == 0 && len(row.Attempts) == 0:
			waiting++
		default:
			t.Errorf("%+v", row)
		}
	}
	must.Hold(t, cut+waiting == campaigns && waiting != 0, "%d cut off and %d wait, want %d and some that wait", cut, waiting, campaigns)
	for _, g := range must.Get(b.Store.ErrorGroups(t.Context())).Or(t).Assessed(campaign.Running{Versions: map[string]string{"tally": "1"}}, nil) {
		must.Hold(t, (g.Dead != 0 || strings.Contains(g.Verdict, "it is tried once the process is restarted")) && (g.Dead <= 0 || g.Alike == g.Attempts), "%q is judged %q, with %d of %d attempts alike", g.Example, g.Verdict, g.Alike, g.Attempts)
	}
	close(release)
	for storetest.Column[int](t, b.JournalDB, `select count(*) from projection_apply_outbox where status = 'failed'`)[0] > 0 {
		must.Get(b.RetryFailed(t.Context(), enginetest.Operator, campaign.RequeueFilter{})).Or(t)
		b.Drain()
	}
	// On a busy machine the limit of 300 ms may cut off some of those that waited, too.
	left := storetest.Column[string](t, b.JournalDB, `select status || ': ' || last_error from projection_apply_outbox`)
	must.Hold(t, len(left) >= cut && !slices.ContainsFunc(left, func(row string) bool {
		return !strings.HasPrefix(row, "dead: ") || !strings.Contains(row, "was cut off")
	}), "left are %q, want the %d that were cut off", left, cut)
}
