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
	"outboxweb/internal/runs"
	"outboxweb/internal/store"
)

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
			_, err := f.runs.Start(f.ctx, ana(""), c.order, loadedRuns)
			t.Log(name)
			refused(t, err, c.kind, c.sentence)
		})
	}
	_, err := f.runs.Start(f.ctx, ana(""), verifyAll(), nil)
	refused(t, err, outbox.ErrConflict, "no projection is loaded")
}

func TestStartRun_needsAReasonWhereActsDo(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.ReasonFrom = 1 })
	_, err := f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrInvalid, "every act needs a reason")
	run := f.startRun(verifyAll())
	_, err = f.runs.Cancel(f.ctx, ana(""), run.ID)
	refused(t, err, outbox.ErrInvalid, "every act needs a reason")
}

func TestStartRun_inShadowModeOnlyVerifies(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeShadow))
	f.append("a", 1)
	for _, kind := range []outbox.RunKind{outbox.RunReplay, outbox.RunRebuild} {
		_, err := f.runs.Start(f.ctx, ana(""), outbox.RunOrder{Kind: kind, All: true}, loadedRuns)
		refused(t, err, outbox.ErrConflict, "shadow_only", "a verify may run")
	}
	f.startRun(verifyAll())
}

func TestStartRun_isRefusedByAReadOnlyStore(t *testing.T) {
	t.Parallel()
	f := open(t, readOnly)
	_, err := f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrReadOnly)
}

func TestStartRun_answersARepeatedOrderWithTheFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	o := ana("")
	o.IdempotencyKey = "k"
	first, err := f.runs.Start(f.ctx, o, rebuild("a"), loadedRuns)
	if err != nil {
		t.Fatal(err)
	}
	f.unchanged(func() {
		repeated := rebuild("a", "a")
		repeated.Projections = []string{}
		again, err := f.runs.Start(f.ctx, o, repeated, loadedRuns)
		if diff := cmp.Diff(first, again); diff != "" || err != nil {
			t.Errorf("repeated (-first +again): %s%v", diff, err)
		}
		_, err = f.runs.Start(f.ctx, o, outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}}, loadedRuns)
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
		_, err := f.runs.Start(f.ctx, ana(""), c.second, loadedRuns)
		if c.free {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			t.Log(name)
			refused(t, err, outbox.ErrConflict, fmt.Sprintf("run %d is in the way: a %s of %s, queued, started by ana 4 min ago; wait until it has ended, or cancel it", run.ID, run.Kind, run.Scope()))
		}
		if _, err = f.runs.Cancel(f.ctx, ana(""), run.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := f.runs.Start(f.ctx, ana(""), c.second, loadedRuns); err != nil && !c.free {
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
				_, err := stores[i%2].runs.Start(f.ctx, ana(""), orders[i%len(orders)], loadedRuns)
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

func TestStarted_tellsOfWhatWasStartedResumedAndCancelled(t *testing.T) {
	t.Parallel()
	f := open(t)
	told := func() (yes bool) {
		for {
			select {
			case <-f.runs.Started():
				yes = true
			default:
				return yes
			}
		}
	}
	run := f.startRun(verifyAll())
	if !told() {
		t.Error("nobody is told of a run that was started")
	}
	_, err := f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
	refused(t, err, outbox.ErrConflict)
	l := f.claimRun(one)
	f.finish(l, outbox.RunInterrupted, "no reason")
	if told() {
		t.Error("workers are told of a run that was refused, or that ended")
	}
	if _, err := f.runs.Resume(f.ctx, ana(""), run.ID, loadedRuns); err != nil || !told() {
		t.Errorf("nobody is told of a run that was resumed: %v", err)
	}
	if _, err := f.runs.Cancel(f.ctx, ana(""), run.ID); err != nil || !told() {
		t.Errorf("nobody is told of a run that was cancelled: %v", err)
	}
}

func TestCancelRun_inEachState(t *testing.T) {
	t.Parallel()
	f := open(t)
	cancel := func(id int64) (outbox.Run, error) { return f.runs.Cancel(f.ctx, ana("no need"), id) }

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
	_, err = f.runs.Start(f.ctx, ana(""), verifyAll(), loadedRuns)
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
	if _, err := f.runs.Report(f.ctx, former, runs.Progress{Lease: lease}); !errors.Is(err, outbox.ErrLeaseLost) {
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
	got, err := f.runs.Resume(f.ctx, ana("mended"), run.ID, loadedRuns)
	if err != nil || got.Status != outbox.RunQueued || got.Attempts != 0 || got.Error != "" || got.FinishedAt != nil || got.Campaigns.Done != 1 || got.Counts.Failed != 0 || got.Events.Done != 2 {
		t.Errorf("resumed run is %+v, %v", got, err)
	}
	_, err = f.runs.Start(f.ctx, ana(""), rebuild("a"), loadedRuns)
	refused(t, err, outbox.ErrConflict, "in the way")
	l = f.claimRun(two)
	scope, err := f.runs.Scope(f.ctx, l, "", 10)
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
		_, err := f.runs.Resume(f.ctx, ana(""), run.ID, loaded)
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
	if _, err := f.runs.Cancel(f.ctx, ana(""), other.ID); err != nil {
		t.Fatal(err)
	}
	if err := resume(loadedRuns); err != nil {
		t.Error(err)
	}
	l = f.claimRun(one)
	f.finish(l, outbox.RunCompleted, "")
	refused(t, resume(loadedRuns), outbox.ErrConflict, "is completed")
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
		_, err := f.runs.Start(f.ctx, ana(""), rebuild("a"), loadedRuns)
		answer <- err
	}()
	deadline := time.Now().Add(time.Minute)
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
		_, err := f.runs.Start(f.ctx, ana(""), rebuild("a"), loadedRuns)
		answer <- err
	}()
	deadline := time.Now().Add(time.Minute)
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
