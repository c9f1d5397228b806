package maintenance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func manyActions(f *fixture, n int) {
	f.Exec(fmt.Sprintf(`
insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
with recursive n(i) as (select 0 union all select i + 1 from n where i < %d)
select %d + i * cast(60000000 as bigint), 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null' from n`, n-1, f.Clock.Now().UnixMicro()))
}

func pruneAudit(f *fixture, before time.Time) (portions int) {
	for must.Get(f.PruneAuditLog(f.Ctx, before)).Or(f.TB) {
		portions++
	}
	return portions
}

func removedBefore(f *fixture) time.Time {
	return must.Get(f.AuditLogRemovedBefore(f.Ctx)).Or(f.TB)
}

func TestPruneActions_deletesInPortionsWhatIsOlder(t *testing.T) {
	f := own(t)
	start := f.Clock.Now()
	manyActions(f, 12_000)
	more, err := f.PruneAuditLog(f.Ctx, start.Add(11_000*time.Minute))
	must.Need(t, err == nil && more, "more: %v, %v", more, err)
	must.Equal(t, f.Number(`select count(*) from audit_log`), 7000, "after one portion there", "records")
	must.Equal(t, pruneAudit(f, start.Add(11_000*time.Minute)), 1, "it took", "more full portions")
	must.Equal(t, f.Number(`select count(*) from audit_log`), 1000, "records are kept")
	must.Equal(t, f.Number(`select min(at) from audit_log`), start.Add(11_000*time.Minute).UnixMicro(), "the oldest that is kept")
	got := removedBefore(f)
	must.Hold(t, got.Equal(start.Add(11_000*time.Minute)), "records are gone from before %s", got)
}

func TestPruneActions_neverGoesBackAndKeepsTheRest(t *testing.T) {
	f := own(t)
	start := f.Clock.Now()
	f.Unchanged(func() { pruneAudit(f, start) })
	manyActions(f, 10)
	f.Unchanged(func() { pruneAudit(f, start) })
	got := removedBefore(f)
	must.Hold(t, got.IsZero(), "records are gone from before %s", got)
	refused(t, storetest.No(f.Beside(storetest.ReadOnly).PruneAuditLog(f.Ctx, start.Add(time.Hour))), event.ErrReadOnly)
	pruneAudit(f, start.Add(5*time.Minute))
	f.Unchanged(func() {
		pruneAudit(f, start.Add(3*time.Minute))
		for _, change := range []string{`update audit_log set actor = 'nobody'`, `update audit_log set outcome = 'done', refusal = ''`,
			`delete from audit_log`, `delete from audit_log where id = (select max(id) from audit_log)`} {
			_, err := f.JournalDB.Exec(change)
			must.Hold(t, err != nil, "the database does: %s", change)
		}
	})
	// A record of another process with a slow clock is deleted; the time stays.
	f.Exec(fmt.Sprintf(`insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values (%d, 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null')`, start.UnixMicro()))
	pruneAudit(f, start.Add(3*time.Minute))
	got, n := removedBefore(f), f.Number(`select count(*) from audit_log`)
	must.Hold(t, n == 5 && got.Equal(start.Add(5*time.Minute)), "%d records are kept, from before %s they are gone", n, got)
	f.Sound()
}

func TestPruneActions_takesWhatTheyTouchedWithThem(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	ids := f.Killed("a", 3)
	must.Get(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{})).Or(t)
	f.Clock.Advance(time.Hour)
	later := f.Clock.Now()
	f.Kill(ids...)
	must.Get(f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{})).Or(t)
	pruneAudit(f, later)
	must.Equal(t, f.Number(`select count(*) from audit_log_rows`), 3, "ranges are left")
}

func TestAppendOnce_forgetsAKeyAfterADay(t *testing.T) {
	f := own(t)
	f.MustAppendOnce(storetest.UnderKey("ana", "old", "1"), storetest.Event("a", "counted"))
	f.MustAppendOnce(storetest.UnderKey("ana", "older", "1"), storetest.Event("a", "counted"))
	f.Clock.Advance(store.AppendKeyLife)
	_, repeated := f.MustAppendOnce(storetest.UnderKey("ana", "old", "2"), storetest.Event("a", "counted"))
	must.Hold(t, !repeated, "a key of yesterday counts")
	for must.Get(f.PruneAppendKeys(f.Ctx)).Or(t) {
	}
	must.Equal(t, f.Number(`select count(*) from append_keys`), 1, "keys are kept")
}

func TestPruneHistory_deletesWhatIsOlderAndOver(t *testing.T) {
	f := own(t, storetest.MaxAttempts(1))
	f.AppendN("stuck a", 1)
	f.Kill("a", "stuck")
	f.MustRequeue("a", 1)
	f.Drain()
	for range 2 { // this closes the previous span
		f.Clock.Advance(time.Hour)
		f.Applied("a", 1)
	}
	before := f.Clock.Now().Add(-time.Minute)
	for range 2 {
		must.Equal(t, must.Get(f.PruneHistory(f.Ctx, before)).Or(t), false, "more is left")
	}
	must.Equal(t, storetest.Texts(t, f.JournalDB, `select campaign_id from attempts`), []string{"stuck"}, "the attempts that are left")
	must.Equal(t, len(f.Spans()), 0, "the spans", "are left")
	f.WantHistory("a", 1, "appended", "acted requeue by scene")
	f.WantHistory("a", 3, "appended", "applied 3-3 by worker-1")
}

func TestPruneHistory_goesInPortions(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	f.Exec(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
select 'gone', i, i, 1, 'w', 'v1', 'boom', 'boom' from n`)
	more, err := f.PruneHistory(f.Ctx, f.Clock.Now())
	n := f.Number(`select count(*) from attempts`)
	must.Hold(t, err == nil && more && n == 1000, "after one portion %d attempts are left and more is %v, %v", n, more, err)
	more, err = f.PruneHistory(f.Ctx, f.Clock.Now())
	must.Hold(t, err == nil && !more && f.Number(`select count(*) from attempts`) == 0, "after another some are left: %v, %v", more, err)
}
