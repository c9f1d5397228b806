package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/projection"
	"outboxweb/internal/store"
	"outboxweb/internal/worker"
)

// logged is a log that calls f with each message.
type logged struct {
	slog.Handler
	f func(message string)
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	l.f(r.Message)
	return nil
}

func (l logged) WithAttrs([]slog.Attr) slog.Handler { return l }

func logging(f func(message string)) option {
	return func(_ *store.Options, c *worker.Config) { c.Logger = slog.New(logged{slog.DiscardHandler, f}) }
}

// The report that is missed is the last one.
func TestSQLiteRuns_areNotCompleteWithoutTheirResults(t *testing.T) {
	t.Parallel()
	var other interface{ release() }
	b := openPair(t, dbtest.Files(filepath.Join(t.TempDir(), hurried)), define(t, trail, probing), logging(func(message string) {
		if strings.Contains(message, "could not be written") && other != nil {
			other.release()
		}
	}))
	lock := &journalLock{tb: t, b: b}
	key := t.Name()
	var armed atomic.Bool
	onProbe(t, key, func([]string) (string, error) {
		if armed.CompareAndSwap(true, false) {
			lock.take()
		}
		return "", nil
	})
	b.mustAppend(t, noted("a"), probed("a", key))
	b.drain(t)
	b.meddle(t, `delete from trail where place = 1`)
	run := b.mustStartRun(t, everything)
	other = lock
	armed.Store(true)
	b.stepRuns(t)
	if ended := b.run(t, run.ID); ended.Status != outbox.RunCompleted || ended.Verdict != outbox.VerdictDrift || ended.Counts.Drifted != 1 {
		t.Errorf("run %+v, want a drift", ended)
	}
}

// journalLock is somebody else's on the journal of a bench.
type journalLock struct {
	tb    testing.TB
	b     *bench
	taken atomic.Bool
}

func (l *journalLock) take() {
	l.b.journal.SetMaxOpenConns(1)
	mustExec(l.tb, l.b.journal, `begin immediate`)
	l.taken.Store(true)
}

func (l *journalLock) release() {
	if l.taken.CompareAndSwap(true, false) {
		mustExec(l.tb, l.b.journal, `rollback`)
	}
}

func TestVerify_untilTheWatermarkComparesNothingThatStandsElsewhere(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, lenientAccounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 10), spent("a", 1), noted("a"))
	b.drain(t)
	b.mustPause(t, "accounts", "a")
	b.mustAppend(t, spent("a", 1), noted("a"))
	b.drain(t)
	run := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 5})
	if run.Status != outbox.RunCompleted || run.Verdict != outbox.VerdictMatch {
		t.Errorf("run %+v", run)
	}
	for _, p := range b.result(t, run, "a").Projections {
		if p.Seq != 5 || (p.Projection == "trail") != (p.Verdict == outbox.VerdictMatch) {
			t.Errorf("%+v", p)
		}
	}
}

// Nothing is compared, so nothing is said to match.
func TestVerify_untilAnEarlierSeqHasNoVerdict(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail))
	b.mustAppend(t, notes("a", 3)...)
	b.drain(t)
	b.meddle(t, `update trail set seq = 77`)
	run := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunVerify, Campaigns: []string{"a"}, UntilSeq: 2})
	if run.Status != outbox.RunCompleted || run.Verdict != "" || run.Digests[outbox.FullDigest] == "" {
		t.Errorf("run %+v", run)
	}
}

func TestReplay_leavesWhatWasPausedMeanwhilePaused(t *testing.T) {
	t.Parallel()
	lenient := strings.Replace(probing, "-- tables: probing", "-- tables: probing\n-- on-failure: quarantine", 1)
	b := open(t, define(t, lenient, trail), maxAttempts(1))
	key := t.Name()
	var failing, pausing atomic.Bool
	failing.Store(true)
	onProbe(t, key, func([]string) (string, error) {
		if failing.Load() {
			return "", errors.New("not now")
		}
		if pausing.CompareAndSwap(true, false) {
			b.mustPause(t, "trail", "a")
		}
		return "", nil
	})
	b.mustAppend(t, noted("a"))
	b.drain(t)
	b.mustPause(t, "trail", "a")
	b.mustAppend(t, probed("a", key), noted("a"))
	b.drain(t)
	resumed := b.mustResume(t, "trail", "a")
	if _, err := b.runs.Cancel(t.Context(), operator, resumed.RunID); err != nil {
		t.Fatal(err)
	}
	b.mustHaveCursors(t, "a probing 1 quarantined", "a trail 1 behind")

	failing.Store(false)
	pausing.Store(true)
	run := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunReplay, All: true})
	if run.Status != outbox.RunCompleted {
		t.Errorf("run %+v: %+v", run, b.result(t, run, "a"))
	}
	b.mustHaveCursors(t, "a probing 3 live", "a trail 1 paused")
	b.mustBeSound(t)
}

func TestReplay_missesNoEventWhoseSkipIsTakenBackMeanwhile(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, accounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 1))
	b.drain(t)
	b.mustPause(t, "trail", "a")
	b.mustAppend(t, noted("a"), spent("a", 2))
	b.drain(t)
	b.mustSkip(t, "a", 3)
	b.drain(t)
	b.mustResume(t, "trail", "a")
	p, err := b.runWorker.CatchUp(t.Context(), "a", "trail", func() {
		b.mustUnskip(t, "a", 3)
		b.meddle(t, `update accounts set balance = 2`)
		b.drain(t)
	})
	if err != nil || p.Error != "" {
		t.Fatalf("%+v (%v)", p, err)
	}
	b.mustHaveCursors(t, "a trail 3 live")
	if seqs := column[int](t, b.projections, `select seq from trail order by place`); len(seqs) != 3 {
		t.Errorf("the trail has events %v, want all three", seqs)
	}
	b.mustBeSound(t)
}

// A file that a process cannot fold takes those with it that read its tables.
func TestVerify_reportsNoDriftOfWhatReadsAProjectionThatCannotBeFolded(t *testing.T) {
	t.Parallel()
	key := t.Name()
	reads := `-- projection: reads
-- tables: reads
-- schema
create table reads (campaign_id text primary key, n bigint not null);
-- on: probed
insert into reads select cast(:campaign_id as text), count(*) from probing where campaign_id = :campaign_id;
`
	b := open(t, define(t, probing, reads))
	var failing atomic.Bool
	onProbe(t, key, func([]string) (string, error) {
		if failing.Load() {
			return "", errors.New("not now")
		}
		return "", nil
	})
	b.mustAppend(t, noted("a"), probed("a", key))
	b.drain(t)
	failing.Store(true)
	for _, kind := range []outbox.RunKind{outbox.RunVerify, outbox.RunRebuild} {
		run := b.mustRun(t, outbox.RunOrder{Kind: kind, All: true, Projections: []string{"reads"}})
		if run.Status != outbox.RunFailed || run.Counts.Failed != 1 || run.Verdict != "" || b.result(t, run, "a").Projections[0].ErrorSeq != 2 {
			t.Errorf("%s: run %+v %+v", kind, run, b.result(t, run, "a"))
		}
	}
	if n := column[int](t, b.projections, `select n from reads`); len(n) != 1 || n[0] != 1 {
		t.Errorf("reads %v", n)
	}
}

func TestRuns_areNotTakenUpByAProcessThatChangesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail))
	b.mustAppend(t, notes("a", 3)...)
	b.drain(t)
	rebuild := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, Campaigns: []string{"a"}})
	shadow := b.beside(t, mode(outbox.ModeShadow))
	shadow.stepRuns(t)
	if run := b.run(t, rebuild.ID); run.Status != outbox.RunQueued {
		t.Errorf("run %+v", run)
	}
	b.stepRuns(t)
	if run := b.run(t, rebuild.ID); run.Status != outbox.RunCompleted {
		t.Errorf("run %+v", run)
	}
}

func TestVerify_goesOnAfterACampaignThatKeepsChanging(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, probing))
	key := t.Name()
	var toggling atomic.Bool
	paused := false
	onProbe(t, key, func([]string) (string, error) {
		if toggling.Load() {
			if paused = !paused; paused {
				b.mustPause(t, "trail", "a")
			} else {
				b.mustResume(t, "trail", "a")
			}
		}
		return "", nil
	})
	b.mustAppend(t, probed("a", key), noted("b"))
	b.drain(t)
	toggling.Store(true)
	run := b.mustRun(t, everything)
	if run.Counts.Failed != 1 || run.Counts.Matched != 1 || !strings.Contains(b.result(t, run, "a").Error, "keeps changing") {
		t.Errorf("run %+v", run)
	}
}

// The leases that it cannot give back run out by themselves.
func TestSQLiteRuns_endWithTheProcessWhileTheJournalIsAway(t *testing.T) {
	t.Parallel()
	b := openPair(t, dbtest.Files(filepath.Join(t.TempDir(), hurried)), define(t, `-- projection: slow
-- tables: slow
-- schema
create table slow (campaign_id text primary key, key text not null);
-- on: probed
insert into slow values (:campaign_id, :payload.key);
-- digest: select campaign_id, probe(key) as told from slow where campaign_id = :campaign_id
`), leasing(300*time.Millisecond))
	lock := &journalLock{tb: t, b: b}
	key := t.Name()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var armed atomic.Bool
	onProbe(t, key, func([]string) (string, error) {
		if armed.CompareAndSwap(true, false) { // under the campaign's lease
			lock.take()
			stop()
		}
		return "", nil
	})
	b.mustAppend(t, probed("a", key))
	b.drain(t)
	b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, All: true})
	armed.Store(true)
	ended := make(chan error, 1)
	go func() {
		_, err := b.runWorker.Step(ctx)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the run goes on after its process was asked to stop")
		lock.release()
		<-ended
	}
	lock.release()
	b.mustBeSound(t)
}

// What is applied while a long fold is made is folded without holding the
// campaign up, as far as it is more than a few events.
func TestRebuild_holdsNoLeaseWhileItFoldsWhatWasAppliedMeanwhile(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, probing))
	key := t.Name()
	var appending, looking atomic.Bool
	var held atomic.Int64
	onProbe(t, key, func(args []string) (string, error) {
		if appending.CompareAndSwap(true, false) {
			b.mustAppend(t, append([]outbox.Event{probed("a", key)}, notes("a", 700)...)...)
			b.drain(t)
			looking.Store(true)
		} else if looking.Load() && args[1] == "2" {
			if c := b.campaign(t, "a"); c.Lease != nil {
				held.Add(1)
			}
		}
		return "", nil
	})
	b.mustAppend(t, probed("a", key))
	b.drain(t)
	appending.Store(true)
	run := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, All: true})
	if run.Status != outbox.RunCompleted || held.Load() > 0 {
		t.Errorf("it was folded under the campaign's lease; run %+v", run)
	}
	b.mustMatchJournal(t, "a")
	b.mustBeSound(t)
}

func TestReplay_leavesADivergedCampaignToARebuild(t *testing.T) {
	t.Parallel()
	for _, watermark := range []string{"applied_hash = 'other'", "applied_seq = 9", "applied_seq = 9999"} {
		b := open(t, define(t, trail, accounts))
		b.mustAppend(t, noted("a"), noted("b"))
		b.drain(t)
		b.mustPause(t, "trail", "a")
		b.mustAppend(t, notes("a", 2)...)
		b.drain(t)
		if _, err := b.runs.Cancel(t.Context(), operator, b.mustResume(t, "trail", "a").RunID); err != nil {
			t.Fatal(err)
		}
		b.meddle(t, `update projection_watermarks set `+watermark+` where campaign_id = 'a'`)
		run := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunReplay, All: true})
		if run.Counts.Failed != 1 || run.Counts.Replayed != 1 || !strings.Contains(b.result(t, run, "a").Error, "diverged") {
			t.Errorf("%s: run %+v", watermark, run)
		}
		b.mustHaveCursors(t, "a trail 1 behind")
		again := b.mustRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, All: true})
		if again.Status != outbox.RunCompleted {
			t.Errorf("%s: rebuild %+v", watermark, again)
		}
		b.drain(t)
		b.mustMatchJournal(t, "a", "b")
		b.mustBeSound(t)
	}
}

func TestRebuild_notesWhatItMendedBesideWhatItCouldNot(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, probing))
	key := t.Name()
	var failing atomic.Bool
	onProbe(t, key, func([]string) (string, error) {
		if failing.Load() {
			return "", errors.New("not now")
		}
		return "", nil
	})
	b.mustAppend(t, noted("a"), probed("a", key))
	b.drain(t)
	b.meddle(t, `delete from trail where place = 2`)
	b.mustRun(t, everything)
	failing.Store(true)
	for _, tt := range []struct {
		kind outbox.RunKind
		want outbox.Verdict
	}{{outbox.RunVerify, outbox.VerdictDrift}, {outbox.RunRebuild, outbox.VerdictMatch}} {
		run := b.mustRun(t, outbox.RunOrder{Kind: tt.kind, All: true})
		all, err := b.Verifications(t.Context(), "a")
		if err != nil || run.Status != outbox.RunFailed || all[1].Projection != "trail" || all[1].Verdict != tt.want || all[1].RunID != run.ID {
			t.Errorf("%s: run %d is %s, verifications %+v (%v)", tt.kind, run.ID, run.Status, all, err)
		}
	}
}

func TestDryRun_namesTheColumnThatTheLiveRowsLack(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, accounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 10), spent("a", 100))
	b.drain(t)
	set, err := projection.Load(dialectOf(b.pair), define(t, trail, strings.ReplaceAll(accounts, "default 0)", "default 0, note text)"))...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = worker.DryRun(t.Context(), b.Store, set, "a", 2, 0); !errors.Is(err, outbox.ErrConflict) || !strings.Contains(err.Error(), `no column "note"`) {
		t.Errorf("error = %v", err)
	}
}

func TestDryRun_saysWhichLiveTablesAreNotThoseOfTheFile(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, trail, accounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 10), spent("a", 100))
	b.drain(t)
	for _, c := range []struct {
		accounts string
		applied  int64
		want     []string
	}{
		{accounts, 0, []string{}},
		{strings.ReplaceAll(accounts, " check (balance >= 0)", ""), 1, []string{"accounts"}},
	} {
		set, err := projection.Load(dialectOf(b.pair), define(t, trail, c.accounts)...)
		if err != nil {
			t.Fatal(err)
		}
		d, err := worker.DryRun(t.Context(), b.Store, set, "a", 2, 0)
		if err != nil || d.Applied != c.applied || !slices.Equal(d.OtherTables, c.want) || (d.TablesText() != "") != (len(c.want) > 0) {
			t.Errorf("tried %+v (%v), want other tables %v", d, err, c.want)
		}
	}
}

// Once a run is cancelled nothing of it happens any more, whatever its process
// was about to do.
func TestCancelRun_keepsAProcessThatSleptFromSwapping(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, trail), at(now))
	b.mustAppend(t, notes("a", 5)...)
	b.drain(t)
	for stage := range 2 {
		run := b.mustStartRun(t, outbox.RunOrder{Kind: outbox.RunRebuild, All: true})
		late, err := b.runWorker.DieInRun(t.Context(), stage)
		if err != nil {
			t.Fatal(err)
		}
		now.advance(leaseTime + time.Second)
		if ended, err := b.runs.Cancel(t.Context(), operator, run.ID); err != nil || ended.Status != outbox.RunCancelled {
			t.Fatalf("run %+v (%v)", ended, err)
		}
		before := b.dump(t)
		if err := late(); err != nil {
			t.Fatal(err)
		}
		if after := b.dump(t); after != before {
			t.Errorf("stage %d (-before +after):\n%s", stage, cmp.Diff(before, after))
		}
	}
	if c := b.campaign(t, "a"); c.Lease != nil {
		t.Errorf("the campaign is still held: %+v", c.Lease)
	}
}
