package store_test

import (
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

// campaignScene is a store with campaigns in every state.
func campaignScene(t *testing.T) *fixture {
	f := open(t, storetest.MaxAttempts(2))
	f.AppendN("current-1", 1)
	f.AppendN("current-2", 7)
	f.Drain()
	f.AppendN("blocked-1", 2)
	f.AppendN("blocked-2", 9)
	f.Kill("blocked-1", "blocked-2")
	f.AppendN("failing", 3)
	f.Fail("boom", "failing")
	f.AppendN("diverged", 4)
	f.MustSettle(one, store.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.AppendN("paused", 2)
	f.MustPause("paused")
	for i, id := range []string{"lagging-100%", "lagging_it's", "lagging-ü"} {
		f.Clock.Advance(time.Second)
		f.AppendN(id, 5-i)
	}
	f.Clock.Advance(time.Second)
	return f
}

func ids(campaigns []outbox.Campaign) []string {
	all := []string{}
	for _, c := range campaigns {
		all = append(all, c.CampaignID)
	}
	return all
}

func TestCampaigns_pagesVisitEveryMatchOnceInOrder(t *testing.T) {
	t.Parallel()
	f := campaignScene(t)
	must.OK(t, f.RecordVerifications(f.Ctx, []outbox.Verification{{CampaignID: "current-2", Projection: "p", Verdict: outbox.VerdictDrift}, {CampaignID: "lagging-ü", Projection: "p", Verdict: outbox.VerdictFailed},
		{CampaignID: "blocked-2", Projection: "p", Verdict: outbox.VerdictDrift}, {CampaignID: "blocked-2", Projection: "q", Verdict: outbox.VerdictFailed}}))
	everything := f.AllCampaigns(outbox.CampaignFilter{Limit: 200})
	if len(everything) != 10 {
		t.Fatalf("campaigns are %v, want all ten", ids(everything))
	}
	sorts := map[outbox.CampaignSort]func(a, b outbox.Campaign) int{
		outbox.SortTrouble: func(a, b outbox.Campaign) int { return int(a.Rank() - b.Rank()) },
		outbox.SortID:      func(a, b outbox.Campaign) int { return 0 },
		outbox.SortLag:     func(a, b outbox.Campaign) int { return int(b.LagEvents() - a.LagEvents()) },
		outbox.SortAge:     func(a, b outbox.Campaign) int { return int(b.Lag(f.Clock.Now()) - a.Lag(f.Clock.Now())) },
	}
	for sort, compare := range sorts {
		for _, state := range append([]outbox.State{""}, outbox.States...) {
			for _, q := range []string{"", "lag", "%", "'", "ü", "none", "1"} {
				var want []outbox.Campaign
				for _, c := range everything {
					if (state == "" || c.In(state)) && strings.Contains(c.CampaignID, q) {
						want = append(want, c)
					}
				}
				slices.SortStableFunc(want, compare)
				for _, limit := range []int{1, 3, 200} {
					filter := outbox.CampaignFilter{Sort: sort, State: state, Q: q, Limit: limit}
					turned := filter
					turned.Reverse = true
					mustList(t, fmt.Sprintf("%+v", filter), ids(want), f.campaignPager(filter), f.campaignPager(turned))
					got := total(f.campaignPager(filter)(""))
					must.Hold(t, sort == outbox.SortLag || got == fmt.Sprint(len(want)), "%+v: total %s, want %d", filter, got, len(want))
				}
			}
		}
	}
	f.must(f.PauseCampaign(f.Ctx, ana(""), "blocked-1"))
	f.Clock.Advance(time.Second)
	f.MustPause("lagging-ü")
	paused, err := f.Paused(f.Ctx, 2)
	must.Hold(t, err == nil && len(paused) == 2 && paused[0].CampaignID == "lagging-ü" && paused[1].CampaignID == "blocked-1", "the last paused are %+v, %v", paused, err)
	for _, state := range []outbox.State{outbox.StateBlocked, outbox.StatePaused} {
		if got := f.AllCampaigns(outbox.CampaignFilter{State: state, Limit: 200}); !slices.Contains(ids(got), "blocked-1") {
			t.Errorf("a campaign that is blocked and paused is not among those that are %s: %v", state, ids(got))
		}
	}
	for _, state := range []outbox.State{outbox.StateDrifted, outbox.StateUnverifiable} {
		if got := f.AllCampaigns(outbox.CampaignFilter{State: state, Limit: 200}); len(got) != 2 || !slices.Contains(ids(got), "blocked-2") {
			t.Errorf("a campaign that is blocked, drifted and unverifiable is not among those that are %s: %v", state, ids(got))
		}
	}
	for _, state := range outbox.States {
		must.Hold(t, len(f.AllCampaigns(outbox.CampaignFilter{State: state})) != 0, "the scene has no campaign that is %s", state)
	}
}

func TestCampaigns_ofAStateAreFoundBeyondTheWindow(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]string{"a match at the window's end": "i in (5000, 5001, 10000, 10001, 10050)", "none before": "i = 10050", "all": "i > 0"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.Exec(`insert into campaigns (campaign_id, high_water_seq, applied_seq, paused_at, created_at, updated_at)
with recursive n(i) as (values (1) union all select i + 1 from n where i < 10050)
select 'c-' || substr(cast(100000 + i as text), 2), 1, 1, case when ` + match + ` then 1 end, 1, 1 from n`)
			want := storetest.Texts(t, f.JournalDB, `select campaign_id from campaigns where paused_at is not null order by campaign_id`)
			got := ids(f.AllCampaigns(outbox.CampaignFilter{State: outbox.StatePaused, Limit: 200}))
			must.Equal(t, got, want, "paused")
		})
	}
}

func TestCampaign_readsItsWatermark(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 2)
	got := f.MustCampaign("a")
	must.Hold(t, got.AppliedSeq == 2 && got.HighWaterSeq == 3 && got.LagEvents() == 1, "before settling the campaign is %+v, want two applied", got)
	refused(t, storetest.No(f.Campaign(f.Ctx, "b")), outbox.ErrNotFound, `there is no campaign "b"`)
}

func TestBlocked_worstFirst(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2))
	f.AppendN("old-few", 2)
	f.Kill("old-few")
	f.AppendN("young-many", 500)
	f.Kill("young-many")
	f.AppendN("young-few", 2)
	f.Kill("young-few")
	f.AppendN("failing", 600)
	f.Fail("boom", "failing")
	f.AppendN("diverged", 1)
	f.MustSettle(one, store.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.AppendN("lagging", 900)
	f.MustPause("lagging")
	got := must.Get(f.Blocked(f.Ctx, 10)).Or(t)
	var names []string
	for _, c := range got {
		names = append(names, c.CampaignID)
	}
	must.Equal(t, names, []string{"diverged", "young-many", "old-few", "young-few", "failing"}, "blocked")
	if got[0].Error != "" || got[1].Error != "no such thing" || got[4].Fingerprint != "boom" {
		t.Errorf("the heads failed with %q, %q, %q", got[0].Error, got[1].Error, got[4].Fingerprint)
	}
	// Ten million rows that have waited for a year give a product that overflows a bigint of microseconds.
	f.Exec(`update campaigns set pending = 10000000 where campaign_id = 'old-few'`)
	f.Clock.Advance(365 * 24 * time.Hour)
	got, err := f.Blocked(f.Ctx, 2)
	must.Hold(t, err == nil && len(got) == 2 && got[1].CampaignID == "old-few", "%+v, %v, want two, the large one after the diverged one", got, err)
}

func TestSummary_sumsOverCampaigns(t *testing.T) {
	t.Parallel()
	f := campaignScene(t)
	f.AppendN("leased", 3)
	f.Exec(`update campaigns set due_at = 1 where campaign_id = 'leased'`)
	f.ClaimOne(one, 1)
	f.Clock.Advance(time.Second)
	stopped := f.Clock.Now()
	for i, s := range []outbox.InstanceState{
		{ID: "i-1", Applied: 10, Failed: 2, Fenced: 1, Rates: outbox.Throughput{AppliedPerSecond: 5, FailedPerSecond: 1}},
		{ID: "i-2", Applied: 5, Rates: outbox.Throughput{AppliedPerSecond: 2.5}, StoppedAt: &stopped},
	} {
		s.StartedAt = began.Add(time.Duration(i) * time.Second)
		must.OK(t, f.Heartbeat(f.Ctx, s))
	}
	got := must.Get(f.Summary(f.Ctx)).Or(t)
	counts := outbox.Counts{Pending: f.CountRows(outbox.Pending), Processing: f.CountRows(outbox.Processing), Failed: f.CountRows(outbox.Failed), Dead: f.CountRows(outbox.Dead)}
	must.Hold(t, got.Counts == counts && counts.Processing != 0, "counts are %+v, want %+v", got.Counts, counts)
	must.Equal(t, got.Campaigns, outbox.CampaignCounts{Total: 11, Lagging: 9, Blocked: 2, Paused: 1, Diverged: 1, Mismatched: 1, Leased: 1}, "campaigns")
	age := f.Clock.Now().Sub(began).Seconds()
	o := got.Oldest
	must.Hold(t, o != nil && o.Seq == 1 && strings.HasPrefix(o.CampaignID, "blocked") && o.EnqueuedAt == began && o.AgeSeconds == age, "oldest is %+v", got.Oldest)
	lag := f.Number(`select sum(high_water_seq - applied_seq) from campaigns`)
	must.Hold(t, got.Lag == (outbox.Lag{Events: lag, MaxSeconds: age, RetryableSeconds: 5}) && got.Mode == outbox.ModeOutbox && got.AsOf == f.Clock.Now(), "summary is %+v", got)
	w := got.Worker
	must.Hold(t, w.Running && w.Applied == 15 && w.Failed == 2 && w.Fenced == 1 && w.LastSeen != nil && *w.LastSeen == f.Clock.Now(), "worker is %+v", w)
	must.Equal(t, got.Throughput, outbox.Throughput{AppliedPerSecond: 7.5, FailedPerSecond: 1}, "throughput")
}

func TestSummary_isSharedForASecondAndTellsTheModeOfTheServerThatRuns(t *testing.T) {
	t.Parallel()
	f := open(t)
	first, err := f.Summary(f.Ctx)
	must.Hold(t, err == nil && first.Counts.Total() == 0 && first.Oldest == nil && first.Campaigns.Total == 0 && first.Instances != nil && !first.Worker.Running && first.Mode == outbox.ModeOutbox, "the summary of nothing is %+v, %v", first, err)
	f.Clock.Advance(time.Hour)
	f.AppendN("a", 1)
	must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: "w", Host: "h", PID: 7, Mode: outbox.ModeShadow, StartedAt: began, BeatEvery: 2 * time.Second}))
	must.Equal(t, must.Get(f.Summary(f.Ctx)).Or(t).AsOf, first.AsOf, "taken anew at", "after")
	// A command may have been started without the servers' configuration.
	s := must.Get(f.beside().Summary(f.Ctx)).Or(t)
	must.Hold(t, s.Mode == outbox.ModeShadow && s.Campaigns.Total == 1, "another process reads %+v", s)
}
