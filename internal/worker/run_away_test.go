package worker_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

// doomed ends the connection that reads its digest, as long as it says so
// somewhere.
const doomed = `-- projection: doomed
-- tables: doomed
-- schema
create table doomed (campaign_id text primary key, n bigint not null);
-- on: *
insert into doomed values (:campaign_id, :seq) on conflict (campaign_id) do update set n = excluded.n;
-- digest: select campaign_id, n, case when n = -1 and to_regclass('public.doom') is not null then pg_terminate_backend(pg_backend_pid()) end as gone from doomed where campaign_id = :campaign_id
`

func TestPostgresRuns_goOnAfterAConnectionWasLostInComparing(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, doomed))
	b.mustAppend(t, notes("a", 3)...)
	b.drain(t)
	for _, kind := range []outbox.RunKind{outbox.RunVerify, outbox.RunRebuild} {
		b.meddle(t, `update doomed set n = -1`)
		b.meddle(t, `create table public.doom ()`)
		run := b.mustStartRun(t, outbox.RunOrder{Kind: kind, All: true})
		if _, err := b.runWorker.Step(t.Context()); !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", kind, err)
		}
		b.meddle(t, `drop table public.doom`)
		b.stepRuns(t)
		if run = b.run(t, run.ID); run.Status != outbox.RunCompleted || run.Counts.Drifted != 1 {
			t.Errorf("%s: run %+v", kind, run)
		}
	}
}

func TestPostgresRuns_goOnAfterConnectionsWereLostAnywhere(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"store.(*Store).ClaimRun.func1", "store.(*Store).leaseForRun.func1", "store.(*Store).Apply", "store.(*Scratch).Swap",
		"store.(*Store).ReleaseForRun.func1", "store.(*Store).ReportRun.func1", "store.(*Store).FinishRun.func1"} {
		var b *bench
		var armed atomic.Bool
		b = open(t, define(t, trail), func(o *store.Options, _ *worker.Config) {
			o.Now = func() time.Time {
				if armed.Load() && calledFrom(moment) && armed.CompareAndSwap(true, false) {
					b.disconnect(t)
				}
				return time.Now()
			}
		}, leasing(time.Second))
		b.mustAppend(t, append(notes("a", 3), notes("b", 3)...)...)
		b.drain(t)
		b.meddle(t, `delete from trail where place = 2`)
		armed.Store(true)
		run := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, All: true})
		eventually(t, "the run ends", func() bool {
			if _, err := b.runWorker.Step(t.Context()); err != nil && !errors.Is(err, outbox.ErrBusy) {
				t.Errorf("%s: %v", moment, err)
			}
			return !b.run(t, run.ID).Status.Active()
		})
		if run = b.run(t, run.ID); run.Status != outbox.RunCompleted || run.Counts.Failed > 0 || run.Campaigns.Done != 2 {
			t.Errorf("%s: run %+v", moment, run)
		}
		if armed.Load() {
			t.Errorf("%s: never came by", moment)
		}
		if n := column[int](t, b.projections, `select count(*) from trail`); n[0] != 6 {
			t.Errorf("%s: %d rows", moment, n[0])
		}
		b.mustBeSound(t)
	}
}
