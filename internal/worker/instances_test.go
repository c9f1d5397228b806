package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// named sets the worker's name in its connections.
func named(name string) enginetest.Option {
	return func(o *enginetest.Options) {
		o.Journal, o.Projections = dbtest.With(o.Journal, "application_name", name), dbtest.With(o.Projections, "application_name", name)
	}
}

// owners records which worker applies each event, and whether another one is working on the same campaign.
const owners = `-- projection: owners
-- tables: owners

-- schema @postgres
create table owners (
  campaign_id text not null,
  seq bigint not null,
  worker text not null,
  alone boolean not null,
  primary key (campaign_id, seq)
);

-- on: * @postgres
insert into owners (campaign_id, seq, worker, alone)
values (:campaign_id, :seq, current_setting('application_name'), pg_try_advisory_xact_lock(hashtextextended(:campaign_id, 0)));
`

func TestPostgresRun_spreadsCampaignsOverWorkersAndAppliesEachByOneAtATime(t *testing.T) {
	const campaigns, workers = 60, 3
	each := size.Of(6, 8, 20)
	// No worker can hold all campaigns at once: 4 waves of 4 rows are 16 of them.
	options := []enginetest.Option{enginetest.Waves(4), enginetest.BatchSize(4), enginetest.Polling(20 * time.Millisecond), enginetest.EventTimeout(must.Patience)}
	all := []*enginetest.Engine{enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing, owners}, append(options, named("worker-0"))...)}
	for i := 1; i < workers; i++ {
		all = append(all, all[0].Beside(append(options, named(fmt.Sprint("worker-", i)))...))
	}
	holders := func() int {
		return storetest.Column[int](t, all[0].JournalDB, `select count(distinct lease_owner) from campaigns where lease_owner <> ''`)[0]
	}
	var met sync.Once
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		met.Do(func() {
			must.Eventually(t, "every worker holds a lease", func() bool { return holders() == workers })
		})
		return "met", nil
	})
	for c := range campaigns {
		all[0].MustAppend(enginetest.Probed(fmt.Sprint("c", c), t.Name()))
	}
	var appending sync.WaitGroup
	for i, b := range all {
		b.OnWork(b.Worker.Wake)
		b.Start()
		appending.Go(func() {
			for range each - 1 {
				for c := i; c < campaigns; c += workers {
					b.MustAppend(enginetest.Noted(fmt.Sprint("c", c)))
				}
			}
		})
	}
	appending.Wait()
	for c := range campaigns {
		all[c%workers].MustWait(fmt.Sprint("c", c), int64(each))
	}
	for c := range campaigns {
		all[0].MustHaveApplied(fmt.Sprint("c", c), each)
	}
	mustHaveShared(t, all, int64(campaigns*each))
	all[0].Sound()
}

// mustHaveShared fails unless each worker did a part of the work, all of it is counted once, and no campaign was held by two.
func mustHaveShared(t *testing.T, all []*enginetest.Engine, total int64) {
	sum := outbox.Settled{}
	must.Eventually(t, "what is applied is settled", func() bool {
		sum = outbox.Settled{}
		for _, b := range all {
			got := b.Worker.Counted()
			sum.Applied, sum.Failed, sum.Fenced = sum.Applied+got.Applied, sum.Failed+got.Failed, sum.Fenced+got.Fenced
		}
		return sum.Applied >= total
	})
	must.Equal(t, sum, outbox.Settled{Applied: total}, "all workers together counted")
	for _, b := range all {
		must.Hold(t, b.Worker.Counted().Applied != 0, "worker %s applied nothing", b.Worker.ID())
	}
	must.Equal(t, storetest.Column[int](t, all[0].ProjectionsDB, `select count(distinct worker) from owners`)[0], len(all), "workers applied events")
	crowded := storetest.Column[string](t, all[0].ProjectionsDB, `select concat(campaign_id, ' ', seq, ' ', worker) from owners where not alone`)
	must.Hold(t, len(crowded) == 0, "applied while another worker was at the same campaign: %q", crowded)
}

// The old owner of a campaign may still be in its transaction when the new one begins.
func TestPostgresPass_appliesOnceWhenTheStaleWorkerIsStillAtIt(t *testing.T) {
	a := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing}, enginetest.At(storetest.NewClock()))
	b := a.Beside()
	holding, release := make(chan struct{}), make(chan struct{})
	held := sync.OnceFunc(func() { close(holding) })
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		held()
		<-release
		return "fine", nil
	})
	b.Feed(enginetest.Noted("c"))
	a.MustAppend(enginetest.Probed("c", t.Name()), enginetest.Noted("c"), enginetest.Noted("c"))
	stale := a.ClaimWave()
	old := storetest.Begin(func() error { return a.FinishClaims(context.Background(), stale) })
	<-holding
	a.Clock.Advance(storetest.Lease + time.Second)
	fresh := b.ClaimWave()
	young := storetest.Begin(func() error { return b.FinishClaims(context.Background(), fresh) })
	must.Eventually(t, "the new owner waits for the old one", func() bool {
		return a.Number(`select count(*)`+storetest.TheStores+` and wait_event_type = 'Lock'`) > 0
	})
	close(release)
	for _, ended := range []<-chan error{old, young} {
		must.OK(t, <-ended)
	}
	b.MustHaveApplied("c", 4)
	must.Hold(t, a.Worker.Counted() == (outbox.Settled{Fenced: 1}) && b.Worker.Counted() == (outbox.Settled{Applied: 4}), "the stale worker counted %+v, the new owner %+v", a.Worker.Counted(), b.Worker.Counted())
	b.Sound()
}

func TestPostgresRun_handsItsCampaignsOverAtOnceWhenItStops(t *testing.T) {
	const campaigns, each = 8, 10
	// A wave has 2 rows of each campaign, and within the hour only a hint wakes another worker.
	options := []enginetest.Option{enginetest.Waves(1), enginetest.BatchSize(20), enginetest.Polling(time.Hour), enginetest.Leasing(time.Hour), enginetest.EventTimeout(must.Patience)}
	a := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Probing}, options...)
	idle := make(chan struct{})
	b := a.Beside(append(options, once(whenIdle, func() { close(idle) }))...)
	holding, release := make(chan struct{}), make(chan struct{})
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		close(holding)
		<-release
		return "fine", nil
	})
	for c := range campaigns {
		id := fmt.Sprint("c", c)
		events := enginetest.Notes(id, each)
		if c == 0 {
			events[0] = enginetest.Probed(id, t.Name())
		}
		a.MustAppend(events...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := storetest.Begin(func() error { return a.Worker.Run(ctx) })
	<-holding
	must.Equal(t, storetest.Column[int](t, a.JournalDB, `select count(*) from campaigns where lease_owner <> ''`)[0], campaigns, "the campaigns that the worker holds")
	b.OnWork(b.Worker.Wake)
	must.Eventually(t, "the other worker listens", func() bool { return a.Number(`select count(*)`+storetest.TheStores+` and `+storetest.Listening) > 0 })
	b.Start()
	<-idle
	cancel()
	close(release)
	for c := range campaigns {
		b.MustWait(fmt.Sprint("c", c), int64(each))
	}
	must.OK(t, <-ended)
	for c := range campaigns {
		b.MustHaveApplied(fmt.Sprint("c", c), each)
	}
	must.Equal(t, a.Worker.Counted(), outbox.Settled{Applied: 2 * campaigns}, "the worker that stopped counted")
	b.Sound()
}

func TestPostgresRun_isWokenByWhatAnotherProcessAppends(t *testing.T) {
	a, idle := enginetest.Own(t, []string{enginetest.Ledger}), make(chan struct{})
	b := a.Beside(enginetest.Polling(time.Hour), once(whenIdle, func() { close(idle) }))
	b.OnWork(b.Worker.Wake)
	must.Eventually(t, "the worker listens", func() bool { return a.Number(`select count(*)`+storetest.TheStores+` and `+storetest.Listening) > 0 })
	b.Start()
	<-idle
	a.MustAppend(enginetest.Notes("a", 3)...)
	b.MustWait("a", 3).MustHaveApplied("a", 3)
}

func TestPostgresRun_keepsItsHeartbeatUpWhileItIsIdle(t *testing.T) {
	t.Parallel()
	for _, m := range campaign.Modes {
		t.Run(string(m), func(t *testing.T) {
			b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(m), enginetest.Polling(time.Hour))
			b.Worker.Hurry()
			stop := b.Start()
			me := func() campaign.InstanceState {
				all, err := b.Instances(t.Context())
				must.Need(t, err == nil && len(all) <= 1, "instances %+v (%v), want one", all, err)
				if len(all) == 0 {
					return campaign.InstanceState{}
				}
				return all[0]
			}
			var first campaign.InstanceState
			must.Eventually(t, "the worker is there", func() bool { first = me(); return first.ID == b.Worker.ID() })
			must.Eventually(t, "it gives further signs of life", func() bool { return me().LastSeen.After(first.LastSeen) })
			now := me()
			state := now.State(now.LastSeen)
			must.Hold(t, state == campaign.InstanceRunning && now.BeatEvery != 0, "an idle worker is %s and promises a sign of life every %s", state, now.BeatEvery)
			must.Equal(t, now.State(now.LastSeen.Add(campaign.Recent)), campaign.InstanceSilent, "a worker that broke its promise")
			stop()
			must.Equal(t, me().State(time.Now()), campaign.InstanceStopped, "a worker that ended")
		})
	}
}

// A worker that was taken over changes nothing once the new owner has applied. Between the take-over and the new owner's first transaction on the
// projections nothing there fences it off: it may apply then, and the new owner finds the events applied.
func TestPass_ofAStaleWorkerAppliesNothingAgain(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.At(storetest.NewClock()))
		b := a.Beside()
		a.MustAppend(append(enginetest.Notes("c", 3), enginetest.Opened("d", 10), enginetest.Spent("d", 100), enginetest.Noted("d"))...)
		stale := a.ClaimWave()
		a.Clock.Advance(storetest.Lease + time.Second)
		held := b.ClaimWave()
		if late {
			must.OK(t, b.FinishClaims(t.Context(), held))
			before := a.Dump()
			must.OK(t, a.FinishClaims(t.Context(), stale))
			must.Equal(t, a.Dump(), before, "a worker that was taken over")
		} else {
			must.OK(t, a.FinishClaims(t.Context(), stale))
			must.OK(t, b.FinishClaims(t.Context(), held))
		}
		b.MustHaveApplied("c", 3).MustStand("d", 2, event.Failed, 1)
		must.Equal(t, []outbox.Settled{a.Worker.Counted(), b.Worker.Counted()}, []outbox.Settled{{Fenced: 2}, {Applied: 4, Failed: 1}}, "the stale worker and the new owner counted")
		a.Sound()
	}
}

// quickRetries retries an event soon and never gives up.
var quickRetries = event.Retry{MaxAttempts: 100_000, Base: 20 * time.Millisecond, Max: 100 * time.Millisecond}

// A process that stalls for longer than its lease loses it. When that happens to this one, the test retries with a longer lease.
func TestPass_keepsItsLeaseThroughAWaveThatTakesLong(t *testing.T) {
	t.Parallel()
	for lease := time.Second; ; lease *= 3 {
		taken := takenInALongWave(t, lease)
		if len(taken) == 0 {
			return
		}
		must.Need(t, lease <= 20*time.Second, "another worker took over: %+v", taken)
	}
}

// takenInALongWave is what another worker can claim of a campaign that is being applied for longer than the lease.
func takenInALongWave(t *testing.T, lease time.Duration) (claims []outbox.Claim) {
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing), enginetest.Leasing(lease))
	b, db := a.Beside(), a.JournalDB
	key := t.Name() + lease.String()
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		expiry := func() int64 { return storetest.Column[int64](t, db, `select lease_expires_at from campaigns`)[0] }
		first := expiry()
		must.Eventually(t, "the lease is renewed beyond its first end", func() bool {
			now := time.Now().UnixMicro()
			return now > first && expiry() > now
		})
		claims = b.ClaimWave()
		return "late", nil
	})
	a.Pass(enginetest.Noted("c"), enginetest.Probed("c", key), enginetest.Noted("c"))
	if len(claims) == 0 {
		a.MustHaveApplied("c", 3).Sound()
	}
	return claims
}

// While a wave hangs, as at a database that another has locked, the other loop finds nothing due. That is no
// success: the worker applies nothing.
func TestPass_beyondAWaveThatHangsIsNoSuccess(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		b.Worker.Fail(event.ErrBusy)
		more, err := b.Worker.Pass(t.Context())
		must.Hold(t, !more && err == nil && b.Worker.Failing(), "the other loop: %t, %v; failing: %t", more, err, b.Worker.Failing())
		return "late", nil
	})
	b.Pass(enginetest.Probed("c", t.Name()))
	must.Hold(t, !b.Worker.Failing(), "a wave that is applied is no success")
}

// This test appends while two workers on the same files start, stop and lose their waves at random.
func TestRun_appliesEveryEventOnceUnderTwoProcesses(t *testing.T) {
	campaigns, each := size.Of(4, 6, 12), size.Of(20, 30, 60)
	short := func(o *enginetest.Options) {
		o.Retry = quickRetries // a wave whose lease ends on a slow machine counts as an attempt
		o.Worker.Lease, o.Worker.PollInterval, o.Worker.BatchSize = 300*time.Millisecond, 10*time.Millisecond, 40
	}
	a := enginetest.Own(t, []string{enginetest.Ledger}, short)
	b := a.Beside(short)
	ctx, cancel := context.WithCancel(t.Context())
	var disturbing sync.WaitGroup
	for i, process := range []*enginetest.Engine{a, b} {
		disturbing.Go(func() { disturb(ctx, t, process, rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	for i := range each {
		for c := range campaigns {
			[]*enginetest.Engine{a, b}[(i+c)%2].MustAppend(enginetest.Noted(fmt.Sprint("c", c)))
		}
	}
	cancel()
	disturbing.Wait()

	a.Start()
	b.Start()
	for c := range campaigns {
		a.MustWait(fmt.Sprint("c", c), int64(each))
	}
	must.Eventually(t, "no row is left", func() bool { return a.Number(`select count(*) from projection_apply_outbox`) == 0 })
	for c := range campaigns {
		a.MustHaveApplied(fmt.Sprint("c", c), each)
	}
	a.Sound()
}

// disturb runs the worker for short times; in between, waves are claimed or applied and then abandoned, as by a killed process.
func disturb(ctx context.Context, t *testing.T, b *enginetest.Engine, dice *rand.Rand) {
	for ctx.Err() == nil {
		run, cancel := context.WithTimeout(ctx, time.Duration(dice.IntN(30))*time.Millisecond)
		err := b.Worker.Run(run)
		must.Hold(t, err == nil, "run: %v", err)
		cancel()
		claims, err := b.Claim(ctx, b.Worker.Name(), outbox.ClaimLimits{Rows: 20, Lease: time.Duration(20+dice.IntN(80)) * time.Millisecond})
		if err != nil || dice.IntN(2) == 0 {
			continue
		}
		_, err = b.Worker.Apply(ctx, claims)
		must.Hold(t, err == nil, "apply: %v", err)
	}
}

// What a killed process did after its last sample belongs to the minute in which it was last seen.
// Of the minutes in which no process ran there is no record.
func TestRun_recordsWhatAKilledProcessLeft(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts}, enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(1))
	b.MustAppend(enginetest.Opened("a", 1))
	gone := storetest.Killed(t, "gone", b.Clock.Now().Add(-5*time.Minute))
	must.OK(t, b.Heartbeat(t.Context(), gone))
	must.OK(t, b.Sample(t.Context()))
	b.Clock.Advance(80 * time.Second)
	b.Feed(enginetest.Spent("a", 100))
	gone.Applied, gone.Failed = 1, 1
	must.OK(t, b.Heartbeat(t.Context(), gone))
	last := b.Clock.Now().Truncate(time.Minute)
	b.Clock.Advance(210 * time.Second)
	recorded := func() (map[time.Time]samples.Point, []samples.Marker) {
		h := must.Get(b.Beside().History(t.Context(), samples.Range{})).Or(t)
		points := map[time.Time]samples.Point{}
		for _, p := range h.Points {
			points[p.From] = p
		}
		p := points[last]
		must.Hold(t, p.Applied == 1 && p.Failed == 1 && p.Counts.Dead == 1 && p.Blocked == 1 && p.LagEvents == 1 && p.LowerBound, "the minute of the crash is %+v, want at least one event applied and one dead", p)
		for minute := -1; minute <= 2; minute++ {
			_, found := points[last.Add(time.Duration(minute)*time.Minute)]
			must.Equal(t, found, minute <= 0, minute, "minutes after the crash there is a record")
		}
		return points, h.Markers
	}
	if !b.OnPostgres() { // where heartbeats say it
		sum := must.Get(b.Summary(t.Context())).Or(t)
		must.Hold(t, !sum.Worker.Running && sum.Instances[0].State(sum.AsOf) == campaign.InstanceCrashed, "with a killed process alone, a worker is running: %v; instances are %+v", sum.Worker.Running, sum.Instances)
		recorded()
	}
	b.Beside().Start()
	must.Eventually(t, "the next process has started", func() bool {
		all, err := b.Instances(t.Context())
		return err == nil && len(all) == 2 && slices.ContainsFunc(all, func(i campaign.InstanceState) bool {
			return i.ID == "gone" && i.StoppedAt != nil && i.State(b.Clock.Now()) == campaign.InstanceCrashed
		})
	})

	points, markers := recorded()
	must.Hold(t, len(markers) == 1 && markers[0].Kind == samples.MarkerLost && markers[0].Subject == "gone" && markers[0].At.Truncate(time.Minute).Equal(last), "markers %+v, want one of the instance that was killed", markers)
	p := points[b.Clock.Now().Truncate(time.Minute)]
	must.Hold(t, p.Applied+p.Failed == 0 && p.Counts.Dead == 1 && !p.LowerBound, "the minute of the start is %+v, want nothing applied and nothing failed", p)
}

// While a worker starts, and once it has, no page says that there is none.
func TestRun_isNeverSaidNotToRun(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	b.MustAppend(enginetest.Notes("a", 1)...)
	b.Store.SetHere(b.Worker.ID()) // as Run does first
	sum, err := b.Summary(t.Context())
	must.Hold(t, err == nil && sum.Worker.Starting && !sum.Worker.Absent(), "before its first heartbeat the worker is %+v, %v", sum.Worker, err)
	b.Start()
	b.MustWait("a", 1)
	sum, err = b.Summary(t.Context())
	must.Hold(t, err == nil && sum.Worker.Running && !sum.Worker.Starting, "at work the worker is %+v, %v", sum.Worker, err)
}

// What is counted for the charts is written with the totals, so that a kill loses no minute of it; what could not
// be written then is written later, also by a worker that has nothing to do.
func TestHeartbeat_writesWhatWasCounted(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Accounts}, enginetest.MaxAttempts(1))
	written := func(want int) {
		for _, step := range b.Worker.TimedSteps() {
			must.Get(step(t.Context())).Or(t)
		}
		const counts = `select coalesce(sum(value), 0) from series_samples where kind in ('applied', 'failures') and step = 60`
		must.Equal(t, storetest.Column[int](t, b.JournalDB, counts)[0], want, "counts are written")
	}
	b.Feed(enginetest.Opened("a", 1), enginetest.Spent("a", 100))
	written(2)
	var c samples.Counts
	c.Add(samples.SeriesApplied, "", 3)
	b.Samples.Count(b.Worker.ID(), &c)
	written(5)
}
