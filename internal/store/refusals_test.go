package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// elsewhere reports whether an action is tested in another package, or has tests of its own.
func elsewhere(a outbox.Action) bool {
	room, _, _ := strings.Cut(string(a), "_")
	return a.OnPublisher() || a == outbox.ActionReveal || a == outbox.ActionJournalWentBack || a == outbox.ActionRepairGaps || a == outbox.ActionRehearse || slices.Contains([]string{"alert", "intake", "operation", "projection", "run", "token"}, room)
}

func TestOperations_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a outbox.Action) bool { return !elsewhere(a) })
}

// anaAs is ana, authenticated by a proxy.
func anaAs(role outbox.Role, reason string) outbox.Command {
	o := ana(reason)
	o.By.Auth, o.By.Role = outbox.AuthJWT, role
	return o
}

func TestAction_thatWaitsForALeaseIsRefusedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds.All {
		if !slices.Contains([]string{"replay", "skip", "unskip"}, kind.Action) {
			continue
		}
		t.Run(kind.Action, func(t *testing.T) {
			t.Parallel()
			f := open(t, impatient)
			kind.Scene(f)
			f.Exec(`update campaigns set lease_owner = 'worker-2', lease_expires_at = 9000000000000000 where campaign_id = 'a'`)
			r := refused(t, storetest.No(kind.Do(f, ana(""))), outbox.ErrConflict, "worker-2")
			list := f.RefusedActions()
			must.Hold(t, len(list) == 1 && list[0].ID == r.AuditEntryID && string(list[0].Action) == kind.Action, "the records are %+v, want the one %d", list, r.AuditEntryID)
		})
	}
}

func TestAction_thatFailsIsNotRefused(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.ForbidAudit("no audit today")
	_, err := f.RequeueRow(f.Ctx, ana(""), "a", 1)
	must.Need(t, err != nil && !errors.As(err, new(*outbox.Refusal)), "got error %v", err)
	must.Equal(t, f.Number(`select count(*) from audit_log`), 0, "records were left")
}

func TestRecordRefusal_keepsWhatTheDatabaseTakes(t *testing.T) {
	t.Parallel()
	f := open(t)
	long := strings.Repeat("ü", 3000)
	o := anaAs(outbox.RoleViewer, "bad\xff\x00"+long)
	id := must.Get(f.RecordRefusal(f.Ctx, o, outbox.RefusedAction{Action: outbox.ActionPause, CampaignID: "\x00" + long, Seq: 3, Target: outbox.Target("projection " + long), Refusal: "no\xfe " + long})).Or(t)
	a := must.Get(f.AuditEntry(f.Ctx, id)).Or(t)
	for name, text := range map[string]string{"reason": a.Reason, "refusal": a.Refusal, "target": string(a.Target)} {
		must.Hold(t, len(text) <= 500 && len(text) >= 490 && strings.HasSuffix(text, "ü"), "of the %s %d bytes are kept: %q", name, len(text), text)
	}
	must.Hold(t, len(a.CampaignID) <= 200 && strings.HasPrefix(a.CampaignID, "\uFFFDü") && strings.HasPrefix(a.Reason, "bad\uFFFD\uFFFDü") && a.Seq == 3 && a.Role == outbox.RoleViewer, "the record is %+v", a)
}

func TestReadOnlyStore_refusesEveryChangeAndRecordsNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	r := f.beside(storetest.ReadOnly)
	f.Unchanged(func() {
		for _, kind := range kinds.All {
			if kind.Action != "unskip" && kind.Action != "resume" {
				refused(t, storetest.No(kind.Do(r, ana(""))), outbox.ErrReadOnly)
			}
		}
		refused(t, storetest.No(r.RepairGaps(f.Ctx, ana(""))), outbox.ErrReadOnly)
		refused(t, storetest.No(r.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}})), outbox.ErrReadOnly)
		id, err := r.RecordRefusal(f.Ctx, ana(""), outbox.RefusedAction{Action: outbox.ActionPause})
		must.Hold(t, id == 0 && err == nil, "got %d, %v", id, err)
	})
	n := len(f.RefusedActions())
	must.Hold(t, n == 0 && r.ReadOnly(), "%d records were left", n)
	r.Is("a", "applied 0 of 3, head 1 dead, 2 pending, 1 dead")
}

func TestRefusal_saysOnlyOfActionsThatWereDoneThatTheyWere(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.must(f.PauseCampaign(f.Ctx, ana(""), "a"))
	for range 2 {
		f.Clock.Advance(time.Minute)
		refused(t, storetest.No(f.RetryRow(f.Ctx, storetest.Ben, "a", 1)), outbox.ErrConflict, "last action: pause by ana")
	}
}

// Repeated refused requests do not fill the audit log.
func TestRefusals_beyondAFewInAMinuteAreOneRecord(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	var last *outbox.Refusal
	pause := func(times int) {
		for range times {
			_, err := f.PauseCampaign(f.Ctx, anaAs(outbox.RoleOperator, strings.Repeat("x", 501)), "a")
			last = refused(t, err, outbox.ErrInvalid, "the limit is 500")
		}
	}
	pause(25)
	list := f.RefusedActions()
	must.Need(t, len(list) == 10 && last.AuditEntryID == list[0].ID, "%d records were left, and the last refusal names %d", len(list), last.AuditEntryID)
	_, err := f.ResumeCampaign(f.Ctx, anaAs(outbox.RoleOperator, strings.Repeat("x", 501)), "a")
	must.Hold(t, err != nil && len(f.RefusedActions()) == 11, "another action is counted with it: %v", err)
	f.SumRefusals(f.Ctx)
	must.Equal(t, len(f.RefusedActions()), 11, "the minute is not over, and there", "records")
	minute := f.Clock.Now().UTC().Truncate(time.Minute)
	f.Clock.Advance(time.Minute)
	f.SumRefusals(f.Ctx)
	list = f.RefusedActions()
	got := list[0]
	why := fmt.Sprintf("refused 15 more times in the minute from %s UTC; the last: the reason is 501 bytes long; the limit is 500", minute.Format("2006-01-02 15:04"))
	must.Hold(t, len(list) == 12 && got.Refusal == why && string(got.After) == `{"refused":15}` && got.Action == outbox.ActionPause && got.Auth == outbox.AuthJWT, "%d records, the last is %+v", len(list), got)
	pause(11)
	g := f.beside()
	f.Close()
	page, err := g.AuditLog(g.Ctx, outbox.AuditFilter{Actor: "ana", Outcome: outbox.AuditRefused})
	must.Hold(t, err == nil && len(page.Items) == 23 && string(page.Items[0].After) == `{"refused":1}`, "after the store was closed there are %d records, %v", len(page.Items), err)
}
