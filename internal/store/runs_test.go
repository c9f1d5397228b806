package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

var (
	loadedRuns   = []outbox.ProjectionInfo{{Name: "roster", Version: "v1"}, {Name: "history", Version: "v2"}}
	versionsRuns = map[string]string{"roster": "v1", "history": "v2"}
)

func verifyAll() outbox.RunOrder { return outbox.RunOrder{Kind: outbox.RunVerify, All: true} }

func rebuild(campaigns ...string) outbox.RunOrder {
	return outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: campaigns}
}

func (f *fixture) startRun(order outbox.RunOrder) outbox.Run {
	f.tb.Helper()
	run, err := f.StartRun(f.ctx, ana("looks odd"), order, loadedRuns)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

// claimRun claims when a run must be there.
func (f *fixture) claimRun(w store.Worker) store.RunLease {
	f.tb.Helper()
	l, ok, err := f.ClaimRun(f.ctx, w, versionsRuns, lease)
	if err != nil || !ok {
		f.tb.Fatalf("claim a run: %v, %v", ok, err)
	}
	return l
}

func (f *fixture) noRun(w store.Worker) {
	f.tb.Helper()
	if l, ok, err := f.ClaimRun(f.ctx, w, versionsRuns, lease); ok || err != nil {
		f.tb.Fatalf("claimed %+v, %v, want none", l, err)
	}
}

func (f *fixture) run(id int64) outbox.Run {
	f.tb.Helper()
	run, err := f.Run(f.ctx, id)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

func (f *fixture) report(l store.RunLease, done int64, results ...outbox.RunResult) outbox.RunStatus {
	f.tb.Helper()
	status, err := f.ReportRun(f.ctx, l, store.RunReport{Results: results, EventsDone: done, EventsPerSecond: 2, Lease: lease})
	if err != nil {
		f.tb.Fatal(err)
	}
	return status
}

func (f *fixture) finish(l store.RunLease, status outbox.RunStatus, why string) outbox.Run {
	f.tb.Helper()
	run, err := f.FinishRun(f.ctx, l, status, why)
	if err != nil {
		f.tb.Fatal(err)
	}
	return run
}

func result(campaign, outcome string, events int64) outbox.RunResult {
	return outbox.RunResult{CampaignID: campaign, Outcome: outcome, Seq: events, Events: events}
}

func TestStartRun_isQueuedWithItsScopeAndItsRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 2)
	f.append("b", 1)
	got := f.startRun(outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: []string{"b", "a", "b"}, Projections: []string{"history", "roster"}, Rate: 500})
	want := outbox.Run{ID: got.ID, Kind: outbox.RunRebuild, Status: outbox.RunQueued, CampaignIDs: []string{"a", "b"},
		Projections: []string{"roster", "history"}, Versions: versionsRuns, Rate: 500, Reason: "looks odd", RequestedBy: "ana", Via: "page", RequestID: "r-1",
		RequestedAt: began, UpdatedAt: began, Digests: map[string]string{}, Before: map[string]string{}}
	if diff := cmp.Diff(want, got); diff != "" || got.ID == 0 {
		t.Errorf("run (-want +got): %s", diff)
	}
	if diff := cmp.Diff(got, f.run(got.ID)); diff != "" {
		t.Errorf("read again (-want +got): %s", diff)
	}
	acts := f.actsOf("run_start")
	if len(acts) != 1 || acts[0].CampaignID != "" || !strings.Contains(string(acts[0].After), fmt.Sprintf(`"run_id":%d`, got.ID)) || !strings.Contains(string(acts[0].Before), `"rebuild"`) {
		t.Errorf("records are %+v", acts)
	}
}

func TestStartRun_ofOneCampaignIsRecordedThere(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 5)
	run := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 5, Projections: []string{"history"}})
	if run.CampaignID != "a" || run.UntilSeq != 5 || run.Scope() != "projection history of campaign a" {
		t.Errorf("run is %+v", run)
	}
	if acts := f.actsOf("run_start"); acts[0].CampaignID != "a" {
		t.Errorf("record is %+v", acts[0])
	}
}

func TestStartRun_refusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	many := make([]string, outbox.MaxRunCampaigns+1)
	for i := range many {
		many[i] = fmt.Sprint("x-", i)
	}
	for name, c := range map[string]struct {
		order    outbox.RunOrder
		kind     error
		sentence string
	}{
		"no kind":            {outbox.RunOrder{All: true}, outbox.ErrInvalid, `kind "" is unknown`},
		"other kind":         {outbox.RunOrder{Kind: "mend", All: true}, outbox.ErrInvalid, `kind "mend" is unknown`},
		"no campaigns":       {outbox.RunOrder{Kind: outbox.RunVerify}, outbox.ErrInvalid, "say which campaigns"},
		"some and all":       {outbox.RunOrder{Kind: outbox.RunVerify, All: true, Campaigns: []string{"a"}}, outbox.ErrInvalid, "one of the two"},
		"too many":           {rebuild(many...), outbox.ErrInvalid, "the limit is 1000"},
		"unknown campaign":   {rebuild("a", "nowhere"), outbox.ErrNotFound, `campaign "nowhere" is unknown`},
		"unknown projection": {outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"rosters"}}, outbox.ErrInvalid, "use one of: roster, history"},
		"until of a rebuild": {outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: []string{"a"}, UntilSeq: 1}, outbox.ErrInvalid, "until_seq is for a verify"},
		"until of all":       {outbox.RunOrder{Kind: outbox.RunVerify, All: true, UntilSeq: 1}, outbox.ErrInvalid, "until_seq is for a verify"},
		"until too far":      {outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 4}, outbox.ErrInvalid, `until_seq is 4, and campaign "a" has 3 events`},
		"until below 0":      {outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: -1}, outbox.ErrInvalid, "until_seq must be 1"},
		"rate below 0":       {outbox.RunOrder{Kind: outbox.RunVerify, All: true, Rate: -1}, outbox.ErrInvalid, "rate is"},
	} {
		f.unchanged(func() {
			_, err := f.StartRun(f.ctx, ana(""), c.order, loadedRuns)
			t.Log(name)
			refused(t, err, c.kind, c.sentence)
		})
	}
	_, err := f.StartRun(f.ctx, ana(""), verifyAll(), nil)
	refused(t, err, outbox.ErrConflict, "no projection is loaded")
}

func TestStartRun_needsAReasonWhereActsDo(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	_, err := f.StartRun(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrInvalid, "every act needs a reason")
	run := f.startRun(verifyAll())
	_, err = f.CancelRun(f.ctx, ana(""), run.ID)
	refused(t, err, outbox.ErrInvalid, "every act needs a reason")
}

func TestStartRun_inShadowModeOnlyVerifies(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeShadow))
	f.append("a", 1)
	for _, kind := range []outbox.RunKind{outbox.RunReplay, outbox.RunRebuild} {
		_, err := f.StartRun(f.ctx, ana(""), outbox.RunOrder{Kind: kind, All: true}, loadedRuns)
		refused(t, err, outbox.ErrConflict, "shadow_only", "a verify may run")
	}
	f.startRun(verifyAll())
}

func TestStartRun_isRefusedByAReadOnlyStore(t *testing.T) {
	t.Parallel()
	f := open(t, readOnly)
	_, err := f.StartRun(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrReadOnly)
}

func TestStartRun_answersARepeatedOrderWithTheFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	o := ana("")
	o.IdempotencyKey = "k"
	first, err := f.StartRun(f.ctx, o, rebuild("a"), loadedRuns)
	if err != nil {
		t.Fatal(err)
	}
	f.unchanged(func() {
		repeated := rebuild("a", "a")
		repeated.Projections = []string{}
		again, err := f.StartRun(f.ctx, o, repeated, loadedRuns)
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Errorf("repeated (-first +again): %s%v", diff, err)
		}
		_, err = f.StartRun(f.ctx, o, outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}}, loadedRuns)
		refused(t, err, outbox.ErrConflict, "Idempotency-Key")
	})
}

func TestStartRun_isRefusedWhileAnotherHasAPartOfItsScope(t *testing.T) {
	t.Parallel()
	part := func(projections ...string) outbox.RunOrder {
		r := rebuild("a", "b")
		r.Projections = projections
		return r
	}
	for name, c := range map[string]struct {
		first, second outbox.RunOrder
		free          bool
	}{
		"the same":                 {rebuild("a"), rebuild("a"), false},
		"another kind":             {rebuild("a"), outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}}, false},
		"one of several":           {rebuild("a", "b"), rebuild("b", "c"), false},
		"other campaigns":          {rebuild("a"), rebuild("b", "c"), true},
		"all after one":            {rebuild("b"), verifyAll(), false},
		"one after all":            {verifyAll(), rebuild("b"), false},
		"all after all":            {verifyAll(), verifyAll(), false},
		"another projection":       {part("roster"), part("history"), true},
		"a projection in common":   {part("history"), part("roster", "history"), false},
		"all of other projections": {part("roster"), outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"history"}}, true},
	} {
		f := open(t)
		for _, id := range []string{"a", "b", "c"} {
			f.append(id, 1)
		}
		run := f.startRun(c.first)
		f.clock.advance(4 * time.Minute)
		_, err := f.StartRun(f.ctx, ana(""), c.second, loadedRuns)
		if c.free {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			t.Log(name)
			refused(t, err, outbox.ErrConflict, fmt.Sprintf("run %d is in the way: a %s of %s, queued, started by ana 4 min ago; wait until it has ended, or cancel it", run.ID, run.Kind, run.Scope()))
		}
		if _, err = f.CancelRun(f.ctx, ana(""), run.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := f.StartRun(f.ctx, ana(""), c.second, loadedRuns); err != nil && !c.free {
			t.Errorf("%s, after it was cancelled: %v", name, err)
		}
		f.release()
	}
}

func TestStartRun_ofManyAtOnceOneIsAccepted(t *testing.T) {
	t.Parallel()
	for name, orders := range map[string][]outbox.RunOrder{
		"one campaign":         {rebuild("a")},
		"all":                  {verifyAll()},
		"all and one":          {verifyAll(), rebuild("a")},
		"overlapping and all":  {rebuild("a", "b"), rebuild("b", "c", "a"), verifyAll()},
		"projections in a row": {{Kind: outbox.RunReplay, All: true, Projections: []string{"history"}}, rebuild("c", "a")},
	} {
		f := open(t)
		for _, id := range []string{"a", "b", "c"} {
			f.append(id, 1)
		}
		stores := []*fixture{f, f.beside()}
		var accepted atomic.Int64
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_, err := stores[i%2].StartRun(f.ctx, ana(""), orders[i%len(orders)], loadedRuns)
				switch {
				case err == nil:
					accepted.Add(1)
				case !errors.Is(err, outbox.ErrConflict):
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		if n, stored := accepted.Load(), f.number(`select count(*) from runs`); n != 1 || stored != 1 {
			t.Errorf("%s: %d runs were accepted and %d are stored, want one", name, n, stored)
		}
		for _, s := range stores {
			s.release()
		}
	}
}

func TestStartRun_oneScopeIsOfOneActiveRunByItsIndexToo(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	run := f.startRun(rebuild("a"))
	if _, err := f.journal.Exec(`insert into run_scopes (run_id, campaign_id, projection, active) values ($1, 'a', 'roster', 1)`, run.ID+1); err == nil {
		t.Error("two active runs have one scope")
	}
}

func TestOnRun_tellsOfWhatWasStartedResumedAndCancelled(t *testing.T) {
	t.Parallel()
	f := open(t)
	told := 0
	f.OnRun(func() { told++ })
	run := f.startRun(verifyAll())
	_, err := f.StartRun(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrConflict)
	if told != 1 {
		t.Errorf("told %d times of one run", told)
	}
	l := f.claimRun(one)
	f.finish(l, outbox.RunInterrupted, "no reason")
	if _, err := f.ResumeRun(f.ctx, ana(""), run.ID, loadedRuns); err != nil || told != 2 {
		t.Errorf("told %d times, %v", told, err)
	}
	if _, err := f.CancelRun(f.ctx, ana(""), run.ID); err != nil || told != 3 {
		t.Errorf("told %d times, %v", told, err)
	}
}

func TestClaimRun_takesTheOldestOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.noRun(one)
	first, second := f.startRun(rebuild("a")), f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"b"}, UntilSeq: 2})
	f.clock.advance(time.Second)
	l := f.claimRun(one)
	now := f.clock.now()
	if l.Run.ID != first.ID || l.Owner != one.ID || l.Epoch != 1 || l.Run.Status != outbox.RunRunning || !l.Run.StartedAt.Equal(now) || l.Run.Attempts != 1 ||
		l.Run.Campaigns.Total != 1 || l.Run.Events.Total != 3 || l.Run.Lease == nil || !l.Run.Lease.ExpiresAt.Equal(now.Add(lease)) {
		t.Errorf("lease is %+v", l)
	}
	if l := f.claimRun(one); l.Run.ID != second.ID || l.Run.Events.Total != 2 {
		t.Errorf("lease is %+v, want run %d", l, second.ID)
	}
	f.noRun(two)
}

func TestClaimRun_countsWhatARunOverAllIsAbout(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.startRun(verifyAll())
	if l := f.claimRun(one); l.Run.Campaigns.Total != 2 || l.Run.Events.Total != 7 {
		t.Errorf("totals are %+v and %+v", l.Run.Campaigns, l.Run.Events)
	}
}

func TestClaimRun_byManyAtOnceGivesEachRunOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 8 {
		id := fmt.Sprint("c-", i)
		f.append(id, 1)
		f.startRun(rebuild(id))
	}
	stores := []*fixture{f, f.beside()}
	var mu sync.Mutex
	taken := map[int64]int{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				l, ok, err := stores[i%2].ClaimRun(f.ctx, store.Worker{ID: fmt.Sprint("w-", i)}, versionsRuns, lease)
				if err != nil {
					t.Error(err)
				}
				if ok {
					mu.Lock()
					taken[l.Run.ID]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if len(taken) != 8 {
		t.Errorf("runs taken: %v, want eight", taken)
	}
	for id, n := range taken {
		if n != 1 {
			t.Errorf("run %d was taken %d times", id, n)
		}
	}
}

func TestClaimRun_takesOverWhereAnotherStopped(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 3)
	f.append("b", 4)
	f.startRun(verifyAll())
	l := f.claimRun(one)
	f.report(l, 5, result("a", outbox.OutcomeMatch, 3)) // and two events of b
	f.clock.advance(lease - 1)
	f.noRun(two)
	f.clock.advance(time.Second)
	next := f.claimRun(two)
	if next.Epoch != 2 || next.Run.Attempts != 2 || next.Run.Events.Done != 3 || next.Run.Campaigns.Done != 1 || !next.Run.StartedAt.Equal(began) {
		t.Errorf("lease is %+v, want the events of what is done and no more", next)
	}
	f.unchanged(func() {
		_, err := f.ReportRun(f.ctx, l, store.RunReport{Results: []outbox.RunResult{result("b", outbox.OutcomeDrift, 4)}, Lease: lease})
		_, err2 := f.FinishRun(f.ctx, l, outbox.RunCompleted, "")
		_, err3 := f.RunScope(f.ctx, l, "", 10)
		for _, err := range []error{err, err2, err3, f.ReleaseRun(f.ctx, l)} {
			if !errors.Is(err, outbox.ErrLeaseLost) {
				t.Errorf("the former holder got %v", err)
			}
		}
	})
}

func TestClaimRun_againByTheSameWorkerEndsItsFormerLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	former := f.claimRun(one)
	f.clock.advance(lease)
	f.claimRun(one)
	if _, err := f.ReportRun(f.ctx, former, store.RunReport{Lease: lease}); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("with its former epoch the worker got %v", err)
	}
}

func TestEndRunLeases_letsAnotherTakeOverAtOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	f.claimRun(one)
	if err := f.EndRunLeases(f.ctx, two.ID); err != nil {
		t.Fatal(err)
	}
	f.noRun(two)
	if err := f.EndRunLeases(f.ctx, one.ID); err != nil {
		t.Fatal(err)
	}
	f.claimRun(two)
	if err := f.EndRunLeases(f.ctx, ""); err != nil {
		t.Fatal(err)
	}
	f.claimRun(one)
}

func TestReleaseRun_isNoAttempt(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	for range 5 {
		if err := f.ReleaseRun(f.ctx, f.claimRun(one)); err != nil {
			t.Fatal(err)
		}
		if got := f.run(run.ID); got.Status != outbox.RunRunning || got.Lease != nil || got.Attempts != 0 {
			t.Errorf("released run is %+v", got)
		}
	}
}

func TestClaimRun_givesUpARunThatTookThreeProcessesDown(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	for range 3 {
		f.claimRun(one)
		f.clock.advance(lease)
	}
	f.noRun(one)
	got := f.run(run.ID)
	if got.Status != outbox.RunInterrupted || got.Error != "its process died three times while working on it; resume it to try again" || got.FinishedAt == nil || got.Lease != nil || got.Verdict != "" {
		t.Errorf("run is %+v", got)
	}
	f.startRun(verifyAll()) // its scope is free
}

func TestClaimRun_leavesProjectionsOfOtherVersionsAlone(t *testing.T) {
	t.Parallel()
	f := open(t)
	waiting := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"history"}})
	others := map[string]string{"roster": "v1", "history": "v3"}
	claim := func(versions map[string]string) (store.RunLease, bool) {
		l, ok, err := f.ClaimRun(f.ctx, two, versions, lease)
		if err != nil {
			t.Fatal(err)
		}
		return l, ok
	}
	f.unchanged(func() {
		for _, versions := range []map[string]string{others, nil, {"roster": "v1"}} {
			if _, ok := claim(versions); ok {
				t.Errorf("a process with %v took the run", versions)
			}
		}
	})
	behind := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{"roster"}})
	if l, ok := claim(others); !ok || l.Run.ID != behind.ID {
		t.Errorf("claimed %+v, want the run behind", l)
	}
	if l := f.claimRun(one); l.Run.ID != waiting.ID {
		t.Errorf("claimed %+v, want the run that waited", l)
	}
	f.clock.advance(lease)
	// It was begun: nobody may ever have its projections again.
	for _, id := range []int64{waiting.ID, behind.ID} {
		claim(map[string]string{"history": "v3"})
		if got := f.run(id); got.Status != outbox.RunInterrupted || got.Error != "the projection files have changed since it began; start a new run" {
			t.Errorf("run is %+v", got)
		}
	}
}

func TestClaimRun_doesNotLeaveARunWaitingForEverForItsProjections(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	f.clock.advance(10 * time.Minute)
	if _, ok, err := f.ClaimRun(f.ctx, one, map[string]string{"roster": "v9"}, lease); ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := f.run(run.ID); got.Status != outbox.RunInterrupted || !strings.Contains(got.Error, "start a new run") {
		t.Errorf("run is %+v", got)
	}
}

func TestRunScope_walksWhatHasNoResultYet(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		f.append(id, 2)
	}
	for _, order := range []outbox.RunOrder{verifyAll(), rebuild("e", "a", "b", "d", "c")} {
		run := f.startRun(order)
		l := f.claimRun(one)
		f.report(l, 0, result("b", outbox.OutcomeMatch, 2), result("d", outbox.OutcomeFailed, 2))
		var got []string
		after := ""
		for range 5 {
			scope, err := f.RunScope(f.ctx, l, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(scope) == 0 {
				break
			}
			for _, c := range scope {
				if c.HighWaterSeq != 2 || c.AppliedSeq != 0 {
					t.Errorf("campaign is %+v", c)
				}
				got = append(got, c.CampaignID)
			}
			after = scope[len(scope)-1].CampaignID
		}
		if diff := cmp.Diff([]string{"a", "c", "e"}, got); diff != "" {
			t.Errorf("scope (-want +got): %s", diff)
		}
		f.finish(l, outbox.RunInterrupted, "enough")
		if scope := f.run(run.ID); scope.Status != outbox.RunInterrupted {
			t.Error(scope)
		}
	}
}

func TestReportRun_writesProgressResultsAndLog(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 4)
	f.append("b", 6)
	run := f.startRun(verifyAll())
	l := f.claimRun(one)
	f.clock.advance(20 * time.Second)
	drifted := result("a", outbox.OutcomeDrift, 4)
	drifted.Full, drifted.At = "sha256:full", f.clock.now()
	comparison := outbox.Comparison{Changed: 2, FirstSeq: 3, Samples: []outbox.RowChange{{Table: "roster", Kind: outbox.RowChanged,
		Key: []outbox.Field{{Name: "id", Value: []byte(`"x"`)}}, Fields: []outbox.FieldChange{{Name: "n", Live: []byte("1"), Fold: []byte("2")}}}}}
	drifted.Projections = []outbox.ProjectionResult{
		{Projection: "roster", Verdict: outbox.VerdictDrift, Digest: "sha256:f", Before: "sha256:l", Seq: 4, Comparison: &comparison},
		{Projection: "history", Verdict: outbox.VerdictMatch, Digest: "sha256:h", Before: "sha256:h", Seq: 4}}
	long := strings.Repeat("é", 40_000) + "\x00\xff"
	status, err := f.ReportRun(f.ctx, l, store.RunReport{Results: []outbox.RunResult{drifted}, EventsDone: 5, EventsPerSecond: 2.5, Lease: lease,
		Lines: []outbox.RunLine{{CampaignID: "a", Text: "2 rows differ"}, {Text: long}}})
	if err != nil || status != outbox.RunRunning {
		t.Fatal(status, err)
	}
	got := f.run(run.ID)
	if got.Campaigns != (outbox.Progress{Done: 1, Total: 2}) || got.Events != (outbox.Progress{Done: 5, Total: 10}) || got.Counts != (outbox.RunCounts{Drifted: 1}) ||
		got.EventsPerSecond != 2.5 || got.SecondsLeft == nil || *got.SecondsLeft != 2 || !got.Lease.ExpiresAt.Equal(f.clock.now().Add(lease)) || got.Verdict != "" {
		t.Errorf("run is %+v", got)
	}
	whole, err := f.RunResultOf(f.ctx, run.ID, "a")
	if diff := cmp.Diff(drifted, whole); diff != "" || err != nil {
		t.Errorf("result (-want +got): %s%v", diff, err)
	}
	page, err := f.RunResults(f.ctx, outbox.ResultFilter{RunID: run.ID})
	if err != nil || len(page.Items) != 1 || page.Items[0].Projections[0].Comparison.Changed != 2 || len(page.Items[0].Projections[0].Comparison.Samples) != 0 {
		t.Errorf("results are %+v, %v, want no samples", page.Items, err)
	}
	lines, err := f.RunLog(f.ctx, run.ID, "", 0)
	if err != nil || len(lines.Items) != 2 || lines.Items[1].Text != "2 rows differ" || lines.Items[1].CampaignID != "a" || !lines.Items[1].At.Equal(f.clock.now()) ||
		len(lines.Items[0].Text) != 64<<10 {
		t.Errorf("log is %d lines, %v", len(lines.Items), err)
	}
	// A campaign that is done again counts once.
	f.report(l, 9, result("a", outbox.OutcomeMatch, 4))
	if got := f.run(run.ID); got.Counts != (outbox.RunCounts{Matched: 1}) || got.Campaigns.Done != 1 {
		t.Errorf("run is %+v", got)
	}
}

// A run over all goes on to what is appended while it works.
func TestReportRun_progressNeverPassesItsTotalNorGoesBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 4)
	run := f.startRun(verifyAll())
	l := f.claimRun(one)
	f.append("b", 6)
	f.report(l, 4, result("a", outbox.OutcomeMatch, 4))
	f.report(l, 10, result("b", outbox.OutcomeMatch, 6))
	f.report(l, 9)
	if got := f.run(run.ID); got.Events != (outbox.Progress{Done: 10, Total: 10}) || got.Campaigns != (outbox.Progress{Done: 2, Total: 2}) {
		t.Errorf("run is %+v", got)
	}
}

func TestReportRun_renewsTheLease(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	l := f.claimRun(one)
	for range 5 {
		f.clock.advance(lease * 3 / 4)
		f.report(l, 0)
		f.noRun(two)
	}
}

func TestReportRun_notesVerifications(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 4)
	drifted := result("a", outbox.OutcomeDrift, 4)
	drifted.Projections = []outbox.ProjectionResult{
		{Projection: "roster", Verdict: outbox.VerdictDrift, Digest: "d", Seq: 4, Comparison: &outbox.Comparison{Added: 1, Changed: 2, Removed: 3, FirstSeq: 2}},
		{Projection: "history", Verdict: outbox.VerdictMatch, Digest: "h"}}
	verifications := func() []outbox.Verification {
		t.Helper()
		all, err := f.Verifications(f.ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	verify := func(order outbox.RunOrder) outbox.Run {
		f.clock.advance(time.Minute)
		f.startRun(order)
		l := f.claimRun(one)
		f.report(l, 4, drifted)
		return f.finish(l, outbox.RunCompleted, "")
	}
	verify(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2})
	verify(outbox.RunOrder{Kind: outbox.RunReplay, All: true})
	if got := verifications(); len(got) != 0 {
		t.Errorf("verifications of a prefix and of a replay: %+v", got)
	}
	run := verify(verifyAll())
	when := f.clock.now()
	want := []outbox.Verification{
		{CampaignID: "a", Projection: "history", At: when, Seq: 4, Verdict: outbox.VerdictMatch, RunID: run.ID, Digest: "h"},
		{CampaignID: "a", Projection: "roster", At: when, Seq: 4, Verdict: outbox.VerdictDrift, RunID: run.ID, Digest: "d", Added: 1, Changed: 2, Removed: 3, FirstSeq: 2}}
	if diff := cmp.Diff(want, verifications()); diff != "" {
		t.Errorf("verifications (-want +got): %s", diff)
	}
	if got, err := f.Drifted(f.ctx, 0); err != nil || !cmp.Equal(got, want[1:]) {
		t.Errorf("drifted are %+v, %v", got, err)
	}
	f.unchanged(func() { // by an older comparison
		if err := f.NoteVerifications(f.ctx, []outbox.Verification{{CampaignID: "a", Projection: "roster", At: when.Add(-1), Verdict: outbox.VerdictMatch}}); err != nil {
			t.Fatal(err)
		}
	})
	run = verify(rebuild("a"))
	if run.Verdict != outbox.VerdictDrift {
		t.Errorf("run is %+v, want a drift found", run)
	}
	if got := verifications(); got[1].Verdict != outbox.VerdictMatch || got[1].Changed != 0 || got[1].RunID != run.ID {
		t.Errorf("after the rebuild: %+v, want a match", got)
	}
	_, err := f.Verifications(f.ctx, "nowhere")
	refused(t, err, outbox.ErrNotFound)
}

func TestFinishRun_saysHowItEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind    outbox.RunKind
		outcome string
		as      outbox.RunStatus
		why     string
		status  outbox.RunStatus
		verdict outbox.Verdict
		error   string
	}{
		"match":             {outbox.RunVerify, outbox.OutcomeMatch, outbox.RunCompleted, "", outbox.RunCompleted, outbox.VerdictMatch, ""},
		"drift":             {outbox.RunVerify, outbox.OutcomeDrift, outbox.RunCompleted, "", outbox.RunCompleted, outbox.VerdictDrift, ""},
		"replay":            {outbox.RunReplay, outbox.OutcomeReplayed, outbox.RunCompleted, "", outbox.RunCompleted, "", ""},
		"failed":            {outbox.RunRebuild, outbox.OutcomeFailed, outbox.RunFailed, "boom", outbox.RunFailed, "", "boom"},
		"failed but called": {outbox.RunRebuild, outbox.OutcomeFailed, outbox.RunCompleted, "", outbox.RunFailed, "", "1 of 1 campaigns could not be done; see what failed, mend it and resume the run"},
		"interrupted":       {outbox.RunVerify, outbox.OutcomeMatch, outbox.RunInterrupted, "gone", outbox.RunInterrupted, "", "gone"},
		"interrupted drift": {outbox.RunVerify, outbox.OutcomeDrift, outbox.RunInterrupted, "gone", outbox.RunInterrupted, outbox.VerdictDrift, "gone"},
	} {
		f := open(t)
		f.append("a", 4)
		f.startRun(outbox.RunOrder{Kind: c.kind, Campaigns: []string{"a"}})
		l := f.claimRun(one)
		r := result("a", c.outcome, 4)
		r.Full, r.Projections = "sha256:full", []outbox.ProjectionResult{{Projection: "roster", Digest: "sha256:new", Before: "sha256:old"}}
		f.report(l, 4, r)
		run := f.finish(l, c.as, c.why)
		if run.Status != c.status || run.Verdict != c.verdict || run.Error != c.error || run.FinishedAt == nil || run.Lease != nil || run.EventsPerSecond != 0 {
			t.Errorf("%s: run is %+v", name, run)
		}
		if done := c.outcome != outbox.OutcomeFailed; done && (run.Seq != 4 || run.Digests["full"] != "sha256:full" || run.Digests["roster"] != "sha256:new" || run.Before["roster"] != "sha256:old") || !done && run.Seq != 0 {
			t.Errorf("%s: digests are %v and %v at %d", name, run.Digests, run.Before, run.Seq)
		}
		if diff := cmp.Diff(run, f.run(run.ID)); diff != "" {
			t.Errorf("%s: read again %s", name, diff)
		}
		f.startRun(rebuild("a")) // the scope is free
		if _, err := f.FinishRun(f.ctx, l, c.as, "again"); !errors.Is(err, outbox.ErrLeaseLost) {
			t.Errorf("%s: it ended twice: %v", name, err)
		}
		f.release()
	}
}

func TestFinishRun_refusesWhatIsNoEnd(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.startRun(verifyAll())
	l := f.claimRun(one)
	f.unchanged(func() {
		for _, status := range []outbox.RunStatus{"", outbox.RunQueued, outbox.RunRunning, outbox.RunCancelling, outbox.RunCancelled, outbox.RunFailed, outbox.RunInterrupted} {
			if _, err := f.FinishRun(f.ctx, l, status, ""); err == nil {
				t.Errorf("it ended as %q", status)
			}
		}
	})
}

func TestCancelRun_inEachState(t *testing.T) {
	t.Parallel()
	f := open(t)
	cancel := func(id int64) (outbox.Run, error) { return f.CancelRun(f.ctx, ana("no need"), id) }

	queued := f.startRun(verifyAll())
	run, err := cancel(queued.ID)
	if err != nil || run.Status != outbox.RunCancelled || run.CancelledBy != "ana" || run.FinishedAt == nil || run.Verdict != "" {
		t.Errorf("a queued run became %+v, %v", run, err)
	}
	f.clock.advance(time.Minute)
	_, err = cancel(queued.ID)
	refused(t, err, outbox.ErrConflict, fmt.Sprintf("run %d is cancelled already; it ended 1 min ago", queued.ID))

	running := f.startRun(verifyAll())
	l := f.claimRun(one)
	if run, err = cancel(running.ID); err != nil || run.Status != outbox.RunCancelling || run.FinishedAt != nil || run.Lease == nil {
		t.Errorf("a running run became %+v, %v", run, err)
	}
	_, err = cancel(running.ID)
	refused(t, err, outbox.ErrConflict, "being cancelled already, by ana", one.ID)
	_, err = f.StartRun(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrConflict, "cancelling")
	if status := f.report(l, 0); status != outbox.RunCancelling {
		t.Errorf("its worker was told %s", status)
	}
	if run := f.finish(l, outbox.RunCancelled, ""); run.Status != outbox.RunCancelled {
		t.Errorf("it ended as %+v", run)
	}

	lost := f.startRun(verifyAll())
	former := f.claimRun(one)
	f.clock.advance(lease)
	if run, err = cancel(lost.ID); err != nil || run.Status != outbox.RunCancelled {
		t.Errorf("a run that nobody holds became %+v, %v", run, err)
	}
	if _, err := f.ReportRun(f.ctx, former, store.RunReport{Lease: lease}); !errors.Is(err, outbox.ErrLeaseLost) {
		t.Errorf("its former holder got %v", err)
	}

	left := f.startRun(verifyAll())
	f.claimRun(one)
	if _, err = cancel(left.ID); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(lease)
	f.noRun(two)
	if run := f.run(left.ID); run.Status != outbox.RunCancelled {
		t.Errorf("a cancelling run whose holder is gone is %+v", run)
	}
	_, err = cancel(999)
	refused(t, err, outbox.ErrNotFound, "there is no run 999")
	if acts := f.actsOf("run_cancel"); len(acts) != 4 || acts[0].Reason != "no need" {
		t.Errorf("records are %+v", acts)
	}
}

func TestResumeRun_goesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.append(id, 2)
	}
	run := f.startRun(verifyAll())
	l := f.claimRun(one)
	f.report(l, 4, result("a", outbox.OutcomeMatch, 2), result("b", outbox.OutcomeFailed, 2))
	f.finish(l, outbox.RunFailed, "boom")
	f.clock.advance(time.Minute)
	got, err := f.ResumeRun(f.ctx, ana("mended"), run.ID, loadedRuns)
	if err != nil || got.Status != outbox.RunQueued || got.Attempts != 0 || got.Error != "" || got.FinishedAt != nil || got.Campaigns.Done != 1 || got.Counts.Failed != 0 || got.Events.Done != 2 {
		t.Errorf("resumed run is %+v, %v", got, err)
	}
	_, err = f.StartRun(f.ctx, ana(""), rebuild("a"), loadedRuns)
	refused(t, err, outbox.ErrConflict, "in the way")
	l = f.claimRun(two)
	scope, err := f.RunScope(f.ctx, l, "", 10)
	if err != nil || len(scope) != 2 || scope[0].CampaignID != "b" || scope[1].CampaignID != "c" || l.Epoch != 2 {
		t.Errorf("what is left is %+v, %v", scope, err)
	}
	if acts := f.actsOf("run_resume"); len(acts) != 1 || !strings.Contains(string(acts[0].Before), "failed") {
		t.Errorf("records are %+v", acts)
	}
}

func TestResumeRun_isRefusedWhereItCannotGoOn(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	run := f.startRun(rebuild("a"))
	resume := func(loaded []outbox.ProjectionInfo) error {
		_, err := f.ResumeRun(f.ctx, ana(""), run.ID, loaded)
		return err
	}
	refused(t, resume(loadedRuns), outbox.ErrConflict, "is queued; only a run that was interrupted or failed is resumed")
	l := f.claimRun(one)
	refused(t, resume(loadedRuns), outbox.ErrConflict, "is running")
	f.finish(l, outbox.RunInterrupted, "gone")
	for _, loaded := range [][]outbox.ProjectionInfo{nil, loadedRuns[:1], {{Name: "roster", Version: "v9"}, loadedRuns[1]}} {
		f.unchanged(func() { refused(t, resume(loaded), outbox.ErrConflict, "have changed since it began; start a new run") })
	}
	other := f.startRun(verifyAll())
	f.unchanged(func() {
		refused(t, resume(loadedRuns), outbox.ErrConflict, fmt.Sprintf("run %d is in the way", other.ID))
	})
	if _, err := f.CancelRun(f.ctx, ana(""), other.ID); err != nil {
		t.Fatal(err)
	}
	if err := resume(loadedRuns); err != nil {
		t.Error(err)
	}
	l = f.claimRun(one)
	f.finish(l, outbox.RunCompleted, "")
	refused(t, resume(loadedRuns), outbox.ErrConflict, "is completed")
}

func TestCancelRun_answersARepeatedOrderWithTheFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	of := func(projection string) outbox.RunOrder {
		return outbox.RunOrder{Kind: outbox.RunVerify, All: true, Projections: []string{projection}}
	}
	run, other := f.startRun(of("roster")), f.startRun(of("history"))
	o := ana("")
	o.IdempotencyKey = "k"
	first, err := f.CancelRun(f.ctx, o, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.unchanged(func() {
		again, err := f.CancelRun(f.ctx, o, run.ID)
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Errorf("repeated (-first +again): %s%v", diff, err)
		}
		_, err = f.CancelRun(f.ctx, o, other.ID)
		refused(t, err, outbox.ErrConflict, "Idempotency-Key")
	})
}

func TestRuns_pagesBothWaysAndFilters(t *testing.T) {
	t.Parallel()
	f := open(t)
	var ids []int64
	for i := range 5 {
		id := fmt.Sprint("c-", i)
		f.append(id, 1)
		ids = append(ids, f.startRun(rebuild(id)).ID)
	}
	if _, err := f.CancelRun(f.ctx, ana(""), ids[1]); err != nil {
		t.Fatal(err)
	}
	list := func(filter outbox.RunFilter) ([]int64, outbox.Page[outbox.Run]) {
		t.Helper()
		page, err := f.Runs(f.ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range page.Items {
			got = append(got, r.ID)
		}
		return got, page
	}
	is := func(got []int64, want ...int64) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("runs (-want +got): %s", diff)
		}
	}
	got, page := list(outbox.RunFilter{Limit: 2})
	is(got, ids[4], ids[3])
	got, page = list(outbox.RunFilter{Limit: 2, Cursor: *page.NextCursor})
	is(got, ids[2], ids[1])
	got, _ = list(outbox.RunFilter{Limit: 2, Cursor: *page.PrevCursor})
	is(got, ids[4], ids[3])
	got, _ = list(outbox.RunFilter{Status: outbox.RunCancelled})
	is(got, ids[1])
	got, _ = list(outbox.RunFilter{Kind: outbox.RunVerify})
	is(got)
	all := f.startRun(outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"c-1"}})
	got, _ = list(outbox.RunFilter{CampaignID: "c-1"})
	is(got, all.ID, ids[1])
	active, err := f.ActiveRuns(f.ctx)
	if err != nil || len(active) != 5 || active[0].ID != ids[0] {
		t.Errorf("active runs are %+v, %v", active, err)
	}
	if _, err := f.Runs(f.ctx, outbox.RunFilter{Cursor: "x"}); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("a wrong cursor is %v", err)
	}
}

func TestRunResults_pagesByCampaignAndOutcome(t *testing.T) {
	t.Parallel()
	f := open(t)
	run := f.startRun(verifyAll())
	l := f.claimRun(one)
	var results []outbox.RunResult
	for i := range 6 {
		results = append(results, result(fmt.Sprint("c-", i), []string{outbox.OutcomeMatch, outbox.OutcomeDrift, outbox.OutcomeFailed}[i%3], 1))
	}
	f.report(l, 6, results...)
	list := func(filter outbox.ResultFilter) (got []string, page outbox.Page[outbox.RunResult]) {
		t.Helper()
		filter.RunID = run.ID
		page, err := f.RunResults(f.ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			got = append(got, r.CampaignID)
		}
		return got, page
	}
	got, page := list(outbox.ResultFilter{Limit: 4})
	rest, page := list(outbox.ResultFilter{Limit: 4, Cursor: *page.NextCursor})
	back, _ := list(outbox.ResultFilter{Limit: 4, Cursor: *page.PrevCursor})
	if diff := cmp.Diff([]string{"c-0", "c-1", "c-2", "c-3", "c-4", "c-5", "c-0", "c-1", "c-2", "c-3"}, append(append(got, rest...), back...)); diff != "" {
		t.Error(diff)
	}
	if got, _ = list(outbox.ResultFilter{Outcome: outbox.OutcomeDrift}); !cmp.Equal(got, []string{"c-1", "c-4"}) {
		t.Errorf("drifted are %v", got)
	}
	_, err := f.RunResults(f.ctx, outbox.ResultFilter{RunID: 99})
	refused(t, err, outbox.ErrNotFound)
	_, err = f.RunLog(f.ctx, 99, "", 0)
	refused(t, err, outbox.ErrNotFound)
	_, err = f.RunResultOf(f.ctx, run.ID, "nowhere")
	refused(t, err, outbox.ErrNotFound, "no result")
}

func TestStalestCampaigns_choosesWhatWasNotVerifiedForLongest(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.append(id, 1)
	}
	f.drain()
	f.append("new", 1)
	var notes []outbox.Verification
	for i, id := range []string{"a", "b", "d"} {
		notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(10-i) * time.Minute), Verdict: outbox.VerdictMatch})
	}
	if err := f.NoteVerifications(f.ctx, notes); err != nil {
		t.Fatal(err)
	}
	got, next, err := f.StalestCampaigns(f.ctx, "", 3)
	if err != nil || next != "" || len(got) != 3 || got[0].CampaignID != "c" || got[1].CampaignID != "d" || got[2].CampaignID != "b" || got[0].AppliedSeq != 1 {
		t.Errorf("stalest are %+v, %q, %v", got, next, err)
	}
	if got, _, err = f.StalestCampaigns(f.ctx, "b", 9); err != nil || len(got) != 2 {
		t.Errorf("after b they are %+v, %v", got, err)
	}
}

func TestPostgresStartRun_waitsForAnAdmissionUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	// Another process is about to start a run over all campaigns.
	other, err := f.journal.BeginTx(f.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	for _, statement := range []string{
		`select pg_advisory_xact_lock(1869968498, hashtext(current_schema()))`,
		`insert into runs (kind, status, campaign_ids, all_campaigns, projections, versions, reason, requested_by, via, request_id, requested_at, updated_at)
values ('verify', 'queued', '[]', 1, '["roster"]', '{}', '', 'ben', 'api', '', 1, 1)`,
		`insert into run_scopes (run_id, campaign_id, projection, active) select id, '', 'roster', 1 from runs`,
	} {
		if _, err := other.ExecContext(f.ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	answer := make(chan error)
	go func() {
		_, err := f.StartRun(f.ctx, ana(""), rebuild("a"), loadedRuns)
		answer <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for f.number(`select count(*) from pg_locks where locktype = 'advisory' and not granted`) == 0 {
		select {
		case err := <-answer:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	refused(t, <-answer, outbox.ErrConflict, "is in the way", "ben")
}

func TestPostgresStartRun_isRefusedByTheIndexWhenAdmissionSawNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	// Somebody who does not wait for admission.
	other, err := f.journal.BeginTx(f.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.ExecContext(f.ctx, `insert into run_scopes (run_id, campaign_id, projection, active) values (99, 'a', 'history', 1)`); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error)
	go func() {
		_, err := f.StartRun(f.ctx, ana(""), rebuild("a"), loadedRuns)
		answer <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for f.number(`select count(*) from pg_locks where locktype = 'transactionid' and not granted`) == 0 {
		select {
		case err := <-answer:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	refused(t, <-answer, outbox.ErrConflict, "was started in this moment")
	if n := f.number(`select count(*) from runs`); n != 0 {
		t.Errorf("%d runs are stored", n)
	}
}
