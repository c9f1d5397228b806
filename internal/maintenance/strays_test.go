package maintenance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// loseJournal truncates the journal to the given last event per campaign, and deletes campaigns that are not named.
func loseJournal(f *fixture, ends map[string]int64) {
	f.Tamper(`delete from events where 1 = 0`) // drops the triggers of the journal
	f.Exec(`delete from projection_apply_outbox`)
	for _, c := range f.AllCampaigns(campaign.CampaignFilter{}) {
		end := ends[c.CampaignID]
		f.Exec(`delete from events where campaign_id = $1 and seq > $2`, c.CampaignID, end)
		if end == 0 {
			f.Exec(`delete from campaigns where campaign_id = $1`, c.CampaignID)
			continue
		}
		f.Exec(`update campaigns set high_water_seq = $2, applied_seq = $2, chain_hash = (select chain_hash from events e where e.campaign_id = $1 and e.seq = $2) where campaign_id = $1`, c.CampaignID, end)
	}
}

// mustAlarm fails unless a newly started process reports another journal: in the summary, and in readiness.
func mustAlarm(f *fixture, when string, summary, unready bool) {
	again := f.Beside()
	defer again.CloseNow()
	sum := must.Get(again.Summary(f.Ctx)).Or(f.TB)
	reasons := again.Ready(f.Ctx)
	must.Need(f.TB, len(reasons) <= 0 || strings.Contains(reasons[0], "the URL of the journal database"), "not ready for %q", reasons)
	must.Equal(f.TB, [2]bool{sum.OtherJournal, len(reasons) > 0}, [2]bool{summary, unready}, when, "the alarm, and what readiness refuses")
}

func TestOtherJournal_isToldOfUntilTheJournalFits(t *testing.T) {
	f := own(t)
	f.Applied("a b c", 2)
	mustAlarm(f, "with the right journal", false, false)
	loseJournal(f, nil)
	mustAlarm(f, "beside an empty journal", true, true)
	f.AppendN("new", 1) // before a worker has compared the campaigns
	mustAlarm(f, "after the first append", true, true)
	f.MustReconcile(campaign.Repaired{Campaigns: 3, Diverged: 3})
	mustAlarm(f, "once a worker has looked", true, true)
	f.AppendN("a", 3)
	f.Applied("z", 1)
	mustAlarm(f, "after more appends", true, true)

	f.ExecProjections(`delete from projection_watermarks where campaign_id in ('a', 'b')`)
	must.Get(f.Reconcile(f.Ctx)).Or(t)
	mustAlarm(f, "with one of five campaigns of another journal", true, false)
	f.ExecProjections(`delete from projection_watermarks where campaign_id = 'c'`)
	must.Get(f.Reconcile(f.Ctx)).Or(t)
	mustAlarm(f, "once all fit", false, false)
}

// A process that was not ready because of its journal does not become ready because others append to it.
func TestReady_isNotBoughtByAppendsToTheWrongJournal(t *testing.T) {
	f := own(t)
	f.Applied("a b", 2)
	loseJournal(f, nil)
	f.MustReconcile(campaign.Repaired{Campaigns: 2, Diverged: 2})
	reasons := f.Ready(f.Ctx)
	must.Need(t, len(reasons) == 1, "the reasons are %q, want one", reasons)
	for i := range 5 {
		f.AppendN(fmt.Sprint("new-", i), 1)
	}
	f.Drain()
	must.Eventually(t, "the read that is shared for a while is of seven campaigns", func() bool {
		return must.Get(f.Summary(f.Ctx)).Or(t).Campaigns.Total == 7
	})
	must.Equal(t, len(f.Ready(f.Ctx)), 1, "the reasons", "once most campaigns are of this journal")
}

func TestOtherJournal_isToldOfBesideAnOlderOne(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.Applied("b c", 2)
	loseJournal(f, map[string]int64{"a": 2, "b": 2, "c": 2})
	f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
	mustAlarm(f, "with one of three campaigns older", true, false)
	f.AppendN("a", 2)
	mustAlarm(f, "after appends to it", true, false)
}

// A diverged campaign is shown as it is now, including events appended since the divergence was found.
func TestCampaign_thatDivergedShowsWhatTheJournalHasAndWhatWaits(t *testing.T) {
	type given struct {
		keeps, appended int64
	}
	storetest.Each(t, own, map[string]given{
		"older journal":              {3, 1},
		"older journal, caught up":   {3, 2},
		"older journal, gone beyond": {3, 4},
		"empty journal":              {0, 1},
	}, func(t *testing.T, f *fixture, scene given) {
		f.AppendN("a", 5)
		f.Applied("b", 1)
		loseJournal(f, map[string]int64{"a": scene.keeps, "b": 1})
		f.MustReconcile(campaign.Repaired{Campaigns: 1, Diverged: 1})
		f.AppendN("a", int(scene.appended))
		c := f.MustCampaign("a")
		must.Hold(t, c.State() == campaign.StateDiverged && c.HighWaterSeq == scene.keeps+scene.appended && c.AppliedSeq == scene.keeps && c.LagEvents() == scene.appended && c.ProjectionsSeq == 5 && c.Counts == (campaign.Counts{Pending: scene.appended}), "campaign is %+v, %d behind", c, c.LagEvents())
		must.Equal(t, c.Diverged, "the projections have an event 5 that the journal does not have", "diverged since")
		for _, listed := range f.AllCampaigns(campaign.CampaignFilter{State: campaign.StateDiverged}) {
			must.Hold(t, listed.Diverged == c.Diverged && listed.LagEvents() == c.LagEvents() && listed.AppliedSeq == c.AppliedSeq, "listed as %+v, want as %+v", listed, c)
		}
		sum, err := f.Beside().Summary(f.Ctx)
		must.Hold(t, err == nil && sum.Lag.Events == scene.appended, "the lag is %+v, %v, want %d events", sum.Lag, err, scene.appended)
		f.MustBeReconciled()
	})
}
