package maintenance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func drift(f *fixture) int64 {
	return must.Get(f.Summary(f.Ctx)).Or(f.TB).Drift
}

// Events that their request may still be about to apply are no fault; after the longest time that a request may take they are.
func TestSelfCheck_leavesInlineEventsToTheirRequests(t *testing.T) {
	f := own(t, storetest.InMode(campaign.ModeInline))
	f.Clock.Advance(time.Millisecond)
	f.AppendN("a", 3)
	for _, want := range []int{0, 1} {
		_, found, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 10)
		must.Need(t, err == nil && len(found) == want, "the self-check found %+v, %v, want %d", found, err, want)
		f.Clock.Advance(outbox.InlineWait)
	}
	f.AppendN("b", 1)
	f.Beside(storetest.InMode(campaign.ModeInline)).MustReconcile(campaign.Repaired{Campaigns: 1, Inserted: 1}) // a process that starts later knows that their request is gone
	f.DrainsSoundly()
}

func TestSelfCheck_repairsWhatItFinds(t *testing.T) {
	storetest.Each(t, own, map[string]func(*fixture){
		"the end of the journal": func(f *fixture) {
			f.Drain()
			f.Exec(`update campaigns set high_water_seq = 2 where campaign_id = 'a'`)
		},
		"counts": func(f *fixture) { f.Exec(`update campaigns set pending = 9, dead = 1 where campaign_id = 'a'`) },
		"lost rows with counts that do not miss them": func(f *fixture) { f.Exec(`delete from projection_apply_outbox where campaign_id = 'a'`) },
		"a lost row": func(f *fixture) { f.Exec(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 4`) },
		"lost rows with counts set right by a claim": func(f *fixture) {
			f.Exec(`delete from projection_apply_outbox where campaign_id = 'a'`)
			f.Clock.Advance(time.Second)
			f.NoClaim(one)
		},
		"a lost row with another put in its place": func(f *fixture) {
			f.Exec(`update projection_apply_outbox set seq = 1 where campaign_id = 'a' and seq = 4`)
		},
	}, func(t *testing.T, f *fixture, breaks func(*fixture)) {
		f.Applied("0 a b", 2)
		f.AppendN("a", 3)
		breaks(f)
		woken := false
		f.OnWork(func() { woken = true })
		found := f.SelfCheckAll()
		must.Hold(t, woken && len(found) == 1 && found[0].CampaignID == "a" && drift(f) == 1, "woken: %v; found %+v; drift is %d, want campaign a", woken, found, drift(f))
		f.Exact("a")
		f.Sound()
		f.SelfCheckIsCalm()
		f.Clock.Advance(time.Second)
		f.Drain()
		must.Equal(t, f.MustCampaign("a").State(), campaign.StateCurrent, "campaign")
	})
}

func TestSelfCheck_queuesWhatIsMissingFromTheQueue(t *testing.T) {
	type given struct {
		before func(f *fixture)
		why    string           // it is not claimed; empty while a worker has it
		hold   campaign.Blocker // after the repair
	}
	storetest.Each(t, own, map[string]given{
		"ready":   {func(*fixture) {}, "missing from the queue", campaign.BlockerNone},
		"no rows": {func(f *fixture) { f.Exec(`delete from projection_apply_outbox`); f.NoClaim(one) }, "nor have a row; the self-check", campaign.BlockerNone},
		"failing": {func(f *fixture) { f.Fail("boom", "a") }, "missing from the queue", campaign.BlockerBackoff},
		"leased":  {func(f *fixture) { f.MustClaim(one, 1) }, "", campaign.BlockerLease},
	}, func(t *testing.T, f *fixture, scene given) {
		f.Applied("0 1 2", 1)
		f.AppendN("a", 3)
		scene.before(f)
		f.Exec(`update campaigns set due_at = null where campaign_id = 'a'`)
		e := f.Explained("a")
		must.Hold(t, scene.why == "" || e.ClaimableAt == nil && strings.Contains(e.Why, scene.why), "explained as %+v", e)
		f.Clock.Advance(10 * time.Minute)
		f.NoClaim(one)
		f.Clock.Advance(-10 * time.Minute)
		found := f.SelfCheckOne("a")
		must.Hold(t, found.Drifted, "found %+v, want it to have drifted", found)
		f.Exact("a")
		must.Equal(t, f.Explained("a").Blocker, scene.hold, "then explained as")
		f.SelfCheckIsCalm()
		f.Clock.Advance(10 * time.Minute)
		f.DrainsSoundly()
	})
}

// A process with a clock a day ahead has died during a run.
func TestSelfCheck_shortensLeasesOfRuns(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	f.StartRun(enginetest.Everything)
	f.Clock.Advance(24 * time.Hour)
	f.ClaimRun(one)
	f.Clock.Advance(-24 * time.Hour)
	_, _, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 10)
	must.Need(t, err == nil, "%v", err)
	f.Clock.Advance(lease + time.Second)
	f.ClaimRun(two)
}

func TestSelfCheck_countsDriftInSteps(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 2)
	f.Exec(`update campaigns set pending = 9 where campaign_id in ('a', 'c')`)
	steps, after := 0, maintenance.Round{}
	for more := true; more; steps++ {
		next, _, err := f.SelfCheck(f.Ctx, after, 2)
		must.OK(t, err)
		after, more = next, next.Campaign != ""
	}
	s, err := f.Summary(f.Ctx)
	must.Hold(t, err == nil && s.Drift == 2 && steps == 3, "drift is %d after %d steps, %v, want two, and the one that found the end", s.Drift, steps, err)
}
