package operations

import (
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"testing"
	"time"
)

func TestWatched_endsByHowFarItsCampaignIs(t *testing.T) {
	t.Parallel()
	watched := Watched{RowKey: event.RowKey{CampaignID: "c", Seq: 5}, Fingerprint: "f", WatchTo: 8, Applied: 4, HeadSeq: 5, HeadStatus: event.Pending}
	with := func(change func(*Watched)) Watched {
		w := watched
		change(&w)
		return w
	}
	blamed := campaign.Row{LastError: "no such table", Fingerprint: "f"}
	other := campaign.Row{LastError: "disk full", Fingerprint: "g"}
	for _, c := range []struct {
		name   string
		w      Watched
		blames int64
		blamed campaign.Row
		want   WatchEnd
	}{
		{"in progress", watched, 0, campaign.Row{}, WatchEnd{}},
		{"tried again", with(func(w *Watched) { w.HeadStatus = event.Failed }), 0, campaign.Row{}, WatchEnd{}},
		{"applied, and what it released not yet", with(func(w *Watched) { w.Applied, w.HeadSeq = 6, 7 }), 0, campaign.Row{}, WatchEnd{}},
		{"through", with(func(w *Watched) { w.Applied, w.HeadSeq, w.HeadStatus = 8, 0, "" }), 0, campaign.Row{}, WatchEnd{Result: ResultDone}},
		{"through, though the campaign diverged then", with(func(w *Watched) { w.Applied, w.Diverged = 8, "seq 9" }), 0, campaign.Row{}, WatchEnd{Result: ResultDone}},
		{"diverged", with(func(w *Watched) { w.Diverged = "seq 4" }), 0, campaign.Row{}, WatchEnd{Result: ResultFailedAgain, Detail: "its campaign diverged: seq 4"}},
		{"died again", with(func(w *Watched) { w.HeadStatus = event.Dead }), 5, blamed, WatchEnd{Result: ResultFailedAgain, Detail: "no such table", Fingerprint: "f"}},
		{"one behind it died alike", with(func(w *Watched) { w.Applied, w.HeadSeq, w.HeadStatus = 6, 7, event.Dead }), 7, blamed,
			WatchEnd{ResultDone, "applied; event 7 behind it then failed: no such table", "", "event 5 of campaign c was applied, and event 7 behind it failed with the same error"}},
		{"one behind it failed otherwise", with(func(w *Watched) { w.Applied, w.HeadSeq, w.HeadStatus = 5, 6, event.Failed }), 6, other,
			WatchEnd{ResultDone, "applied; event 6 behind it then failed: disk full", "", "event 5 of campaign c was applied, and event 6 behind it failed differently"}},
		{"one before it died", with(func(w *Watched) { w.Applied, w.HeadSeq, w.HeadStatus = 2, 3, event.Dead }), 0, campaign.Row{},
			WatchEnd{Result: ResultUnwatched, Detail: "event 3 before it died; it is blocked behind that"}},
		{"one before it failed", with(func(w *Watched) { w.Applied, w.HeadSeq, w.HeadStatus = 2, 3, event.Failed }), 0, campaign.Row{}, WatchEnd{}},
	} {
		must.Equal(t, c.w.Blames(), c.blames, c.name, "blames event")
		got, ended := c.w.End(c.blamed)
		must.Hold(t, got == c.want && ended == (c.want != WatchEnd{}), "%s: %+v (%v), want %+v", c.name, got, ended, c.want)
	}
}

func TestGroup_wavesDoubleBehindACanary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		canary bool
		g      GroupProgress
		size   int
		wave   int64
	}{
		{"the canary", true, GroupProgress{Wave: -1}, 1, 0},
		{"the canary is watched", true, GroupProgress{Wave: 0, Watched: 1}, 0, 1},
		{"the first wave", true, GroupProgress{Wave: 0}, 1, 1},
		{"the second", true, GroupProgress{Wave: 1}, 2, 2},
		{"the third", true, GroupProgress{Wave: 2}, 4, 3},
		{"the last row of the third is watched", true, GroupProgress{Wave: 3, Watched: 1}, 0, 4},
		{"the eleventh has the most", true, GroupProgress{Wave: 10}, MaxWave, 11},
		{"the hundredth, too", true, GroupProgress{Wave: 99}, MaxWave, 100},
		{"without a canary", false, GroupProgress{Wave: -1}, MaxWave, 1},
		{"without a canary, and much is watched", false, GroupProgress{Wave: 4, Watched: MaxWatched - 3}, 3, 5},
		{"without a canary, and all is watched", false, GroupProgress{Wave: 4, Watched: MaxWatched}, 0, 5},
	} {
		c.g.Canary = c.canary
		size, wave := c.g.NextSize(), c.g.NextWave()
		must.Hold(t, size == c.size && wave == c.wave, "%s: %d rows in wave %d, want %d in wave %d", c.name, size, wave, c.size, c.wave)
	}
	must.Hold(t, !(GroupProgress{Watched: 3}).Stops() && (GroupProgress{Watched: 3, Failures: 1}).Stops(), "a group stops when a row of it failed again, and not before")
	must.Hold(t, !(GroupProgress{Watched: 1}).Through(0) && !(GroupProgress{}).Through(1) && (GroupProgress{}).Through(0), "a group is through when none of its rows waits or is watched")
	key := event.RowKey{CampaignID: "c", Seq: 2}
	must.Equal(t, FailedAgain(key, "f", "f", "no such table"), "event 2 of campaign c failed again with the same error")
	must.Equal(t, FailedAgain(key, "f", "g", "disk full"), "event 2 of campaign c failed again differently: disk full")
}

func TestRow_isImmovableWhereItWouldWaitOn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)
	row := event.RowKey{CampaignID: "c", Seq: 5}
	for _, c := range []struct {
		campaign *campaign.Campaign
		moving   bool
		want     string
	}{
		{nil, false, "its campaign is gone"},
		{&campaign.Campaign{Diverged: "seq 4"}, false, "its campaign diverged: seq 4"},
		{&campaign.Campaign{Paused: &campaign.Pause{By: "ana", At: now.Add(-time.Minute)}}, false, "its campaign was paused by ana 1 min ago, so it would not be applied"},
		{&campaign.Campaign{HeadSeq: 3, HeadStatus: event.Dead}, false, "event 3 before it is dead, so it would not be applied"},
		{&campaign.Campaign{HeadSeq: 3, HeadStatus: event.Dead}, true, ""},
		{&campaign.Campaign{HeadSeq: 3, HeadStatus: event.Failed}, false, ""},
		{&campaign.Campaign{HeadSeq: 5, HeadStatus: event.Dead}, false, ""},
	} {
		must.Equal(t, Immovable(row, c.campaign, c.moving, now), c.want, c.campaign, "moving", c.moving)
	}
}

func TestEndOfGroups_isThatOfTheWorst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stopped, all int64
		status       OperationStatus
		reason       string
	}{
		{0, 3, OperationDone, ""},
		{1, 1, OperationStopped, "it failed"},
		{2, 3, OperationStopped, "2 of 3 error groups stopped; in the first, it failed"},
	} {
		status, reason := EndOfGroups(c.stopped, c.all, "it failed")
		must.Hold(t, status == c.status && reason == c.reason, "%d of %d: %s %q, want %s %q", c.stopped, c.all, status, reason, c.status, c.reason)
	}
}
