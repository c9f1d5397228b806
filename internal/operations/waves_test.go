package operations_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// stocks fails like accounts, with an error of its own.
const stocks = `-- projection: stocks
-- tables: stocks

-- schema
create table stocks (campaign_id text primary key, left_over bigint not null check (left_over >= 0));

-- on: stocked
insert into stocks (campaign_id, left_over) values (:campaign_id, :payload.balance!);

-- on: taken
update stocks set left_over = left_over - :payload.amount! where campaign_id = :campaign_id;
`

const (
	fewCampaigns  = 3  // die of stocks
	manyCampaigns = 12 // die of accounts
	deadCampaigns = fewCampaigns + manyCampaigns
)

func few(i int) string  { return fmt.Sprintf("few-%d", i) }
func many(i int) string { return fmt.Sprintf("many-%02d", i) }

// triage is a bench with two error groups, of 3 and of 12 campaigns, each blocked at event 2 of 5.
func triage(t *testing.T, options ...enginetest.Option) (*enginetest.Engine, *storetest.Clock) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts, stocks), append([]enginetest.Option{enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(3)}, options...)...)
	for i := range fewCampaigns {
		b.MustAppend(enginetest.EventOf(few(i), "stocked", `{"balance":10}`), enginetest.EventOf(few(i), "taken", `{"amount":100}`))
		b.MustAppend(enginetest.Notes(few(i), 3)...)
	}
	for i := range manyCampaigns {
		b.MustAppend(enginetest.Opened(many(i), 10), enginetest.Spent(many(i), 100))
		b.MustAppend(enginetest.Notes(many(i), 3)...)
	}
	for range 3 {
		b.Drain()
		b.Clock.Advance(5 * time.Minute)
	}
	dead := dead(t, b)
	must.Need(t, dead == deadCampaigns, "%d rows are dead, want %d", dead, deadCampaigns)
	return b, b.Clock
}

func repair(t *testing.T, b *enginetest.Engine) {
	b.ExecProjections(`update accounts set balance = 1000`)
	b.ExecProjections(`update stocks set left_over = 1000`)
}

func dead(t *testing.T, b *enginetest.Engine) int {
	return storetest.Column[int](t, b.JournalDB, `select count(*) from projection_apply_outbox where status = 'dead'`)[0]
}

func failures(t *testing.T, b *enginetest.Engine) int {
	return storetest.Column[int](t, b.JournalDB, `select count(*) from attempts`)[0]
}

func step(t *testing.T, b *enginetest.Engine) bool {
	return must.Get(b.Operations.Step(context.Background())).Or(t)
}

func settleOperation(t *testing.T, b *enginetest.Engine, id int64) operations.OperationDetail {
	for step(t, b) || b.MustPass() {
	}
	return b.Operation(id)
}

func resultRows(t *testing.T, b *enginetest.Engine, id int64, result operations.RowResult) []operations.OperationRow {
	return must.Get(b.Operations.Rows(t.Context(), id, operations.OperationRowFilter{Status: result, Limit: 200})).Or(t).Items
}

func wantTotals(t *testing.T, d operations.OperationDetail, status operations.OperationStatus, want operations.OperationTotals) {
	must.Hold(t, d.Status == status && d.Totals == want, "operation is %s with %+v, want %s with %+v (%s)", d.Status, d.Totals, status, want, d.Why)
}

func TestOperation_stopsEachGroupAfterOneMoreFailure(t *testing.T) {
	b, now := triage(t)
	before := failures(t, b)
	untouched := storetest.Column[string](t, b.JournalDB, `select campaign_id from projection_apply_outbox where status = 'dead' and updated_at < $1`, now.Now().UnixMicro())
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	settleOperation(t, b, op.ID)
	now.Advance(time.Hour)
	d := settleOperation(t, b, op.ID)

	wantTotals(t, d, operations.OperationStopped, operations.OperationTotals{Chosen: deadCampaigns, FailedAgain: 2, Left: deadCampaigns - 2})
	must.Equal(t, failures(t, b)-before, 2, "more failures")
	must.Equal(t, dead(t, b), deadCampaigns, "rows are dead")
	same := storetest.Column[string](t, b.JournalDB, `select campaign_id from projection_apply_outbox where status = 'dead' and updated_at < $1`, now.Now().Add(-time.Hour).UnixMicro())
	must.Hold(t, len(untouched) == deadCampaigns && len(same) == deadCampaigns-2, "of %d rows %d are untouched, want %d", len(untouched), len(same), deadCampaigns-2)
	must.Equal(t, len(d.NewFailures), 0, "count as new failures, which are its own")
	for _, g := range d.Groups {
		must.Hold(t, g.Status == operations.GroupStopped && g.Wave == 0 && strings.Contains(g.Reason, "failed again with the same error"), "group %+v did not stop at its canary", g)
	}
	for _, r := range resultRows(t, b, op.ID, operations.ResultFailedAgain) {
		must.Hold(t, r.Seq == 2 && r.Wave == 0 && r.FailedFingerprint == r.Fingerprint && r.Detail != "", "canary %+v does not say how it failed", r)
		mustStandDead(t, b, r.CampaignID, 1)
	}
	b.Sound()
}

// mustStandDead checks a row that died after fewer attempts than its history has.
func mustStandDead(t *testing.T, b *enginetest.Engine, campaign string, attempts int) {
	r := b.MustRow(campaign, 2).Row
	must.Hold(t, r.Status == event.Dead && r.AttemptCount == attempts, "campaign %q is %s after %d attempts, want dead after %d", campaign, r.Status, r.AttemptCount, attempts)
}

// The next wave waits until the one before it, and the events it released, are applied.
func TestOperation_drainsInWavesAndWatchesEachBeforeTheNext(t *testing.T) {
	b, _ := triage(t)
	repair(t, b)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	for range 5 {
		step(t, b)
	}
	wantTotals(t, b.Operation(op.ID), operations.OperationRunning, operations.OperationTotals{Chosen: deadCampaigns, Requeued: 2, Waiting: deadCampaigns - 2})
	canary := resultRows(t, b, op.ID, operations.ResultRequeued)[0].CampaignID
	must.Get(b.PauseCampaign(t.Context(), enginetest.Operator, canary)).Or(t)
	d := settleOperation(t, b, op.ID)
	must.Hold(t, len(d.Watched) == 1 && d.Watched[0].CampaignID == canary && strings.Contains(d.Watched[0].Why, "Paused by ana"), "watched rows are %+v", d.Watched)
	must.Get(b.ResumeCampaign(t.Context(), enginetest.Operator, canary)).Or(t)
	d = settleOperation(t, b, op.ID)
	wantTotals(t, d, operations.OperationDone, operations.OperationTotals{Chosen: deadCampaigns, Done: deadCampaigns})
	for group, want := range map[int64][]int{1: {1, 1, 2, 4, 4}, 2: {1, 1, 1}} {
		got := storetest.Column[int](t, b.JournalDB, `select count(*) from operation_rows where group_number = $1 group by wave order by wave`, group)
		must.Same(t, got, want, "group", group, "went in waves of")
	}
	for i := range manyCampaigns {
		b.MustHaveApplied(many(i), 5)
	}
	b.Sound()
}

func TestOperation_stopsWhenAnEventBehindTheCanaryFails(t *testing.T) {
	b, _ := triage(t)
	for i := range manyCampaigns {
		b.MustAppend(enginetest.Spent(many(i), 5000))
	}
	repair(t, b)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	d := settleOperation(t, b, op.ID)

	wantTotals(t, d, operations.OperationStopped, operations.OperationTotals{Chosen: deadCampaigns, Done: 1 + fewCampaigns, Left: manyCampaigns - 1})
	must.Hold(t, strings.Contains(d.StopReason, "event 6 behind it failed with the same error"), "it stopped because %q", d.StopReason)
	must.Hold(t, len(d.NewFailures) == 1 && d.NewFailures[0].Seq == 6, "new failures are %+v, want event 6 of the canary's campaign", d.NewFailures)
}

func TestOperation_leavesWhatDiesAfterItsStart(t *testing.T) {
	b, now := triage(t)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	b.MustAppend(enginetest.Opened("late", 10), enginetest.Spent("late", 100))
	for range 3 {
		b.Drain()
		now.Advance(5 * time.Minute)
	}
	b.MustStand("late", 2, event.Dead, 3)
	repair(t, b)
	d := settleOperation(t, b, op.ID)

	wantTotals(t, d, operations.OperationDone, operations.OperationTotals{Chosen: deadCampaigns, Done: deadCampaigns})
	b.MustStand("late", 2, event.Dead, 3)
	must.Hold(t, len(d.NewFailures) == 1 && d.NewFailures[0].CampaignID == "late", "new failures are %+v, want the row that died after the start", d.NewFailures)
}

// What was loaded between its waves is named, so that a later one is not taken for a try of the same files.
func TestOperation_namesWhatWasLoadedWhileItRan(t *testing.T) {
	b, clock := triage(t)
	load := func(at time.Time, version, previous string) {
		t.Helper()
		b.Exec(fmt.Sprintf(`insert into projection_loads (projection, at, version, previous, instance, host) values ('accounts', %d, '%s', '%s', 'w-1', 'a')`, at.UnixMicro(), version, previous))
	}
	load(clock.Now(), "before", "older")
	clock.Advance(time.Second)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	at := clock.Now().Add(time.Second)
	load(at, "changed", "before")
	clock.Advance(2 * time.Second)
	d := settleOperation(t, b, op.ID)
	must.Need(t, d.Status == operations.OperationStopped && len(d.Loads) == 1 && d.Loads[0].At.Equal(at), "operation is %s; while it ran it names %+v", d.Status, d.Loads)
	clock.Advance(time.Second)
	load(clock.Now(), "later", "changed")
	d = b.Operation(op.ID)
	if d.Rehearsal = 7; len(d.Loads) != 1 || d.LoadText(d.Loads[0]) != "Version changed of projection accounts, in place of before: rows requeued after that were tried with it, and rehearsal 7 was not of it" {
		t.Errorf("it says %q of %+v", d.LoadText(d.Loads[0]), d.Loads)
	}
}

func TestOperation_isSteppedByOneOfMany(t *testing.T) {
	b, _ := triage(t)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	before := failures(t, b)
	benches := []*enginetest.Engine{b, b.Beside(enginetest.MaxAttempts(3)), b.Beside(enginetest.MaxAttempts(3))}
	var drivers sync.WaitGroup
	for _, driver := range benches {
		drivers.Go(func() {
			for range 30 {
				must.OK(t, storetest.No(driver.Operations.Step(context.Background())))
				must.OK(t, storetest.No(driver.Worker.Pass(context.Background())))
			}
		})
	}
	drivers.Wait()
	d := settleOperation(t, b, op.ID)
	wantTotals(t, d, operations.OperationStopped, operations.OperationTotals{Chosen: deadCampaigns, FailedAgain: 2, Left: deadCampaigns - 2})
	must.Equal(t, failures(t, b)-before, 2, "more failures")
}

func TestOperation_runsByItselfOnceStarted(t *testing.T) {
	b, _ := triage(t, enginetest.Polling(time.Hour))
	repair(t, b)
	b.OnWork(b.Worker.Wake)
	defer b.Start()()
	// All but the first need a wake-up: the worker would sleep for an hour.
	for i := range 3 {
		op := b.StartOperation(operations.OperationRequest{Canary: true, Selection: operations.Selection{Rows: []event.RowKey{{CampaignID: many(i), Seq: 2}}}})
		must.Eventually(t, "the operation ends", func() bool { return b.Operation(op.ID).Status != operations.OperationRunning })
		wantTotals(t, b.Operation(op.ID), operations.OperationDone, operations.OperationTotals{Chosen: 1, Done: 1})
	}
}

func TestOperation_cancelLeavesWhatIsUnderWay(t *testing.T) {
	b, now := triage(t)
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	step(t, b)
	must.Get(b.Operations.Cancel(t.Context(), enginetest.Operator, op.ID, operations.OperationRunning)).Or(t)
	d := settleOperation(t, b, op.ID)
	wantTotals(t, d, operations.OperationCancelled, operations.OperationTotals{Chosen: deadCampaigns, Unwatched: 2, Left: deadCampaigns - 2})
	must.Hold(t, d.CancelledBy == "ana" && d.FinishedAt != nil, "operation is %+v, want it cancelled by ana", d.Operation)
	must.Hold(t, strings.HasSuffix(d.Why, "2 requeued before and not watched since"), "it says %q", d.Why)
	for _, g := range d.Groups {
		must.Hold(t, g.Status == operations.GroupStopped && g.Reason == "cancelled by ana", "group %d is %s (%s), want it stopped", g.Number, g.Status, g.Reason)
	}
	canary := resultRows(t, b, op.ID, operations.ResultUnwatched)[0]
	r := b.MustRow(canary.CampaignID, 2).Row
	must.Hold(t, r.Status == event.Failed && r.AttemptCount == 1, "the row in progress is %s after %d attempts, want it tried like any other", r.Status, r.AttemptCount)
	now.Advance(time.Hour)
	b.Sound()
}
