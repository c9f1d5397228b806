package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/storetest"
)

// actionsOf lists the actions that the audit records of a campaign, or of one
// of its rows, tell, the newest first.
func (f *fixture) actionsOf(filter outbox.ActFilter) []string {
	f.TB.Helper()
	page, err := f.Acts(f.Ctx, filter)
	if err != nil {
		f.TB.Fatal(err)
	}
	actions := []string{}
	for _, a := range page.Items {
		actions = append(actions, string(a.Action))
	}
	if page.Total == nil || int(*page.Total) != len(actions) {
		f.TB.Errorf("%+v lists %v, and the total is %v", filter, actions, page.Total)
	}
	return actions
}

func (f *fixture) wantActions(filter outbox.ActFilter, want ...string) {
	f.TB.Helper()
	if got := f.actionsOf(filter); !slices.Equal(got, want) {
		f.TB.Errorf("the acts by %+v are %v, want %v", filter, got, want)
	}
}

func TestActs_ofACampaignAreThoseThatTouchedIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	if _, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{Limit: 2}); err != nil {
		t.Fatal(err)
	}
	touched := outbox.ActFilter{CampaignID: ids[0]}
	f.wantActions(touched, "requeue_many")
	f.wantActions(outbox.ActFilter{CampaignID: ids[0], Seq: 1}, "requeue_many")
	f.wantActions(outbox.ActFilter{CampaignID: ids[0], Seq: 2})
	f.wantActions(outbox.ActFilter{CampaignID: ids[2]})
	f.wantActions(outbox.ActFilter{CampaignID: ids[0], Actor: "ben"})
	f.MustPause(ids[0])
	f.wantActions(touched, "pause", "requeue_many")
	touched.Reverse = true
	f.wantActions(touched, "requeue_many", "pause")
	d, err := f.Row(f.Ctx, ids[1], 1)
	if err != nil || len(d.Acts) != 1 || d.Acts[0].Action != outbox.ActRequeueMany {
		t.Errorf("the row tells of %+v, %v", d.Acts, err)
	}
}

func TestActs_ofACampaignTellOfTheOperationOnceItTouchedARow(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	op := f.StartOperation(outbox.OperationOrder{Canary: true})
	f.wantActions(outbox.ActFilter{CampaignID: ids[0]})
	f.StepOperation(op.ID)
	f.wantActions(outbox.ActFilter{CampaignID: ids[0], Seq: 1}, "operation_start")
	f.wantActions(outbox.ActFilter{CampaignID: ids[1]})
	f.Drain()
	f.StepOperation(op.ID)
	f.wantActions(outbox.ActFilter{CampaignID: ids[1], Seq: 1}, "operation_start")
	f.wantActions(outbox.ActFilter{CampaignID: ids[1], Seq: 2})
}

func TestActs_ofARetryOfManyAreFoundByCampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Fail("boom", "a")
	f.AppendN("b", 2)
	if _, err := f.RetryFailed(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
	f.wantActions(outbox.ActFilter{CampaignID: "a", Seq: 1}, "retry_many")
	f.wantActions(outbox.ActFilter{CampaignID: "b"})
}

// Consecutive rows of one campaign are one range, however they were chosen.
func TestRequeueDead_keepsRangesOfWhatItTouched(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 9)
	f.AppendN("b", 3)
	for _, seq := range []int{1, 2, 3, 5, 6, 9} {
		f.Exec(fmt.Sprintf(`update projection_apply_outbox set status = 'dead', attempt_count = 1 where campaign_id = 'a' and seq = %d`, seq))
	}
	if _, err := f.ReconcileCampaign(f.Ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
	got := storetest.Texts(t, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq from act_targets order by first_seq`)
	if want := []string{"a 1-3", "a 5-6", "a 9-9"}; !slices.Equal(got, want) {
		t.Errorf("the ranges are %v, want %v", got, want)
	}
}

func namesNoAct(tb testing.TB, err error) {
	tb.Helper()
	if r := refused(tb, err, outbox.ErrConflict); strings.Contains(r.Error(), "last act") {
		tb.Errorf("an act that did not touch it is named: %v", r)
	}
}

func TestLastAct_isOneThatTouchedTheCampaign(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	if _, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Minute)
	f.AppendN("new", 1)
	_, err := f.CreateToken(f.Ctx, outbox.Order{By: outbox.Operator{Name: "scene"}}, "0123", outbox.RoleOperator, "deploy", f.Clock.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.RequeueRow(f.Ctx, ana(""), "new", 1)
	namesNoAct(t, err)
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 1)
	refused(t, err, outbox.ErrConflict, "last act: requeue many by ana 1 min ago")
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 2)
	namesNoAct(t, err)
}

func TestLastAct_ofARowIsTheOperationThatRequeuedIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	op := f.StartOperation(outbox.OperationOrder{Selection: outbox.Selection{Filter: outbox.RequeueFilter{CampaignID: ids[0]}}})
	_, err := f.RetryRow(f.Ctx, ana(""), ids[0], 1)
	namesNoAct(t, err)
	f.StepOperation(op.ID)
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 1)
	refused(t, err, outbox.ErrConflict, "last act: operation start by ana")
}

func TestLastAct_ofAnOperationIsOnIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.Killed("a", 1)
	op := f.StartOperation(outbox.OperationOrder{})
	if _, err := f.Operations.Cancel(f.Ctx, ana(""), op.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Operations.Cancel(f.Ctx, ana(""), op.ID, "")
	refused(t, err, outbox.ErrConflict, "last act: operation cancel by ana")
}
