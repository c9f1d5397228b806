package store_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// beat writes the heartbeat of an instance that began with the test and promises one every two seconds.
func (f *fixture) beat(id string) { f.beatSince(began, id) }

func (f *fixture) beatSince(started time.Time, id string) {
	must.OK(f.TB, f.Heartbeat(f.Ctx, campaign.InstanceState{ID: id, Host: "h", PID: 7, Version: "v1", Mode: campaign.ModeOutbox, StartedAt: started, BeatEvery: 2 * time.Second}))
}

func names(all []campaign.InstanceState, now time.Time) string {
	var words []string
	for _, i := range all {
		words = append(words, fmt.Sprintf("%s %s %d", i.ID, i.State(now), i.Leases.Campaigns))
	}
	return strings.Join(words, ", ")
}

func TestInstances_holdWhatTheyClaimed(t *testing.T) {
	f := own(t)
	f.beat(one.ID)
	f.beat(two.ID)
	f.Applied("b", 2)
	f.AppendN("b", 3)
	f.AppendN("a", 4)
	f.MustClaim(one, 1000)
	f.Clock.Advance(time.Second)
	f.AppendN("c", 5)
	second := f.ClaimOne(two, 2)
	f.MustPause("c")

	first, later := began.Add(lease), began.Add(time.Second+lease)
	all := f.FreshInstances()
	must.Equal(t, []campaign.HeldLeases{all[0].Leases, all[1].Leases}, []campaign.HeldLeases{
		{Campaigns: 2, Rows: 7, ClaimableFrom: &first, ClaimableBy: &first, Held: []campaign.HeldLease{
			{CampaignID: "a", Epoch: 1, HeadSeq: 1, Rows: 4, ExpiresAt: first}, {CampaignID: "b", Epoch: 2, HeadSeq: 3, Rows: 3, ExpiresAt: first}}},
		{Campaigns: 1, Withheld: 1, Rows: 2, ClaimableFrom: &later, ClaimableBy: &later, Held: []campaign.HeldLease{
			{CampaignID: "c", Epoch: 1, HeadSeq: 1, Rows: 2, ExpiresAt: later, Withheld: true}}},
	}, "who holds what")
	f.MustSettle(two, outbox.Result{Claim: second})
	must.Equal(t, names(f.FreshInstances(), f.Clock.Now()), "worker-1 running 2, worker-2 running 0", "after one gave its work back")
}

func TestInstances_whoDiedHoldsItsCampaignsUntilTheyAreTaken(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	f.ClaimOne(one, 1000)
	all := f.FreshInstances() // the owner has no record yet
	must.Hold(t, len(all) == 1 && all[0].ID == one.ID && all[0].Leases.Campaigns == 1 && all[0].Host == "", "instances are %+v", all)
	f.beat(one.ID)
	f.Clock.Advance(lease + time.Minute)
	f.beat(two.ID)
	all = f.FreshInstances()
	must.Equal(t, names(all, f.Clock.Now()), "worker-1 silent 1, worker-2 running 0", "instances")
	must.Equal(t, all[0].BeatEvery, 2*time.Second, "the time between heartbeats")
	must.Equal(t, all[0].Why(f.Clock.Now()), "silent for 1 min; its lease has expired, any worker may claim its campaign", "why")
	f.ClaimOne(two, 1000)
	must.Equal(t, names(f.FreshInstances(), f.Clock.Now()), "worker-2 running 1, worker-1 silent 0", "after the take-over")
}

// A crowd of short-lived instances hides none that matters, and all are forgotten after a week.
func TestInstances_aCrowdHidesNobodyWhoMatters(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	f.beat("holder")
	f.ClaimOne(outbox.Worker{ID: "holder"}, 1)
	f.Clock.Advance(time.Hour)
	f.beat("old and alive")
	f.Exec(`insert into instances (id, host, pid, version, mode, started_at, last_seen)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 120)
select 'short-' || i, 'h', i, 'v', 'outbox_apply_only', $1, $1 from n`, f.Clock.Now().Add(-time.Minute).UnixMicro())
	all := f.FreshInstances()
	must.Hold(t, len(all) == 101 && all[0].Host == "h", "%d instances, first %+v", len(all), all[0])
	must.Equal(t, names(all[:2], f.Clock.Now()), "holder silent 1, old and alive running 0", "the first")
	sum, err := f.Summary(f.Ctx)
	must.Hold(t, err == nil && len(sum.Instances) == 100 && sum.Instances[0].ID == "old and alive" && sum.Instances[0].Leases.Campaigns == 0, "%d instances in the summary, %v", len(sum.Instances), err)
	f.Clock.Advance(4 * 24 * time.Hour)
	f.beatSince(f.Clock.Now(), "young")
	f.Clock.Advance(4 * 24 * time.Hour)
	f.beatSince(f.Clock.Now(), "new")
	f.beatSince(f.Clock.Now(), "new")
	must.Equal(t, names(f.FreshInstances(), f.Clock.Now()), "holder silent 1, new running 0, young silent 0", "after a week the instances")
}

// What was read before an action would show an operator that it had no effect.
func TestSnapshot_isTakenAnewAfterASecondAndWhenForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c store.Snapshot[int]
		get := func(taken int, wait <-chan time.Time) int {
			return must.Get(c.Get(t.Context(), func() (int, error) { <-wait; return taken, nil })).Or(t)
		}
		for taken, want := range []int{0, 0, 2} {
			must.Equal(t, get(taken, time.After(0)), want, "reading", taken)
			<-time.After(600 * time.Millisecond)
		}
		<-time.After(time.Second)
		get(3, time.After(time.Second))
		<-time.After(10 * time.Second)
		slow := make(chan time.Time)
		must.Equal(t, get(4, slow), 3, "what takes long")
		synctest.Wait()
		must.Equal(t, get(5, nil), 3, "while another reads")
		c.Forget()
		go close(slow)
		must.Equal(t, get(5, time.After(0)), 5, "after an action")
	})
}

func (f *fixture) only() campaign.InstanceState {
	all := f.FreshInstances()
	must.Need(f.TB, len(all) == 1, "instances are %+v, want one", all)
	return all[0]
}

// In a container every process may be number 1, so a killed one looks like the one that reads.
func TestInstances_anEarlierProcessOfThisNumberIsGone(t *testing.T) {
	f := own(t)
	host := must.Get(os.Hostname()).Or(t)
	now := time.Now()
	for _, c := range []struct {
		name    string
		started time.Time
		beat    time.Duration
		want    campaign.ProcessState
	}{
		{"earlier", now.Add(-24 * time.Hour), 0, campaign.ProcessGone},
		{"this one", now, 0, campaign.ProcessAlive},
		{"of another container", now.Add(-24 * time.Hour), 2 * time.Second, campaign.ProcessAlive},
	} {
		i := campaign.InstanceState{ID: "w", Host: host, PID: os.Getpid(), StartedAt: c.started, BeatEvery: c.beat}
		f.Exec(`delete from instances`)
		must.OK(t, f.Heartbeat(f.Ctx, i))
		must.Equal(t, f.only().Process, c.want, c.name, "the process")
	}
}

// One without heartbeats that works after a pause and is killed before its next one was last seen when it
// worked: the minute of its kill, not that of the pause, is the one with counts that are lower bounds.
func TestInstances_aKilledOneWasLastSeenAtItsLastWork(t *testing.T) {
	w := outbox.Worker{ID: "w 1", Build: "v1"}
	storetest.Each(t, own, map[string]func(*fixture){
		"applied": func(f *fixture) { f.SettleAs(w, "a", 1) },
		"applied, and others since": func(f *fixture) {
			f.SettleAs(w, "a", 1)
			f.Clock.Advance(time.Hour)
			f.AppendN("a", 1)
			f.SettleAs(outbox.Worker{ID: "other", Build: "v1"}, "a", 2)
			f.Clock.Advance(-time.Hour)
		},
		"failed": func(f *fixture) {
			f.Exec(`insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint) values ('a', 1, $1, 1, $2, 'v1', 'boom', 'boom')`,
				f.Clock.Now().UnixMicro(), w.ID)
		},
	}, func(t *testing.T, f *fixture, work func(*fixture)) {
		must.OK(t, f.Heartbeat(f.Ctx, storetest.Killed(t, w.ID, f.Clock.Now().Add(-time.Hour))))
		f.Clock.Advance(10 * time.Minute)
		f.AppendN("a", 1)
		work(f)
		killed := f.Clock.Now()
		seen := f.only().LastSeen
		must.Hold(t, seen.Equal(killed), "it was last seen at %s, want %s, when it worked last", seen, killed)
		f.Clock.Advance(5 * time.Second)
		for _, p := range must.Get(f.beside().History(f.Ctx, samples.Range{Name: samples.RangeHour})).Or(t).Points {
			must.Equal(t, p.LowerBound, p.From.Equal(killed.Truncate(time.Minute)), "counts from", "are lower bounds")
		}
	})
}

func (f *fixture) wentBack() []operator.AuditEntry {
	return must.Get(f.AuditLog(f.Ctx, operator.AuditFilter{Action: operator.ActionJournalWentBack})).Or(f.TB).Items
}

// reconnect loses all connections and makes new ones.
func (f *fixture) reconnect() {
	f.Terminate()
	f.must(f.Position(f.Ctx))
	f.must(f.EventsFrom(f.Ctx, 0, 100))
}

func TestPostgresLineage_aLostConnectionAloneChangesNothing(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 1)
	f.reconnect()
	must.Hold(t, f.Lineage() == 0 && len(f.wentBack()) <= 0 && len(f.Journal().Faults()) <= 0, "after a lost connection the lineage is %d, with %v and %v", f.Lineage(), f.wentBack(), f.Journal().Faults())
	f.Works(one, c, 1)
}

// An event may be gone although a later one that was appended at the same time is not. Nothing of
// before counts any more then, and nothing of before can be taken for what follows.
func TestPostgresLineage_voidsWhatIsRememberedOfAJournalThatWentBack(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 10)
	f.AppendN("b", 1)
	f.Clock.Advance(time.Second)
	waited := f.waits(t.Context(), "b", 1)
	must.Eventually(t, "the caller waits", func() bool { return f.Waiting() == 1 })
	f.Tamper(`delete from events where position = 3`)
	f.Exec(`alter sequence events_position_seq restart with 3`)
	f.reconnect()
	err := <-waited
	if errors.Is(err, event.ErrBusy) { // it was just looking when its connection was cut, and asks again
		err = storetest.No(f.WaitAppliedSince(t.Context(), 0, "b", 1))
	}
	must.Hold(t, errors.Is(err, event.ErrNotYet), "the caller that waited got %v, want ErrNotYet", err)
	entries, faults := f.wentBack(), f.Journal().Faults()
	must.Need(t, f.Lineage() == 1 && len(entries) == 1 && len(faults) == 1 && faults[0].Kind == database.FaultWentBack, "the lineage is %d, with the audit records %v and the faults %v, want one of each", f.Lineage(), entries, faults)
	must.Equal(t, must.Get(f.Settle(f.Ctx, one, []outbox.Result{{Claim: c, Applied: 3}})).Or(t).Fenced, 1, "a claim of before is settled as")
	again, err := f.Claim(f.Ctx, one, outbox.ClaimLimits{Rows: 10, Lease: lease})
	must.Hold(t, err == nil && len(again) == 2 && again[0].Epoch > c.Epoch, "claimed %+v, %v after epoch %d", again, err, c.Epoch)
	next := f.AppendN("new", 1)[0].Position
	must.Hold(t, next > 4, "a new event has position %d, which an event of before may have had", next)
	f.reconnect()
	must.Hold(t, f.Lineage() == 1 && len(f.wentBack()) == 1, "after another lost connection the lineage is %d", f.Lineage())
}

// Another process raises no epoch a second time.
func TestPostgresLineage_sparesTheLeasesOfProcessesThatNoticedFirst(t *testing.T) {
	f := own(t)
	other := f.beside()
	f.AppendN("a", 3)
	must.Get(other.EventsFrom(f.Ctx, 0, 100)).Or(t)
	f.Clock.Advance(time.Second)
	f.Tamper(`delete from events where position = 3`)
	f.reconnect()
	c := f.ClaimOne(one, 1)
	f.Clock.Advance(time.Second)
	must.Get(other.Position(f.Ctx)).Or(t)
	must.Hold(t, other.Lineage() == 1 && len(f.wentBack()) == 2, "the other process is at lineage %d, with %d records, want one of each process", other.Lineage(), len(f.wentBack()))
	f.Works(one, c, 1)
}
