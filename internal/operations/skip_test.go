package operations_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func rowsOf(f *fixture, id int64) map[string]operations.OperationRow {
	page := must.Get(f.Operations.Rows(f.Ctx, id, operations.OperationRowFilter{})).Or(f.TB)
	rows := map[string]operations.OperationRow{}
	for _, r := range page.Items {
		rows[r.CampaignID] = r
	}
	return rows
}

func applyNext(f *fixture, campaign string) {
	c := f.ClaimOne(one, 1)
	must.Need(f.TB, c.CampaignID == campaign, "claimed %s, want %s", c.CampaignID, campaign)
	f.MustApply(c, c.Last)
	f.MustSettle(one, outbox.Result{Claim: c, Applied: c.Last})
}

// Whatever was done to a row since it was chosen, its error is no longer the one that the operator was shown.
func TestStepOperation_skipsRowsThatWereChangedMeanwhile(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 7)
	op := f.StartOperation(operations.OperationRequest{Canary: true})
	f.Clock.Advance(time.Second)
	must.Get(f.RequeueRow(f.Ctx, storetest.Ben, ids[1], 1)).Or(t)
	f.Fail("no such thing", ids[1])
	f.MustRequeue(ids[2], 1)
	f.Drain()
	f.StepOperation(op.ID) // the canary
	must.Need(t, rowsOf(f, op.ID)[ids[0]].Status == operations.ResultRequeued, "the canary is another than %q", ids[0])
	refused(t, storetest.No(f.SkipEvent(f.Ctx, storetest.ToSkip(ana(""), ids[0], 1), ids[0], 1)), event.ErrConflict, "is pending")
	f.MustRequeue(ids[3], 1)
	must.Get(f.PauseCampaign(f.Ctx, ana(""), ids[4])).Or(t)
	f.MustSkip(ids[5], 1)
	f.MustSkip(ids[6], 1)
	must.Get(f.UnskipEvent(f.Ctx, ana(""), ids[6], 1)).Or(t)
	for f.Operation(op.ID).Status == operations.OperationRunning {
		f.Drain()
		f.StepOperation(op.ID)
	}
	wantTotals(t, f.Operation(op.ID), operations.OperationDone, operations.OperationTotals{Chosen: 7, Done: 1, Skipped: 6})
	rows := rowsOf(f, op.ID)
	for i, want := range []string{"it was requeued and died again in the meantime; last action: requeue by ben", "applied in the meantime; last action: requeue by scene",
		"requeue by scene", "paused by ana", "skip by scene", "unskip by ana"} {
		r := rows[ids[i+1]]
		must.Hold(t, r.Status == operations.ResultSkipped && strings.Contains(r.Detail, want), "row %d came to %s: %s, want %q", i+1, r.Status, r.Detail, want)
	}
	must.Equal(t, f.MustRow(ids[1], 1).Row.Status, event.Dead, "the row that died again")
	f.WantMarks(ids[5] + " 1 1")
	f.Sound()
}

// A row that an operation has requeued may be skipped and un-skipped while the events behind it are
// watched; its failure then counts for the operation.
func TestStepOperation_watchesARowThatIsUnskipped(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.Dies("a", 3)
	f.MustSkip("a", 1)
	f.Kill("a") // which prevents it from being skipped over
	op := f.StartOperation(operations.OperationRequest{})
	f.StepOperation(op.ID)
	applyNext(f, "a") // skips it
	f.StepOperation(op.ID)
	must.Get(f.UnskipEvent(f.Ctx, ana(""), "a", 1)).Or(t)
	c := f.ClaimOne(one, 1)
	f.MustSettle(one, outbox.Result{Claim: c, Failure: storetest.Failure("no such thing")})
	f.StepOperation(op.ID)
	r := rowsOf(f, op.ID)["a"]
	must.Hold(t, r.Status == operations.ResultFailedAgain && f.Operation(op.ID).Status == operations.OperationStopped, "the row came to %s: %s", r.Status, r.Detail)
	must.Equal(t, f.MustRow("a", 1).Row.Status, event.Dead, "the row")
	f.WantMarks()
	f.Sound()
}

// differs matches tests about several processes.
const differs = "^Test(Postgres|Operation_runs|StepOperation_skips)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }

// fixture is a store without a worker on it.
type fixture = enginetest.Rooms

var (
	open = enginetest.OpenRooms
	own  = enginetest.OwnRooms
)

func TestActions_tellOfTheOperationOnceItTouchedARow(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	named := operations.Selection{Rows: []event.RowKey{{CampaignID: ids[0], Seq: 1}, {CampaignID: ids[1], Seq: 1}}}
	op := f.StartOperation(operations.OperationRequest{Canary: true, Selection: named})
	f.WantActions(operator.AuditFilter{CampaignID: ids[0]})
	storetest.NamesNoAction(t, storetest.No(f.RetryRow(f.Ctx, ana(""), ids[0], 1)))
	f.StepOperation(op.ID)
	refused(t, storetest.No(f.RequeueRow(f.Ctx, ana(""), ids[0], 1)), event.ErrConflict, "last action: operation start by ana")
	f.WantActions(operator.AuditFilter{CampaignID: ids[0], Seq: 1, Outcome: operator.AuditDone}, "operation_start")
	f.WantActions(operator.AuditFilter{CampaignID: ids[1]})
	f.Drain()
	f.StepOperation(op.ID)
	f.WantActions(operator.AuditFilter{CampaignID: ids[1], Seq: 1}, "operation_start")
	f.WantActions(operator.AuditFilter{CampaignID: ids[1], Seq: 2})
	// What was done to a row since is not an action on the operation.
	other := f.StartOperation(operations.OperationRequest{})
	must.Get(f.Operations.Cancel(f.Ctx, ana(""), other.ID, "")).Or(t)
	must.Get(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{})).Or(t)
	refused(t, storetest.No(f.Operations.Cancel(f.Ctx, ana(""), other.ID, "")), event.ErrConflict, "last action: operation cancel by ana")
}

var (
	ana     = storetest.Ana
	refused = storetest.Refused
	one     = storetest.One
)
