package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// campaignScene is a store with campaigns in every state.
func campaignScene(t *testing.T) *fixture {
	t.Helper()
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
					got := f.AllCampaigns(outbox.CampaignFilter{Sort: sort, State: state, Q: q, Limit: limit})
					if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
						t.Errorf("sort %s, state %q, q %q, limit %d (-want +got):\n%s", sort, state, q, limit, diff)
					}
				}
			}
		}
	}
	f.must(f.PauseCampaign(f.Ctx, ana(""), "blocked-1"))
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
		if len(f.AllCampaigns(outbox.CampaignFilter{State: state})) == 0 {
			t.Errorf("the scene has no campaign that is %s", state)
		}
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
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("paused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCampaign_readsItsWatermark(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 2)
	f.MustApply(c, 2)
	if got := f.MustCampaign("a"); got.AppliedSeq != 2 || got.HighWaterSeq != 3 || got.LagEvents() != 1 {
		t.Errorf("before settling the campaign is %+v, want two applied", got)
	}
	_, err := f.Campaign(f.Ctx, "b")
	refused(t, err, outbox.ErrNotFound, `there is no campaign "b"`)
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
	var campaigns []outbox.Campaign
	for _, c := range got {
		campaigns = append(campaigns, c.Campaign)
	}
	if diff := cmp.Diff([]string{"diverged", "young-many", "old-few", "young-few", "failing"}, ids(campaigns)); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}
	if got[0].Error != "" || got[1].Error != "no such thing" || got[4].Fingerprint != "boom" {
		t.Errorf("the heads failed with %q, %q, %q", got[0].Error, got[1].Error, got[4].Fingerprint)
	}
	if got, err := f.Blocked(f.Ctx, 2); err != nil || len(got) != 2 {
		t.Errorf("%d campaigns, %v, want two", len(got), err)
	}
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
	var counts outbox.Counts
	for _, r := range f.everyRow() {
		switch r.Status {
		case outbox.Pending:
			counts.Pending++
		case outbox.Processing:
			counts.Processing++
		case outbox.Failed:
			counts.Failed++
		case outbox.Dead:
			counts.Dead++
		}
	}
	if got.Counts != counts || counts.Processing == 0 {
		t.Errorf("counts are %+v, want %+v", got.Counts, counts)
	}
	if want := (outbox.CampaignCounts{Total: 11, Lagging: 9, Blocked: 2, Paused: 1, Diverged: 1, Mismatched: 1, Leased: 1}); got.Campaigns != want {
		t.Errorf("campaigns are %+v, want %+v", got.Campaigns, want)
	}
	age := f.Clock.Now().Sub(began).Seconds()
	if o := got.Oldest; o == nil || o.Seq != 1 || !strings.HasPrefix(o.CampaignID, "blocked") || o.EnqueuedAt != began || o.AgeSeconds != age {
		t.Errorf("oldest is %+v, want a blocked head of %v s", got.Oldest, age)
	}
	lag := f.Number(`select sum(high_water_seq - applied_seq) from campaigns`)
	if got.Lag != (outbox.Lag{Events: lag, MaxSeconds: age, RetryableSeconds: 5}) || got.Mode != outbox.ModeOutbox || got.AsOf != f.Clock.Now() {
		t.Errorf("summary is %+v", got)
	}
	if w := got.Worker; !w.Running || w.Applied != 15 || w.Failed != 2 || w.Fenced != 1 || w.LastSeen == nil || *w.LastSeen != f.Clock.Now() {
		t.Errorf("worker is %+v", w)
	}
	if want := (outbox.Throughput{AppliedPerSecond: 7.5, FailedPerSecond: 1}); got.Throughput != want {
		t.Errorf("throughput is %+v, want %+v", got.Throughput, want)
	}
}

func TestSummary_ofNothingIsZeroAndNotNull(t *testing.T) {
	t.Parallel()
	f := open(t)
	got, err := f.Summary(f.Ctx)
	if err != nil || got.Counts.Total() != 0 || got.Oldest != nil || got.Campaigns.Total != 0 || got.Instances == nil || got.Worker.Running {
		t.Errorf("summary is %+v, %v", got, err)
	}
}

// A command may have been started without the servers' configuration.
func TestSummary_tellsTheModeOfTheServerThatRuns(t *testing.T) {
	t.Parallel()
	f := open(t)
	mode := func(want outbox.Mode) {
		t.Helper()
		s, err := f.beside().Summary(f.Ctx)
		if err != nil || s.Mode != want {
			t.Errorf("the mode is %s, %v, want %s", s.Mode, err, want)
		}
	}
	mode(outbox.ModeOutbox)
	must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: "w", Host: "h", PID: 7, Mode: outbox.ModeShadow, StartedAt: began, BeatEvery: 2 * time.Second}))
	mode(outbox.ModeShadow)
}

func TestSummary_isSharedForASecond(t *testing.T) {
	t.Parallel()
	f := open(t)
	first, err := f.Summary(f.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(time.Hour)
	f.AppendN("a", 1)
	second, err := f.Summary(f.Ctx)
	if err != nil || second.AsOf != first.AsOf {
		t.Errorf("taken anew at %v after %v: %v", second.AsOf, first.AsOf, err)
	}
}

func TestInstances_newestFirstAndForgottenAfterAWeek(t *testing.T) {
	t.Parallel()
	f := open(t)
	beat := func(id string) {
		t.Helper()
		must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: id, Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: f.Clock.Now()}))
	}
	beat("old")
	f.Clock.Advance(4 * 24 * time.Hour)
	beat("young")
	beat("young")
	listed := func() string {
		t.Helper()
		all := must.Get(f.Instances(f.Ctx)).Or(t)
		var names []string
		for _, i := range all {
			names = append(names, fmt.Sprintf("%s@%s/%d/%s", i.ID, i.Host, i.PID, i.Version))
		}
		return strings.Join(names, " ")
	}
	if got := listed(); got != "young@h/7/v1 old@h/7/v1" {
		t.Errorf("instances are %s", got)
	}
	f.Clock.Advance(4 * 24 * time.Hour)
	beat("new")
	if got := listed(); got != "new@h/7/v1 young@h/7/v1" {
		t.Errorf("after a week the instances are %s", got)
	}
}

// Ten million rows that have waited for a month give a product that overflows a bigint of
// microseconds.
func TestBlocked_ranksCampaignsHoweverManyRowsWaitHoweverLong(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("large", 1)
	f.AppendN("small", 1)
	f.Kill("large", "small")
	f.Exec(`update campaigns set pending = 10000000 where campaign_id = 'large'`)
	f.Clock.Advance(365 * 24 * time.Hour)
	blocked, err := f.Blocked(f.Ctx, 10)
	if err != nil || len(blocked) != 2 || blocked[0].CampaignID != "large" {
		t.Errorf("blocked are %+v, %v, want the large one first", blocked, err)
	}
}
