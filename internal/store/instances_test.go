package store_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// beat writes the heartbeat of an instance that promises one every two seconds.
func (f *fixture) beat(id string) {
	must.OK(f.TB, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: id, Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: began, BeatEvery: 2 * time.Second}))
}

// instances lists the instances as seen by a process without a cached list.
func (f *fixture) instances() []outbox.InstanceState {
	return must.Get(f.beside().Instances(f.Ctx)).Or(f.TB)
}

func names(all []outbox.InstanceState, now time.Time) string {
	var words []string
	for _, i := range all {
		words = append(words, fmt.Sprintf("%s %s %d", i.ID, i.State(now), i.Leases.Campaigns))
	}
	return strings.Join(words, ", ")
}

func TestInstances_holdWhatTheyClaimed(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.beat(one.ID)
	f.beat(two.ID)
	f.AppendN("b", 2)
	f.Drain()
	f.AppendN("b", 3)
	f.AppendN("a", 4)
	f.MustClaim(one, 1000)
	f.Clock.Advance(time.Second)
	f.AppendN("c", 5)
	second := f.ClaimOne(two, 2)
	f.MustPause("c")

	first, later := began.Add(lease), began.Add(time.Second+lease)
	got := make(map[string]outbox.HeldLeases)
	for _, i := range f.instances() {
		got[i.ID] = i.Leases
	}
	want := map[string]outbox.HeldLeases{
		one.ID: {Campaigns: 2, Rows: 7, ClaimableFrom: &first, ClaimableBy: &first, Held: []outbox.HeldLease{
			{CampaignID: "a", Epoch: 1, HeadSeq: 1, Rows: 4, ExpiresAt: first},
			{CampaignID: "b", Epoch: 2, HeadSeq: 3, Rows: 3, ExpiresAt: first},
		}},
		two.ID: {Campaigns: 1, Withheld: 1, Rows: 2, ClaimableFrom: &later, ClaimableBy: &later, Held: []outbox.HeldLease{
			{CampaignID: "c", Epoch: 1, HeadSeq: 1, Rows: 2, ExpiresAt: later, Withheld: true},
		}},
	}
	must.Equal(t, got, want, "who holds what")
	f.MustSettle(two, store.Result{Claim: second})
	must.Equal(t, names(f.instances(), f.Clock.Now()), "worker-1 running 2, worker-2 running 0", "after one gave its work back")
}

func TestInstances_whoDiedHoldsItsCampaignsUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.ClaimOne(one, 1000)
	all := f.instances() // the owner has no record yet
	must.Hold(t, len(all) == 1 && all[0].ID == one.ID && all[0].Leases.Campaigns == 1 && all[0].Host == "", "instances are %+v", all)
	f.beat(one.ID)
	f.Clock.Advance(lease + time.Minute)
	f.beat(two.ID)
	all = f.instances()
	must.Equal(t, names(all, f.Clock.Now()), "worker-1 silent 1, worker-2 running 0", "instances")
	if why := all[0].Why(f.Clock.Now()); all[0].BeatEvery != 2*time.Second || why != "silent for 1 min; its lease has expired, any worker may claim its campaign" {
		t.Errorf("with a heartbeat every %s it is %q", all[0].BeatEvery, why)
	}
	f.ClaimOne(two, 1000)
	must.Equal(t, names(f.instances(), f.Clock.Now()), "worker-2 running 1, worker-1 silent 0", "after the take-over")
}

// A crowd of short-lived instances hides none that matters, and all are forgotten after a week.
func TestInstances_aCrowdHidesNobodyWhoMatters(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.beat("holder")
	f.ClaimOne(store.Worker{ID: "holder"}, 1)
	f.Clock.Advance(time.Hour)
	f.beat("old and alive")
	f.Exec(`insert into instances (id, host, pid, version, mode, started_at, last_seen)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 120)
select 'short-' || i, 'h', i, 'v', 'outbox_apply_only', $1, $1 from n`, f.Clock.Now().Add(-time.Minute).UnixMicro())
	all := f.instances()
	if got := names(all[:2], f.Clock.Now()); len(all) != 101 || got != "holder silent 1, old and alive running 0" || all[0].Host != "h" {
		t.Errorf("%d instances, first %s, %+v", len(all), got, all[0])
	}
	sum, err := f.Summary(f.Ctx)
	must.Hold(t, err == nil && len(sum.Instances) == 100 && sum.Instances[0].ID == "old and alive" && sum.Instances[0].Leases.Campaigns == 0, "%d instances in the summary, %v", len(sum.Instances), err)
	f.Clock.Advance(4 * 24 * time.Hour)
	f.beatAt("young")
	f.Clock.Advance(4 * 24 * time.Hour)
	f.beatAt("new")
	f.beatAt("new")
	must.Equal(t, names(f.instances(), f.Clock.Now()), "holder silent 1, new running 0, young silent 0", "after a week the instances")
}

// beatAt is beat of an instance that starts now.
func (f *fixture) beatAt(id string) {
	must.OK(f.TB, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: id, Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: f.Clock.Now(), BeatEvery: 2 * time.Second}))
}

func TestSnapshot_isTakenAnewAfterASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c store.Snapshot[int]
		taken := 0
		for _, want := range []int{1, 1, 2} {
			must.Equal(t, must.Get(c.Get(t.Context(), func() (int, error) { taken++; return taken, nil })).Or(t), want, "got reading")
			<-time.After(600 * time.Millisecond)
		}
	})
}
