package runs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/pgtest"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestClaimRun_takesTheOldestOnce(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.AppendN("b", 4)
	f.Exec(allApplied)
	f.NoRun(one)
	first, second := f.StartRun(enginetest.Rebuild("a")), f.StartRun(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"b"}, UntilSeq: 2})
	f.Clock.Advance(time.Second)
	l := f.ClaimRun(one)
	now := f.Clock.Now()
	must.Hold(t, l.Run.ID == first.ID && l.Owner == one.ID && l.Epoch == 1 && l.Run.Status == replay.RunRunning && l.Run.StartedAt.Equal(now) && l.Run.Attempts == 1 && l.Run.Campaigns.Total == 1 && l.Run.Events.Total == 3 && l.Run.Lease != nil && l.Run.Lease.ExpiresAt.Equal(now.Add(lease)), "lease is %+v", l)
	l = f.ClaimRun(one)
	must.Hold(t, l.Run.ID == second.ID && l.Run.Events.Total == 2, "lease is %+v, want run %d", l, second.ID)
	f.NoRun(two)
}

func TestClaimRun_byManyAtOnceGivesEachRunOnce(t *testing.T) {
	f := own(t)
	for i := range 8 {
		id := fmt.Sprint("c-", i)
		f.AppendN(id, 1)
		f.StartRun(enginetest.Rebuild(id))
	}
	stores := []*fixture{f, f.Beside()}
	var mu sync.Mutex
	taken := map[int64]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				l, ok, err := stores[i%2].Runs.Claim(f.Ctx, outbox.Worker{ID: fmt.Sprint("w-", i)}, enginetest.VersionsRuns, lease)
				must.Hold(t, err == nil, "%v", err)
				if ok {
					mu.Lock()
					taken[l.Run.ID]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	must.Equal(t, len(taken), 8, "runs taken")
	for id, n := range taken {
		must.Equal(t, n, 1, "how often was taken run", id)
	}
}

func TestClaimRun_takesOverWhereAnotherStopped(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.AppendN("b", 4)
	f.StartRun(enginetest.Everything)
	f.Exec(allApplied)
	l := f.ClaimRun(one)
	f.ReportRun(l, 5, result("a", replay.OutcomeMatch, 3)) // and two events of b
	f.Clock.Advance(lease - 1)
	f.NoRun(two)
	f.Clock.Advance(time.Second)
	next := f.ClaimRun(two)
	must.Hold(t, next.Epoch == 2 && next.Run.Campaigns.Total == 2 && next.Run.Events.Total == 7 && next.Run.Attempts == 2 && next.Run.Events.Done == 3 && next.Run.Campaigns.Done == 1 && next.Run.StartedAt.Equal(began), "lease is %+v, want the events of what is done and no more", next)
	f.Unchanged(func() {
		_, err := f.Runs.Report(f.Ctx, l, runs.Progress{Results: []replay.RunResult{result("b", replay.OutcomeDrift, 4)}, Lease: lease})
		_, err2 := f.Runs.Finish(f.Ctx, l, replay.RunCompleted, "")
		_, err3 := f.Runs.Scope(f.Ctx, l, "", 10)
		for _, err := range []error{err, err2, err3, f.Runs.Release(f.Ctx, l)} {
			must.Hold(t, errors.Is(err, event.ErrLeaseLost), "the former holder got %v", err)
		}
	})
	f.Clock.Advance(lease)
	f.ClaimRun(two)
	_, err := f.Runs.Report(f.Ctx, next, runs.Progress{Lease: lease})
	must.Hold(t, errors.Is(err, event.ErrLeaseLost), "with its former epoch the same worker got %v", err)
}

func TestRelease_isNoAttemptAndLetsAnotherTakeOverAtOnce(t *testing.T) {
	f := own(t)
	run := f.StartRun(enginetest.Everything)
	for range 5 {
		must.OK(t, f.Runs.Release(f.Ctx, f.ClaimRun(one)))
		got := f.MustRun(run.ID)
		must.Hold(t, got.Status == replay.RunRunning && got.Lease == nil && got.Attempts == 0, "released run is %+v", got)
	}
	f.ClaimRun(one)
	must.OK(t, f.EndLeases(f.Ctx, two.ID))
	f.NoRun(two)
	must.OK(t, f.EndLeases(f.Ctx, one.ID))
	f.ClaimRun(two)
	must.OK(t, f.EndLeases(f.Ctx, ""))
	f.ClaimRun(one)
}

func TestClaimRun_givesUpARunThatTookThreeProcessesDown(t *testing.T) {
	f := own(t)
	run := f.StartRun(enginetest.Everything)
	for range 3 {
		f.ClaimRun(one)
		f.Clock.Advance(lease)
	}
	f.NoRun(one)
	got := f.MustRun(run.ID)
	must.Hold(t, got.Status == replay.RunInterrupted && got.Error == "its process died three times during the run; resume it to try again" && got.FinishedAt != nil && got.Lease == nil && got.Verdict == "", "run is %+v", got)
	f.StartRun(enginetest.Everything) // its scope is free
}

// The answer to a claim, a release or an end is lost with the database: the process that lives on
// continues the run at once, and not when its lease ends.
func TestClaimRun_continuesWhatItsProcessLeft(t *testing.T) {
	f := own(t)
	run := f.StartRun(enginetest.Everything)
	before := f.Beside().ClaimRun(one) // of the same process, which has not heard of it
	for range 5 {
		f.NoRun(two)
		l := f.ClaimRun(one)
		must.Hold(t, l.Run.ID == run.ID && l.Epoch == before.Epoch+1 && l.Run.Attempts == 1, "lease is %+v after %+v", l, before)
		_, err := f.Runs.Finish(f.Ctx, before, replay.RunCompleted, "")
		must.Hold(t, errors.Is(err, event.ErrLeaseLost), "the claim before ends the run: %v", err)
		f.Runs.Left(before) // what the lost claim was for ends late
		f.NoRun(one)        // it is working on it
		before = l
		f.Runs.Left(l)
	}
}

func TestClaimRun_leavesProjectionsOfOtherVersionsAlone(t *testing.T) {
	f := own(t)
	waiting := f.StartRun(replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"history"}})
	others := map[string]string{"roster": "v1", "history": "v3"}
	claim := func(versions map[string]string) (runs.Lease, bool) {
		l, ok, err := f.Runs.Claim(f.Ctx, two, versions, lease)
		must.OK(t, err)
		return l, ok
	}
	f.Unchanged(func() {
		for _, versions := range []map[string]string{others, nil, {"roster": "v1"}} {
			_, ok := claim(versions)
			must.Hold(t, !ok, "a process with %v took the run", versions)
		}
	})
	behind := f.StartRun(replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"roster"}})
	l, ok := claim(others)
	must.Hold(t, ok && l.Run.ID == behind.ID, "claimed %+v, want the run behind", l)
	must.Equal(t, f.ClaimRun(one).Run.ID, waiting.ID, "claimed")
	f.Clock.Advance(lease)
	// It was begun, and no process may ever have its projections again.
	for _, id := range []int64{waiting.ID, behind.ID} {
		claim(map[string]string{"history": "v3"})
		got := f.MustRun(id)
		must.Hold(t, got.Status == replay.RunInterrupted && got.Error == "the projection files have changed since it began; start a new run", "run is %+v", got)
	}

	// A run waits only for so long.
	run := f.StartRun(enginetest.Everything)
	f.Clock.Advance(10 * time.Minute)
	_, ok = claim(map[string]string{"roster": "v9"})
	must.Need(t, !ok, "it is claimed by another version")
	got := f.MustRun(run.ID)
	must.Hold(t, got.Status == replay.RunInterrupted && strings.Contains(got.Error, "start a new run"), "run is %+v", got)
}

func TestRunScope_walksWhatHasNoResultYet(t *testing.T) {
	f := own(t)
	f.AppendN("a b c d e", 2)
	for _, order := range []replay.RunRequest{enginetest.Everything, enginetest.Rebuild("e", "a", "b", "d", "c")} {
		run := f.StartRun(order)
		l := f.ClaimRun(one)
		f.ReportRun(l, 0, result("b", replay.OutcomeMatch, 2), result("d", replay.OutcomeFailed, 2))
		var got []string
		after := ""
		for range 5 {
			scope := must.Get(f.Runs.Scope(f.Ctx, l, after, 2)).Or(t)
			if len(scope) == 0 {
				break
			}
			for _, c := range scope {
				must.Hold(t, c.HighWaterSeq == 2 && c.AppliedSeq == 0, "campaign is %+v", c)
				got = append(got, c.CampaignID)
			}
			after = scope[len(scope)-1].CampaignID
		}
		must.Equal(t, got, []string{"a", "c", "e"}, "scope")
		f.FinishRun(l, replay.RunInterrupted, "enough")
		must.Equal(t, f.MustRun(run.ID).Status, replay.RunInterrupted)
	}
}

func TestLocks_ofRunsAreTakenInOneOrderToo(t *testing.T) {
	f, ids := own(t), []string{"a", "b", "c"}
	for _, id := range ids {
		f.AppendN(id, 1)
	}
	orders := []replay.RunRequest{enginetest.Everything, enginetest.Rebuild("a", "b"), enginetest.Rebuild("c"), enginetest.Rebuild("b", "c")}
	unless := func(err error, kinds ...error) error {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return nil
			}
		}
		return err
	}
	newest := func(s *fixture) int64 {
		page, err := s.Runs.List(s.Ctx, replay.RunFilter{Limit: 1})
		if err != nil || len(page.Items) == 0 {
			return 1
		}
		return page.Items[0].ID
	}
	storetest.Everybody(t, []*fixture{f, f.Beside()}, 60, map[string]func(*fixture, int) error{
		"start": func(s *fixture, i int) error {
			return unless(storetest.No(s.Runs.Start(s.Ctx, ana(""), orders[i%len(orders)], enginetest.LoadedRuns)), event.ErrConflict)
		},
		"cancel": func(s *fixture, i int) error {
			return unless(storetest.No(s.Runs.Cancel(s.Ctx, ana(""), newest(s))), event.ErrConflict, event.ErrNotFound)
		},
		"resume": func(s *fixture, i int) error {
			return unless(storetest.No(s.Runs.Resume(s.Ctx, ana(""), max(1, newest(s)-int64(i%3)), enginetest.LoadedRuns)), event.ErrConflict, event.ErrNotFound)
		},
		"work": func(s *fixture, i int) error {
			l, ok, err := s.Runs.Claim(s.Ctx, one, enginetest.VersionsRuns, lease)
			if err != nil || !ok {
				return err
			}
			var results []replay.RunResult
			for _, id := range storetest.Shuffled(ids) {
				r := result(id, replay.OutcomeMatch, 1)
				for _, p := range storetest.Shuffled([]string{"roster", "history"}) {
					r.Projections = append(r.Projections, replay.ProjectionResult{Projection: p, Verdict: campaign.VerdictMatch})
				}
				results = append(results, r)
			}
			if _, err = s.Runs.Report(s.Ctx, l, runs.Progress{Results: results, Lease: lease}); err == nil {
				_, err = s.Runs.Finish(s.Ctx, l, []replay.RunStatus{replay.RunCompleted, replay.RunFailed, replay.RunInterrupted}[i%3], "so it goes")
			}
			return unless(err, event.ErrLeaseLost)
		},
		"note": func(s *fixture, _ int) error {
			var notes []campaign.Verification
			for _, id := range storetest.Shuffled(ids) {
				notes = append(notes, campaign.Verification{CampaignID: id, Projection: "roster", Verdict: campaign.VerdictDrift})
			}
			return s.RecordVerifications(s.Ctx, notes)
		},
		"end leases": func(s *fixture, _ int) error { return s.EndLeases(s.Ctx, one.ID) },
	})
	active := f.Number(`select count(*) from run_scopes where active = 1 and run_id in (select id from runs where finished_at is not null)`)
	must.Equal(t, active, 0, "scopes of runs that have ended keep others out")
}

// kinds are all actions on runs and projections.
var kinds = storetest.Kinds[*fixture]{Open: open, Base: func(f *fixture) *storetest.Fixture { return f.Fixture }, Beside: func(f *fixture) *fixture { return f.Beside() }, All: []storetest.Kind[*fixture]{
	{Action: "run_start", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.Runs.Start(f.Ctx, o, enginetest.Rebuild("a"), enginetest.LoadedRuns)
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from run_scopes`) == 0 }},
	{Action: "run_cancel", Scene: queuedRun,
		Do:     func(f *fixture, o operator.Command) (any, error) { return f.Runs.Cancel(f.Ctx, o, 1) },
		Undone: func(f *fixture) bool { return f.MustRun(1).Status == replay.RunQueued }},
	{Action: "run_resume", Scene: interruptedRun,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.Runs.Resume(f.Ctx, o, 1, enginetest.LoadedRuns)
		},
		Undone: func(f *fixture) bool { return f.MustRun(1).Status == replay.RunInterrupted }},
	{Action: "rehearse", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o operator.Command) (any, error) {
			set, err := projection.Load(storetest.DialectOf(f.Pair), enginetest.Define(f.TB, enginetest.Accounts)...)
			if err != nil {
				return nil, err
			}
			return f.Runs.Rehearse(f.Ctx, o, replay.RehearsalRequest{Files: changedTo(fixed)}, set)
		},
		Undone: func(f *fixture) bool { return f.Number(`select count(*) from run_rehearsals`) == 0 }},
	// A pause is written to the projections before its record is.
	{Action: "projection_pause", Scene: (*fixture).DeadHead,
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.Runs.PauseProjection(f.Ctx, o, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)
		}},
	{Action: "projection_resume", Scene: func(f *fixture) {
		f.DeadHead()
		must.Get(f.Runs.PauseProjection(f.Ctx, storetest.Ben, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)).Or(f.TB)
	},
		Do: func(f *fixture, o operator.Command) (any, error) {
			return f.Runs.ResumeProjection(f.Ctx, o, enginetest.LoadedRuns[0].Name, "a", enginetest.LoadedRuns)
		}},
}}

func queuedRun(f *fixture) {
	f.DeadHead()
	must.Get(f.Runs.Start(f.Ctx, storetest.Ben, enginetest.Rebuild("a"), enginetest.LoadedRuns)).Or(f.TB)
}

func interruptedRun(f *fixture) {
	queuedRun(f)
	f.FinishRun(f.ClaimRun(one), replay.RunInterrupted, "its process is gone")
}

func TestActions_keepToTheRulesOfAllActions(t *testing.T) {
	t.Parallel()
	kinds.KeepRules(t)
}

func TestActions_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a operator.Action) bool {
		return a == operator.ActionRehearse || strings.HasPrefix(string(a), "run_") || strings.HasPrefix(string(a), "projection_")
	})
}

// shapes has a column for each way in which a setting of the session could change what an event becomes.
const shapes = `-- projection: shapes
-- tables: shapes
-- schema
create table shapes (campaign_id text not null primary key, at timestamptz, local timestamp, day date, abbreviated timestamptz, span interval, ratio double precision,
  raw bytea, cash text, said text, at_said text, day_said text, span_said text, ratio_said text, raw_said text, month text, number text,
  compared text, escaped bigint, quoted text, listed text, searched text, node text, content text);
-- on: shaped
insert into shapes values (:campaign_id, cast(:payload.at as timestamptz), cast(cast(:payload.at as timestamptz) as timestamp), cast(:payload.day as date),
  cast(:payload.abbreviated as timestamptz), cast(:payload.span as interval), cast(:payload.ratio as double precision), cast(:payload.raw as bytea),
  cast(cast(1234.5 as money) as text), to_char(1234.5, 'L9G999D99'), cast(cast(:payload.at as timestamptz) as text), cast(cast(:payload.day as date) as text),
  cast(cast(:payload.span as interval) as text), cast(cast(:payload.ratio as double precision) / 3 as text), cast(cast(:payload.raw as bytea) as text),
  to_char(cast(:payload.at as timestamptz), 'TMMonth HH24 TZ'), to_char(-1234.5, '999G999D99PR'),
  case when cast(:payload.missing as text) = null then 'null' else 'unknown' end, length('a\\b'), quote_ident('plain'), cast(cast('{null,1}' as text[]) as text) || coalesce((cast('{null}' as text[]))[1], ' absent'),
  cast(to_tsvector('the foxes were running') as text), cast(xmlelement(name x, cast('raw' as bytea)) as text), cast(cast('<a/><b/>' as xml) as text));
update shapes set day = day + interval '1 day' where campaign_id = :campaign_id and at > '2026-03-04 00:00' and local > '04.03.2026' is not null;
`

const shaped = `{"at":"2026-03-04 23:30:07","day":"03/04/2026","abbreviated":"2026-03-04 05:06:07 EST","span":"-1 2:03:04","ratio":0.1,"raw":"a\\001z"}`

// oddSettings are settings that a role, a database or a server may have for others.
var oddSettings = []string{
	`timezone = 'Europe/Berlin'`, `timezone = 'Asia/Kathmandu'`, `timezone = 'EST5EDT'`, `timezone_abbreviations = 'Australia'`,
	`datestyle = 'ISO, DMY'`, `datestyle = 'German'`, `datestyle = 'SQL, DMY'`, `datestyle = 'Postgres, YMD'`,
	`intervalstyle = 'iso_8601'`, `intervalstyle = 'sql_standard'`, `intervalstyle = 'postgres_verbose'`,
	`extra_float_digits = -15`, `extra_float_digits = 0`, `extra_float_digits = 3`, `bytea_output = 'escape'`, `array_nulls = off`,
	`standard_conforming_strings = off`, `backslash_quote = off`, `escape_string_warning = off`, `transform_null_equals = on`, `quote_all_identifiers = on`,
	`xmlbinary = 'hex'`, `xmloption = 'document'`, `default_text_search_config = 'pg_catalog.german'`, `gin_fuzzy_search_limit = 1`,
	`lc_monetary = 'C.UTF-8'`, `lc_numeric = 'C.UTF-8'`, `lc_time = 'C.UTF-8'`, `client_encoding = 'LATIN1'`, `client_min_messages = 'error'`,
	`search_path = 'pg_catalog'`, `session_replication_role = 'replica'`, `row_security = off`, `check_function_bodies = off`, `synchronize_seqscans = on`,
	`default_transaction_isolation = 'serializable'`, `default_transaction_isolation = 'read uncommitted'`, `default_transaction_deferrable = on`,
	`statement_timeout = '20s'`, `lock_timeout = '1ms'`,
	`synchronous_commit = 'off'`, `plan_cache_mode = 'force_generic_plan'`, `enable_indexscan = off`, `work_mem = '64kB'`,
}

// TestPostgresRows_dependOnTheirEventsAlone changes a setting for the role, for the database or for the server between an append and what follows.
func TestPostgresRows_dependOnTheirEventsAlone(t *testing.T) {
	t.Parallel()
	server := must.Get(pgtest.Start()).Or(t)
	t.Cleanup(func() { server.Stop() })
	must.OK(t, server.CreateDatabase(t.Context(), "odd"))
	address := server.URL("odd")
	// The administrator's session keeps the settings that it has.
	admin := storetest.Connect(t, address)
	storetest.Run(t, admin, `set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set client_encoding = 'UTF8'; set standard_conforming_strings = on; set statement_timeout = 0;
set search_path = projections; set default_transaction_isolation = 'read committed'`)
	pair := dbtest.Pair{Journal: dbtest.InSchema(address, "journal"), Projections: dbtest.InSchema(address, "projections")}
	first := enginetest.OpenPair(t, pair, enginetest.Define(t, shapes))
	first.Feed(enginetest.EventOf("first", "shaped", shaped))
	mustMatch(t, "before", first)
	published := publishedFirst(t, first)
	levels := []string{`alter role postgres in database odd`, `alter database odd`, `alter role postgres`, `alter system`}
	each := size.Of(6, 3, 1) // settings of a level in a round
	rounds := (len(oddSettings) + each*len(levels) - 1) / (each * len(levels))
	for round := range rounds {
		var set, reset []string
		for at := round; at < len(oddSettings); at += rounds {
			level := levels[at/rounds%len(levels)]
			set, reset = append(set, level+` set `+oddSettings[at]), append(reset, level+` reset `+strings.Fields(oddSettings[at])[0])
		}
		campaign := fmt.Sprintf("c%d", round)
		first.MustAppend(enginetest.EventOf(campaign, "shaped", shaped))
		storetest.Run(t, admin, append(set, `select pg_reload_conf()`)...)
		b := first.Beside()
		b.Feed(enginetest.EventOf(campaign+"b", "shaped", shaped))
		what := strings.Join(set, "; ")
		mustMatch(t, what, b)
		must.Equal(t, publishedFirst(t, b), published, what, "publishes")
		rebuild := b.RunToEnd(enginetest.Rebuild(campaign, campaign+"b"))
		must.Hold(t, rebuild.Status == replay.RunCompleted && rebuild.Counts.Matched == 2, "%s: rebuilt as %s with %+v", what, rebuild.Status, rebuild.Counts)
		must.OK(t, b.Store.Close())
		storetest.Run(t, admin, append(reset, `select pg_reload_conf()`)...)
	}
	mustMatch(t, "in the end", first)
	// Behind a pooler no session can be pinned. What is last of each name is set.
	for _, setting := range oddSettings {
		storetest.Run(t, admin, `alter role postgres set `+setting)
	}
	pooled := server.Pooler(t)(address)
	behind := enginetest.OpenPair(t, dbtest.Pair{Journal: dbtest.InSchema(pooled, "journal"), Projections: pair.Projections}, first.Sources)
	behind.Feed(enginetest.EventOf("pooled", "shaped", shaped))
	storetest.Run(t, admin, `alter role postgres reset all`)
	var different, all int
	row := admin.QueryRow(t.Context(), `select count(distinct (to_jsonb(s) - 'campaign_id')), count(*) from projections.shapes as s`)
	err := row.Scan(&different, &all)
	must.Hold(t, err == nil && different == 1 && all == 2+2*rounds, "%d different rows of %d (%v), want equal rows of %d events", different, all, err, 2+2*rounds)
	first.Sound()
}

func publishedFirst(t *testing.T, b *enginetest.Engine) string {
	events, err := b.EventsFrom(t.Context(), 0, 1)
	text, _ := json.Marshal(events)
	must.Need(t, err == nil && len(events) == 1, "read %s, %v", text, err)
	return string(text)
}

func mustMatch(t *testing.T, what string, b *enginetest.Engine) {
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Status == replay.RunCompleted && run.Counts.Drifted == 0 && run.Counts.Failed == 0, "%s: verified as %s with %+v", what, run.Status, run.Counts)
}
