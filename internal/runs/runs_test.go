package runs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func mustMatchJournal(tb testing.TB, b *enginetest.Engine, campaigns ...string) {
	f := must.Get(runs.NewReplayer(context.Background(), b.Store, b.Set)).Or(tb)
	defer f.Close()
	for _, id := range campaigns {
		r := must.Get(f.Verify(context.Background(), id, 0)).Or(tb)
		behind := slices.ContainsFunc(r.Projections, func(p replay.ProjectionResult) bool { return p.LeftOut == campaign.CursorBehind })
		must.Hold(tb, (r.Outcome == replay.OutcomeMatch || r.Outcome == replay.OutcomeNotCompared) && !behind, "campaign %q: %s %s %+v", id, r.Outcome, r.Error, r.Projections)
	}
}

func TestVerify_tellsARowThatIsWrongAndFromWhichEventOn(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts})
	b.MustAppend(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("a"), enginetest.Spent("a", 1), enginetest.Noted("a"), enginetest.Noted("a"))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 1))
	for _, tt := range []struct {
		what, statement                string
		added, changed, removed, first int64
	}{
		{"a field that no event gave", `update accounts set balance = 77 where campaign_id = 'a'`, 0, 1, 0, 4},
		{"an event that was missed", `update accounts set balance = 9, spent = 1 where campaign_id = 'a'`, 0, 1, 0, 4},
		{"two events that were missed", `update accounts set balance = 10, spent = 0 where campaign_id = 'a'`, 0, 1, 0, 2},
		{"a row that is missing", `delete from trail where campaign_id = 'a' and place = 3`, 1, 0, 0, 3},
		{"a row that nothing explains", `insert into trail values ('a', 99, 99)`, 0, 0, 1, 0},
		{"several at once", `insert into trail values ('a', 98, 98); update trail set seq = 0 where campaign_id = 'a' and place in (5, 2)`, 0, 2, 1, 2},
	} {
		b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		b.ExecProjections(tt.statement)
		run := b.RunToEnd(enginetest.Everything)
		if run.Verdict != campaign.VerdictDrift || run.Counts.Drifted != 1 || run.Counts.Matched != 1 {
			t.Errorf("%s: run %+v", tt.what, run)
			continue
		}
		var got projection.Comparison
		for _, p := range b.RunResult(run, "a").Projections {
			if p.Verdict == campaign.VerdictDrift {
				got = *p.Comparison
			}
		}
		must.Hold(t, got.Added == tt.added && got.Changed == tt.changed && got.Removed == tt.removed && got.FirstSeq == tt.first && len(got.Samples) != 0, "%s: %+v", tt.what, got)
	}
}

// A search for the first divergence reads what triggers noted, and a comparison the rows themselves.
func TestVerify_findsTheFirstDivergenceInAColumnOfAnyType(t *testing.T) {
	b := enginetest.Own(t, []string{`-- projection: typed
-- tables: typed, keyless

-- schema
create table typed (campaign_id text not null, id bigint not null, day date, at timestamp, yes boolean, price numeric, size real, body text, primary key (campaign_id, id));
create table keyless (campaign_id text not null, day date);

-- on: set
insert into typed (campaign_id, id) values (:campaign_id, :seq);
insert into keyless (campaign_id, day) values (:campaign_id, :payload.day), (:campaign_id, :payload.day);
update typed
set day = :payload.day, at = :payload.at, yes = :payload.yes, price = :payload.price, size = :payload.size, body = :payload.body
where campaign_id = :campaign_id
  and id = :seq - 1;
`})
	for i := 1; i < 10; i++ {
		b.MustAppend(enginetest.EventOf("a", "set", fmt.Sprintf(`{"day":"2020-03-0%[1]d","at":"2020-03-05 10:00:0%[1]d","yes":true,"price":%[1]d.25,"size":%[1]d.5,"body":"text %[1]d"}`, i)))
	}
	b.Drain()
	for _, tt := range []struct {
		statement string
		first     int64
	}{
		{"update typed set day = '2020-03-05' where id = 6", 7},
		{"update typed set at = '2020-03-05 10:00:05' where id = 6", 7},
		{"update typed set yes = cast('0' as boolean) where id = 6", 7},
		{"update typed set price = 5.5 where id = 6", 7},
		{"update typed set size = 2.5 where id = 6", 7},
		{"update typed set body = null where id = 6", 7},
		{"delete from keyless where day = '2020-03-06'", 6},
	} {
		b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		b.ExecProjections(tt.statement)
		p := b.RunResult(b.RunToEnd(enginetest.Everything), "a").Projections[0]
		must.Hold(t, p.Comparison != nil && p.Comparison.FirstSeq == tt.first, "%s: %+v %s, want event %d", tt.statement, p.Comparison, p.Error, tt.first)
	}
}

// What a search costs beside the replay is counted in events and in stretches of them, not in time.
func TestVerify_replaysOnceMoreToFindTheFirstDivergence(t *testing.T) {
	const events = 1000
	b := enginetest.Own(t, []string{enginetest.Trail}, enginetest.BatchSize(events))
	b.Feed(enginetest.Notes("a", events)...)
	f := must.Get(runs.NewReplayer(t.Context(), b.Store, b.Set)).Or(t)
	defer f.Close()
	var replayed, stretches int64
	f.CountReplayed(&replayed, &stretches)
	verify := func(want string) replay.RunResult {
		replayed, stretches = 0, 0
		r, err := f.Verify(t.Context(), "a", 0)
		must.Need(t, err == nil && r.Outcome == want, "%+v (%v), want %s", r, err, want)
		return r
	}
	verify(replay.OutcomeMatch)
	once := stretches
	b.ExecProjections(`update trail set seq = -1 where campaign_id = 'a' and place between 100 and 900`)
	r := verify(replay.OutcomeDrift)
	c := r.Projections[0].Comparison
	must.Hold(t, c.Changed == 801 && c.FirstSeq == 100, "%+v, want 801 rows from event 100 on", c)
	must.Hold(t, replayed <= 2*events && stretches <= 2*once, "%d events were replayed in %d stretches, of a campaign of %d in %d", replayed, stretches, events, once)
}

func TestRuns_sayWhatTheyDoWhileTheirNumberOfEventsStandsStill(t *testing.T) {
	b := own(t)
	for want, gaps := range map[int][]time.Duration{0: {4 * time.Second}, 1: {4 * time.Second, 4 * time.Second}, 2: {4 * time.Second, 4 * time.Second, 6 * time.Second}} {
		lines := runs.NewWorker(runs.WorkerConfig{Runs: b.Runs}).SaysStill("comparing the rows of projection trail", gaps...)
		must.Hold(t, len(lines) == want && !(want > 0 && (lines[0].CampaignID != "c" || lines[0].Text != "comparing the rows of projection trail")), "after %s: %+v", gaps, lines)
	}
}

// Events behind a dead one are no part of a verify or a rebuild; a replay looks at them, too.
func TestRuns_countTheEventsThatTheyReach(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 11), enginetest.Spent("a", 1), enginetest.Opened("b", 10))
	for _, order := range []replay.RunRequest{enginetest.Everything, {Kind: replay.RunRebuild, Campaigns: []string{"a", "b"}}, {Kind: replay.RunReplay, All: true}, {Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 1}} {
		want := replay.Progress{Done: 2, Total: 2}
		if order.Kind == replay.RunReplay {
			want = replay.Progress{Done: 4, Total: 4}
		} else if order.UntilSeq > 0 {
			want = replay.Progress{Done: 1, Total: 1}
		}
		run := b.RunToEnd(order)
		must.Hold(t, run.Events == want && run.Status == replay.RunCompleted, "%s: %+v of events, want %+v; it is %s", order.Kind, run.Events, want, run.Status)
	}
}

// Where the file has changed, every row may differ, whatever the first divergence is; in a dry run of a rebuild, too.
func TestVerify_saysWhichRowsAnotherVersionBuilt(t *testing.T) {
	before := enginetest.Own(t, []string{enginetest.Accounts, enginetest.Trail})
	before.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("a"), enginetest.Spent("a", 1))
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, strings.ReplaceAll(enginetest.Accounts, "spent + 1", "spent + 2"), enginetest.Trail))
	b.ExecProjections(`update trail set seq = 0 where campaign_id = 'a' and place = 3`)
	run := b.RunToEnd(enginetest.Everything)
	for _, p := range b.RunResult(run, "a").Projections {
		other, first := p.Projection == "accounts", int64(3)
		if other {
			first = 4
		}
		replayed, built := b.Set.Named(p.Projection).Version, before.Set.Named(p.Projection).Version
		if c := p.Comparison; c.Changed != 1 || c.BuiltByOtherVersion != other || c.FirstSeq != first || c.Version != replayed || c.BuiltVersion != built {
			t.Errorf("%s: %+v, want one changed row, by another version: %v, first divergence at event %d", p.Projection, *c, other, first)
		}
	}
	for _, p := range try(t, b, "a").Projections {
		if c := p.Comparison; c.BuiltByOtherVersion != (p.Projection == "accounts") || strings.Contains(c.From(), ", rows built by version ") != c.BuiltByOtherVersion {
			t.Errorf("a dry run: %s: %+v", p.Projection, *c)
		}
	}
	b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
	b.ExecProjections(`update accounts set spent = 3 where campaign_id = 'a'`)
	run = b.RunToEnd(enginetest.Everything)
	if c := b.RunResult(run, "a").Projections[0].Comparison; c.BuiltByOtherVersion || c.FirstSeq != 4 {
		t.Errorf("after a rebuild: %+v, want the first divergence at event 4", *c)
	}
}

func TestRuns_offerToRebuildWhatDiffers(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts, enginetest.Trail})
	for _, id := range []string{"a", "b", "c"} {
		b.MustAppend(enginetest.Opened(id, 10), enginetest.Noted(id))
	}
	b.Drain()
	for _, c := range []struct {
		meddle string
		want   replay.RunRequest
	}{
		{`update trail set seq = 0 where campaign_id = 'b'`, replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"b"}, Projections: []string{"trail"}}},
		{`update trail set seq = 0`, replay.RunRequest{Kind: replay.RunRebuild, All: true, Projections: []string{"trail"}}},
	} {
		b.ExecProjections(c.meddle)
		got, err := b.Runs.RebuildOf(t.Context(), b.RunToEnd(enginetest.Everything).ID)
		diff := cmp.Diff(c.want, got)
		must.Hold(t, diff == "" && err == nil, "after %s: (-want +got) %v\n%s", c.meddle, err, diff)
	}
}

// Nothing is compared as of an earlier event, so nothing matches.
func TestVerify_untilASeqTellsWhatItWasThen(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1))
	then := b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}})
	b.Feed(enginetest.Spent("a", 1), enginetest.Noted("a")).ExecProjections(`update trail set seq = 77`)
	until := b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2})
	must.Hold(t, until.Status == replay.RunCompleted && until.Verdict == "" && until.Seq == 2 && len(until.Digests) != 0 && until.Digests[replay.FullDigest] == then.Digests[replay.FullDigest], "as of event 2: %+v\nwhen it was there: %+v", until, then)
}

func TestRebuild_putsTheRowsRightAndRaisesTheGeneration(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("b"), enginetest.Opened("c", 1), enginetest.Spent("c", 5), enginetest.Noted("c"))
	b.ExecProjections(`update accounts set balance = 3 where campaign_id = 'a'`)
	b.ExecProjections(`insert into trail values ('b', 9, 9)`)
	run := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
	must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == campaign.VerdictDrift && run.Counts.Drifted == 2 && run.Counts.Matched == 1, "run %+v", run)
	mustMatchJournal(t, b, "a", "b", "c")
	for _, p := range b.RunResult(run, "a").Projections {
		must.Hold(t, p.Generation == 2 && p.Digest != "" && p.Before != "" && (p.Projection == "accounts") == (p.Digest != p.Before) && (*p.Rows == (campaign.RowsReplaced{Before: 1, After: 1}) || p.Projection != "accounts"), "%+v", p)
	}
	b.MustStand("c", 2, event.Failed, 1)
	must.Equal(t, *b.RunResult(run, "b").Projections[0].Rows, campaign.RowsReplaced{Before: 2, After: 1}, "the rows of b that were replaced")
	again := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}, Projections: []string{"accounts"}})
	must.Hold(t, again.Verdict == campaign.VerdictMatch && b.RunResult(again, "a").Projections[0].Generation == 3, "a second rebuild: %+v", again)
	b.Sound()
}

// Newly generated numbers keep the order of the old ones, even if earlier rows were changed later.
func TestRebuild_keepsTheOrderOfRows(t *testing.T) {
	b := enginetest.Own(t, []string{`-- projection: calls
-- tables: calls

-- schema @sqlite
create table calls (id integer primary key, campaign_id text not null, seq bigint not null, answered text not null default '');

-- schema @postgres
create table calls (id bigint generated always as identity primary key, campaign_id text not null, seq bigint not null, answered text not null default '');

-- digest calls: select seq, answered from calls where campaign_id = :campaign_id order by id

-- on: noted
update calls set answered = 'yes' where campaign_id = :campaign_id and seq = cast(:seq as bigint) - 5;
insert into calls (campaign_id, seq) values (:campaign_id, :seq);
`})
	b.Feed(enginetest.Notes("a b", 20)...)
	for range 2 { // from the second time on the rows are those of a rebuild
		run := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == campaign.VerdictMatch, "run %+v", run)
		for _, campaign := range []string{"a", "b"} {
			seqs := storetest.Column[int](t, b.ProjectionsDB, `select seq from calls where campaign_id = $1 order by id`, campaign)
			must.Hold(t, len(seqs) == 20 && slices.IsSorted(seqs), "the calls of campaign %q are in the order %v", campaign, seqs)
		}
	}
	b.Feed(enginetest.Notes("a", 2)...) // numbered behind the rebuilt rows
	must.Equal(t, b.RunToEnd(enginetest.Everything).Verdict, campaign.VerdictMatch, "run")
	b.ExecProjections(`delete from calls where campaign_id = 'a' and seq = 2`)
	must.Equal(t, b.RunToEnd(enginetest.Everything).Counts.Drifted, 1, "drifted with a row missing")
}

func TestRebuild_besideLiveApplyingLosesNothing(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts}, enginetest.BatchSize(20), enginetest.Polling(10*time.Millisecond))
	campaigns := []string{"a", "b", "c"}
	for _, id := range campaigns {
		b.MustAppend(append([]event.Event{enginetest.Opened(id, 1_000_000)}, enginetest.Notes(id, 150)...)...)
	}
	b.Drain()
	stop, total := b.Start(), 151
	for range 2 {
		run := b.StartRun(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		for range 10 {
			for _, id := range campaigns {
				b.MustAppend(enginetest.Spent(id, 1), enginetest.Noted(id))
			}
			total += 2
		}
		must.Eventually(t, "the run ends", func() bool { return !b.MustRun(run.ID).Status.Active() })
	}
	for _, id := range campaigns {
		must.Eventually(t, "all is applied", func() bool {
			applied, err := b.AppliedSeq(context.Background(), id)
			return err != nil || applied >= int64(total)
		})
	}
	stop()
	for _, id := range campaigns {
		places := storetest.Column[int64](t, b.ProjectionsDB, `select seq from trail where campaign_id = $1 order by place`, id)
		must.Hold(t, len(places) == total && slices.IsSorted(places) && places[total-1] == int64(total), "campaign %q has %d events in its trail, want 1 to %d", id, len(places), total)
	}
	mustMatchJournal(t, b, campaigns...)
	b.Sound()
}

func TestRebuild_ofADivergedCampaignIsTheWayOut(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("a"))
	b.ExecProjections(`update projection_watermarks set applied_hash = 'other', applied_seq = 7 where campaign_id = 'a'`)
	b.ExecProjections(`update accounts set balance = 5 where campaign_id = 'a'`)
	must.Get(b.Reconcile(t.Context())).Or(t)
	if r := try(t, b, "a", "accounts"); r.Outcome != replay.OutcomeFailed || !strings.Contains(r.Error, "all projections") {
		t.Errorf("a trial of one projection: %+v", r)
	}
	r := try(t, b, "a")
	added, changed, removed := changes(r)
	must.Hold(t, r.Outcome == replay.OutcomeDrift && r.Seq == 3 && added+removed == 0 && changed == 1, "a trial of all: %+v", r)
	c := b.MustCampaign("a")
	must.Need(t, c.Diverged != "", "the campaign is not diverged")
	one := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}, Projections: []string{"accounts"}})
	must.Hold(t, one.Status == replay.RunFailed && strings.Contains(b.RunResult(one, "a").Error, "all projections"), "a rebuild of one projection: %+v", one)
	run := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}})
	c = b.MustCampaign("a")
	must.Hold(t, run.Status == replay.RunCompleted && c.Diverged == "", "run %+v, diverged: %q", run, c.Diverged)
	b.Drain()
	mustMatchJournal(t, b, "a")
	applied, _ := b.AppliedSeq(t.Context(), "a")
	must.Hold(t, applied == 3 && try(t, b, "a").Outcome == replay.OutcomeMatch, "applied up to %d", applied)
	b.Sound()
}

func TestReplay_bringsAQuarantinedProjectionLevelOnceItIsRepaired(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.LenientAccounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"), enginetest.Spent("b", 1))
	if r := try(t, b, "b"); r.Outcome != replay.OutcomeFailed || !strings.Contains(r.Error, "event 2 cannot be replayed") {
		t.Errorf("a trial while it fails: %+v", r)
	}
	again := b.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true})
	must.Hold(t, again.Status == replay.RunFailed && again.Counts.Failed == 1 && strings.Contains(b.RunResult(again, "b").Error, "accounts cannot apply event 2"), "a replay without a repair: %+v", again)
	repaired := enginetest.Define(t, enginetest.Trail, strings.ReplaceAll(enginetest.LenientAccounts, "balance = balance - :payload.amount!", "balance = 7"))
	after := enginetest.OpenPair(t, b.Pair, repaired, enginetest.MaxAttempts(1))
	r := try(t, after, "b")
	added, changed, removed := changes(r)
	must.Hold(t, r.Outcome == replay.OutcomeDrift && added+removed == 0 && changed == 1, "a trial once it is repaired: %+v", r)
	after.MustHaveCursors("b accounts 1 quarantined")
	run := after.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true})
	must.Hold(t, run.Status == replay.RunCompleted && run.Counts.Replayed == 1, "run %+v", run)
	after.MustHaveBalances("b 7")
	open := after.OpenFailures()
	must.Hold(t, len(open) == 0, "open failures %q", open)
	after.MustHaveCursors("b accounts 4 live")
	after.Feed(enginetest.Spent("b", 0), enginetest.Noted("b"))
	mustMatchJournal(t, after, "b")
	after.Sound()
}

func TestRuns_cancelKeepsTheOldRows(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail})
	b.Feed(enginetest.Notes("a b", 200)...).ExecProjections(`update trail set seq = 999 where place = 1`)
	run := b.StartRun(replay.RunRequest{Kind: replay.RunRebuild, All: true, Rate: 1}) // it would take minutes
	w := *b.RunWorker
	var cancel sync.Once
	w.Applying = func(time.Time) bool { // is called after each chunk of a replay
		cancel.Do(func() { must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, run.ID)).Or(t) })
		return false
	}
	ctx, stop := context.WithTimeout(t.Context(), must.Patience)
	defer stop()
	must.Get(w.Step(ctx)).Or(t)
	ended := b.MustRun(run.ID)
	must.Hold(t, ended.Status == replay.RunCancelled && ended.Events.Done != ended.Events.Total, "run %+v", ended)
	must.Equal(t, storetest.Column[int](t, b.ProjectionsDB, `select count(*) from trail where seq = 999`)[0], 2, "campaigns have their old rows")
	b.Sound()
}

func TestDryRun_tellsWhatARequeueWouldDo(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 100), enginetest.Noted("a"), enginetest.Spent("a", 1))
	before := b.MustRow("a", 2)
	d, err := runs.DryRun(t.Context(), b.Store, b.Set, replay.Trial{CampaignID: "a", Seq: 2, Next: 5})
	must.Hold(t, err == nil && d.Rehearsed.Applied == 0 && d.Outcome == replay.OutcomeFailed && d.Rehearsed.FailedSeq == 2 && d.Rehearsed.Projection == "accounts", "while it fails: %+v (%v)", d, err)
	d, err = runs.DryRun(t.Context(), b.Store, b.Set, replay.Trial{CampaignID: "a", Seq: 2, Next: 5, Without: true})
	must.Hold(t, err == nil && d.Outcome == replay.OutcomeReplayed && d.Rehearsed.Applied == 3 && d.Seq == 4, "without it: %+v (%v)", d, err)
	b.ExecProjections(`update accounts set balance = 200 where campaign_id = 'a'`)
	d, err = runs.DryRun(t.Context(), b.Store, b.Set, replay.Trial{CampaignID: "a", Seq: 2, Next: 5})
	must.Need(t, err == nil && d.Outcome == replay.OutcomeReplayed && d.Rehearsed.Applied == 3 && d.Seq == 4, "once it is mended: %+v (%v)", d, err)
	i := slices.IndexFunc(d.Projections, func(p replay.ProjectionResult) bool { return p.Projection == "accounts" })
	c := d.Projections[i].Comparison
	must.Hold(t, c.Changed == 1 && string(c.Samples[0].Fields[0].Live) == "200" && string(c.Samples[0].Fields[0].Expected) == "99", "it would change %+v", c)
	must.Equal(t, b.MustRow("a", 2).Row, before.Row, "the row")
	for seq, want := range map[int64]error{1: event.ErrConflict, 9: event.ErrNotFound} {
		_, err := runs.DryRun(t.Context(), b.Store, b.Set, replay.Trial{CampaignID: "a", Seq: seq, Next: 0})
		must.Hold(t, errors.Is(err, want), "event %d: %v, want %v", seq, err, want)
	}
}

func TestDryRun_endsWhereACampaignWouldBlock(t *testing.T) {
	t.Parallel()
	purse := strings.ReplaceAll(enginetest.LenientAccounts, "accounts", "purse")
	for _, files := range [][]string{{enginetest.Accounts, purse}, {purse, enginetest.Accounts}} {
		b := enginetest.Open(t, enginetest.Define(t, files...))
		b.Feed(enginetest.Opened("a", 10)).ExecProjections(`update purse set balance = 5`)
		b.MustAppend(enginetest.Spent("a", 6), enginetest.Spent("a", 3), enginetest.Spent("a", 3))
		d, err := runs.DryRun(t.Context(), b.Store, b.Set, replay.Trial{CampaignID: "a", Seq: 2, Next: 5})
		must.Hold(t, err == nil && d.Seq == 3 && d.Rehearsed.Applied == 2 && d.Rehearsed.FailedSeq == 4 && d.Rehearsed.Projection == "accounts",
			"purse is quarantined at event 2, accounts blocks at event 4: %+v (%v)", d, err)
	}
}
