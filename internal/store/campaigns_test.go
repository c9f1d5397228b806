package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// campaignScene is a store with campaigns in every state.
func campaignScene(t *testing.T) *fixture {
	f := own(t, storetest.MaxAttempts(2))
	f.AppendN("current-1", 1)
	f.Applied("current-2", 7)
	f.AppendN("blocked-1", 2)
	f.AppendN("blocked-2", 9)
	f.Kill("blocked-1", "blocked-2")
	f.Failing("boom", "failing", 3)
	f.AppendN("diverged", 4)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.Halted("paused", 2)
	for i, id := range []string{"lagging-100%", "lagging_it's", "lagging-ü"} {
		f.Clock.Advance(time.Second)
		f.AppendN(id, 5-i)
	}
	f.Clock.Advance(time.Second)
	return f
}

func ids(campaigns []campaign.Campaign) []string {
	all := []string{}
	for _, c := range campaigns {
		all = append(all, c.CampaignID)
	}
	return all
}

func TestCampaigns_pagesVisitEveryMatchOnceInOrder(t *testing.T) {
	f := campaignScene(t)
	for _, id := range []string{"single-2", "single-1"} {
		f.AppendN(id, 1)
		f.Clock.Advance(time.Second)
	}
	must.OK(t, f.RecordVerifications(f.Ctx, []campaign.Verification{{CampaignID: "current-2", Projection: "p", Verdict: campaign.VerdictDrift}, {CampaignID: "lagging-ü", Projection: "p", Verdict: campaign.VerdictFailed},
		{CampaignID: "blocked-2", Projection: "p", Verdict: campaign.VerdictDrift}, {CampaignID: "blocked-2", Projection: "q", Verdict: campaign.VerdictFailed}}))
	everything := f.AllCampaigns(campaign.CampaignFilter{Limit: 200})
	must.Need(t, len(everything) == 12, "campaigns are %v, want all twelve", ids(everything))
	older := func(a, b campaign.Campaign) int { return int(b.Lag(f.Clock.Now()) - a.Lag(f.Clock.Now())) }
	sorts := map[campaign.CampaignSort]func(a, b campaign.Campaign) int{
		campaign.SortID:  func(a, b campaign.Campaign) int { return 0 },
		campaign.SortAge: older,
		campaign.SortTrouble: func(a, b campaign.Campaign) int {
			if a.Rank() == campaign.RankLagging && b.Rank() == campaign.RankLagging {
				return older(a, b)
			}
			return int(a.Rank() - b.Rank())
		},
		campaign.SortLag: func(a, b campaign.Campaign) int {
			if a.LagEvents() == 1 && b.LagEvents() == 1 {
				return older(a, b)
			}
			return int(b.LagEvents() - a.LagEvents())
		},
	}
	for sort, compare := range sorts {
		for _, state := range append([]campaign.State{""}, campaign.States...) {
			for _, q := range []string{"", "lag", "%", "'", "ü", "none", "1"} {
				var want []campaign.Campaign
				for _, c := range everything {
					if (state == "" || c.In(state)) && strings.Contains(c.CampaignID, q) {
						want = append(want, c)
					}
				}
				slices.SortStableFunc(want, compare)
				for _, limit := range []int{1, 5} {
					filter := campaign.CampaignFilter{Sort: sort, State: state, Q: q, Limit: limit}
					turned := filter
					turned.Reverse = true
					mustList(t, fmt.Sprintf("%+v", filter), ids(want), f.campaignPager(filter), f.campaignPager(turned))
					got := total(f.campaignPager(filter)(""))
					must.Hold(t, sort == campaign.SortLag || got == fmt.Sprint(len(want)), "%+v: total %s, want %d", filter, got, len(want))
				}
			}
		}
	}
	f.must(f.PauseCampaign(f.Ctx, ana(""), "blocked-1"))
	f.Clock.Advance(time.Second)
	f.MustPause("lagging-ü")
	paused, err := f.Paused(f.Ctx, 2)
	must.Hold(t, err == nil && len(paused) == 2 && paused[0].CampaignID == "lagging-ü" && paused[1].CampaignID == "blocked-1", "the last paused are %+v, %v", paused, err)
	for _, state := range []campaign.State{campaign.StateBlocked, campaign.StatePaused} {
		got := f.AllCampaigns(campaign.CampaignFilter{State: state, Limit: 200})
		must.Hold(t, slices.Contains(ids(got), "blocked-1"), "a campaign that is blocked and paused is not among those that are %s: %v", state, ids(got))
	}
	for _, state := range []campaign.State{campaign.StateDrifted, campaign.StateUnverifiable} {
		got := f.AllCampaigns(campaign.CampaignFilter{State: state, Limit: 200})
		must.Hold(t, len(got) == 2 && slices.Contains(ids(got), "blocked-2"), "a campaign that is blocked, drifted and unverifiable is not among those that are %s: %v", state, ids(got))
	}
	for _, state := range campaign.States {
		must.Hold(t, len(f.AllCampaigns(campaign.CampaignFilter{State: state})) != 0, "the scene has no campaign that is %s", state)
	}
}

func TestCampaigns_ofAStateAreFoundBeyondTheWindow(t *testing.T) {
	storetest.Each(t, own, map[string]string{"a match at the window's end": "i in (5000, 5001, 10000, 10001, 10050)", "none before": "i = 10050", "all": "i > 0"}, func(t *testing.T, f *fixture, match string) {
		f.Exec(`insert into campaigns (campaign_id, high_water_seq, applied_seq, paused_at, created_at, updated_at)
with recursive n(i) as (values (1) union all select i + 1 from n where i < 10050)
select 'c-' || substr(cast(100000 + i as text), 2), 1, 1, case when ` + match + ` then 1 end, 1, 1 from n`)
		want := storetest.Texts(t, f.JournalDB, `select campaign_id from campaigns where paused_at is not null order by campaign_id`)
		must.Equal(t, ids(f.AllCampaigns(campaign.CampaignFilter{State: campaign.StatePaused, Limit: 200})), want, "paused")
	})
}

func TestCampaigns_searchLooksAtSoManyAndSaysSo(t *testing.T) {
	f := own(t)
	f.Exec(`insert into campaigns (campaign_id, high_water_seq, applied_seq, oldest_enqueued_at, created_at, updated_at)
with recursive n(i) as (values (1) union all select i + 1 from n where i < 20050)
select 'c-' || substr(cast(100000 + i as text), 2), 2, case when i % 2 = 0 then 1 else 2 end, case when i % 2 = 0 then 1 end, 1, 1 from n`)
	for sort, key := range map[campaign.CampaignSort]string{campaign.SortID: "", campaign.SortTrouble: "applied_seq, "} {
		want := storetest.Texts(t, f.JournalDB, `select campaign_id from campaigns where campaign_id like '%9999%' order by `+key+`campaign_id`)
		page := f.campaignPager(campaign.CampaignFilter{Sort: sort, Q: "9999"})
		must.Hold(t, page("").Partial, "a page by %s looked at all", sort)
		mustList(t, string(sort), want, page, f.campaignPager(campaign.CampaignFilter{Sort: sort, Q: "9999", Reverse: true}))
	}
	must.Equal(t, ids(must.Get(f.Campaigns(f.Ctx, campaign.CampaignFilter{Q: "c-2005"})).Or(t).Items), []string{"c-20050"}, "at once, by the index")
}

func TestBlocked_worstFirst(t *testing.T) {
	f := own(t, storetest.MaxAttempts(2))
	f.Dies("old-few", 2)
	f.Dies("young-many", 500)
	f.Dies("young-few", 2)
	f.Failing("boom", "failing", 600)
	f.AppendN("diverged", 1)
	f.MustSettle(one, outbox.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.Halted("lagging", 900)
	got := must.Get(f.Blocked(f.Ctx, 10)).Or(t)
	var names []string
	for _, c := range got {
		names = append(names, c.CampaignID)
	}
	must.Equal(t, names, []string{"diverged", "young-many", "old-few", "young-few", "failing"}, "blocked")
	must.Hold(t, got[0].Error == "" && got[1].Error == "no such thing" && got[4].Fingerprint == "boom", "the heads failed with %q, %q, %q", got[0].Error, got[1].Error, got[4].Fingerprint)
	// Ten million rows that have waited for a year give a product that overflows a bigint of microseconds.
	f.Exec(`update campaigns set pending = 10000000 where campaign_id = 'old-few'`)
	f.Clock.Advance(365 * 24 * time.Hour)
	got, err := f.Blocked(f.Ctx, 2)
	must.Hold(t, err == nil && len(got) == 2 && got[1].CampaignID == "old-few", "%+v, %v, want two, the large one after the diverged one", got, err)
}

func TestSummary_sumsOverCampaigns(t *testing.T) {
	f := campaignScene(t)
	f.AppendN("leased", 3)
	f.Exec(`update campaigns set due_at = 1 where campaign_id = 'leased'`)
	f.ClaimOne(one, 1)
	f.Clock.Advance(time.Second)
	stopped := f.Clock.Now()
	for i, s := range []campaign.InstanceState{
		{ID: "i-1", Applied: 10, Failed: 2, Fenced: 1, Rates: campaign.Throughput{AppliedPerSecond: 5, FailedPerSecond: 1}},
		{ID: "i-2", Applied: 5, Rates: campaign.Throughput{AppliedPerSecond: 2.5}, StoppedAt: &stopped},
	} {
		s.StartedAt = began.Add(time.Duration(i) * time.Second)
		must.OK(t, f.Heartbeat(f.Ctx, s))
	}
	got := must.Get(f.Summary(f.Ctx)).Or(t)
	counts := campaign.Counts{Pending: f.CountRows(event.Pending), Processing: f.CountRows(event.Processing), Failed: f.CountRows(event.Failed), Dead: f.CountRows(event.Dead)}
	must.Hold(t, got.Counts == counts && counts.Processing != 0, "counts are %+v, want %+v", got.Counts, counts)
	must.Equal(t, got.Campaigns, campaign.CampaignCounts{Total: 11, Lagging: 9, Blocked: 2, Paused: 1, Diverged: 1, Mismatched: 1, Leased: 1}, "campaigns")
	age := f.Clock.Now().Sub(began).Seconds()
	o := got.Oldest
	must.Hold(t, o != nil && o.Seq == 1 && strings.HasPrefix(o.CampaignID, "blocked") && o.EnqueuedAt == began && o.AgeSeconds == age, "oldest is %+v", got.Oldest)
	lag := f.Number(`select sum(high_water_seq - applied_seq) from campaigns`)
	must.Hold(t, got.Lag == (campaign.Lag{Events: lag, MaxSeconds: age, RetryableSeconds: 5}) && got.Mode == campaign.ModeOutbox && got.AsOf == f.Clock.Now(), "summary is %+v", got)
	w := got.Worker
	must.Hold(t, w.Running && w.Applied == 15 && w.Failed == 2 && w.Fenced == 1 && w.LastSeen != nil && *w.LastSeen == f.Clock.Now(), "worker is %+v", w)
	must.Equal(t, got.Throughput, campaign.Throughput{AppliedPerSecond: 7.5, FailedPerSecond: 1}, "throughput")
}

func TestSummary_isSharedForASecondAndTellsTheModeOfTheServerThatRuns(t *testing.T) {
	f := own(t)
	first, err := f.Summary(f.Ctx)
	must.Hold(t, err == nil && first.Counts.Total() == 0 && first.Oldest == nil && first.Campaigns.Total == 0 && first.Instances != nil && !first.Worker.Running && first.Mode == campaign.ModeOutbox, "the summary of nothing is %+v, %v", first, err)
	f.Clock.Advance(time.Hour)
	f.AppendN("a", 1)
	must.OK(t, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: "w", Host: "h", PID: 7, Mode: campaign.ModeShadow, StartedAt: began, BeatEvery: 2 * time.Second}))
	must.Equal(t, must.Get(f.Summary(f.Ctx)).Or(t).AsOf, first.AsOf, "taken anew at", "after")
	// A command may have been started without the servers' configuration.
	s := must.Get(f.beside().Summary(f.Ctx)).Or(t)
	must.Hold(t, s.Mode == campaign.ModeShadow && s.Campaigns.Total == 1, "another process reads %+v", s)
}

// wave is the claims of one worker in a history.
type wave struct {
	worker outbox.Worker
	claims []outbox.Claim
}

// history is a random sequence of all operations of a store.
type history struct {
	*fixture
	t       *rapid.T
	ids     []string
	held    []wave
	stray   map[string]bool // campaigns in which applied events may still have unsettled rows
	applied map[string]int64
	epochs  map[string]int64
}

func (h *history) id() string { return rapid.SampledFrom(h.ids).Draw(h.t, "campaign") }

// acted fails on any error except an allowed refusal.
func (h *history) acted(err error) {
	must.Need(h.t, err == nil || errors.Is(err, event.ErrConflict) || errors.Is(err, event.ErrNotFound), "act: %v", err)
}

func (h *history) appends() { h.AppendN(h.id(), rapid.IntRange(1, 5).Draw(h.t, "events")) }

func (h *history) claims() {
	w := rapid.SampledFrom([]outbox.Worker{one, two}).Draw(h.t, "worker")
	rows := rapid.SampledFrom([]int{1, 4, 12, 1000}).Draw(h.t, "rows")
	before := h.standings()
	claims := h.MustClaim(w, rows)
	if len(claims) > 0 {
		h.held = append(h.held, wave{w, claims})
	}
	h.explained(before, claims, rows == 1000)
}

func (h *history) standings() map[string]campaign.Campaign {
	page := must.Get(h.Campaigns(h.Ctx, campaign.CampaignFilter{Limit: 200})).Or(h.t)
	all := make(map[string]campaign.Campaign, len(page.Items))
	for _, c := range page.Items {
		all[c.CampaignID] = c
	}
	return all
}

// explained checks that a campaign was shown as ready exactly when a claim takes it, if the claim had room for all. A head whose worker has
// died again may turn out to be failed only during the claim.
func (h *history) explained(before map[string]campaign.Campaign, claims []outbox.Claim, roomy bool) {
	now := h.Clock.Now()
	ready := func(c campaign.Campaign) bool {
		return c.Explain(now, campaign.Surroundings{Mode: campaign.ModeOutbox}).Blocker == campaign.BlockerNone
	}
	taken := make(map[string]bool, len(claims))
	for _, c := range claims {
		taken[c.CampaignID] = true
		must.Need(h.t, ready(before[c.CampaignID]), "campaign %s was claimed and explained as %+v", c.CampaignID, before[c.CampaignID].Explain(now, campaign.Surroundings{}))
	}
	if !roomy {
		return
	}
	h.claimsSuspects(taken)
	after := h.standings()
	for id, c := range before {
		abandoned := c.Lease != nil && !ready(after[id])
		must.Need(h.t, !ready(c) || taken[id] || abandoned, "campaign %s was explained as ready and not claimed: %+v; now it is %+v", id, c, after[id])
	}
}

// claimsSuspects claims all suspects, including campaigns with a process death that was just
// detected. A claim is empty when its suspect's head must wait.
func (h *history) claimsSuspects(taken map[string]bool) {
	for range h.ids {
		claims := must.Get(h.ClaimSuspect(h.Ctx, one, lease)).Or(h.t)
		if len(claims) > 0 {
			h.held = append(h.held, wave{one, claims})
			taken[claims[0].CampaignID] = true
		}
	}
}

func (h *history) take() (wave, bool) {
	if len(h.held) == 0 {
		return wave{}, false
	}
	i := rapid.IntRange(0, len(h.held)-1).Draw(h.t, "wave")
	w := h.held[i]
	h.held = append(h.held[:i:i], h.held[i+1:]...)
	return w, true
}

// works ends a wave as a worker does: each campaign is applied up to a random seq, may fail
// there, and is settled, unless the worker dies before.
func (h *history) works() {
	w, ok := h.take()
	if !ok {
		return
	}
	dies := rapid.IntRange(0, 3).Draw(h.t, "dies") == 0
	var results []outbox.Result
	for _, c := range w.claims {
		last := rapid.Int64Range(c.First-1, c.Last).Draw(h.t, "applied")
		reached, err := h.ApplyClaim(c, last)
		must.Need(h.t, err == nil || errors.Is(err, event.ErrLeaseLost), "apply: %v", err)
		r := outbox.Result{Claim: c, Applied: reached}
		if reached < c.Last && err == nil && rapid.Bool().Draw(h.t, "fails") {
			r.Failure = storetest.Failure("boom")
		}
		results = append(results, r)
	}
	if dies || h.MustSettle(w.worker, results...).Fenced > 0 {
		for _, r := range results {
			h.stray[r.Claim.CampaignID] = true
		}
	}
}

func (h *history) renews() {
	if len(h.held) > 0 {
		w := rapid.SampledFrom(h.held).Draw(h.t, "renewed")
		err := h.Renew(h.Ctx, w.worker, w.claims, lease)
		must.Need(h.t, err == nil || errors.Is(err, event.ErrLeaseLost), "renew: %v", err)
	}
}

func (h *history) waits() {
	h.Clock.Advance(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, lease, 6 * time.Minute}).Draw(h.t, "wait"))
}

func (h *history) operates() {
	id := h.id()
	head := int64(1)
	if c, err := h.Campaign(h.Ctx, id); err == nil && c.HeadSeq > 0 {
		head = c.HeadSeq
	}
	acts := map[string]func() error{
		"requeue":     func() error { return storetest.No(h.RequeueRow(h.Ctx, ana(""), id, head)) },
		"many":        func() error { return storetest.No(h.RequeueDead(h.Ctx, ana(""), campaign.RequeueFilter{Limit: 2})) },
		"dead-letter": func() error { return storetest.No(h.DeadLetterRow(h.Ctx, ana(""), id, head)) },
		"retry":       func() error { return storetest.No(h.RetryRow(h.Ctx, ana(""), id, head)) },
		"pause":       func() error { return storetest.No(h.PauseCampaign(h.Ctx, ana(""), id)) },
		"resume":      func() error { return storetest.No(h.ResumeCampaign(h.Ctx, ana(""), id)) },
		"replay": func() error { // would wait in real time for a leased campaign
			if c, _ := h.Campaign(h.Ctx, id); c.Lease != nil && c.Lease.ExpiresAt.After(h.Clock.Now()) {
				return nil
			}
			return storetest.No(h.ReplayCampaign(h.Ctx, ana(""), id))
		},
		"repair": func() error { return storetest.No(h.RepairGaps(h.Ctx, ana(""))) },
		"skip": func() error {
			return storetest.No(h.SkipEvent(h.Ctx, storetest.ToSkip(ana(""), id, head), id, head))
		},
		"unskip": func() error { return h.unskips(id) },
	}
	h.acted(acts[rapid.SampledFrom(append(slices.Sorted(maps.Keys(acts)), "skip")).Draw(h.t, "act")]())
}

// unskips reverts the latest skip of a campaign, the only one that may be reverted, unless the
// campaign is leased: the action would wait for it in real time.
func (h *history) unskips(id string) error {
	seq := h.Number(`select coalesce(max(seq), 0) from skips where campaign_id = $1 and undone_at is null`, id)
	c, err := h.Campaign(h.Ctx, id)
	if err != nil || seq == 0 || c.Lease != nil && c.Lease.ExpiresAt.After(h.Clock.Now()) {
		return err
	}
	_, err = h.UnskipEvent(h.Ctx, ana(""), id, seq)
	if err == nil && c.AppliedSeq == seq {
		h.applied[id] = seq - 1
	}
	return err
}

// loses deletes rows without the store and repairs the gap at once. It leaves out a leased campaign: its worker repairs what it finds.
func (h *history) loses() {
	id := h.id()
	c, err := h.Campaign(h.Ctx, id)
	if err != nil || c.Lease != nil {
		return
	}
	h.Exec(`delete from projection_apply_outbox where campaign_id = $1 and seq % 3 = $2`, id, rapid.IntRange(0, 2).Draw(h.t, "which"))
	must.Get(h.ReconcileCampaign(h.Ctx, id)).Or(h.t)
}

// holds checks the invariants of every campaign after each step.
func (h *history) holds() {
	marks := must.Get(h.Watermarks(h.Ctx, h.ids)).Or(h.t)
	for _, c := range h.Recount() {
		must.Need(h.t, c.Problem == "", "the row of campaign %s: %s", c.ID, c.Problem)
		applied := marks[c.ID].AppliedSeq
		must.Need(h.t, applied >= h.applied[c.ID] && c.Epoch >= h.epochs[c.ID], "campaign %s went back: applied %d after %d, epoch %d after %d", c.ID, applied, h.applied[c.ID], c.Epoch, h.epochs[c.ID])
		h.applied[c.ID], h.epochs[c.ID] = applied, c.Epoch
		if h.stray[c.ID] && h.Number(`select count(*) from projection_apply_outbox where campaign_id = $1 and seq <= $2`, c.ID, applied) == 0 {
			h.stray[c.ID] = false
		}
	}
	h.recounted()
}

func (h *history) checks() {
	for _, found := range h.SelfCheckAll() {
		must.Need(h.t, !found.Drifted && !found.Mistimed, "the self-check found %+v", found)
	}
	report := must.Get(h.Check(h.Ctx, storetest.Quiet)).Or(h.t)
	for _, v := range report.Violations {
		// After a worker died between its two transactions, rows of applied events stay until the next claim.
		must.Need(h.t, v.Invariant == "applied_and_owed" && h.stray[v.CampaignID], "check: %+v", v)
	}
}

// checkEvery is the number of steps between two checks, which take longer than a step.
const checkEvery = 4

func TestCampaignRow_staysExactWhateverHappens(t *testing.T) {
	t.Parallel()
	var ended *fixture // a store whose history has ended successfully, for the next one
	rapid.Check(t, func(rt *rapid.T) {
		f := ended
		if f == nil {
			f = open(t, storetest.MaxAttempts(3))
		}
		ended = nil
		defer func() {
			if ended == nil {
				f.CloseNow()
			}
		}()
		h := &history{fixture: f, t: rt, ids: []string{"a", "b", "ü'%"}, stray: map[string]bool{}, applied: map[string]int64{}, epochs: map[string]int64{}}
		steps := map[string]func(){"append": h.appends, "claim": h.claims, "work": h.works, "renew": h.renews, "wait": h.waits, "operate": h.operates, "lose": h.loses}
		names := append(slices.Sorted(maps.Keys(steps)), "claim", "work", "operate")
		h.appends()
		for i := range rapid.IntRange(5, 40).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
			h.holds()
			if i%checkEvery == 0 {
				h.checks()
			}
		}
		h.checks()
		h.drainsAfterAll()
		if f.empty() {
			ended = f
		}
	})
}

// recounted fails unless the summary says what a count of all campaigns does.
func (f *fixture) recounted() {
	sum := must.Get(f.Summarize(f.Ctx)).Or(f.TB)
	c := sum.Campaigns
	got := []int64{c.Total, sum.Events, c.Skips, sum.Counts.Pending, sum.Counts.Processing, sum.Counts.Failed, sum.Counts.Dead, c.Lagging, c.Blocked, c.Paused, c.Diverged, sum.Lag.Events, c.Leased}
	want, dest := make([]int64, len(got)), make([]any, len(got))
	for i := range want {
		dest[i] = &want[i]
	}
	must.OK(f.TB, f.JournalDB.QueryRowContext(f.Ctx, `
select count(*), coalesce(sum(high_water_seq), 0), coalesce(sum(skips), 0), coalesce(sum(pending), 0), coalesce(sum(processing), 0), coalesce(sum(failed), 0),
  coalesce(sum(dead), 0), count(*) filter (where high_water_seq > applied_seq), count(*) filter (where head_status = 'dead'),
  count(*) filter (where paused_at is not null), count(*) filter (where diverged <> ''), coalesce(sum(high_water_seq - applied_seq), 0),
  count(*) filter (where lease_owner <> '' and lease_expires_at > $1)
from campaigns`, sum.AsOf.UnixMicro()).Scan(dest...))
	must.Equal(f.TB, got, want, "the summary's counts")
}

// empty empties both databases without the store. It returns false where opening new ones is easier.
func (f *fixture) empty() bool {
	if !dbtest.Postgres() {
		return false
	}
	for _, db := range []*sql.DB{f.JournalDB, f.ProjectionsDB} {
		statements := []string{`begin`, `set local session_replication_role = replica`} // without triggers
		for _, table := range dbtest.Tables(f.TB, db) {
			if table != "goose_db_version" {
				statements = append(statements, `delete from `+table)
			}
		}
		conn := must.Get(db.Conn(f.Ctx)).Or(f.TB)
		for _, statement := range append(statements, `commit`) {
			_, err := conn.ExecContext(f.Ctx, statement)
			must.Need(f.TB, err == nil, "%s: %v", statement, err)
		}
		conn.Close()
	}
	return true
}

// drainsAfterAll checks that every campaign drains once faults have stopped and operators have released what they paused.
func (h *history) drainsAfterAll() {
	for _, id := range h.ids {
		_, err := h.ResumeCampaign(h.Ctx, ana(""), id)
		h.acted(err)
	}
	left := int64(1)
	for tries := 0; tries < 20 && left > 0; tries++ {
		_, err := h.RequeueDead(h.Ctx, ana(""), campaign.RequeueFilter{})
		h.acted(err)
		h.Clock.Advance(6 * time.Minute)
		h.Drain()
		left = h.Number(`select count(*) from projection_apply_outbox`)
	}
	must.Need(h.t, left == 0, "%d rows are left though nothing fails any more", left)
	clear(h.stray)
	h.holds()
	h.checks()
}

func TestSeqBefore_findsEventsByTheirTime(t *testing.T) {
	f := own(t)
	var times []time.Time
	for range 9 {
		f.AppendN("a", 1)
		times = append(times, f.Clock.Now())
		f.Clock.Advance(time.Minute)
	}
	c := f.MustCampaign("a")
	for i, at := range times {
		for _, x := range []struct {
			at   time.Time
			want int
		}{{at, i}, {at.Add(time.Second), i + 1}} {
			must.Equal(t, must.Get(f.SeqBefore(f.Ctx, c, x.at)).Or(t), int64(x.want), "before", x.at, "seq")
		}
	}
}
