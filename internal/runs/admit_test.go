package runs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// starts is the answer to an order of a run, with the projections that are loaded.
func starts(f *fixture, order replay.RunRequest) error {
	return storetest.No(f.Runs.Start(f.Ctx, ana(""), order, enginetest.LoadedRuns))
}

func TestStartRun_isQueuedWithItsScopeAndItsRecord(t *testing.T) {
	f := own(t)
	f.AppendN("a", 2)
	f.AppendN("b", 1)
	f.AppendN("c", 5)
	got := f.StartRun(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"b", "a", "b"}, Projections: []string{"history", "roster"}, Rate: 500})
	want := replay.Run{ID: got.ID, Kind: replay.RunRebuild, Status: replay.RunQueued, CampaignIDs: []string{"a", "b"},
		Projections: []string{"roster", "history"}, Versions: enginetest.VersionsRuns, Rate: 500, Reason: "looks odd", RequestedBy: "ana", Via: "page", RequestID: "r-1",
		RequestedAt: began, UpdatedAt: began, Digests: map[string]string{}, Before: map[string]string{}, With: map[string]string{}}
	diff := cmp.Diff(want, got)
	must.Hold(t, diff == "" && got.ID != 0, "run (-want +got): %s", diff)
	must.Equal(t, f.MustRun(got.ID), got, "read again")
	one := f.StartRun(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"c"}, UntilSeq: 5, Projections: []string{"history"}})
	must.Hold(t, one.CampaignID == "c" && one.UntilSeq == 5 && one.Scope() == "projection history in campaign c" && f.ActionsOf("run_start")[0].CampaignID == "c", "run of one campaign is %+v", one)
	acts := f.ActionsOf("run_start")[1:]
	must.Hold(t, len(acts) == 1 && acts[0].CampaignID == "" && strings.Contains(string(acts[0].After), fmt.Sprintf(`"run_id":%d`, got.ID)) && strings.Contains(string(acts[0].Before), `"rebuild"`), "records are %+v", acts)
}

func TestStartRun_refusesWhatMakesNoSense(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	many := make([]string, event.MaxRunCampaigns+1)
	for i := range many {
		many[i] = fmt.Sprint("x-", i)
	}
	for name, c := range map[string]struct {
		order    replay.RunRequest
		kind     error
		sentence string
	}{
		"no kind":            {replay.RunRequest{All: true}, event.ErrInvalid, `kind "" is unknown`},
		"other kind":         {replay.RunRequest{Kind: "mend", All: true}, event.ErrInvalid, `kind "mend" is unknown`},
		"no campaigns":       {replay.RunRequest{Kind: replay.RunVerify}, event.ErrInvalid, "name the campaigns"},
		"some and all":       {replay.RunRequest{Kind: replay.RunVerify, All: true, Campaigns: []string{"a"}}, event.ErrInvalid, "not both"},
		"too many":           {enginetest.Rebuild(many...), event.ErrInvalid, "the limit is 1000"},
		"unknown campaign":   {enginetest.Rebuild("a", "nowhere"), event.ErrNotFound, `there is no campaign "nowhere"`},
		"unknown projection": {replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"rosters"}}, event.ErrInvalid, "use one of: roster, history"},
		"until of a rebuild": {replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}, UntilSeq: 1}, event.ErrInvalid, "until_seq is for a verify"},
		"until of all":       {replay.RunRequest{Kind: replay.RunVerify, All: true, UntilSeq: 1}, event.ErrInvalid, "until_seq is for a verify"},
		"until too far":      {replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 4}, event.ErrInvalid, `until_seq is 4, and campaign "a" has 3 events`},
		"until below 0":      {replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: -1}, event.ErrInvalid, "until_seq must be 1"},
		"rate below 0":       {replay.RunRequest{Kind: replay.RunVerify, All: true, Rate: -1}, event.ErrInvalid, "rate is"},
	} {
		f.Unchanged(func() {
			t.Log("note:", name)
			refused(t, starts(f, c.order), c.kind, c.sentence)
		})
	}
	refused(t, storetest.No(f.Runs.Start(f.Ctx, ana(""), enginetest.Everything, nil)), event.ErrConflict, "no projection is loaded")
}

func TestStartRun_ofARebuildOfAllCampaignsNeedsAReasonAndAPhrase(t *testing.T) {
	f := own(t)
	all := replay.RunRequest{Kind: replay.RunRebuild, All: true, Projections: []string{"roster"}}
	f.AppendN("a b", 1)
	refused(t, starts(f, all), event.ErrInvalid, "a rebuild of all campaigns requires a reason")
	refused(t, storetest.No(f.Runs.Start(f.Ctx, ana("looks odd"), all, enginetest.LoadedRuns)), event.ErrInvalid, "this replaces the rows of 2 campaigns")
	for order, phrase := range map[*replay.RunRequest]string{&all: "rebuild all campaigns", new(enginetest.Everything): "", new(enginetest.Rebuild("a", "b")): ""} {
		p, err := f.Runs.Preview(f.Ctx, *order, enginetest.LoadedRuns)
		must.Hold(t, p.Confirm == phrase && err == nil, "the preview of %+v asks for %q, want %q; %v", *order, p.Confirm, phrase, err)
	}
	f.FinishRun(func() runs.Lease { f.StartRun(all); return f.ClaimRun(one) }(), replay.RunInterrupted, "enough")
	must.Get(f.Runs.Resume(f.Ctx, ana(""), 1, enginetest.LoadedRuns)).Or(t)
}

func TestStartRun_keepsToTheModeAndTheRulesOfItsStore(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeShadow))
	f.AppendN("a", 1)
	for _, kind := range []replay.RunKind{replay.RunReplay, replay.RunRebuild} {
		refused(t, starts(f, replay.RunRequest{Kind: kind, All: true}), event.ErrConflict, "shadow_only", "a verify is possible")
	}
	f.StartRun(enginetest.Everything)
	f = open(t, storetest.ReadOnly)
	refused(t, starts(f, enginetest.Everything), event.ErrReadOnly)
	f = open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	refused(t, starts(f, enginetest.Everything), event.ErrInvalid, "every action requires a reason")
	run := f.StartRun(enginetest.Everything)
	refused(t, storetest.No(f.Runs.Cancel(f.Ctx, ana(""), run.ID)), event.ErrInvalid, "every action requires a reason")
}

func TestStartRun_answersARepeatedOrderWithTheFirst(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	o := ana("")
	o.IdempotencyKey = "k"
	first := must.Get(f.Runs.Start(f.Ctx, o, enginetest.Rebuild("a"), enginetest.LoadedRuns)).Or(t)
	f.Unchanged(func() {
		repeated := enginetest.Rebuild("a", "a")
		repeated.Projections = []string{}
		again, err := f.Runs.Start(f.Ctx, o, repeated, enginetest.LoadedRuns)
		diff := cmp.Diff(first, again)
		must.Hold(t, diff == "" && err == nil, "repeated (-first +again): %s%v", diff, err)
		refused(t, storetest.No(f.Runs.Start(f.Ctx, o, replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}}, enginetest.LoadedRuns)), event.ErrConflict, "Idempotency-Key")
	})
}

func TestStartRun_isRefusedWhileAnotherHasAPartOfItsScope(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 1)
	part := func(projections ...string) replay.RunRequest {
		r := enginetest.Rebuild("a", "b")
		r.Projections = projections
		return r
	}
	for name, c := range map[string]struct {
		first, second replay.RunRequest
		free          bool
	}{
		"the same":                 {enginetest.Rebuild("a"), enginetest.Rebuild("a"), false},
		"another kind":             {enginetest.Rebuild("a"), replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}}, false},
		"one of several":           {enginetest.Rebuild("a", "b"), enginetest.Rebuild("b", "c"), false},
		"other campaigns":          {enginetest.Rebuild("a"), enginetest.Rebuild("b", "c"), true},
		"all after one":            {enginetest.Rebuild("b"), enginetest.Everything, false},
		"one after all":            {enginetest.Everything, enginetest.Rebuild("b"), false},
		"all after all":            {enginetest.Everything, enginetest.Everything, false},
		"another projection":       {part("roster"), part("history"), true},
		"a projection in common":   {part("history"), part("roster", "history"), false},
		"all of other projections": {part("roster"), replay.RunRequest{Kind: replay.RunVerify, All: true, Projections: []string{"history"}}, true},
	} {
		run := f.StartRun(c.first)
		f.Clock.Advance(4 * time.Minute)
		p, err := f.Runs.Preview(f.Ctx, c.second, enginetest.LoadedRuns)
		must.Hold(t, err == nil && (p.BlockingRun == nil) == c.free && (c.free || p.BlockingRun.ID == run.ID), "%s: the preview is %+v, %v", name, p, err)
		if err = starts(f, c.second); c.free {
			must.Hold(t, err == nil, "%s: %v", name, err)
		} else {
			t.Log("note:", name)
			refused(t, err, event.ErrConflict, fmt.Sprintf("blocked by run %d: a %s of %s, queued, started by ana 4 min ago; wait until it has ended, or cancel it", run.ID, run.Kind, run.Scope()))
			must.Get(f.Runs.Cancel(f.Ctx, ana(""), run.ID)).Or(t)
			must.OK(t, starts(f, c.second))
		}
		for _, active := range f.ActiveRuns() {
			must.Get(f.Runs.Cancel(f.Ctx, ana(""), active.ID)).Or(t)
		}
	}
	run := f.StartRun(enginetest.Rebuild("a"))
	_, err := f.JournalDB.Exec(`insert into run_scopes (run_id, campaign_id, projection, active) values ($1, 'a', 'roster', 1)`, run.ID+1)
	must.Hold(t, err != nil, "two active runs have one scope")
}

func TestStartRun_takesThePlaceOfAVerifyThatNoProcessWorksOn(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	killed := f.StartRun(enginetest.Everything)
	f.ClaimRun(one)
	refused(t, starts(f, enginetest.Everything), event.ErrConflict, "ana 0 s ago; wait until")
	f.Clock.Advance(lease - 10*time.Second)
	refused(t, starts(f, enginetest.Everything), event.ErrConflict, fmt.Sprintf("its process last reported %s ago, and if it is dead its lease ends in 10 s", event.Age(lease-10*time.Second)))
	f.Clock.Advance(10 * time.Second)
	p, err := f.Runs.Preview(f.Ctx, enginetest.Everything, enginetest.LoadedRuns)
	must.Hold(t, err == nil && p.BlockingRun == nil, "the preview has %+v, %v", p, err)
	released := f.StartRun(enginetest.Everything)
	must.OK(t, f.Runs.Release(f.Ctx, f.ClaimRun(one)))
	next := f.StartRun(enginetest.Rebuild("a"))
	for _, id := range []int64{killed.ID, released.ID} {
		run := f.MustRun(id)
		must.Hold(t, run.Status == replay.RunInterrupted && strings.Contains(run.Error, "no process worked on it"), "run is %+v", run)
	}
	must.OK(t, f.Runs.Release(f.Ctx, f.ClaimRun(one)))
	refused(t, starts(f, enginetest.Everything), event.ErrConflict, fmt.Sprintf("blocked by run %d", next.ID)) // a rebuild is continued
	f.FinishRun(f.ClaimRun(one), replay.RunCompleted, "")
	must.Get(f.Runs.Resume(f.Ctx, ana(""), released.ID, enginetest.LoadedRuns)).Or(t)
}

func TestStartRun_ofManyAtOnceOneIsAccepted(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 1)
	stores := []*fixture{f, f.Beside()}
	for name, orders := range map[string][]replay.RunRequest{
		"one campaign":         {enginetest.Rebuild("a")},
		"all":                  {enginetest.Everything},
		"all and one":          {enginetest.Everything, enginetest.Rebuild("a")},
		"overlapping and all":  {enginetest.Rebuild("a", "b"), enginetest.Rebuild("b", "c", "a"), enginetest.Everything},
		"projections in a row": {{Kind: replay.RunReplay, All: true, Projections: []string{"history"}}, enginetest.Rebuild("c", "a")},
	} {
		var accepted atomic.Int64
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := stores[i%2].Runs.Start(f.Ctx, ana(""), orders[i%len(orders)], enginetest.LoadedRuns)
				switch {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, event.ErrConflict):
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		active := f.ActiveRuns()
		must.Need(t, accepted.Load() == 1 && len(active) == 1, "%s: %d runs were accepted and %d are active, want one", name, accepted.Load(), len(active))
		must.Get(f.Runs.Cancel(f.Ctx, ana(""), active[0].ID)).Or(t)
	}
}

func TestStarted_tellsOfWhatWasStartedResumedAndCancelled(t *testing.T) {
	f := own(t)
	told := func(what string, err error) {
		t.Helper()
		select {
		case <-f.Runs.Started():
		default:
			t.Errorf("no worker is told of a run that was %s (%v)", what, err)
		}
	}
	run := f.StartRun(enginetest.Everything)
	told("started", nil)
	f.FinishRun(f.ClaimRun(one), replay.RunInterrupted, "no reason")
	_, err := f.Runs.Resume(f.Ctx, ana(""), run.ID, enginetest.LoadedRuns)
	told("resumed", err)
	_, err = f.Runs.Cancel(f.Ctx, ana(""), run.ID)
	told("cancelled", err)
}

func TestCancelRun_inEachState(t *testing.T) {
	f := own(t)
	cancel := func(id int64) (replay.Run, error) { return f.Runs.Cancel(f.Ctx, ana("no need"), id) }

	queued := f.StartRun(enginetest.Everything)
	run, err := cancel(queued.ID)
	must.Hold(t, err == nil && run.Status == replay.RunCancelled && run.CancelledBy == "ana" && run.FinishedAt != nil && run.Verdict == "", "a queued run became %+v, %v", run, err)
	f.Clock.Advance(time.Minute)
	refused(t, storetest.No(cancel(queued.ID)), event.ErrConflict, fmt.Sprintf("run %d is already cancelled; it ended 1 min ago", queued.ID))

	running := f.StartRun(enginetest.Everything)
	l := f.ClaimRun(one)
	run, err = cancel(running.ID)
	must.Hold(t, err == nil && run.Status == replay.RunCancelling && run.FinishedAt == nil && run.Lease != nil, "a running run became %+v, %v", run, err)
	refused(t, storetest.No(cancel(running.ID)), event.ErrConflict, "already being cancelled, by ana", one.ID)
	refused(t, starts(f, enginetest.Everything), event.ErrConflict, "cancelling")
	must.Equal(t, f.ReportRun(l, 0), replay.RunCancelling, "its worker was told")
	must.Equal(t, f.FinishRun(l, replay.RunCancelled, "").Status, replay.RunCancelled, "it ended as")

	lost := f.StartRun(enginetest.Everything)
	former := f.ClaimRun(one)
	f.Clock.Advance(lease)
	run, err = cancel(lost.ID)
	must.Hold(t, err == nil && run.Status == replay.RunCancelled, "a run that nobody holds became %+v, %v", run, err)
	_, err = f.Runs.Report(f.Ctx, former, runs.Progress{Lease: lease})
	must.Hold(t, errors.Is(err, event.ErrLeaseLost), "its former holder got %v", err)

	left := f.StartRun(enginetest.Everything)
	f.ClaimRun(one)
	must.Get(cancel(left.ID)).Or(t)
	f.Clock.Advance(lease)
	f.NoRun(two)
	must.Equal(t, f.MustRun(left.ID).Status, replay.RunCancelled, "a cancelling run whose holder is gone")
	refused(t, storetest.No(cancel(999)), event.ErrNotFound, "there is no run 999")
	acts := f.ActionsOf("run_cancel")
	must.Hold(t, len(acts) == 4 && acts[0].Reason == "no need", "records are %+v", acts)
}

func TestResumeRun_goesOnWhereItStopped(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 2)
	run := f.StartRun(enginetest.Everything)
	l := f.ClaimRun(one)
	f.ReportRun(l, 4, result("a", replay.OutcomeMatch, 2), result("b", replay.OutcomeFailed, 2))
	f.FinishRun(l, replay.RunFailed, "boom")
	f.Clock.Advance(time.Minute)
	got, err := f.Runs.Resume(f.Ctx, ana("mended"), run.ID, enginetest.LoadedRuns)
	must.Hold(t, err == nil && got.Status == replay.RunQueued && got.Attempts == 0 && got.Error == "" && got.FinishedAt == nil && got.Campaigns.Done == 1 && got.Counts.Failed == 0 && got.Events.Done == 2, "resumed run is %+v, %v", got, err)
	refused(t, starts(f, enginetest.Rebuild("a")), event.ErrConflict, "blocked by run ")
	l = f.ClaimRun(two)
	scope, err := f.Runs.Scope(f.Ctx, l, "", 10)
	must.Hold(t, err == nil && len(scope) == 2 && scope[0].CampaignID == "b" && scope[1].CampaignID == "c" && l.Epoch == 2, "what is left is %+v, %v", scope, err)
	acts := f.ActionsOf("run_resume")
	must.Hold(t, len(acts) == 1 && strings.Contains(string(acts[0].Before), "failed"), "records are %+v", acts)
}

func TestResumeRun_isRefusedWhereItCannotGoOn(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	run := f.StartRun(enginetest.Rebuild("a"))
	resume := func(loaded []campaign.ProjectionInfo) error {
		return storetest.No(f.Runs.Resume(f.Ctx, ana(""), run.ID, loaded))
	}
	refused(t, resume(enginetest.LoadedRuns), event.ErrConflict, "is queued; only interrupted or failed runs can be resumed")
	l := f.ClaimRun(one)
	refused(t, resume(enginetest.LoadedRuns), event.ErrConflict, "is running")
	f.FinishRun(l, replay.RunInterrupted, "gone")
	for _, loaded := range [][]campaign.ProjectionInfo{nil, enginetest.LoadedRuns[:1], {{Name: "roster", Version: "v9"}, enginetest.LoadedRuns[1]}} {
		f.Unchanged(func() { refused(t, resume(loaded), event.ErrConflict, "have changed since it began; start a new run") })
	}
	other := f.StartRun(enginetest.Everything)
	f.Unchanged(func() {
		refused(t, resume(enginetest.LoadedRuns), event.ErrConflict, fmt.Sprintf("blocked by run %d", other.ID))
	})
	must.Get(f.Runs.Cancel(f.Ctx, ana(""), other.ID)).Or(t)
	must.OK(t, resume(enginetest.LoadedRuns))
	l = f.ClaimRun(one)
	f.FinishRun(l, replay.RunCompleted, "")
	refused(t, resume(enginetest.LoadedRuns), event.ErrConflict, "is completed")
}

// startedBeside starts a run while another process has run statements that the run must wait for, by a lock of
// a type. It commits them once the run waits, and returns the run's error.
func startedBeside(f *fixture, lock string, statements ...string) error {
	f.TB.Helper()
	other := must.Get(f.JournalDB.BeginTx(f.Ctx, nil)).Or(f.TB)
	defer other.Rollback()
	for _, statement := range statements {
		must.Get(other.ExecContext(f.Ctx, statement)).Or(f.TB)
	}
	answer := storetest.Begin(func() error { return starts(f, enginetest.Rebuild("a")) })
	must.Eventually(f.TB, "it waits", func() bool {
		select {
		case err := <-answer:
			f.TB.Fatalf("it did not wait: %v", err)
		default:
		}
		return f.Number(`select count(*) from pg_locks join pg_stat_activity using (pid) where locktype = $1 and not granted and datname = current_database()`, lock) > 0
	})
	must.OK(f.TB, other.Commit())
	return <-answer
}

func TestPostgresStartRun_waitsForAnAdmissionUnderWay(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	// Another process is about to start a run over all campaigns.
	err := startedBeside(f, "advisory",
		`select pg_advisory_xact_lock(1869968498, hashtext(current_schema()))`,
		`insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at)
values ('verify', 'queued', '[]', 1, '["roster"]', '{}', '', 'ben', 'api', '', 1, 1)`,
		`insert into run_scopes (run_id, campaign_id, projection, active) select id, '', 'roster', 1 from runs`)
	refused(t, err, event.ErrConflict, "blocked by run ", "ben")
}

func TestPostgresStartRun_isRefusedByTheIndexWhenAdmissionSawNothing(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	// A process that does not wait for admission.
	err := startedBeside(f, "transactionid", `insert into run_scopes (run_id, campaign_id, projection, active) values (99, 'a', 'history', 1)`)
	refused(t, err, event.ErrConflict, "has just been started")
	must.Equal(t, f.Number(`select count(*) from runs`), 0, "runs are stored")
}

func TestPreviewRun_saysWhatARunWouldBeAbout(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.AppendN("b", 2)
	f.Exec(allApplied)
	for _, c := range []struct {
		order             replay.RunRequest
		campaigns, events int64
	}{
		{enginetest.Everything, 2, 5},
		{enginetest.Rebuild("b", "b"), 1, 2},
		{replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2}, 1, 2},
	} {
		p, err := f.Runs.Preview(f.Ctx, c.order, enginetest.LoadedRuns)
		must.Hold(t, err == nil && p.Campaigns == c.campaigns && p.Events == c.events && p.BlockingRun == nil && p.Kind == c.order.Kind && len(p.Projections) != 0, "the preview of %+v is %+v, %v", c.order, p, err)
	}
	refused(t, storetest.No(f.Runs.Preview(f.Ctx, enginetest.Rebuild("nobody"), enginetest.LoadedRuns)), event.ErrNotFound)
	refused(t, storetest.No(f.Runs.Preview(f.Ctx, replay.RunRequest{Kind: replay.RunVerify}, enginetest.LoadedRuns)), event.ErrInvalid)
}
