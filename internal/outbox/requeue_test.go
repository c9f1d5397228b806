package outbox_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// deadRows is a store with dead heads that died in the order d, c, b, a, with two event types
// and two errors among them, and rows waiting behind them.
func deadRows(t *testing.T, change ...func(*store.Options)) *fixture {
	f := own(t, append(change, storetest.MaxAttempts(1))...)
	for i, id := range []string{"d", "c", "b", "a"} {
		f.MustAppend(append([]event.Event{storetest.Event(id, []string{"counted", "weighed"}[i%2])}, slices.Repeat([]event.Event{storetest.Event(id, "counted")}, i)...)...)
		c := f.ClaimOne(one, 1)
		f.MustSettle(one, outbox.Result{Claim: c, Applied: 0, Failure: storetest.Failure(fmt.Sprintf("%s failed at %d", []string{"this", "that"}[i/2], i))})
		f.Clock.Advance(time.Second)
	}
	f.AppendN("e", 2)
	return f
}

func TestRequeueRow_setsADeadRowBackAndKeepsItsHistory(t *testing.T) {
	f := own(t)
	f.DeadHead()
	woken := false
	f.OnWork(func() { woken = true })
	r := must.Get(f.RequeueRow(f.Ctx, ana("mended"), "a", 1)).Or(t)
	must.Hold(t, r.IsHead && r.BlockedBehind == 2 && r.EnqueuedAt == began && woken, "row is %+v, woken: %v", r, woken)
	f.RowIs("a", 1, "pending after 0, due in 0s")
	act := f.DoneActions()[0]
	must.Hold(t, act.Seq == 1 && strings.Contains(string(act.Before), `"dead"`) && strings.Contains(string(act.After), `"pending"`), "audit record is %+v", act)
	d := f.MustRow("a", 1)
	must.Hold(t, len(d.Attempts) == 8 && len(d.Activity) == 1, "the row's page has %d attempts and %d acts", len(d.Attempts), len(d.Activity))
	f.DrainsSoundly()
}

// What other rows say is in the scenarios of the command.
func TestActions_touchOnlyRowsInTheirState(t *testing.T) {
	f := own(t)
	f.Failing("boom", "failed", 2)
	f.AppendN("gone", 2)
	f.LoseRows("gone", "seq = 1")
	f.AppendN("held", 2)
	f.Exec(`update campaigns set due_at = null where campaign_id <> 'held'`)
	f.Fail("boom", "held")
	f.Clock.Advance(time.Hour)
	f.MustClaim(one, 10)
	requeue := func(id string, seq int64) error { return storetest.No(f.RequeueRow(f.Ctx, ana(""), id, seq)) }
	f.Unchanged(func() {
		refused(t, requeue("failed", 1), event.ErrConflict, "is failed, not dead")
		refused(t, requeue("held", 1), event.ErrConflict, "is processing, not dead")
		refused(t, requeue("gone", 1), event.ErrNotFound, "replay the campaign to enqueue it")
		refused(t, requeue("gone", 0), event.ErrNotFound, "no event 0")
		refused(t, storetest.No(f.DeadLetterRow(f.Ctx, ana(""), "held", 1)), event.ErrConflict, "is being applied")
		refused(t, storetest.No(f.DeadLetterRow(f.Ctx, ana(""), "held", 9)), event.ErrNotFound)
	})
}

func TestRequeueRow_ofManyAtOnceExactlyOneWins(t *testing.T) {
	f := own(t)
	f.DeadHead()
	storetest.OneWins(t, []*fixture{f, f.beside()}, func(f *fixture) error { return storetest.No(f.RequeueRow(f.Ctx, ana(""), "a", 1)) })
	must.Equal(t, len(f.DoneActions()), 1, "records")
	f.Sound()
}

func TestRequeueDead_takesWhatItsFilterSelects(t *testing.T) {
	type given struct {
		filter campaign.RequeueFilter
		want   campaign.Requeued
		left   []string
	}
	storetest.Each(t, deadRows, map[string]given{
		"all":                   {campaign.RequeueFilter{}, campaign.Requeued{Requeued: 4, Heads: 4, Released: 6}, nil},
		"campaign":              {campaign.RequeueFilter{CampaignID: "a"}, campaign.Requeued{Requeued: 1, Heads: 1, Released: 3}, []string{"b", "c", "d"}},
		"campaign without":      {campaign.RequeueFilter{CampaignID: "e"}, campaign.Requeued{}, []string{"a", "b", "c", "d"}},
		"event type":            {campaign.RequeueFilter{EventType: "weighed"}, campaign.Requeued{Requeued: 2, Heads: 2, Released: 4}, []string{"b", "d"}},
		"fingerprint":           {campaign.RequeueFilter{Fingerprint: "that failed at #"}, campaign.Requeued{Requeued: 2, Heads: 2, Released: 5}, []string{"c", "d"}},
		"those that died first": {campaign.RequeueFilter{Limit: 2}, campaign.Requeued{Requeued: 2, Heads: 2, Released: 1}, []string{"a", "b"}},
		"a campaign's own type": {campaign.RequeueFilter{CampaignID: "a", EventType: "weighed"}, campaign.Requeued{Requeued: 1, Heads: 1, Released: 3}, []string{"b", "c", "d"}},
	}, func(t *testing.T, f *fixture, c given) {
		must.Equal(t, must.Get(f.RequeueDead(f.Ctx, ana(""), c.filter)).Or(t), c.want, "requeued")
		must.Equal(t, storetest.Texts(t, f.JournalDB, `select campaign_id from projection_apply_outbox where status = 'dead' order by 1`), c.left, "still dead")
		f.Sound()
	})
}

// Consecutive rows of one campaign are one range, however they were selected.
func TestRequeueDead_takesRowsThatAreNoHeads(t *testing.T) {
	f := own(t)
	f.AppendN("a", 9)
	f.Exec(`update projection_apply_outbox set status = 'dead', attempt_count = 1 where seq in (1, 2, 3, 5, 6, 9)`)
	f.must(f.ReconcileCampaign(f.Ctx, "a"))
	must.Equal(t, must.Get(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{})).Or(t), campaign.Requeued{Requeued: 6, Heads: 1, Released: 8}, "requeued")
	got := storetest.Texts(t, f.JournalDB, `select campaign_id || ' ' || first_seq || '-' || last_seq from audit_log_rows order by first_seq`)
	must.Equal(t, got, []string{"a 1-3", "a 5-6", "a 9-9"}, "the ranges")
	f.Unchanged(func() {
		for _, limit := range []int{-1, 10_001} {
			must.Equal(t, refused(t, storetest.No(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{Limit: limit})), event.ErrInvalid, "10000").Field, "limit", "the refusal is about")
		}
		refused(t, storetest.No(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{CampaignID: "unknown"})), event.ErrNotFound, `"unknown"`)
	})
	f.Sound()
}

func TestActions_needAReasonFromTheReachTheyWereToldOf(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1), func(o *store.Options) { o.ReasonFrom = 3 })
	f.Dies("few", 3)
	f.Dies("many", 4)
	f.must(f.RequeueRow(f.Ctx, ana(""), "few", 1)) // releases two rows
	f.Unchanged(func() {
		refused(t, storetest.No(f.RequeueRow(f.Ctx, ana(" "), "many", 1)), event.ErrInvalid, "releases 3 rows; actions that release 3 or more require a reason")
		refused(t, storetest.No(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{})), event.ErrInvalid, "releases 3 rows")
		refused(t, storetest.No(f.Operations.Start(f.Ctx, ana(""), operations.OperationRequest{})), event.ErrInvalid, "releases 3 rows")
	})
	f.must(f.RequeueRow(f.Ctx, ana("mended"), "many", 1))
	f = f.beside(func(o *store.Options) { o.ReasonFrom = 1 })
	for i, act := range []func(operator.Command) error{
		func(o operator.Command) error { return storetest.No(f.PauseCampaign(f.Ctx, o, "few")) },
		func(o operator.Command) error { return storetest.No(f.ResumeCampaign(f.Ctx, o, "few")) },
		func(o operator.Command) error { return storetest.No(f.ReplayCampaign(f.Ctx, o, "few")) },
		func(o operator.Command) error { return storetest.No(f.RepairGaps(f.Ctx, o)) },
	} {
		refused(t, act(ana("")), event.ErrInvalid, "every action requires a reason")
		must.Need(t, act(ana("because")) == nil, "act %d is refused with a reason", i)
	}
}

func TestRetryFailed_makesTheFailedHeadsOfAFilterDueNow(t *testing.T) {
	f := own(t)
	for id, message := range map[string]string{"a": "boom", "b": "boom", "c": "bang"} {
		f.AppendN(id, 2)
		f.FailsAfter(one, f.ClaimOne(one, 2), 0, message)
	}
	retry := func(want int64) {
		got, err := f.RetryFailed(f.Ctx, ana("mended"), campaign.RequeueFilter{Fingerprint: "boom"})
		must.Need(t, err == nil && got.Retried == want, "retried %+v, %v, want %d", got, err, want)
	}
	f.NoClaim(one)
	retry(2)
	f.WantActions(operator.AuditFilter{CampaignID: "a", Seq: 1}, "retry_many")
	f.WantActions(operator.AuditFilter{CampaignID: "c"})
	f.RowIs("c", 1, "failed after 1, due in 1s")
	all := f.MustClaim(one, 10)
	must.Hold(t, len(all) == 2 && storetest.ToldClaim(all[0]) == "a 1-2 under 2, after 1" && all[1].CampaignID == "b", "claimed %+v", all)
	retry(0) // they are being applied
	f.Sound()
}
