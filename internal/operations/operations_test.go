package operations_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPreviewOperation_saysWhatItWouldDoAndChangesNothing(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 3)
	f.AppendN("a-01", 5)
	f.Unchanged(func() {
		p, err := f.Operations.Preview(f.Ctx, operations.Selection{}, 0)
		must.Equal(t, p, operations.OperationPreview{Rows: 3, Heads: 3, Released: 11, GroupsTotal: 1,
			Campaigns: operations.PreviewCampaigns{Total: 3, Named: []string{"a-01", "a-00", "a-02"}},
			Groups:    []operations.PreviewGroup{{Fingerprint: "no such thing", Example: "no such thing", Rows: 3}}}, "preview", err)
		p, err = f.Operations.Preview(f.Ctx, operations.Selection{Rows: []event.RowKey{{CampaignID: "a-00", Seq: 1}, {CampaignID: "a-00", Seq: 1}, {CampaignID: "a-02", Seq: 2}}}, 0)
		must.Hold(t, err == nil && p.Rows == 1 && p.Released == 2 && p.Refused == 2, "preview of named rows is %+v, %v, want the one dead row of them, once", p, err)
	})
	must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "i", Host: "h", LastSeen: f.Clock.Now(), StartedAt: f.Clock.Now(), Rates: campaign.Throughput{AppliedPerSecond: 2}}))
	p, err := f.Beside().Operations.Preview(f.Ctx, operations.Selection{}, 0) // its pace is read anew
	must.Hold(t, err == nil && p.EstimatedSeconds != nil && *p.EstimatedSeconds == 7, "preview is %+v, %v, want 14 rows at 2 a second to take 7 s", p, err)
}

func TestStartOperation_leavesRowsOfAnotherAlone(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	first := f.StartOperation(operations.OperationRequest{Selection: operations.Selection{Rows: []event.RowKey{{CampaignID: ids[1], Seq: 1}}}})
	second := f.StartOperation(operations.OperationRequest{Selection: operations.Selection{Rows: []event.RowKey{{CampaignID: ids[0], Seq: 1}, {CampaignID: ids[1], Seq: 1}}}})
	must.Hold(t, first.Totals.Chosen == 1 && second.Totals.Chosen == 1 && second.Refused == 1, "operations took %+v and %+v with %d refused, want a row each", first.Totals, second.Totals, second.Refused)
	must.Equal(t, f.StartOperation(operations.OperationRequest{}).Totals.Chosen, 1, "the third took")
	refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{})), event.ErrConflict, "already in a running operation")
}

func TestStartOperation_byTwoAtOnceTakesEachRowOnce(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 20)
	var starts sync.WaitGroup
	for _, s := range []*fixture{f, f.Beside(), f.Beside()} {
		starts.Go(func() {
			if _, err := s.Operations.Start(s.Ctx, ana(""), operations.OperationRequest{}); err != nil {
				refused(t, err, event.ErrConflict)
			}
		})
	}
	starts.Wait()
	must.Equal(t, f.Number(`select count(*) from operation_rows`), 20, "rows were taken")
	must.Equal(t, f.Number(`select cast(sum(chosen) as bigint) from operations`), 20, "operations say that they chose", "rows")
}

func TestStartOperation_whereNothingIsApplied(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeShadow))
	refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{})), event.ErrConflict, "shadow_only")
	f = open(t, storetest.InMode(campaign.ModeInline)) // where workers apply what has a row
	refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{})), event.ErrConflict, "dead row")
	refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{Selection: operations.Selection{Rows: make([]event.RowKey, 10_001)}})), event.ErrInvalid, "the limit is 10000")
	f = open(t, storetest.ReadOnly)
	refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{})), event.ErrReadOnly)
}

func TestOperations_arePagedAndFiltered(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	for _, id := range f.Killed("a", 3) {
		f.StartOperation(operations.OperationRequest{Selection: operations.Selection{Filter: campaign.RequeueFilter{CampaignID: id}}})
	}
	must.Get(f.Operations.Cancel(f.Ctx, ana(""), 2, "")).Or(t)
	must.Get(f.Operations.Acknowledge(f.Ctx, ana(""), 2, "")).Or(t)
	f.Clock.Advance(2 * time.Second)
	must.Equal(t, must.Get(f.Beside().Summary(f.Ctx)).Or(t).Operations, campaign.OperationCounts{Running: 2}, "summary says")
	for _, c := range []struct {
		filter operations.OperationFilter
		want   string
	}{
		{operations.OperationFilter{Limit: 2}, "3 2 1"},
		{operations.OperationFilter{Status: operations.OperationCancelled}, "2"},
		{operations.OperationFilter{Acknowledged: new(false), Limit: 1}, "3 1"},
		{operations.OperationFilter{Acknowledged: new(true)}, "2"},
	} {
		pages := storetest.Pager(func(cursor string) event.Page[string] {
			c.filter.Cursor = cursor
			return storetest.Keyed(must.Get(f.Operations.List(f.Ctx, c.filter)).Or(t), func(op operations.Operation) string { return fmt.Sprint(op.ID) })
		})
		must.Equal(t, strings.Join(storetest.Items(pages.All(t)), " "), c.want, c.filter, "selects")
	}
	refused(t, storetest.No(f.Operations.List(f.Ctx, operations.OperationFilter{Cursor: "?"})), event.ErrInvalid, "cursor")
}

func TestOperationRows_arePaged(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 5)
	f.Exec(`update projection_apply_outbox set fingerprint = 'another' where campaign_id in ('a-01', 'a-03')`)
	op := f.StartOperation(operations.OperationRequest{})
	for status, want := range map[operations.RowResult][]string{"": ids, operations.ResultWaiting: {"a-00", "a-02", "a-04", "a-01", "a-03"}, operations.ResultDone: nil} {
		pages := storetest.Pager(func(cursor string) event.Page[string] {
			page := must.Get(f.Operations.Rows(f.Ctx, op.ID, operations.OperationRowFilter{Limit: 2, Status: status, Cursor: cursor})).Or(t)
			return storetest.Keyed(page, func(r operations.OperationRow) string { return r.CampaignID })
		})
		must.Same(t, storetest.Items(pages.All(t)), want, "rows that", status, "are of")
	}
	f.StepOperation(op.ID)
	must.Equal(t, f.Operation(op.ID).Totals.Requeued, 5, "without a canary a step requeues")
	refused(t, storetest.No(f.Operations.Rows(f.Ctx, 77, operations.OperationRowFilter{})), event.ErrNotFound, "there is no operation 77")
	refused(t, storetest.No(f.Operations.Rows(f.Ctx, op.ID, operations.OperationRowFilter{Cursor: "?"})), event.ErrInvalid, "cursor")
}

func TestStepOperation_keepsToWhatCanMove(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 1)
	f.Killed("b", 1)
	f.Exec(`update projection_apply_outbox set status = 'dead', attempt_count = 1, fingerprint = 'other', updated_at = updated_at - 1 where seq = 3`) // it died first, as happened before older projections were restored
	f.Exec(`update campaigns set dead = 2, pending = 1`)
	op := f.StartOperation(operations.OperationRequest{Canary: true, Selection: operations.Selection{Rows: []event.RowKey{
		{CampaignID: "a-00", Seq: 3}, {CampaignID: "a-00", Seq: 1}, {CampaignID: "b-00", Seq: 3}}}})
	for range 4 {
		f.StepOperation(op.ID)
		f.Drain()
	}
	f.StepOperation(op.ID)
	page := must.Get(f.Operations.Rows(f.Ctx, op.ID, operations.OperationRowFilter{})).Or(t)
	got := map[event.RowKey]operations.RowResult{}
	for _, r := range page.Items {
		got[event.RowKey{CampaignID: r.CampaignID, Seq: r.Seq}] = r.Status
	}
	want := map[event.RowKey]operations.RowResult{{CampaignID: "a-00", Seq: 1}: operations.ResultDone, {CampaignID: "a-00", Seq: 3}: operations.ResultDone, {CampaignID: "b-00", Seq: 3}: operations.ResultSkipped}
	must.Equal(t, got, want, "results")
	f.Sound()
}

func TestPostgresStepOperation_passesOverOneThatIsBeingStepped(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 3)
	op := f.StartOperation(operations.OperationRequest{})
	other := f.Beside()
	holder := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(t, holder, `begin`, storetest.EveryCampaign)
	stepped := make(chan error, 1)
	go func() {
		_, err := f.Operations.StepOne(f.Ctx, op.ID)
		stepped <- err
	}()
	f.AwaitLockWaits(1)
	changed, err := other.Operations.StepOne(f.Ctx, op.ID)
	must.Hold(t, !changed && err == nil, "a second step while one is in progress: %t, %v", changed, err)
	storetest.Run(t, holder, `rollback`)
	must.OK(t, <-stepped)
	must.Equal(t, f.Operation(op.ID).Totals.Requeued, 3, "totals")
}

// startedBeside starts an operation on everything while another transaction takes the dead row of a campaign, and commits that once the operation waits.
func startedBeside(f *fixture, taken string) (op operations.Operation, err error) {
	holder := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(f.TB, holder, `begin`, fmt.Sprintf(`
insert into operation_rows (operation_id, campaign_id, seq, ordinal, group_number, event_type, fingerprint, frozen_updated_at, frozen_attempts, watch_seq, status, wave)
values (99, '%s', 1, 0, 1, '', '', 0, 0, 0, 'waiting', -1)`, taken))
	var starting sync.WaitGroup
	starting.Go(func() { op, err = f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{}) })
	f.AwaitLockWaits(1)
	storetest.Run(f.TB, holder, `commit`)
	starting.Wait()
	return op, err
}

// A row is taken after it was chosen and before it is frozen. Of two operators who start the same operation at once, the second finds no rows.
func TestPostgresStartOperation_leavesOutWhatIsTakenMeanwhile(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 1)
	refused(t, storetest.No(startedBeside(f, "a-00")), event.ErrConflict, "nothing to requeue")
	must.Equal(t, f.Number(`select count(*) from operations`), 0, "operations of no row are left, which nothing would ever end")
	f.Killed("b", 3)
	d := f.Operation(must.Get(startedBeside(f, "b-01")).Or(t).ID)
	must.Hold(t, d.Totals.Chosen == 2 && d.Refused == 1 && d.Heads == 2 && d.Released == 4, "operation is %+v, want the two rows that were left", d.Operation)
}

// Only a claim's own failure ends a watch: a program version without operations may have settled it.
func TestStepOperation_noticesARowThatDiedOfAllItsAttempts(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.Killed("a", 2)
	op := f.StartOperation(operations.OperationRequest{Canary: true})
	f.StepOperation(op.ID)
	f.Fail("no such thing", "a-00")
	f.Exec(`update operation_rows set status = 'requeued', detail = '', failed_fingerprint = '', finished_at = null where status = 'failed_again'`)
	f.StepOperation(op.ID)
	d := f.Operation(op.ID)
	must.Hold(t, d.Status == operations.OperationStopped && d.Totals.FailedAgain == 1 && d.Totals.Left == 1, "operation is %s with %+v (%s)", d.Status, d.Totals, d.Why)
}
