package runs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestReportRun_writesProgressResultsAndLog(t *testing.T) {
	f := own(t)
	f.AppendN("a", 4)
	f.AppendN("b", 6)
	f.Exec(allApplied)
	run := f.StartRun(enginetest.Everything)
	l := f.ClaimRun(one)
	f.Clock.Advance(20 * time.Second)
	drifted := result("a", replay.OutcomeDrift, 4)
	drifted.Full, drifted.At = "sha256:full", f.Clock.Now()
	comparison := projection.Comparison{Changed: 2, FirstSeq: 3, ReplayedWith: campaign.ReplayedWith{RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}}, Samples: []projection.RowChange{{Table: "roster", Kind: projection.RowChanged,
		Key: []projection.Field{{Name: "id", Value: []byte(`"x"`)}}, Fields: []projection.FieldChange{{Name: "n", Live: []byte("1"), Expected: []byte("2")}}}}}
	drifted.Projections = []replay.ProjectionResult{
		{Projection: "roster", Verdict: campaign.VerdictDrift, Digest: "sha256:f", Before: "sha256:l", Seq: 4, Comparison: &comparison},
		{Projection: "history", Verdict: campaign.VerdictMatch, Digest: "sha256:h", Before: "sha256:h", Seq: 4}}
	long := strings.Repeat("é", 40_000) + "\x00\xff"
	status, err := f.Runs.Report(f.Ctx, l, runs.Progress{Results: []replay.RunResult{drifted}, EventsDone: 5, EventsPerSecond: 2.5, Lease: lease,
		Lines: []replay.RunLine{{CampaignID: "a", Text: "2 rows differ"}, {Text: long}}})
	must.Need(t, err == nil && status == replay.RunRunning, "the run is %s, %v", status, err)
	got := f.MustRun(run.ID)
	must.Hold(t, got.Campaigns == (replay.Progress{Done: 1, Total: 2}) && got.Events == (replay.Progress{Done: 5, Total: 10}) && got.Counts == (replay.RunCounts{Drifted: 1}) && got.EventsPerSecond == 2.5 && got.SecondsLeft != nil && *got.SecondsLeft == 2 && got.Lease.ExpiresAt.Equal(f.Clock.Now().Add(lease)) && got.Verdict == "", "run is %+v", got)
	f.Clock.Advance(6 * time.Second) // its process has died
	silent := f.MustRun(run.ID)
	must.Hold(t, silent.Silent(f.Clock.Now()) && silent.EventsPerSecond == 0 && silent.SecondsLeft == nil && silent.Status == replay.RunRunning, "a run without reports is %+v", silent)
	f.Clock.Advance(-6 * time.Second)
	whole, err := f.Runs.ResultOf(f.Ctx, run.ID, "a")
	diff := cmp.Diff(drifted, whole)
	must.Hold(t, diff == "" && err == nil, "result (-want +got): %s%v", diff, err)
	page, err := f.Runs.Results(f.Ctx, replay.ResultFilter{RunID: run.ID})
	must.Hold(t, err == nil && len(page.Items) == 1 && page.Items[0].Projections[0].Comparison.Changed == 2 && page.Items[0].Projections[0].Comparison.Samples == nil, "results are %+v, %v, want no samples", page.Items, err)
	page, err = f.Runs.Results(f.Ctx, replay.ResultFilter{RunID: run.ID, Outcome: replay.OutcomeDrift, Samples: true})
	diff = cmp.Diff([]replay.RunResult{drifted}, page.Items)
	must.Hold(t, diff == "" && err == nil, "results with samples (-want +got): %s%v", diff, err)
	lines, err := f.Runs.Log(f.Ctx, run.ID, "", 0)
	must.Hold(t, err == nil && len(lines.Items) == 2 && lines.Items[1].Text == "2 rows differ" && lines.Items[1].CampaignID == "a" && lines.Items[1].At.Equal(f.Clock.Now()) && len(lines.Items[0].Text) == 64<<10, "log is %d lines, %v", len(lines.Items), err)
	// A campaign that is done again counts once.
	f.ReportRun(l, 9, result("a", replay.OutcomeMatch, 4))
	got = f.MustRun(run.ID)
	must.Hold(t, got.Counts == (replay.RunCounts{Matched: 1}) && got.Campaigns.Done == 1, "run is %+v", got)
}

func TestReportRun_renewsTheLeaseAndNeverGoesBackNorEndsAsNothing(t *testing.T) {
	f := own(t)
	f.AppendN("a", 4)
	run := f.StartRun(enginetest.Everything)
	l := f.ClaimRun(one)
	f.AppendN("b", 6)
	f.ReportRun(l, 4, result("a", replay.OutcomeMatch, 4))
	f.ReportRun(l, 10, result("b", replay.OutcomeMatch, 6))
	f.ReportRun(l, 9)
	got := f.MustRun(run.ID)
	must.Hold(t, got.Events == (replay.Progress{Done: 10, Total: 10}) && got.Campaigns == (replay.Progress{Done: 2, Total: 2}), "run is %+v", got)
	for range 5 {
		f.Clock.Advance(lease * 3 / 4)
		f.ReportRun(l, 10)
		f.NoRun(two)
	}
	f.Unchanged(func() {
		for _, status := range []replay.RunStatus{"", replay.RunQueued, replay.RunRunning, replay.RunCancelling, replay.RunCancelled, replay.RunFailed, replay.RunInterrupted} {
			_, err := f.Runs.Finish(f.Ctx, l, status, "")
			must.Hold(t, err != nil, "it ended as %q", status)
		}
	})
}

func TestReportRun_notesVerifications(t *testing.T) {
	f := own(t)
	f.AppendN("a", 4)
	drifted := result("a", replay.OutcomeDrift, 4)
	drifted.Projections = []replay.ProjectionResult{
		{Projection: "roster", Verdict: campaign.VerdictDrift, Digest: "d", Seq: 4, Comparison: &projection.Comparison{Added: 1, Changed: 2, Removed: 3, FirstSeq: 2}},
		{Projection: "history", Verdict: campaign.VerdictMatch, Digest: "h"}}
	verifications := func() []campaign.Verification { return must.Get(f.Verifications(f.Ctx, "a")).Or(t) }
	verify := func(order replay.RunRequest) replay.Run {
		f.Clock.Advance(time.Minute)
		f.StartRun(order)
		l := f.ClaimRun(one)
		f.ReportRun(l, 4, drifted)
		return f.FinishRun(l, replay.RunCompleted, "")
	}
	verify(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2})
	verify(replay.RunRequest{Kind: replay.RunReplay, All: true})
	must.Equal(t, len(verifications()), 0, "verifications of a prefix and of a replay")
	run := verify(enginetest.Everything)
	when := f.Clock.Now()
	want := []campaign.Verification{
		{CampaignID: "a", Projection: "history", At: when, Seq: 4, Verdict: campaign.VerdictMatch, RunID: run.ID, Digest: "h", Version: "v2"},
		{CampaignID: "a", Projection: "roster", At: when, Seq: 4, Verdict: campaign.VerdictDrift, RunID: run.ID, Digest: "d", Added: 1, Changed: 2, Removed: 3, FirstSeq: 2, Version: "v1"}}
	must.Equal(t, verifications(), want, "verifications")
	must.Equal(t, must.Get(f.Drifted(f.Ctx, 0)).Or(t), want[1:], "drifted")
	f.Unchanged(func() { // by an older comparison
		must.OK(t, f.RecordVerifications(f.Ctx, []campaign.Verification{{CampaignID: "a", Projection: "roster", At: when.Add(-1), Verdict: campaign.VerdictMatch}}))
	})
	run = verify(enginetest.Rebuild("a"))
	must.Equal(t, run.Verdict, campaign.VerdictDrift, "run")
	got := verifications()
	must.Hold(t, got[1].Verdict == campaign.VerdictMatch && got[1].Changed == 0 && got[1].RunID == run.ID, "after the rebuild: %+v, want a match", got)
	refused(t, storetest.No(f.Verifications(f.Ctx, "nowhere")), event.ErrNotFound)
}

func TestFinishRun_saysHowItEnded(t *testing.T) {
	f := own(t)
	f.AppendN("a", 4)
	for name, c := range map[string]struct {
		kind    replay.RunKind
		outcome string
		as      replay.RunStatus
		why     string
		status  replay.RunStatus
		verdict campaign.Verdict
		error   string
	}{
		"match":             {replay.RunVerify, replay.OutcomeMatch, replay.RunCompleted, "", replay.RunCompleted, campaign.VerdictMatch, ""},
		"drift":             {replay.RunVerify, replay.OutcomeDrift, replay.RunCompleted, "", replay.RunCompleted, campaign.VerdictDrift, ""},
		"replay":            {replay.RunReplay, replay.OutcomeReplayed, replay.RunCompleted, "", replay.RunCompleted, "", ""},
		"failed":            {replay.RunRebuild, replay.OutcomeFailed, replay.RunFailed, "boom", replay.RunFailed, "", "boom"},
		"failed but called": {replay.RunRebuild, replay.OutcomeFailed, replay.RunCompleted, "", replay.RunFailed, "", "1 of 1 campaign failed; fix the cause and resume the run"},
		"interrupted":       {replay.RunVerify, replay.OutcomeMatch, replay.RunInterrupted, "gone", replay.RunInterrupted, "", "gone"},
		"interrupted drift": {replay.RunVerify, replay.OutcomeDrift, replay.RunInterrupted, "gone", replay.RunInterrupted, campaign.VerdictDrift, "gone"},
	} {
		f.StartRun(replay.RunRequest{Kind: c.kind, Campaigns: []string{"a"}})
		l := f.ClaimRun(one)
		r := result("a", c.outcome, 4)
		r.Full, r.Projections = "sha256:full", []replay.ProjectionResult{{Projection: "roster", Digest: "sha256:new", Before: "sha256:old"}}
		f.ReportRun(l, 4, r)
		run := f.FinishRun(l, c.as, c.why)
		must.Hold(t, run.Status == c.status && run.Verdict == c.verdict && run.Error == c.error && run.FinishedAt != nil && run.Lease == nil && run.EventsPerSecond == 0, "%s: run is %+v", name, run)
		done := c.outcome != replay.OutcomeFailed
		must.Hold(t, (!done || run.Seq == 4 && run.Digests["full"] == "sha256:full" && run.Digests["roster"] == "sha256:new" && run.Before["roster"] == "sha256:old") && (done || run.Seq == 0), "%s: digests are %v and %v at %d", name, run.Digests, run.Before, run.Seq)
		must.Equal(t, f.MustRun(run.ID), run, name, "read again")
		next := f.StartRun(enginetest.Rebuild("a")) // the scope is free
		_, err := f.Runs.Finish(f.Ctx, l, c.as, "again")
		must.Hold(t, errors.Is(err, event.ErrLeaseLost), "%s: it ended twice: %v", name, err)
		must.Get(f.Runs.Cancel(f.Ctx, ana(""), next.ID)).Or(t)
	}
}

func result(campaign, outcome string, events int64) replay.RunResult {
	return replay.RunResult{CampaignID: campaign, Outcome: outcome, Seq: events, Events: events}
}

func TestRuns_pagesBothWaysAndFilters(t *testing.T) {
	f := own(t)
	for i := range 5 {
		f.AppendN(fmt.Sprint("c-", i), 1)
		f.StartRun(enginetest.Rebuild(fmt.Sprint("c-", i)))
	}
	must.Get(f.Runs.Cancel(f.Ctx, ana(""), 2)).Or(t)
	f.StartRun(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"c-1"}})
	for want, filter := range map[string]replay.RunFilter{"6 5 4 3 2 1": {Limit: 2}, "2": {Status: replay.RunCancelled}, "": {Kind: replay.RunReplay}, "6 2": {CampaignID: "c-1"}} {
		pages := storetest.Pager(func(cursor string) event.Page[string] {
			filter.Cursor = cursor
			return storetest.Keyed(must.Get(f.Runs.List(f.Ctx, filter)).Or(t), func(r replay.Run) string { return fmt.Sprint(r.ID) })
		})
		must.Equal(t, strings.Join(pages.BothWays(t, "runs"), " "), want, filter)
	}
	active := f.ActiveRuns()
	must.Hold(t, len(active) == 5 && active[0].ID == 1, "active runs are %+v", active)
	refused(t, storetest.No(f.Runs.List(f.Ctx, replay.RunFilter{Cursor: "x"})), event.ErrInvalid)
}

func TestRunResults_pagesByCampaignAndOutcome(t *testing.T) {
	f := own(t)
	run := f.StartRun(enginetest.Everything)
	l := f.ClaimRun(one)
	var results []replay.RunResult
	for i := range 6 {
		results = append(results, result(fmt.Sprint("c-", i), []string{replay.OutcomeMatch, replay.OutcomeDrift, replay.OutcomeFailed}[i%3], 1))
	}
	f.ReportRun(l, 6, results...)
	for want, filter := range map[string]replay.ResultFilter{"c-0 c-1 c-2 c-3 c-4 c-5": {Limit: 4}, "c-1 c-4": {Outcome: replay.OutcomeDrift}} {
		pages := storetest.Pager(func(cursor string) event.Page[string] {
			filter.RunID, filter.Cursor = run.ID, cursor
			return storetest.Keyed(must.Get(f.Runs.Results(f.Ctx, filter)).Or(t), func(r replay.RunResult) string { return r.CampaignID })
		})
		must.Equal(t, strings.Join(pages.BothWays(t, "results"), " "), want, filter)
	}
	refused(t, storetest.No(f.Runs.Results(f.Ctx, replay.ResultFilter{RunID: 99})), event.ErrNotFound)
	refused(t, storetest.No(f.Runs.Log(f.Ctx, 99, "", 0)), event.ErrNotFound)
	refused(t, storetest.No(f.Runs.ResultOf(f.Ctx, run.ID, "nowhere")), event.ErrNotFound, "no result")
}

func TestPruneRuns_keepsWhatWentWrongAndTheLatest(t *testing.T) {
	f := own(t)
	f.AppendN("a b", 1)
	for range 12 {
		f.StartRun(enginetest.Everything)
		l := f.ClaimRun(one)
		f.ReportRun(l, 2, result("a", replay.OutcomeMatch, 1), result("b", replay.OutcomeDrift, 1))
		f.FinishRun(l, replay.RunCompleted, "")
	}
	active := f.StartRun(enginetest.Rebuild("a"))
	f.ReportRun(f.ClaimRun(one), 1, result("a", replay.OutcomeMatch, 1))
	for range 2 { // a run at a time
		more, err := f.Runs.Prune(f.Ctx)
		must.Hold(t, err == nil && more, "more %v (%v)", more, err)
	}
	more, err := f.Runs.Prune(f.Ctx)
	must.Hold(t, err == nil && !more, "in the end: more %v (%v)", more, err)
	left := storetest.Texts(t, f.JournalDB, `select concat_ws(' ', run_id, count(*), min(outcome)) from run_results where run_id <= 3 or run_id = $1 group by run_id order by run_id`, active.ID)
	must.Equal(t, left, []string{"1 1 drift", "2 1 drift", "3 2 drift", "13 1 match"}, "results left")
}

// seats is a projection with a constraint of every kind.
const seats = `-- projection: seats
-- tables: rooms, seats
-- on-failure: block

-- schema
create table rooms (campaign_id text not null, id text not null, primary key (campaign_id, id));
create table seats (
  campaign_id text not null,
  id text not null,
  room text,
  user_id text not null,
  code text,
  role text not null default 'player' check (role in ('player', 'master')),
  n bigint not null default 0,
  primary key (campaign_id, id),
  foreign key (campaign_id, room) references rooms (campaign_id, id)
);
create unique index seats_user on seats (campaign_id, user_id);
create unique index seats_code on seats (campaign_id, code);

-- on: room.opened
insert into rooms (campaign_id, id) values (:campaign_id, :payload.id!);

-- on: seat.taken
-- A user has one seat.
insert into seats (campaign_id, id, room, user_id, code, role, n)
values (:campaign_id, :payload.id!, :payload.room, lower(:payload.user), :payload.password,
  coalesce(:payload.role, 'player'), coalesce(cast(:payload.n as bigint), 0));

-- on: seat.kept
insert into seats (campaign_id, id, user_id)
values (:campaign_id, :payload.id, :payload.user)
on conflict (campaign_id, id) do update set user_id = excluded.user_id;

-- on: seat.moved
update seats set user_id = :payload.user where campaign_id = :campaign_id and id = :payload.id;

-- on: seat.rated
insert into seats (campaign_id, id, user_id, n)
values (:campaign_id, :payload.id, :payload.user, cast(:payload.price as bigint) * cast(:payload.factor as bigint));

-- on: seat.valued
insert into seats (campaign_id, id, user_id, n)
values (:campaign_id, :payload.id, :payload.user, nullif(cast(:payload.price as bigint), cast(:payload.factor as bigint)));

-- on: seat.doubled
insert into seats (campaign_id, id, user_id) values (:campaign_id, :payload.id, :payload.user);
insert into seats (campaign_id, id, user_id) values (:campaign_id, :payload.id, 'other');

-- on: room.closed
delete from rooms where campaign_id = :campaign_id and id = :payload.id;
`

// explain explains the only failure of an event, as readers of a page get it.
func explain(tb testing.TB, b *enginetest.Engine, campaign string, seq int64) projection.ExplainedFailure {
	x := must.Get(runs.Explain(tb.Context(), b.Queue, b.Set, redact.Of(redact.Builtin()), campaign, seq)).Or(tb)
	must.Need(tb, len(x.Failures) == 1, "%d failures are explained: %+v", len(x.Failures), x)
	return redact.Shown(redact.Builtin(), x).Failures[0]
}

func TestExplain_everyKindOfConstraint(t *testing.T) {
	first, anas := `{"id":"1","user":"ana","password":"hunter22","role":"master"}`, `id="1" room=null user_id="ana" code="[redacted]" role="master" n=0`
	b := enginetest.Own(t, []string{seats}, enginetest.MaxAttempts(1))
	cases := []struct {
		name, eventType, payload, kind, table, columns string
		reason                                         string // part of it
		existing                                       string // fields of the row that is there
		refused                                        string // the values that the constraint's columns get
	}{
		{"primary key", "seat.taken", `{"id":"1","user":"bo"}`, "unique", "seats", "campaign_id id",
			"A row with this key (campaign_id, id) exists already in seats.", anas, ":campaign_id :payload.id"},
		{"unique index over an expression's value", "seat.taken", `{"id":"2","user":"ANA"}`, "unique", "seats", "campaign_id user_id",
			"(campaign_id, user_id)", anas, ":campaign_id :payload.user"},
		{"secret in the key", "seat.taken", `{"id":"2","user":"bo","password":"hunter22"}`, "unique", "seats", "campaign_id code",
			"(campaign_id, code)", anas, ":campaign_id :payload.password"},
		{"another key than that of on conflict", "seat.kept", `{"id":"9","user":"ana"}`, "unique", "seats", "campaign_id user_id", "exists already", anas, ":campaign_id :payload.user"},
		{"update", "seat.moved", `{"id":"8","user":"ana"}`, "unique", "seats", "campaign_id user_id", "exists already", anas, ":payload.user :campaign_id"},
		{"a row of the event itself", "seat.doubled", `{"id":"2","user":"bo"}`, "unique", "seats", "campaign_id id",
			"and no live row has it: an earlier statement of the event may have made it", "", ":campaign_id :payload.id"},
		{"not null", "seat.taken", `{"id":"2"}`, "not_null", "seats", "user_id", "Column user_id of seats must have a value", "", ":payload.user"},
		{"not null, an expression of two values", "seat.rated", `{"id":"2","user":"bo","price":7}`, "not_null", "seats", "n", "Column n of seats must have a value", "", ":payload.factor"},
		{"not null, an expression of present values", "seat.valued", `{"id":"2","user":"bo","price":7,"factor":7}`, "not_null", "seats", "n", "Column n of seats must have a value", "", ""},
		{"check", "seat.taken", `{"id":"2","user":"bo","role":"king"}`, "check", "seats", "role", "A check of table seats refuses the value of role.", "", ":payload.role"},
		{"foreign key", "seat.taken", `{"id":"2","user":"bo","room":"r-9"}`, "foreign_key", "seats", "campaign_id room", "refers to is missing", "", ":campaign_id :payload.room"},
		{"required value", "seat.taken", `{"user":"bo"}`, "", "", "", "The statement requires payload.id, and the event does not have it.", "", ""},
	}
	for _, c := range cases {
		b.MustAppend(enginetest.EventOf(c.name, "seat.taken", `{"id":"8","user":"cy"}`), enginetest.EventOf(c.name, "seat.taken", first), enginetest.EventOf(c.name, c.eventType, c.payload))
	}
	b.Drain()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := explain(t, b, c.name, 3)
			must.Need(t, f.Statement != nil && f.Unexplained == "" && f.VersionChanged() == "", "it is not explained: %+v", f)
			must.Hold(t, strings.Contains(f.Reason, c.reason), "reason %q, want %q", f.Reason, c.reason)
			if c.kind == "" {
				must.Hold(t, f.Constraint == nil, "constraint %+v", f.Constraint)
			} else if k := f.Constraint; k == nil || k.Kind != c.kind || k.Table != c.table || strings.Join(k.Columns, " ") != c.columns {
				t.Errorf("constraint %+v, want %s of %s (%s)", k, c.kind, c.table, c.columns)
			}
			must.Equal(t, fields(f.Existing), c.existing, "existing row")
			must.Equal(t, refusedValues(f), c.refused, "refused values")
			for _, v := range f.Statement.Values {
				within := v.Name == ":payload.price" || v.Name == ":payload.factor"
				must.Hold(t, within == slices.Equal(v.Computed, []string{"n"}) || c.eventType != "seat.valued", "%s is an input of %q", v.Name, v.Computed)
			}
			text := mustJSON(t, f)
			must.Hold(t, !strings.Contains(text, "hunter22"), "the secret is in it: %s", text)
			for _, l := range f.Statement.Lines {
				must.Hold(t, l.Number != f.Statement.Line || l.Failed && l.Text != "", "line %d is not marked: %+v", l.Number, l)
			}
		})
	}
}

func fields(row *projection.ExistingRow) string {
	if row == nil {
		return ""
	}
	var all []string
	for _, f := range row.Fields {
		if f.Name != "campaign_id" {
			all = append(all, f.Name+"="+string(f.Value))
		}
	}
	return strings.Join(all, " ")
}

func refusedValues(f projection.ExplainedFailure) string {
	var all []string
	for _, v := range f.Statement.Values {
		if v.Refused {
			all = append(all, v.Name)
		}
	}
	return strings.Join(all, " ")
}

func mustJSON(tb testing.TB, v any) string { return string(must.Get(json.Marshal(v)).Or(tb)) }

func TestExplain_saysWhatItCannotExplain(t *testing.T) {
	b := enginetest.Own(t, []string{seats}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"bo"}`), enginetest.Noted("a"))
	of := func(definition string) projection.ExplainedFailure {
		dialect := "sqlite"
		if b.OnPostgres() {
			dialect = "postgres"
		}
		set := must.Get(projection.Load(dialect, enginetest.Define(t, definition)...)).Or(t)
		x, err := runs.Explain(t.Context(), b.Queue, set, redact.Of(redact.Builtin()), "a", 2)
		must.Need(t, err == nil && len(x.Failures) == 1, "explained as %+v, %v", x, err)
		return x.Failures[0]
	}
	if f := of(strings.Replace(seats, "-- A user has one seat.", "-- A user has only one seat.", 1)); !strings.Contains(f.VersionChanged(), "The loaded version differs from the one that failed") || f.Statement == nil {
		t.Errorf("another version: %q, %+v", f.VersionChanged(), f)
	}
	f := of("-- note: one more line\n" + seats)
	must.Hold(t, f.Statement == nil && strings.HasPrefix(f.Unexplained, "No statement of the loaded file begins at line ") && f.Reason != "", "a moved statement: %+v", f)
	f = of(strings.ReplaceAll(seats, "seat.taken", "seat.gone"))
	must.Hold(t, f.Statement == nil && f.Unexplained != "", "a type that no statement handles: %+v", f)
	f = of(enginetest.Trail)
	must.Hold(t, f.Statement == nil && f.Unexplained == "Projection seats is not loaded.", "another projection: %+v", f)
	for _, seq := range []int64{1, 3} {
		must.Equal(t, len(must.Get(runs.Explain(t.Context(), b.Queue, b.Set, redact.Of(redact.Builtin()), "a", seq)).Or(t).Failures), 0, "event", seq, "has not failed")
	}
	_, err := runs.Explain(t.Context(), b.Queue, b.Set, redact.Of(redact.Builtin()), "a", 9)
	must.Hold(t, errors.Is(err, event.ErrNotFound), "a missing event: %v", err)
	b.ExecProjections(`drop table seats`)
	f = explain(t, b, "a", 2)
	must.Hold(t, f.Statement != nil && f.Existing == nil && f.Reason != "", "without the table: %+v", f)
}

func TestExplain_valuesOfTheWrongTypeAndDeletedParents(t *testing.T) {
	b := enginetest.Own(t, []string{seats}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "room.opened", `{"id":"r"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","room":"r","user":"ana"}`), enginetest.EventOf("a", "room.closed", `{"id":"r"}`))
	if f := explain(t, b, "a", 3); f.Constraint == nil || f.Constraint.Kind != projection.ConstraintForeign || !strings.Contains(f.Reason, "others refer to") {
		t.Errorf("deleting a parent: %+v", f)
	}
	if !b.OnPostgres() {
		return // SQLite stores any type
	}
	b = enginetest.Open(t, enginetest.Define(t, strings.NewReplacer(":payload.n ", ":payload.password ", "lower(:payload.user), :payload.password", "lower(:payload.user), :payload.code").Replace(seats)), enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana","password":"hunter22"}`))
	f := explain(t, b, "a", 1)
	must.Hold(t, f.Reason == "A value does not have the type that its column needs." && f.Statement != nil && !strings.Contains(mustJSON(t, f), "hunter22"), "a value of the wrong type: %s", mustJSON(t, f))
}

func TestExplain_quarantinedProjectionsAndHiddenPayloads(t *testing.T) {
	b := enginetest.Own(t, []string{strings.Replace(seats, "on-failure: block", "on-failure: quarantine", 1)}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"ana"}`), enginetest.EventOf("a", "seat.taken", `{"id":"1","user":"bo"}`))
	f := explain(t, b, "a", 2)
	must.Hold(t, f.Projection == "seats" && f.Existing != nil && f.FailedVersion == "", "a quarantined projection: %+v", f)
	all := must.Get(redact.New(redact.Config{HidePayloads: true})).Or(t)
	x := must.Get(runs.Explain(t.Context(), b.Queue, b.Set, redact.Of(all), "a", 2)).Or(t)
	text := mustJSON(t, redact.Shown(all, x))
	must.Hold(t, !strings.Contains(text, "ana") && !strings.Contains(text, `"bo"`), "with hidden payloads: %s", text)
}
