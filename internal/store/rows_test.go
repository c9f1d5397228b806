package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// oddIDs are campaign ids that break careless queries.
var oddIDs = []string{"%", "_", "it's", `back\slash`, "ü-é", "☃\u00a0", "a b", "A", "a", `"quoted"`, "a;--", "0", "\u00ff"}

// rowScene is a store with rows of every status in campaigns of odd names.
func rowScene(t *testing.T) *fixture {
	f := open(t, storetest.MaxAttempts(2))
	fill := func(ids []string) {
		for _, id := range ids {
			for i := range 4 {
				f.MustAppend(storetest.Event(id, []string{"counted", "weighed"}[i%2]))
			}
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

// everyRow reads all rows without the store.
func (f *fixture) everyRow() []outbox.Row {
	found := must.Get(f.JournalDB.Query(`select campaign_id, seq, event_type, status, last_error, fingerprint, attempt_count, next_attempt_at from projection_apply_outbox`)).Or(f.TB)
	defer found.Close()
	var all []outbox.Row
	for found.Next() {
		var r outbox.Row
		var next int64
		must.OK(f.TB, found.Scan(&r.CampaignID, &r.Seq, &r.EventType, &r.Status, &r.LastError, &r.Fingerprint, &r.AttemptCount, &next))
		r.NextAttemptAt = time.UnixMicro(next)
		all = append(all, r)
	}
	return all
}

func rowKey(r outbox.Row) string { return fmt.Sprintf("%s#%d", r.CampaignID, r.Seq) }

func keys(rows []outbox.Row) []string {
	all := []string{}
	for _, r := range rows {
		all = append(all, rowKey(r))
	}
	return all
}

func TestRows_pagesVisitEveryMatchExactlyOnce(t *testing.T) {
	t.Parallel()
	f := rowScene(t)
	everything := f.everyRow()
	seen := map[outbox.Status]int{}
	for _, r := range everything {
		seen[r.Status]++
	}
	must.Need(t, len(seen) == 4, "the scene has %v, want every status", seen)
	filters := []outbox.RowFilter{{}, {EventType: "weighed"}, {EventType: "none"}, {Fingerprint: "disk # is full"}, {Q: "full"}, {Q: "%"}, {Q: "'"}, {Q: "_"}, {Q: "no such"},
		{CampaignID: "unknown"}, {EventType: "counted", Q: "wrong", Status: outbox.Failed}}
	for _, status := range outbox.Statuses {
		filters = append(filters, outbox.RowFilter{Status: status}, outbox.RowFilter{Status: status, EventType: "counted"}, outbox.RowFilter{Status: status, Q: "a"})
	}
	for _, id := range oddIDs {
		filters = append(filters, outbox.RowFilter{CampaignID: id}, outbox.RowFilter{CampaignID: id, Status: outbox.Pending}, outbox.RowFilter{Q: id}, outbox.RowFilter{CampaignID: id, EventType: "weighed"})
	}
	for _, filter := range filters {
		var want []outbox.Row
		for _, r := range everything {
			if filter.Matches(r) {
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
	// The order by attention is not told here, only that it is one.
	for _, filter := range []outbox.RowFilter{{Sort: outbox.SortAttention, Limit: 3}, {Sort: outbox.SortAttention, EventType: "counted", Limit: 3}} {
		turned := filter
		turned.Reverse = true
		mustList(t, fmt.Sprintf("%+v", filter), storetest.Items(f.rowPager(filter).All(t)), f.rowPager(filter), f.rowPager(turned))
	}
}

// rowOrder is the expected order of a filter's rows.
func rowOrder(f outbox.RowFilter) func(a, b outbox.Row) int {
	byDue := f.CampaignID == "" && (f.Status == outbox.Dead || f.Status == outbox.Failed)
	return func(a, b outbox.Row) int {
		if byDue {
			if c := cmp.Or(a.NextAttemptAt.Compare(b.NextAttemptAt), int(a.Seq-b.Seq)); c != 0 {
				return c
			}
		}
		return cmp.Or(strings.Compare(a.CampaignID, b.CampaignID), int(a.Seq-b.Seq))
	}
}

func TestRows_tellHeadsAndWhatWaitsBehindThem(t *testing.T) {
	t.Parallel()
	f := rowScene(t)
	heads := map[string]int64{}
	for _, r := range must.Get(f.Rows(f.Ctx, outbox.RowFilter{Limit: 200})).Or(t).Items {
		if r.IsHead {
			heads[r.CampaignID] = r.Seq
		}
		must.Equal(t, r.BlockedBehind, map[bool]int64{true: 3}[r.IsHead], r.CampaignID, r.Seq, "says", "rows wait behind it")
	}
	must.Equal(t, len(heads), len(oddIDs), "heads")
}

func TestRows_limitsAreBounded(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 300)
	for limit, want := range map[int]int{0: 50, -1: 50, 7: 7, 200: 200, 10_000: 200} {
		page, err := f.Rows(f.Ctx, outbox.RowFilter{Limit: limit})
		must.Hold(t, err == nil && len(page.Items) == want, "limit %d gives %d rows, %v, want %d", limit, len(page.Items), err, want)
	}
}

func TestRow_hasItsEventAttemptsAndCampaign(t *testing.T) {
	t.Parallel()
	f := rowScene(t)
	d := f.MustRow("it's", 1)
	must.Hold(t, d.Event.CampaignID == "it's" && d.Event.Seq == 1 && d.Row.Status == outbox.Dead && d.Campaign.HeadSeq == 1, "detail is %+v", d)
	must.Hold(t, len(d.Attempts) == 2 && d.Attempts[0].Error == "disk 2 is full" && d.Attempts[0].Attempt == 2 && d.Attempts[0].Fingerprint == "disk # is full", "attempts are %+v, want both, newest first", d.Attempts)
	for _, c := range []struct {
		campaign string
		seq      int64
	}{{"it's", 9}, {"its", 1}} {
		refused(t, storetest.No(f.Row(f.Ctx, c.campaign, c.seq)), outbox.ErrNotFound)
	}
}

func TestRows_inProcessingAreFoundAfterPartOfTheirWaveIsGone(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 10)
	f.Works(one, f.ClaimOne(one, 10), 4)
	f.ClaimOne(one, 3)
	got := f.rowPager(outbox.RowFilter{Status: outbox.Processing, Limit: 2}).All(t)
	must.Equal(t, storetest.Items(got), []string{"a#5", "a#6", "a#7"}, "processing")
}
