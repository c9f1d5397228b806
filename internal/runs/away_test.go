package runs_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/worker"
)

// doomed ends the connection that reads its digest, while a flag for that is set.
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
	b := enginetest.Open(t, enginetest.Define(t, doomed))
	b.MustAppend(t, enginetest.Notes("a", 3)...)
	b.Drain(t)
	for _, kind := range []outbox.RunKind{outbox.RunVerify, outbox.RunRebuild} {
		b.Meddle(t, `update doomed set n = -1`)
		b.Meddle(t, `create table public.doom ()`)
		run := b.MustStartRun(t, outbox.RunRequest{Kind: kind, All: true})
		if _, err := b.RunWorker.Step(t.Context()); !errors.Is(err, outbox.ErrBusy) {
			t.Errorf("%s: %v, want ErrBusy", kind, err)
		}
		b.Meddle(t, `drop table public.doom`)
		b.StepRuns(t)
		if run = b.MustReadRun(t, run.ID); run.Status != outbox.RunCompleted || run.Counts.Drifted != 1 {
			t.Errorf("%s: run %+v", kind, run)
		}
	}
}

func TestPostgresRuns_goOnAfterConnectionsWereLostAnywhere(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"runs.(*Runs).Claim.func1", "store.(*Store).leaseForRun.func1", "readmodel.(*Database).Apply", "readmodel.(*Scratch).Swap",
		"store.(*Store).ReleaseForRun.func1", "runs.(*Runs).Report.func1", "runs.(*Runs).Finish.func1"} {
		var b *enginetest.Engine
		var armed atomic.Bool
		b = enginetest.Open(t, enginetest.Define(t, enginetest.Trail), func(o *store.Options, _ *worker.Config) {
			o.Now = func() time.Time {
				if armed.Load() && enginetest.CalledFrom(moment) && armed.CompareAndSwap(true, false) {
					b.Disconnect(t)
				}
				return time.Now()
			}
		}, enginetest.Leasing(time.Second))
		b.MustAppend(t, append(enginetest.Notes("a", 3), enginetest.Notes("b", 3)...)...)
		b.Drain(t)
		b.Meddle(t, `delete from trail where place = 2`)
		armed.Store(true)
		run := b.MustStartRun(t, outbox.RunRequest{Kind: outbox.RunRebuild, All: true})
		storetest.Eventually(t, "the run ends", func() bool {
			if _, err := b.RunWorker.Step(t.Context()); err != nil && !errors.Is(err, outbox.ErrBusy) {
				t.Errorf("%s: %v", moment, err)
			}
			return !b.MustReadRun(t, run.ID).Status.Active()
		})
		if run = b.MustReadRun(t, run.ID); run.Status != outbox.RunCompleted || run.Counts.Failed > 0 || run.Campaigns.Done != 2 {
			t.Errorf("%s: run %+v", moment, run)
		}
		if armed.Load() {
			t.Errorf("%s: never came by", moment)
		}
		if n := enginetest.Column[int](t, b.ProjectionsDB, `select count(*) from trail`); n[0] != 6 {
			t.Errorf("%s: %d rows", moment, n[0])
		}
		b.MustBeSound(t)
	}
}
