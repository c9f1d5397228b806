package runs_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// The lost report is the last one.
func TestSQLiteRuns_areNotCompleteWithoutTheirResults(t *testing.T) {
	t.Parallel()
	var other interface{ release() }
	b := enginetest.OpenPair(t, dbtest.Files(filepath.Join(t.TempDir(), enginetest.Hurried)), enginetest.Define(t, enginetest.Trail, enginetest.Probing), enginetest.Logging(func(message string) {
		if strings.Contains(message, "could not be saved") && other != nil {
			other.release()
		}
	}))
	lock := &journalLock{tb: t, b: b}
	key := t.Name()
	var armed atomic.Bool
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		if armed.CompareAndSwap(true, false) {
			lock.take()
		}
		return "", nil
	})
	b.Feed(enginetest.Noted("a"), enginetest.Probed("a", key)).ExecProjections(`delete from trail where place = 1`)
	run := b.StartRun(enginetest.Everything)
	other = lock
	armed.Store(true)
	b.StepRuns()
	ended := b.MustRun(run.ID)
	must.Hold(t, ended.Status == replay.RunCompleted && ended.Verdict == campaign.VerdictDrift && ended.Counts.Drifted == 1, "run %+v, want a drift", ended)
}

// journalLock is another connection's lock on the journal of an engine.
type journalLock struct {
	tb    testing.TB
	b     *enginetest.Engine
	taken atomic.Bool
}

func (l *journalLock) take() {
	l.b.JournalDB.SetMaxOpenConns(1)
	l.b.Exec(`begin immediate`)
	l.taken.Store(true)
}

func (l *journalLock) release() {
	if l.taken.CompareAndSwap(true, false) {
		l.b.Exec(`rollback`)
	}
}

func TestVerify_untilTheWatermarkComparesNothingThatStandsElsewhere(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.LenientAccounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Noted("a")).PauseProjection("accounts", "a")
	b.Feed(enginetest.Spent("a", 1), enginetest.Noted("a"))
	run := b.RunToEnd(replay.RunRequest{Kind: replay.RunVerify, Campaigns: []string{"a"}, UntilSeq: 5})
	must.Hold(t, run.Status == replay.RunCompleted && run.Verdict == campaign.VerdictMatch, "run %+v", run)
	for _, p := range b.RunResult(run, "a").Projections {
		must.Hold(t, p.Seq == 5 && (p.Projection == "trail") == (p.Verdict == campaign.VerdictMatch), "%+v", p)
	}
}

func TestReplay_leavesWhatWasPausedMeanwhilePaused(t *testing.T) {
	lenient := strings.Replace(enginetest.Probing, "-- tables: probing", "-- tables: probing\n-- on-failure: quarantine", 1)
	b := enginetest.Own(t, []string{lenient, enginetest.Trail}, enginetest.MaxAttempts(1))
	key := t.Name()
	var failing, pausing atomic.Bool
	failing.Store(true)
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		if failing.Load() {
			return "", errors.New("not now")
		}
		if pausing.CompareAndSwap(true, false) {
			b.PauseProjection("trail", "a")
		}
		return "", nil
	})
	b.Feed(enginetest.Noted("a")).PauseProjection("trail", "a").Feed(enginetest.Probed("a", key), enginetest.Noted("a"))
	resumed := b.ResumeProjection("trail", "a")
	must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, resumed.RunID)).Or(t)
	b.MustHaveCursors("a probing 1 quarantined", "a trail 1 behind")

	failing.Store(false)
	pausing.Store(true)
	run := b.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true})
	must.Equal(t, run.Status, replay.RunCompleted, "run", b.RunResult(run, "a"))
	b.MustHaveCursors("a probing 3 live", "a trail 1 paused").Sound()
}

func TestRebuild_startsOverIfAProjectionWasPausedBesideIt(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.LenientAccounts})
	b.Feed(enginetest.Opened("a", 10)).StartRun(enginetest.Rebuild("a"))
	w := *b.RunWorker
	var pause sync.Once
	w.Applying = func(time.Time) bool { // is called after each chunk of a replay
		pause.Do(func() { b.PauseProjection("accounts", "a").Feed(enginetest.Spent("a", 3)) })
		return false
	}
	must.Get(w.Step(t.Context())).Or(t)
	b.ResumeProjection("accounts", "a")
	b.StepRuns().MustHaveBalances("a 7")
}

func TestReplay_missesNothingAppliedOrUnskippedBesideIt(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 1)).PauseProjection("trail", "a").Feed(enginetest.Noted("a"), enginetest.Spent("a", 2))
	b.MustSkip("a", 3)
	b.Drain().ResumeProjection("trail", "a")
	p, err := b.RunWorker.CatchUp(t.Context(), "a", "trail", func() {
		b.MustUnskip("a", 3)
		b.ExecProjections(`update accounts set balance = 2`)
		b.Drain()
	})
	must.Need(t, err == nil && p.Error == "", "%+v (%v)", p, err)
	b.MustHaveCursors("a trail 3 live")
	must.Equal(t, len(storetest.Column[int](t, b.ProjectionsDB, `select seq from trail order by place`)), 3, "the trail has events")
	must.OK(t, b.EndLeases(t.Context(), ""))
	b.PauseProjection("trail", "a").Feed(enginetest.Noted("a")).ResumeProjection("trail", "a")
	p, err = b.RunWorker.CatchUp(t.Context(), "a", "trail", func() { b.Feed(enginetest.Noted("a")) })
	must.Need(t, err == nil && p.Error == "" && p.Seq == 5, "%+v (%v)", p, err)
	b.MustHaveCursors("a trail 5 live").Sound()
}

func TestVerify_reportsNoDriftOfWhatReadsAProjectionThatCannotBeReplayed(t *testing.T) {
	b, failing := failingProbe(t, enginetest.Probing, `-- projection: reads
-- tables: reads

-- schema
create table reads (campaign_id text primary key, n bigint not null);

-- on: probed
insert into reads select cast(:campaign_id as text), count(*) from probing where campaign_id = :campaign_id;
`)
	failing.Store(true)
	for _, kind := range []replay.RunKind{replay.RunVerify, replay.RunRebuild} {
		run := b.RunToEnd(replay.RunRequest{Kind: kind, All: true, Projections: []string{"reads"}})
		must.Hold(t, run.Status == replay.RunFailed && run.Counts.Failed == 1 && run.Verdict == "" && b.RunResult(run, "a").Projections[0].ErrorSeq == 2, "%s: run %+v %+v", kind, run, b.RunResult(run, "a"))
	}
	n := storetest.Column[int](t, b.ProjectionsDB, `select n from reads`)
	must.Hold(t, len(n) == 1 && n[0] == 1, "reads %v", n)
}

// failingProbe is an engine with two applied events in campaign a, whose probe of the second one fails once it is told to.
func failingProbe(t *testing.T, definitions ...string) (*enginetest.Engine, *atomic.Bool) {
	b, failing := enginetest.Own(t, definitions), new(atomic.Bool)
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) {
		if failing.Load() {
			return "", errors.New("not now")
		}
		return "", nil
	})
	b.Feed(enginetest.Noted("a"), enginetest.Probed("a", t.Name()))
	return b, failing
}

func TestRuns_areNotTakenUpByAProcessThatChangesNothing(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail})
	b.Feed(enginetest.Notes("a", 3)...)
	rebuild := b.StartRun(replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{"a"}})
	shadow := b.Beside(enginetest.InMode(campaign.ModeShadow))
	shadow.StepRuns()
	must.Equal(t, b.MustRun(rebuild.ID).Status, replay.RunQueued, "run")
	b.StepRuns()
	must.Equal(t, b.MustRun(rebuild.ID).Status, replay.RunCompleted, "run")
}

func TestVerify_goesOnAfterACampaignThatKeepsChanging(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Probing})
	key := t.Name()
	var toggling atomic.Bool
	paused := false
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		if toggling.Load() {
			if paused = !paused; paused {
				b.PauseProjection("trail", "a")
			} else {
				b.ResumeProjection("trail", "a")
			}
		}
		return "", nil
	})
	b.Feed(enginetest.Probed("a", key), enginetest.Noted("b"))
	toggling.Store(true)
	run := b.RunToEnd(enginetest.Everything)
	must.Hold(t, run.Counts.Failed == 1 && run.Counts.Matched == 1 && strings.Contains(b.RunResult(run, "a").Error, "keeps changing"), "run %+v", run)
}

// Leases that it cannot release expire.
func TestSQLiteRuns_endWithTheProcessWhileTheJournalIsAway(t *testing.T) {
	t.Parallel()
	b := enginetest.OpenPair(t, dbtest.Files(filepath.Join(t.TempDir(), enginetest.Hurried)), enginetest.Define(t, `-- projection: slow
-- tables: slow
-- schema
create table slow (campaign_id text primary key, key text not null);
-- on: probed
insert into slow values (:campaign_id, :payload.key);
-- digest: select campaign_id, probe(key) as told from slow where campaign_id = :campaign_id
`), enginetest.Leasing(300*time.Millisecond))
	lock := &journalLock{tb: t, b: b}
	key := t.Name()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var armed atomic.Bool
	enginetest.OnProbe(t, key, func([]string) (string, error) {
		if armed.CompareAndSwap(true, false) { // under the campaign's lease
			lock.take()
			stop()
		}
		return "", nil
	})
	b.Feed(enginetest.Probed("a", key)).StartRun(replay.RunRequest{Kind: replay.RunRebuild, All: true})
	armed.Store(true)
	ended := storetest.Begin(func() error { return storetest.No(b.RunWorker.Step(ctx)) })
	select {
	case <-ended:
	case <-time.After(must.Patience):
		t.Error("the run goes on after its process was asked to stop")
		lock.release()
		<-ended
	}
	lock.release()
	b.Sound()
}

// Events applied during a long replay are replayed without blocking the campaign, except for the last few.
func TestRebuild_holdsNoLeaseWhileItReplaysWhatWasAppliedMeanwhile(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Probing})
	key := t.Name()
	var appending, looking atomic.Bool
	var held atomic.Int64
	enginetest.OnProbe(t, key, func(args []string) (string, error) {
		if appending.CompareAndSwap(true, false) {
			b.Feed(append([]event.Event{enginetest.Probed("a", key)}, enginetest.Notes("a", 700)...)...)
			looking.Store(true)
		} else if looking.Load() && args[1] == "2" {
			if c := b.MustCampaign("a"); c.Lease != nil {
				held.Add(1)
			}
		}
		return "", nil
	})
	b.Feed(enginetest.Probed("a", key))
	appending.Store(true)
	run := b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true})
	must.Hold(t, run.Status == replay.RunCompleted && held.Load() == 0, "it was folded under the campaign's lease; run %+v", run)
	mustMatchJournal(t, b, "a")
	b.Sound()
}

func TestReplay_leavesADivergedCampaignToARebuild(t *testing.T) {
	t.Parallel()
	for _, watermark := range []string{"applied_hash = 'other'", "applied_seq = 9", "applied_seq = 9999"} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Trail, enginetest.Accounts))
		b.Feed(enginetest.Noted("a"), enginetest.Noted("b")).PauseProjection("trail", "a").Feed(enginetest.Notes("a", 2)...)
		must.Get(b.Runs.Cancel(t.Context(), enginetest.Operator, b.ResumeProjection("trail", "a").RunID)).Or(t)
		b.ExecProjections(`update projection_watermarks set ` + watermark + ` where campaign_id = 'a'`)
		run := b.RunToEnd(replay.RunRequest{Kind: replay.RunReplay, All: true})
		must.Hold(t, run.Counts.Failed == 1 && run.Counts.Matched == 1 && strings.Contains(b.RunResult(run, "a").Error, "diverged"), "%s: run %+v", watermark, run)
		b.MustHaveCursors("a trail 1 behind")
		must.Equal(t, b.RunToEnd(replay.RunRequest{Kind: replay.RunRebuild, All: true}).Status, replay.RunCompleted, watermark, "rebuild")
		b.Drain()
		mustMatchJournal(t, b, "a", "b")
		b.Sound()
	}
}

func TestRebuild_notesWhatItMendedBesideWhatItCouldNot(t *testing.T) {
	b, failing := failingProbe(t, enginetest.Trail, enginetest.Probing)
	b.ExecProjections(`delete from trail where place = 2`)
	b.RunToEnd(enginetest.Everything)
	failing.Store(true)
	for _, tt := range []struct {
		kind replay.RunKind
		want campaign.Verdict
	}{{replay.RunVerify, campaign.VerdictDrift}, {replay.RunRebuild, campaign.VerdictMatch}} {
		run := b.RunToEnd(replay.RunRequest{Kind: tt.kind, All: true})
		all, err := b.Verifications(t.Context(), "a")
		must.Hold(t, err == nil && run.Status == replay.RunFailed && all[1].Projection == "trail" && all[1].Verdict == tt.want && all[1].RunID == run.ID, "%s: run %d is %s, verifications %+v (%v)", tt.kind, run.ID, run.Status, all, err)
	}
}

func TestDryRun_saysWhichLiveTablesAreNotThoseOfTheFile(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 100))
	for _, c := range []struct {
		old, new string
		applied  int64
		want     []string
		lacks    string
	}{
		{"", "", 0, []string{}, ""},
		{" check (balance >= 0)", "", 1, []string{"accounts"}, ""},
		{"default 0)", "default 0, note text)", 0, nil, `no column "note"`},
	} {
		set := must.Get(projection.Load(storetest.DialectOf(b.Pair), enginetest.Define(t, enginetest.Trail, strings.Replace(enginetest.Accounts, c.old, c.new, 1))...)).Or(t)
		d, err := runs.DryRun(t.Context(), b.Store, set, replay.Trial{CampaignID: "a", Seq: 2, Next: 0})
		if c.lacks != "" {
			refused(t, err, event.ErrConflict, c.lacks)
		} else if err != nil || d.Rehearsed.Applied != c.applied || !slices.Equal(d.Rehearsed.OtherTables, c.want) || (d.Rehearsed.TablesText() != "") != (len(c.want) > 0) {
			t.Errorf("tried %+v (%v), want other tables %v", d, err, c.want)
		}
	}
}

func TestCancelRun_keepsAProcessThatSleptFromSwapping(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Trail}, enginetest.At(storetest.NewClock()))
	b.Feed(enginetest.Notes("a", 5)...)
	for stage := range 2 {
		run := b.StartRun(replay.RunRequest{Kind: replay.RunRebuild, All: true})
		late := must.Get(b.RunWorker.DieInRun(t.Context(), stage)).Or(t)
		b.Clock.Advance(storetest.Lease + time.Second)
		ended, err := b.Runs.Cancel(t.Context(), enginetest.Operator, run.ID)
		must.Need(t, err == nil && ended.Status == replay.RunCancelled, "run %+v (%v)", ended, err)
		before := b.Dump()
		must.OK(t, late())
		must.Equal(t, b.Dump(), before, "stage", stage)
	}
	c := b.MustCampaign("a")
	must.Hold(t, c.Lease == nil, "the campaign is still held: %+v", c.Lease)
}

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
	b := enginetest.Own(t, []string{doomed})
	b.Feed(enginetest.Notes("a", 3)...)
	for _, kind := range []replay.RunKind{replay.RunVerify, replay.RunRebuild} {
		b.ExecProjections(`update doomed set n = -1`)
		b.ExecProjections(`create table public.doom ()`)
		run := b.StartRun(replay.RunRequest{Kind: kind, All: true})
		_, err := b.RunWorker.Step(t.Context())
		must.Hold(t, errors.Is(err, event.ErrBusy), "%s: %v, want ErrBusy", kind, err)
		b.ExecProjections(`drop table public.doom`)
		b.StepRuns()
		run = b.MustRun(run.ID)
		must.Hold(t, run.Status == replay.RunCompleted && run.Counts.Drifted == 1, "%s: run %+v", kind, run)
	}
}

func TestPostgresRuns_goOnAfterConnectionsWereLostAnywhere(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"runs.(*Runs).Claim.func1", "outbox.(*Queue).leaseForRun.func1", "readmodel.(*Database).Apply", "readmodel.(*Scratch).Swap",
		"outbox.(*Queue).ReleaseForRun.func1", "runs.(*Runs).Report.func1", "runs.(*Runs).Finish.func1"} {
		t.Run(moment, func(t *testing.T) {
			var b *enginetest.Engine
			var armed atomic.Bool
			b = enginetest.Own(t, []string{enginetest.Trail}, func(o *enginetest.Options) {
				o.Now = func() time.Time {
					if armed.Load() && enginetest.CalledFrom(moment) && armed.CompareAndSwap(true, false) {
						b.Terminate()
					}
					return time.Now()
				}
			}, enginetest.Leasing(time.Second))
			b.Feed(enginetest.Notes("a b", 3)...).ExecProjections(`delete from trail where place = 2`)
			armed.Store(true)
			run := b.StartRun(replay.RunRequest{Kind: replay.RunRebuild, All: true})
			must.Eventually(t, "the run ends", func() bool {
				_, err := b.RunWorker.Step(t.Context())
				must.Hold(t, err == nil || errors.Is(err, event.ErrBusy), "%v", err)
				return !b.MustRun(run.ID).Status.Active()
			})
			run = b.MustRun(run.ID)
			must.Hold(t, run.Status == replay.RunCompleted && run.Counts.Failed <= 0 && run.Campaigns.Done == 2, "run %+v", run)
			must.Hold(t, !armed.Load(), "it never came by")
			must.Equal(t, storetest.Column[int](t, b.ProjectionsDB, `select count(*) from trail`)[0], 6, "rows")
			b.Sound()
		})
	}
}
