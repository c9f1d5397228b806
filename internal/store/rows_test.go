package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// elsewhere reports whether an action is tested in another package, or has tests of its own.
func elsewhere(a operator.Action) bool {
	room, _, _ := strings.Cut(string(a), "_")
	return a.OnPublisher() || a == operator.ActionReveal || a == operator.ActionJournalWentBack || a == operator.ActionRepairGaps || a == operator.ActionRehearse || a == operator.ActionMark || a == operator.ActionTake || slices.Contains([]string{"alert", "intake", "operation", "projection", "run", "token"}, room)
}

func TestOperations_areAllThatLeaveARecord(t *testing.T) {
	t.Parallel()
	kinds.MustHave(t, func(a operator.Action) bool { return !elsewhere(a) })
}

// anaAs is ana, authenticated by a proxy.
func anaAs(role operator.Role, reason string) operator.Command {
	o := ana(reason)
	o.By.Auth, o.By.Role = operator.AuthJWT, role
	return o
}

func TestAction_thatWaitsForALeaseIsRefusedOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds.All {
		if !slices.Contains([]string{"replay", "skip", "unskip"}, kind.Action) {
			continue
		}
		t.Run(kind.Action, func(t *testing.T) {
			f := own(t, storetest.Impatient)
			kind.Scene(f)
			f.Exec(`update campaigns set lease_owner = 'worker-2', lease_expires_at = 9000000000000000 where campaign_id = 'a'`)
			r := refused(t, storetest.No(kind.Do(f, ana(""))), event.ErrConflict, "worker-2")
			list := f.RefusedActions()
			must.Hold(t, len(list) == 1 && list[0].ID == r.AuditEntryID && string(list[0].Action) == kind.Action, "the records are %+v, want the one %d", list, r.AuditEntryID)
		})
	}
}

func TestRecordRefusal_keepsWhatTheDatabaseTakes(t *testing.T) {
	f := own(t)
	long := strings.Repeat("ü", 3000)
	o := anaAs(operator.RoleViewer, "bad\xff\x00"+long)
	id := must.Get(f.RecordRefusal(f.Ctx, o, operator.RefusedAction{Action: operator.ActionPause, CampaignID: "\x00" + long, Seq: 3, Target: operator.Target("projection " + long), Refusal: "no\xfe " + long})).Or(t)
	a := must.Get(f.AuditEntry(f.Ctx, id)).Or(t)
	for name, text := range map[string]string{"reason": a.Reason, "refusal": a.Refusal, "target": string(a.Target)} {
		must.Hold(t, len(text) <= 500 && len(text) >= 490 && strings.HasSuffix(text, "ü"), "of the %s %d bytes are kept: %q", name, len(text), text)
	}
	must.Hold(t, len(a.CampaignID) <= 200 && strings.HasPrefix(a.CampaignID, "\uFFFDü") && strings.HasPrefix(a.Reason, "bad\uFFFD\uFFFDü") && a.Seq == 3 && a.Role == operator.RoleViewer, "the record is %+v", a)
}

func TestReadOnlyStore_refusesEveryChangeAndRecordsNothing(t *testing.T) {
	f := own(t)
	f.DeadHead()
	r := f.beside(storetest.ReadOnly)
	f.Unchanged(func() {
		for _, kind := range kinds.All {
			if kind.Action != "unskip" && kind.Action != "resume" {
				refused(t, storetest.No(kind.Do(r, ana(""))), event.ErrReadOnly)
			}
		}
		refused(t, storetest.No(r.RepairGaps(f.Ctx, ana(""))), event.ErrReadOnly)
		refused(t, storetest.No(r.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted")}})), event.ErrReadOnly)
		id, err := r.RecordRefusal(f.Ctx, ana(""), operator.RefusedAction{Action: operator.ActionPause})
		must.Hold(t, id == 0 && err == nil, "got %d, %v", id, err)
	})
	n := len(f.RefusedActions())
	must.Hold(t, n == 0 && r.ReadOnly(), "%d records were left", n)
	r.Is("a", "applied 0 of 3, head 1 dead, 2 pending, 1 dead")
}

func TestRefusal_saysOnlyOfActionsThatWereDoneThatTheyWere(t *testing.T) {
	f := own(t)
	f.DeadHead()
	f.must(f.PauseCampaign(f.Ctx, ana(""), "a"))
	for range 2 {
		f.Clock.Advance(time.Minute)
		refused(t, storetest.No(f.RetryRow(f.Ctx, storetest.Ben, "a", 1)), event.ErrConflict, "last action: pause by ana")
	}
}

// Repeated refused requests do not fill the audit log.
func TestRefusals_beyondAFewInAMinuteAreOneRecord(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	var last *event.Refusal
	pause := func(times int) {
		for range times {
			_, err := f.PauseCampaign(f.Ctx, anaAs(operator.RoleOperator, strings.Repeat("x", 501)), "a")
			last = refused(t, err, event.ErrInvalid, "the limit is 500")
		}
	}
	pause(25)
	list := f.RefusedActions()
	must.Need(t, len(list) == 10 && last.AuditEntryID == list[0].ID, "%d records were left, and the last refusal names %d", len(list), last.AuditEntryID)
	_, err := f.ResumeCampaign(f.Ctx, anaAs(operator.RoleOperator, strings.Repeat("x", 501)), "a")
	must.Hold(t, err != nil && len(f.RefusedActions()) == 11, "another action is counted with it: %v", err)
	f.SumRefusals(f.Ctx)
	must.Equal(t, len(f.RefusedActions()), 11, "the minute is not over, and there", "records")
	minute := f.Clock.Now().UTC().Truncate(time.Minute)
	f.Clock.Advance(time.Minute)
	f.SumRefusals(f.Ctx)
	list = f.RefusedActions()
	got, why := list[0], fmt.Sprintf("refused 15 more times in the minute from %s UTC; the last: the reason is 501 bytes long; the limit is 500", minute.Format("2006-01-02 15:04"))
	must.Hold(t, len(list) == 12 && got.Refusal == why && string(got.After) == `{"refused":15}` && got.Action == operator.ActionPause && got.Auth == operator.AuthJWT, "%d records, the last is %+v", len(list), got)
	pause(11)
	g := f.beside()
	f.Close()
	page, err := g.AuditLog(g.Ctx, operator.AuditFilter{Actor: "ana", Outcome: operator.AuditRefused})
	must.Hold(t, err == nil && len(page.Items) == 23 && string(page.Items[0].After) == `{"refused":1}`, "after the store was closed there are %d records, %v", len(page.Items), err)
}

// oddIDs are campaign ids that break careless queries.
var oddIDs = []string{"%", "_", "it's", `back\slash`, "ü-é", "☃\u00a0", "a b", "A", "a", `"quoted"`, "a;--", "0", "\u00ff"}

// rowScene is a store with rows of every status in campaigns of odd names.
func rowScene(t *testing.T) *fixture {
	f := own(t, storetest.MaxAttempts(2))
	fill := func(ids []string) {
		for _, id := range ids {
			f.MustAppend(slices.Repeat([]event.Event{storetest.Event(id, "counted"), storetest.Event(id, "weighed")}, 2)...)
		}
	}
	dead, failed, processing, pending := oddIDs[:4], oddIDs[4:7], oddIDs[7:9], oddIDs[9:]
	fill(dead)
	f.Fail("disk 1 is full", dead...)
	f.Clock.Advance(time.Second)
	f.Fail("disk 2 is full", dead[:]...)
	fill(failed)
	f.Fail(`it's "100%" wrong`, failed...)
	fill(processing)
	f.MustClaim(one, 3*len(processing))
	fill(pending)
	return f
}

func (f *fixture) everyRow() []campaign.Row {
	found := must.Get(f.JournalDB.Query(`select campaign_id, seq, event_type, status, last_error, fingerprint, attempt_count, next_attempt_at from projection_apply_outbox`)).Or(f.TB)
	defer found.Close()
	var all []campaign.Row
	for found.Next() {
		var r campaign.Row
		var next int64
		must.OK(f.TB, found.Scan(&r.CampaignID, &r.Seq, &r.EventType, &r.Status, &r.LastError, &r.Fingerprint, &r.AttemptCount, &next))
		r.NextAttemptAt = time.UnixMicro(next)
		all = append(all, r)
	}
	return all
}

func rowKey(r campaign.Row) string { return fmt.Sprintf("%s#%d", r.CampaignID, r.Seq) }

func keys(rows []campaign.Row) []string {
	all := []string{}
	for _, r := range rows {
		all = append(all, rowKey(r))
	}
	return all
}

func TestRows_pagesVisitEveryMatchExactlyOnce(t *testing.T) {
	f := rowScene(t)
	everything := f.everyRow()
	for _, status := range event.Statuses {
		must.Need(t, f.CountRows(status) > 0, "the scene has no row that is %s", status)
	}
	filters := []campaign.RowFilter{{}, {EventType: "weighed"}, {EventType: "none"}, {Fingerprint: "disk # is full"}, {Q: "full"}, {Q: "%"}, {Q: "'"}, {Q: "_"}, {Q: "no such"},
		{CampaignID: "unknown"}, {EventType: "counted", Q: "wrong", Status: event.Failed}}
	for _, status := range event.Statuses {
		filters = append(filters, campaign.RowFilter{Status: status}, campaign.RowFilter{Status: status, EventType: "counted"}, campaign.RowFilter{Status: status, Q: "a"})
	}
	for _, id := range oddIDs {
		filters = append(filters, campaign.RowFilter{CampaignID: id}, campaign.RowFilter{CampaignID: id, Status: event.Pending}, campaign.RowFilter{Q: id}, campaign.RowFilter{CampaignID: id, EventType: "weighed"})
	}
	for _, filter := range filters {
		var want []campaign.Row
		for _, r := range everything {
			if matches := outbox.RowsBy.Match(filter); matches == nil || matches(r) {
				want = append(want, r)
			}
		}
		slices.SortFunc(want, rowOrder(filter))
		for _, limit := range []int{1, 3, 200} {
			filter.Limit = limit
			turned := filter
			turned.Reverse = true
			mustList(t, fmt.Sprintf("%+v", filter), keys(want), f.rowPager(filter), f.rowPager(turned))
		}
	}
	heads := map[string]int64{}
	for _, r := range must.Get(f.Rows(f.Ctx, campaign.RowFilter{Limit: 200})).Or(t).Items {
		if r.IsHead {
			heads[r.CampaignID] = r.Seq
		}
		must.Equal(t, r.BlockedBehind, map[bool]int64{true: 3}[r.IsHead], r.CampaignID, r.Seq, "says", "rows wait behind it")
	}
	must.Equal(t, len(heads), len(oddIDs), "heads")
	d := f.MustRow("it's", 1)
	must.Hold(t, d.Event.CampaignID == "it's" && d.Event.Seq == 1 && d.Row.Status == event.Dead && d.Campaign.HeadSeq == 1, "detail is %+v", d)
	must.Hold(t, len(d.Attempts) == 2 && d.Attempts[0].Error == "disk 2 is full" && d.Attempts[0].Attempt == 2 && d.Attempts[0].Fingerprint == "disk # is full", "attempts are %+v, want both, newest first", d.Attempts)
	for _, key := range []event.RowKey{{CampaignID: "it's", Seq: 9}, {CampaignID: "its", Seq: 1}} {
		refused(t, storetest.No(f.Row(f.Ctx, key.CampaignID, key.Seq)), event.ErrNotFound)
	}
	// The order by attention is not told here, only that it is one.
	for _, filter := range []campaign.RowFilter{{Sort: campaign.SortAttention, Limit: 3}, {Sort: campaign.SortAttention, EventType: "counted", Limit: 3}} {
		turned := filter
		turned.Reverse = true
		mustList(t, fmt.Sprintf("%+v", filter), storetest.Items(f.rowPager(filter).All(t)), f.rowPager(filter), f.rowPager(turned))
	}
}

func rowOrder(f campaign.RowFilter) func(a, b campaign.Row) int {
	byDue := f.CampaignID == "" && (f.Status == event.Dead || f.Status == event.Failed)
	return func(a, b campaign.Row) int {
		if byDue {
			if c := cmp.Or(a.NextAttemptAt.Compare(b.NextAttemptAt), int(a.Seq-b.Seq)); c != 0 {
				return c
			}
		}
		return cmp.Or(strings.Compare(a.CampaignID, b.CampaignID), int(a.Seq-b.Seq))
	}
}

func TestRows_limitsAreBounded(t *testing.T) {
	f := own(t)
	f.AppendN("a", 300)
	for limit, want := range map[int]int{0: 50, -1: 50, 7: 7, 200: 200, 10_000: 200} {
		page, err := f.Rows(f.Ctx, campaign.RowFilter{Limit: limit})
		must.Hold(t, err == nil && len(page.Items) == want, "limit %d gives %d rows, %v, want %d", limit, len(page.Items), err, want)
	}
}

func TestRows_inProcessingAreFoundAfterPartOfTheirWaveIsGone(t *testing.T) {
	f := own(t)
	f.AppendN("a", 10)
	f.Works(one, f.ClaimOne(one, 10), 4)
	f.ClaimOne(one, 3)
	must.Equal(t, storetest.Items(f.rowPager(campaign.RowFilter{Status: event.Processing, Limit: 2}).All(t)), []string{"a#5", "a#6", "a#7"}, "processing")
}
