package operations_test

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestActions_ofACampaignTellOfTheOperationOnceItTouchedARow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	op := f.StartOperation(outbox.OperationRequest{Canary: true})
	f.WantActions(outbox.AuditFilter{CampaignID: ids[0]})
	f.StepOperation(op.ID)
	f.WantActions(outbox.AuditFilter{CampaignID: ids[0], Seq: 1}, "operation_start")
	f.WantActions(outbox.AuditFilter{CampaignID: ids[1]})
	f.Drain()
	f.StepOperation(op.ID)
	f.WantActions(outbox.AuditFilter{CampaignID: ids[1], Seq: 1}, "operation_start")
	f.WantActions(outbox.AuditFilter{CampaignID: ids[1], Seq: 2})
}

func TestLastAction_ofARowIsTheOperationThatRequeuedIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	op := f.StartOperation(outbox.OperationRequest{Selection: outbox.Selection{Filter: outbox.RequeueFilter{CampaignID: ids[0]}}})
	_, err := f.RetryRow(f.Ctx, ana(""), ids[0], 1)
	storetest.NamesNoAction(t, err)
	f.StepOperation(op.ID)
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 1)
	refused(t, err, outbox.ErrConflict, "last action: operation start by ana")
}

func TestLastAction_ofAnOperationIsOnIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.Killed("a", 1)
	op := f.StartOperation(outbox.OperationRequest{})
	if _, err := f.Operations.Cancel(f.Ctx, ana(""), op.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Operations.Cancel(f.Ctx, ana(""), op.ID, "")
	refused(t, err, outbox.ErrConflict, "last action: operation cancel by ana")
}
