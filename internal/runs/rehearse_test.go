package runs_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// fixed is Accounts, but a balance never sinks below 0.
var fixed = strings.ReplaceAll(enginetest.Accounts, "balance - :payload.amount!", "case when balance < cast(:payload.amount! as bigint) then 0 else balance - cast(:payload.amount! as bigint) end")

// gate blocks a campaign at each event of type noted; openedGate lets them pass.
const gate = `-- projection: gate
-- tables: gate

-- schema
create table gate (campaign_id text primary key, n bigint not null);

-- on: noted
insert into gate (campaign_id, n) values (:campaign_id, :payload.n!);
`

var openedGate = strings.ReplaceAll(gate, ":payload.n!", "1")

func mustRehearse(tb testing.TB, b *enginetest.Engine, order replay.RehearsalRequest) replay.FixRehearsal {
	run := must.Get(b.Runs.Rehearse(context.Background(), enginetest.Operator, order, b.Set)).Or(tb)
	b.StepRuns()
	return mustReadRehearsal(tb, b, run.ID)
}

func mustReadRehearsal(tb testing.TB, b *enginetest.Engine, id int64) replay.FixRehearsal {
	return must.Get(b.Runs.Rehearsal(context.Background(), id, b.Infos)).Or(tb)
}

func changedTo(texts ...string) (files []campaign.RehearsalFile) {
	for i, text := range texts {
		files = append(files, campaign.RehearsalFile{Name: fmt.Sprintf("changed%d.sql", i), Text: text})
	}
	return files
}

// blockedByOverdrafts has three campaigns that an overdraft blocks, in c by one that no fix of the overdraft helps at event 4, and a healthy one.
func blockedByOverdrafts(t *testing.T) *enginetest.Engine {
	b := enginetest.Own(t, []string{enginetest.Accounts, enginetest.Trail}, enginetest.MaxAttempts(1), enginetest.At(storetest.NewClock()))
	for _, id := range []string{"a", "b", "c"} {
		b.MustAppend(enginetest.Opened(id, 10), enginetest.Noted(id), enginetest.Spent(id, 11))
	}
	b.MustAppend(enginetest.Notes("a", 30)...)
	b.MustAppend(enginetest.Opened("c", 5), enginetest.Noted("c"))
	b.MustAppend(enginetest.Opened("healthy", 10), enginetest.Spent("healthy", 3))
	b.UntilStuck()
	return b
}

func TestRehearse_saysWhichBlockedCampaignsWouldPassAndWhatElseItChanges(t *testing.T) {
	b := blockedByOverdrafts(t)
	before := b.Dump("runs", "run_rehearsals", "run_results", "run_scopes", "run_log", "audit_log")
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(fixed), Behind: 20})
	must.Need(t, d.Run.Status == replay.RunCompleted, "the run is %s: %s", d.Run.Status, d.Run.Error)
	mustCount(t, d, rehearsedCounts{Passes: 2, FailsDifferently: 1, SameRows: 1})
	must.Equal(t, d.Answer, "2 of 3 blocked campaigns would pass; 1 fails differently", "answer")
	a := b.RunResult(d.Run, "a")
	must.Equal(t, *a.Rehearsed, (replay.Rehearsed{Head: 3, Applied: 21, Left: 10}), "a was rehearsed")
	c := a.Projections[0].Comparison
	must.Hold(t, c != nil && c.Changed == 1 && len(c.Samples) == 1, "the accounts of a would change by %+v, want one changed row", c)
	if c := b.RunResult(d.Run, "c"); c.Rehearsed.FailedSeq != 4 || !strings.Contains(c.Error, "00.sql:") {
		t.Errorf("c fails at event %d with %q, want event 4 with file and line", c.Rehearsed.FailedSeq, c.Error)
	}
	must.Equal(t, b.Dump("runs", "run_rehearsals", "run_results", "run_scopes", "run_log", "audit_log"), before, "anything live")

	still := strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "set spent = spent + 2")
	d = mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(still)})
	mustCount(t, d, rehearsedCounts{FailsSame: 3, OtherRows: 1})
	must.Hold(t, !d.Passed() && !d.Loaded, "it passed, or its files are loaded")
	must.Equal(t, d.Effects, "1 of 1 healthy campaign would get other rows than they have now: rebuild what differs after loading if that is meant; if it is not, the changed files are wrong")

	d = mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(strings.ReplaceAll(enginetest.Accounts, "check (balance >= 0)", "")), Campaigns: []string{"a"}})
	mustCount(t, d, rehearsedCounts{Passes: 1, SameRows: 1})
	must.Hold(t, d.Versions[0].OtherSchema, "the schema counts as unchanged")
}

// It is refused what loading is, blocks no other run, and tells of a campaign that moved.
func TestRehearse_isARunOfItsOwn(t *testing.T) {
	b := blockedByOverdrafts(t)
	for name, text := range map[string]string{
		"a statement on another's table": strings.ReplaceAll(enginetest.Accounts, "update accounts set spent", "update trail set spent"),
		"a drop":                         enginetest.Accounts + "drop table accounts;\n",
		"attach":                         enginetest.Accounts + "attach 'other.db' as other;\n",
		"an unknown column":              strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "set owed = 1"),
		"an unknown projection":          strings.ReplaceAll(enginetest.Accounts, "projection: accounts", "projection: others"),
		"too much":                       enginetest.Accounts + strings.Repeat("-- more\n", replay.MaxRehearsalFiles/8),
	} {
		_, err := b.Runs.Rehearse(context.Background(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(text)}, b.Set)
		must.Hold(t, errors.Is(err, event.ErrInvalid), "%s is admitted or refused as %v", name, err)
	}
	run := must.Get(b.Runs.Rehearse(context.Background(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(fixed)}, b.Set)).Or(t)
	b.StartRun(enginetest.Everything)
	must.Equal(t, must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, run.ID)).Or(t).Status, replay.RunCancelled)
	refused(t, storetest.No(b.Runs.Start(t.Context(), enginetest.Operator, replay.RunRequest{Kind: replay.RunRehearse, All: true}, b.Infos)), event.ErrInvalid)
	run = must.Get(b.Runs.Rehearse(context.Background(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(fixed)}, b.Set)).Or(t)
	b.MustSkip("a", 3)
	b.StepRuns()
	d := mustReadRehearsal(t, b, run.ID)
	result := b.RunResult(d.Run, "a")
	must.Hold(t, result.Outcome == replay.OutcomeNotCompared && strings.Contains(result.Error, "moved"), "the result is %s: %s", result.Outcome, result.Error)
	const common = `with recursive n (i) as (select 1 union all select i + 1 from n where i < 600) `
	for _, statement := range []string{`insert into campaigns (campaign_id, high_water_seq, head_seq, head_status, dead, created_at, updated_at)
` + common + `select 'aa-' || i, 1, 1, 'dead', 1, 1, 1 from n`, `insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, last_error, fingerprint, enqueued_at, updated_at)
` + common + `select 'aa-' || i, 1, 'a', 'dead', 1, i, 'common', 'common', 1, 1 from n`} {
		must.Get(b.JournalDB.Exec(statement)).Or(t)
	}
	run, err := b.Runs.Rehearse(t.Context(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(fixed)}, b.Set)
	must.Hold(t, err == nil && slices.Contains(run.CampaignIDs, "b") && slices.Contains(run.CampaignIDs, "c") && len(run.CampaignIDs) >= replay.MaxRehearsed, "it takes %d campaigns (%v): %v", len(run.CampaignIDs), err, run.CampaignIDs)
}

func TestRehearse_doesNotVouchForKeysAcrossCampaigns(t *testing.T) {
	clock := storetest.NewClock()
	names := `-- projection: names
-- tables: names

-- schema
create table names (campaign_id text not null, seq bigint not null, name text not null, n bigint not null check (n < 5), primary key (campaign_id, seq), unique (name));

-- on: named
insert into names (campaign_id, seq, name, n) values (:campaign_id, :seq, :payload.name!, :payload.n!);
`
	b := enginetest.Own(t, []string{names}, enginetest.MaxAttempts(1), enginetest.At(clock))
	b.MustAppend(enginetest.EventOf("a", "named", `{"name":"x","n":1}`), enginetest.EventOf("b", "named", `{"name":"x","n":9}`))
	b.UntilStuck()
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(strings.ReplaceAll(names, ":payload.n!", "4"))})
	mustCount(t, d, rehearsedCounts{NotRehearsed: 1, OtherRows: 1})
}

// A row's new rank is the old one of the next row, so that the last row must be visited first.
func TestRehearse_doesNotVouchForTheOrderOfRows(t *testing.T) {
	t.Parallel()
	ranks := `-- projection: ranks
-- tables: ranks

-- schema
create table ranks (campaign_id text not null, id bigint not null, n bigint not null, primary key (campaign_id, id), unique (campaign_id, n));

-- on: ranked
insert into ranks (campaign_id, id, n) values (:campaign_id, :seq, :payload.n!);

-- on: moved
update ranks set n = null where campaign_id = :campaign_id;
`
	for name, c := range map[string]struct {
		change string
		vague  bool // whatever the order of the rows, or on PostgreSQL
	}{
		"to the next":      {strings.ReplaceAll(ranks, "n = null", "n = n + 1"), true},
		"far away":         {strings.ReplaceAll(ranks, "n = null", "n = n + 100"), false},
		"of one row":       {strings.ReplaceAll(ranks, "n = null where", "n = n + 1 where id = 1 and"), false},
		"without the rule": {strings.ReplaceAll(strings.ReplaceAll(ranks, "n = null", "n = n + 1"), ", unique (campaign_id, n)", ""), false},
	} {
		b := enginetest.Open(t, enginetest.Define(t, ranks), enginetest.MaxAttempts(1), enginetest.At(storetest.NewClock()))
		for _, n := range []int{3, 2, 1} {
			b.MustAppend(enginetest.EventOf("a", "ranked", fmt.Sprintf(`{"n":%d}`, n)))
		}
		b.MustAppend(enginetest.EventOf("a", "moved", `{}`))
		b.UntilStuck()
		d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(c.change)})
		want := replay.OutcomeReplayed
		if c.vague && b.OnPostgres() {
			want = replay.OutcomeNotCompared
		}
		result := b.RunResult(d.Run, "a")
		must.Hold(t, result.Outcome == want && (want != replay.OutcomeNotCompared || strings.Contains(result.Error, "event 4 updates several rows of ranks at once (00.sql:11)")), "%s: the result is %s (%s), want %s", name, result.Outcome, result.Error, want)
	}
}

// Events appended and applied while a rehearsal works on a campaign are not part of its answer, and do not make it wrong.
func TestRehearse_holdsForWhatItLookedAt(t *testing.T) {
	b := blockedByOverdrafts(t)
	run := must.Get(b.Runs.Rehearse(context.Background(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(fixed), Campaigns: []string{"b"}, Behind: 20}, b.Set)).Or(t)
	b.MustAppend(enginetest.Noted("b")) // before it is looked at
	between, w := 0, *b.RunWorker
	w.Applying = func(time.Time) bool { // is called after each chunk of a replay
		if between++; between == 1 {
			b.MustAppend(enginetest.Opened("b", 5)) // a second opening fails
		}
		b.Feed(enginetest.Spent("healthy", 1))
		return false
	}
	must.Get(w.Step(context.Background())).Or(t)
	d, want := mustReadRehearsal(t, b, run.ID), (rehearsedCounts{Passes: 1, SameRows: 1})
	must.Need(t, countsOf(d) == want && between >= 3, "counts %+v, want %+v, with events appended %d times\n%+v", countsOf(d), want, between, d.Groups)
	result := b.RunResult(d.Run, "b")
	if want := (replay.Rehearsed{Head: 3, Applied: 2}); !reflect.DeepEqual(*result.Rehearsed, want) || result.Seq != 4 {
		t.Errorf("b was rehearsed %+v up to event %d, want %+v up to event 4", *result.Rehearsed, result.Seq, want)
	}
	healthy := b.RunResult(d.Run, "healthy")
	must.Hold(t, healthy.Seq >= 3 && healthy.Events >= 2*3 && b.MustCampaign("healthy").AppliedSeq >= healthy.Seq, "healthy was compared at event %d with %d events", healthy.Seq, healthy.Events)
	loaded := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, fixed, enginetest.Trail), enginetest.MaxAttempts(1))
	loaded.MustRequeue("b", 3)
	loaded.Drain()
	must.Equal(t, loaded.MustCampaign("b").AppliedSeq, result.Seq, "with the fix loaded b is at event")
}

// Healthy campaigns that the loaded files cannot replay are compared with their live rows, so that a
// fix which guesses wrongly does not pass for one that changes nothing.
func TestRehearse_comparesWithLiveRowsWhereTheLoadedFilesFail(t *testing.T) {
	good := enginetest.Own(t, []string{enginetest.Accounts}, enginetest.MaxAttempts(1))
	good.Feed(enginetest.Opened("blocked", 10), enginetest.Spent("blocked", 3), enginetest.Opened("healthy", 10), enginetest.Spent("healthy", 3))
	broken := enginetest.OpenPair(t, good.Pair, enginetest.Define(t, strings.ReplaceAll(enginetest.Accounts, ":payload.amount!", ":payload.price!")), enginetest.MaxAttempts(1))
	broken.Feed(enginetest.Spent("blocked", 2))
	for text, want := range map[string]struct {
		counts  rehearsedCounts
		effects string
	}{
		"cast(coalesce(:payload.price, :payload.amount!) as bigint)": {rehearsedCounts{Passes: 1, SameRows: 1}, "1 healthy campaign compared: the changed files make the same rows"},
		"cast(coalesce(:payload.price, '0') as bigint)":              {rehearsedCounts{Passes: 1, OtherRows: 1}, "1 of 1 healthy campaign would get other rows than they have now: rebuild what differs after loading if that is meant; if it is not, the changed files are wrong"},
		"(cast(coalesce(:payload.price, '3') as bigint) + 20)":       {rehearsedCounts{FailsDifferently: 1, Breaks: 1}, "1 of 1 healthy campaign cannot be rebuilt: an event that is applied fails with the changed files"},
	} {
		d := mustRehearse(t, broken, replay.RehearsalRequest{Files: changedTo(strings.ReplaceAll(enginetest.Accounts, ":payload.amount!", text))})
		must.Hold(t, countsOf(d) == want.counts && d.Effects == want.effects, "%s: %+v, %q, want %+v, %q\n%+v", text, countsOf(d), d.Effects, want.counts, want.effects, d.Groups)
	}
}

func TestRehearse_doesNotBlameTheChangeForWhatTheLoadedFilesRefuse(t *testing.T) {
	good := enginetest.Own(t, []string{enginetest.Accounts, gate}, enginetest.MaxAttempts(1))
	good.Feed(enginetest.Opened("healthy", 10), enginetest.Spent("healthy", 3), enginetest.Noted("blocked"))
	broken := enginetest.OpenPair(t, good.Pair, enginetest.Define(t, strings.ReplaceAll(enginetest.Accounts, ":payload.amount!", ":payload.price!"), gate), enginetest.MaxAttempts(1))
	d := mustRehearse(t, broken, replay.RehearsalRequest{Files: changedTo(openedGate)})
	mustCount(t, d, rehearsedCounts{Passes: 1, NotCompared: 1})
	r := broken.RunResult(d.Run, "healthy")
	must.Hold(t, strings.HasPrefix(r.Error, "event 2 fails alike with the loaded files: projection accounts ("), "it says %q", r.Error)
}

// A campaign in which a projection is paused or quarantined is compared as far as the projection got; what it lacks does not count as the same rows.
func TestRehearse_claimsNoSamenessForEventsThatAProjectionLacks(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.LenientAccounts, gate}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Opened("b", 10), enginetest.Opened("healthy", 10), enginetest.Spent("a", 11), enginetest.Spent("a", 1), enginetest.Noted("blocked"))
	b.PauseProjection("accounts", "b").Feed(enginetest.Spent("b", 11))
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(openedGate)})
	mustCount(t, d, rehearsedCounts{Passes: 1, SameRows: 1, NotCompared: 2})
	must.Equal(t, d.Effects, "1 healthy campaign compared: the changed files make the same rows; 2 healthy campaigns could not be fully compared", "effects")
	for id, state := range map[string]string{"a": campaign.CursorQuarantined, "b": campaign.CursorPaused} {
		r := b.RunResult(d.Run, id)
		left := r.NotCompared()
		must.Hold(t, len(left) == 1 && left[0].FromSeq == 2 && left[0].State == state, "%s: not compared are %+v: %s", id, left, r.Error)
	}
}

// After a deploy that is wrong without an error, the former file is rehearsed on healthy campaigns.
func TestRehearse_comparesHealthyCampaignsIfNoneIsBlocked(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts, enginetest.Trail})
	files := changedTo(strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "set spent = spent + 2"))
	_, err := b.Runs.Rehearse(t.Context(), enginetest.Operator, replay.RehearsalRequest{Files: files}, b.Set)
	must.Hold(t, errors.Is(err, event.ErrConflict) && strings.Contains(err.Error(), "none has applied events"), "of an empty journal: %v", err)
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 3), enginetest.Opened("b", 10))
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: files})
	want := (rehearsedCounts{SameRows: 1, OtherRows: 1})
	must.Hold(t, countsOf(d) == want && !d.Passed() && !d.Unchanged(), "counts %+v, want %+v; passed: %v, unchanged: %v", countsOf(d), want, d.Passed(), d.Unchanged())
	must.Equal(t, d.Answer, "No campaign was blocked, failing or quarantined, so healthy ones alone are compared", "answer")
	c := b.RunResult(d.Run, "a").Projections[0].Comparison
	must.Hold(t, c != nil && c.Changed == 1 && len(c.Samples) == 1, "the accounts of a would change by %+v, want one changed row", c)
	d = mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(enginetest.Accounts + "-- no other rows\n")})
	must.Hold(t, d.Unchanged() && !d.Passed(), "with the same rows: unchanged: %v, passed: %v", d.Unchanged(), d.Passed())
	_, err = b.Runs.Rehearse(t.Context(), enginetest.Operator, replay.RehearsalRequest{Files: files, Fingerprint: "gone"}, b.Set)
	must.Hold(t, errors.Is(err, event.ErrConflict), "of what is not blocked: %v", err)
	mustCount(t, mustRehearse(t, b, replay.RehearsalRequest{Files: files, Campaigns: []string{"a"}}), want)

	// All campaigns are compared by a verify, with files or with a kept version, that concludes nothing of the loaded ones.
	must.OK(t, b.Store.Loaded(t.Context(), campaign.InstanceState{ID: "before"}, []campaign.Definition{{Projection: "accounts", Version: "abc1", File: files[0]}}))
	kept := b.StartRun(replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"accounts"}, WithVersion: "abc"})
	b.StepRuns()
	given := must.Get(b.Runs.Rehearse(t.Context(), enginetest.Operator, replay.RehearsalRequest{Files: files, All: true}, b.Set)).Or(t)
	b.StepRuns()
	for _, id := range []int64{kept.ID, given.ID} {
		must.Equal(t, must.Get(b.Runs.Get(t.Context(), id)).Or(t).Counts, replay.RunCounts{Matched: 1, Drifted: 1})
	}
	must.Equal(t, kept.With, map[string]string{"accounts": "abc1"})
	must.Hold(t, len(must.Get(b.Store.Verifications(t.Context(), "a")).Or(t)) == 0, "the rows are verified")

	// That their live rows are others still is said, too.
	b.ExecProjections("update accounts set balance = 5 where campaign_id = 'a'")
	d = mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(strings.ReplaceAll(enginetest.Accounts, "set spent = spent + 1", "set spent = spent + 2"))})
	of := func(id string) string { r := b.RunResult(d.Run, id); return r.RehearsedText() }
	must.Equal(t, d.Effects, "1 of 2 healthy campaigns would get other rows than they have now: rebuild what differs after loading if that is meant; if it is not, the changed files are wrong; the live rows of 1 are not those that the loaded files make: verify")
	must.Equal(t, of("a"), "The changed files make other rows of its journal than it has now. Its live rows in accounts are not those that the loaded files make: verify it.")
	must.Hold(t, !strings.Contains(of("b"), "live"), "b: %s", of("b"))
}

// needing is a projection that wants what the payloads of notes do not have.
const needing = `-- projection: needs
-- tables: needed
-- on-failure: block

-- schema
create table needed (campaign_id text not null, seq bigint not null, what text, primary key (campaign_id, seq));

-- on: noted
insert into needed (campaign_id, seq, what) values (:campaign_id, :seq, :payload.missing!);
`

// A campaign that one projection blocks and in which another is quarantined passes only where both would.
func TestRehearse_triesWhatIsQuarantinedInABlockedCampaign(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.LenientAccounts, needing}, enginetest.MaxAttempts(1))
	for _, id := range []string{"a", "b"} {
		b.MustAppend(enginetest.Opened(id, 10), enginetest.Spent(id, 11), enginetest.Noted(id))
	}
	b.Feed(enginetest.Opened("c", 10), enginetest.Noted("c"))
	b.MustHaveCursors("a accounts 1 quarantined", "b accounts 1 quarantined")
	files := func(accounts string) []campaign.RehearsalFile {
		return append(changedTo(accounts), campaign.RehearsalFile{Name: "needs.sql", Text: strings.Replace(needing, ":payload.missing!", "'note'", 1)})
	}
	noFix := strings.ReplaceAll(enginetest.LenientAccounts, "set spent = spent + 1", "set spent = spent + 2")
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: files(noFix)})
	mustCount(t, d, rehearsedCounts{Passes: 1, FailsSame: 2})
	at := b.RunResult(d.Run, "a").Rehearsed
	must.Hold(t, at.Quarantined == "accounts" && at.Head == 2, "a fails as %+v", at)
	d = mustRehearse(t, b, replay.RehearsalRequest{Files: files(strings.ReplaceAll(fixed, "on-failure: block", "on-failure: quarantine"))})
	mustCount(t, d, rehearsedCounts{Passes: 3})
	must.Equal(t, len(must.Get(b.Operations.PassedHeads(t.Context(), d.Run.ID)).Or(t)), 3, "an operation could requeue")
	result := b.RunResult(d.Run, "a")
	text := result.RehearsedText()
	must.Hold(t, strings.HasSuffix(text, " Projection accounts would apply event 2, at which it is quarantined.") && len(result.NotCompared()) <= 0, "of a it says %q, and %v is not compared", text, result.NotCompared())
	d = mustRehearse(t, b, replay.RehearsalRequest{Files: files(noFix), Fingerprint: b.MustRow("c", 2).Row.Fingerprint})
	must.Hold(t, countsOf(d).Passes == 1, "of the error that blocks all three %d would pass, want one: %+v", countsOf(d).Passes, d.Groups)
}

func TestRehearse_triesEveryQuarantinedProjection(t *testing.T) {
	gone := strings.Replace(needing, "on-failure: block", "on-failure: quarantine", 1)
	b := enginetest.Own(t, []string{enginetest.LenientAccounts, gone}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 11), enginetest.Noted("a"))
	b.MustHaveCursors("a accounts 1 quarantined", "a needs 2 quarantined")
	files := append(changedTo(strings.ReplaceAll(fixed, "on-failure: block", "on-failure: quarantine")), campaign.RehearsalFile{Name: "needs.sql", Text: strings.Replace(gone, ":payload.missing!", ":payload.absent!", 1)})
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: files})
	want := (rehearsedCounts{FailsDifferently: 1})
	must.Hold(t, countsOf(d) == want && b.RunResult(d.Run, "a").Rehearsed.Quarantined == "needs", "counts %+v, want %+v\n%+v", countsOf(d), want, d.Groups)
	files[1].Text = strings.Replace(gone, ":payload.missing!", "'note'", 1)
	must.Equal(t, countsOf(mustRehearse(t, b, replay.RehearsalRequest{Files: files})), rehearsedCounts{Passes: 1}, "counts")
}

func TestRehearse_triesWhatIsQuarantined(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.LenientAccounts, enginetest.Ledger}, enginetest.MaxAttempts(1))
	for _, id := range []string{"a", "b"} {
		b.MustAppend(enginetest.Opened(id, 10), enginetest.Spent(id, 1), enginetest.Spent(id, 11))
		b.MustAppend(enginetest.Notes(id, 30)...)
	}
	b.Feed(enginetest.Opened("b", 5)).MustHaveCursors("a accounts 2 quarantined", "b accounts 2 quarantined")
	before := b.Dump("runs", "run_rehearsals", "run_results", "run_scopes", "run_log", "audit_log")
	lenient := strings.ReplaceAll(fixed, "on-failure: block", "on-failure: quarantine")
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(lenient)})
	want := (rehearsedCounts{Passes: 1, FailsDifferently: 1})
	must.Hold(t, countsOf(d) == want && d.Quarantined == 2, "counts %+v with %d quarantined, want %+v\n%+v", countsOf(d), d.Quarantined, want, d.Groups)
	must.Equal(t, d.Answer, "1 of 2 quarantined campaigns would pass; 1 fails differently", "answer")
	a := b.RunResult(d.Run, "a")
	if want := (replay.Rehearsed{Head: 3, Applied: 31, Quarantined: "accounts"}); !reflect.DeepEqual(*a.Rehearsed, want) || a.Projections[0].Comparison.Changed != 1 {
		t.Errorf("a was rehearsed %+v with %+v, want %+v and one changed row", *a.Rehearsed, a.Projections, want)
	}
	must.Equal(t, b.RunResult(d.Run, "b").Rehearsed.FailedSeq, 34, "b fails at event")
	must.Equal(t, b.Dump("runs", "run_rehearsals", "run_results", "run_scopes", "run_log", "audit_log"), before, "anything live")
	tried, err := b.Operations.PassedHeads(t.Context(), d.Run.ID)
	must.Hold(t, err == nil && len(tried) == 0, "an operation could requeue %v (%v), which are applied", tried, err)

	noFix := changedTo(strings.ReplaceAll(enginetest.LenientAccounts, "set spent = spent + 1", "set spent = spent + 2"))
	must.Equal(t, countsOf(mustRehearse(t, b, replay.RehearsalRequest{Files: noFix, Campaigns: []string{"a"}})).FailsSame, 1, "counts of no fix")
	cause := storetest.Column[string](t, b.ProjectionsDB, "select fingerprint from failures where campaign_id = 'a'")[0]
	few := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(lenient), Fingerprint: cause, Behind: 5})
	must.Equal(t, *b.RunResult(few.Run, "a").Rehearsed, (replay.Rehearsed{Head: 3, Applied: 6, Left: 25, Quarantined: "accounts"}), "with 5 events behind a was rehearsed")
	_, err = b.Runs.Rehearse(t.Context(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(lenient), Fingerprint: "gone"}, b.Set)
	must.Hold(t, errors.Is(err, event.ErrConflict), "of an error that quarantines nothing: %v", err)

	loaded := enginetest.OpenPair(t, b.Pair, enginetest.Define(t, lenient, enginetest.Ledger), enginetest.MaxAttempts(1))
	passed := func(b *enginetest.Engine) map[string]replay.QuarantinePassed {
		return must.Get(b.Runs.QuarantinesPassed(t.Context(), b.Infos)).Or(t)
	}
	q := passed(b)
	must.Hold(t, len(q) == 0, "before the files are loaded %+v", q)
	must.Equal(t, passed(loaded)["accounts"], replay.QuarantinePassed{Rehearsal: few.Run.ID, Campaigns: 2}, "with the files loaded")
	loaded.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true})
	loaded.MustHaveCursors("a accounts 33 live", "b accounts 33 quarantined")
	q = passed(loaded)
	must.Hold(t, len(q) == 0, "after the replay %+v", q)
}

// Campaigns whose few events lie among many of another one are in the sample.
func TestRehearse_comparesEveryCampaignOfASmallJournal(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts})
	const campaigns = 12
	for i := range campaigns {
		b.MustAppend(enginetest.Opened(fmt.Sprint("c-", i), 10))
	}
	b.Feed(enginetest.Notes("large", 500)...)
	d := mustRehearse(t, b, replay.RehearsalRequest{Files: changedTo(enginetest.Accounts + "-- changed\n")})
	mustCount(t, d, rehearsedCounts{SameRows: campaigns + 1})
}

func mustCount(tb testing.TB, d replay.FixRehearsal, want rehearsedCounts) {
	must.Equal(tb, countsOf(d), want, "counts")
}

// rehearsedCounts are the outcomes of blocked campaigns, and those of healthy ones.
type rehearsedCounts struct{ Passes, FailsSame, FailsDifferently, NotRehearsed, SameRows, OtherRows, Breaks, NotCompared int64 }

func countsOf(d replay.FixRehearsal) rehearsedCounts {
	n, healthy := d.Tried, d.Healthy
	return rehearsedCounts{n.Replayed, d.SameError, n.Failed - d.SameError, n.NotCompared, healthy.Matched, healthy.Drifted, healthy.Failed, healthy.NotCompared}
}
