package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestActions_ofACampaignAreThoseThatTouchedIt(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	f.must(f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{Limit: 2}))
	touched := outbox.AuditFilter{CampaignID: ids[0]}
	f.WantActions(touched, "requeue_many")
	f.WantActions(outbox.AuditFilter{CampaignID: ids[0], Seq: 1}, "requeue_many")
	f.WantActions(outbox.AuditFilter{CampaignID: ids[0], Seq: 2})
	f.WantActions(outbox.AuditFilter{CampaignID: ids[2]})
	f.WantActions(outbox.AuditFilter{CampaignID: ids[0], Actor: "ben"})
	f.MustPause(ids[0])
	f.WantActions(touched, "pause", "requeue_many")
	touched.Reverse = true
	f.WantActions(touched, "requeue_many", "pause")
	d, err := f.Row(f.Ctx, ids[1], 1)
	if err != nil || len(d.Activity) != 1 || d.Activity[0].Action != outbox.ActionRequeueMany {
		t.Errorf("the row tells of %+v, %v", d.Activity, err)
	}
}

func TestActions_ofARetryOfManyAreFoundByCampaign(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Fail("boom", "a")
	f.AppendN("b", 2)
	f.must(f.RetryFailed(f.Ctx, ana(""), outbox.RequeueFilter{}))
	f.WantActions(outbox.AuditFilter{CampaignID: "a", Seq: 1}, "retry_many")
	f.WantActions(outbox.AuditFilter{CampaignID: "b"})
}

// Consecutive rows of one campaign are one range, however they were selected.
func TestRequeueDead_keepsRangesOfWhatItTouched(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 9)
	f.AppendN("b", 3)
	for _, seq := range []int{1, 2, 3, 5, 6, 9} {
		f.Exec(fmt.Sprintf(`update projection_apply_outbox set status = 'dead', attempt_count = 1 where campaign_id = 'a' and seq = %d`, seq))
	}
	f.must(f.ReconcileCampaign(f.Ctx, "a"))
	f.must(f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}))
	got := storetest.Texts(t, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq from audit_log_rows order by first_seq`)
	if want := []string{"a 1-3", "a 5-6", "a 9-9"}; !slices.Equal(got, want) {
		t.Errorf("the ranges are %v, want %v", got, want)
	}
}

func TestLastAction_isOneThatTouchedTheCampaign(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 2)
	f.must(f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}))
	f.Clock.Advance(time.Minute)
	f.AppendN("new", 1)
	_, err := f.CreateToken(f.Ctx, outbox.Command{By: outbox.Operator{Name: "scene"}}, "0123", outbox.RoleOperator, "deploy", f.Clock.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.RequeueRow(f.Ctx, ana(""), "new", 1)
	storetest.NamesNoAction(t, err)
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 1)
	refused(t, err, outbox.ErrConflict, "last action: requeue many by ana 1 min ago")
	_, err = f.RequeueRow(f.Ctx, ana(""), ids[0], 2)
	storetest.NamesNoAction(t, err)
}
