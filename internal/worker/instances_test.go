package worker_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// named sets the worker's name in its connections.
func named(name string) enginetest.Option {
	return func(o *enginetest.Options) {
		o.Journal, o.Projections = withParameter(o.Journal, "application_name", name), withParameter(o.Projections, "application_name", name)
	}
}

func withParameter(raw, name, value string) string {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
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
	t.Parallel()
	const campaigns, workers = 60, 3
	each := size.Of(6, 8, 20)
	// No worker can hold all campaigns at once: 4 waves of 4 rows are 16 of them.
	options := []enginetest.Option{enginetest.Waves(4), enginetest.BatchSize(4), enginetest.Polling(20 * time.Millisecond), enginetest.EventTimeout(storetest.Patience)}
	all := []*enginetest.Engine{enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing, owners), append(options, named("worker-0"))...)}
	for i := 1; i < workers; i++ {
		all = append(all, all[0].Beside(append(options, named(fmt.Sprint("worker-", i)))...))
	}
	holders := func() int {
		return storetest.Column[int](t, all[0].JournalDB, `select count(distinct lease_owner) from campaigns where lease_owner <> ''`)[0]
	}
	var met sync.Once
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		met.Do(func() {
			storetest.Eventually(t, "every worker holds a lease", func() bool { return holders() == workers })
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
	t.Helper()
	sum := store.Settled{}
	storetest.Eventually(t, "what is applied is settled", func() bool {
		sum = store.Settled{}
		for _, b := range all {
			got := b.Worker.Counted()
			sum.Applied, sum.Failed, sum.Fenced = sum.Applied+got.Applied, sum.Failed+got.Failed, sum.Fenced+got.Fenced
		}
		return sum.Applied >= total
	})
	must.Equal(t, sum, store.Settled{Applied: total}, "all workers together counted")
	for _, b := range all {
		if b.Worker.Counted().Applied == 0 {
			t.Errorf("worker %s applied nothing", b.Worker.ID())
		}
	}
	must.Equal(t, storetest.Column[int](t, all[0].ProjectionsDB, `select count(distinct worker) from owners`)[0], len(all), "workers applied events")
	crowded := storetest.Column[string](t, all[0].ProjectionsDB, `select concat(campaign_id, ' ', seq, ' ', worker) from owners where not alone`)
	must.Hold(t, len(crowded) == 0, "applied while another worker was at the same campaign: %q", crowded)
}

// The old owner of a campaign may still be in its transaction when the new one begins.
func TestPostgresPass_appliesOnceWhenTheStaleWorkerIsStillAtIt(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing), enginetest.At(now))
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
	finish := func(w *enginetest.Engine, claims []store.Claim) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- w.FinishClaims(context.Background(), claims) }()
		return ended
	}
	old := finish(a, stale)
	<-holding
	now.Advance(storetest.Lease + time.Second)
	young := finish(b, b.ClaimWave())
	storetest.Eventually(t, "the new owner waits for the old one", func() bool {
		return a.Number(`select count(*)`+storetest.TheStores+` and wait_event_type = 'Lock'`) > 0
	})
	close(release)
	for _, ended := range []<-chan error{old, young} {
		must.OK(t, <-ended)
	}
	b.MustHaveApplied("c", 4)
	if a.Worker.Counted() != (store.Settled{Fenced: 1}) || b.Worker.Counted() != (store.Settled{Applied: 4}) {
		t.Errorf("the stale worker counted %+v, the new owner %+v", a.Worker.Counted(), b.Worker.Counted())
	}
	b.Sound()
}

func TestPostgresRun_handsItsCampaignsOverAtOnceWhenItStops(t *testing.T) {
	t.Parallel()
	const campaigns, each = 8, 10
	// A wave has 2 rows of each campaign, and within the hour only a hint wakes another worker.
	options := []enginetest.Option{enginetest.Waves(1), enginetest.BatchSize(20), enginetest.Polling(time.Hour), enginetest.Leasing(time.Hour), enginetest.EventTimeout(storetest.Patience)}
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing), options...)
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
	ended := make(chan error, 1)
	go func() { ended <- a.Worker.Run(ctx) }()
	<-holding
	must.Equal(t, storetest.Column[int](t, a.JournalDB, `select count(*) from campaigns where lease_owner <> ''`)[0], campaigns, "the campaigns that the worker holds")
	b.OnWork(b.Worker.Wake)
	storetest.Eventually(t, "the other worker listens", func() bool {
		return a.Number(`select count(*)`+storetest.TheStores+` and `+storetest.Listening) > 0
	})
	b.Start()
	<-idle
	cancel()
	close(release)
	for c := range campaigns {
		b.MustWait(fmt.Sprint("c", c), int64(each))
	}
	err := <-ended
	must.Hold(t, err == nil, "run: %v", err)
	for c := range campaigns {
		b.MustHaveApplied(fmt.Sprint("c", c), each)
	}
	must.Equal(t, a.Worker.Counted(), store.Settled{Applied: 2 * campaigns}, "the worker that stopped counted")
	b.Sound()
}

func TestPostgresRun_isWokenByWhatAnotherProcessAppends(t *testing.T) {
	t.Parallel()
	a := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	idle := make(chan struct{})
	b := a.Beside(enginetest.Polling(time.Hour), once(whenIdle, func() { close(idle) }))
	b.OnWork(b.Worker.Wake)
	storetest.Eventually(t, "the worker listens", func() bool {
		return a.Number(`select count(*)`+storetest.TheStores+` and `+storetest.Listening) > 0
	})
	b.Start()
	<-idle
	a.MustAppend(enginetest.Notes("a", 3)...)
	b.MustWait("a", 3)

	must.Equal(t, b.Terminate(storetest.Listening), 1, "connections listen")
	a.MustAppend(enginetest.Notes("a", 3)...) // while no worker listens
	b.MustWait("a", 6)
	b.MustHaveApplied("a", 6)
}

func TestPostgresRun_keepsItsHeartbeatUpWhileItIsIdle(t *testing.T) {
	t.Parallel()
	for _, m := range outbox.Modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(m), enginetest.Polling(time.Hour))
			b.Worker.Hurry()
			stop := b.Start()
			me := func() outbox.InstanceState {
				all, err := b.Instances(t.Context())
				must.Need(t, err == nil && len(all) <= 1, "instances %+v (%v), want one", all, err)
				if len(all) == 0 {
					return outbox.InstanceState{}
				}
				return all[0]
			}
			var first outbox.InstanceState
			storetest.Eventually(t, "the worker is there", func() bool { first = me(); return first.ID == b.Worker.ID() })
			storetest.Eventually(t, "it gives further signs of life", func() bool { return me().LastSeen.After(first.LastSeen) })
			now := me()
			state := now.State(now.LastSeen)
			must.Hold(t, state == outbox.InstanceRunning && now.BeatEvery != 0, "an idle worker is %s and promises a sign of life every %s", state, now.BeatEvery)
			must.Equal(t, now.State(now.LastSeen.Add(outbox.Recent)), outbox.InstanceSilent, "a worker that broke its promise")
			stop()
			must.Equal(t, me().State(time.Now()), outbox.InstanceStopped, "a worker that ended")
		})
	}
}
