package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/metrics"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// differs matches tests with several processes and with random histories, since PostgreSQL lets transactions run concurrently.
const differs = "^Test(Postgres(Pass_(applies|counts|tells)|Pause|Run_(hands|spreads|isWoken))|Run_(applies|recordsWhat)|Worker_drains|Pass_ofAStaleWorker|Pass_leavesNothing|ApplyInline_beside)"

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m, differs)) }

func TestPass_leavesNothingLeasedWhateverTheNumberOfCampaigns(t *testing.T) {
	t.Parallel()
	const each = 3
	for _, c := range []struct{ campaigns, rows int }{{1, 7}, {40, 7}, {10, 1000}, {100, 1000}} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(storetest.NewClock()), enginetest.BatchSize(c.rows))
		var events []event.Event
		for i := range c.campaigns {
			events = append(events, enginetest.Notes(fmt.Sprintf("c%03d", i), each)...)
		}
		b.MustAppend(events...)
		passes, db := 0, b.JournalDB
		for b.MustPass() {
			passes++
			held := storetest.Column[int](t, db, `select (select count(*) from campaigns where lease_owner <> '' or processing > 0) + (select count(*) from projection_apply_outbox where status = 'processing')`)
			must.Need(t, held[0] <= 0, "%+v: %d leases and rows are held after wave %d", c, held[0], passes)
		}
		// Nothing waits for a lease to end: the clock has not moved.
		must.Equal(t, storetest.Column[int](t, db, `select count(*) from campaigns where applied_seq = $1`, each)[0], c.campaigns, "campaigns applied to their end")
		most := c.campaigns*each/min(c.rows, 256) + c.campaigns + 1
		must.Hold(t, passes <= most, "%+v: %d waves, want at most %d", c, passes, most)
	}
}

// Each event is measured once: from its append, an hour ago by the store's clock, to the end of its wave. A failed one is not applied.
func TestPass_measuresHowLongAppliedEventsWaited(t *testing.T) {
	m := metrics.New(func(context.Context) (campaign.Summary, error) { return campaign.Summary{}, nil })
	appended := func() time.Time { return time.Now().Add(-time.Hour) }
	b := enginetest.Own(t, []string{enginetest.Accounts}, enginetest.BatchSize(2), func(o *enginetest.Options) { o.Now, o.Worker.Metrics = appended, m })
	b.MustAppend(enginetest.Opened("a", 5), enginetest.Opened("b", 5), enginetest.Spent("a", 9), enginetest.Spent("b", 1))
	for b.MustPass() {
	}
	var got dto.Metric
	must.OK(t, m.AppliedAfter.Write(&got))
	h := got.GetHistogram()
	n, mean := h.GetSampleCount(), h.GetSampleSum()/float64(h.GetSampleCount())
	must.Hold(t, n == 3 && mean >= 3600 && mean <= 3600+must.Patience.Seconds(), "%d events waited for %v s", n, mean)
}

func TestRun_goesOnAtOnceAfterAFullWave(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.BatchSize(100), enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 1_000)...)
	b.MustAppend(enginetest.Notes("c", 10)...)
	b.Start()
	b.MustWait("a", 1_000).MustWait("c", 10)
}

// The worker polls once an hour, so that only being woken makes it work.
func TestRun_isWokenByWhateverMakesARowDue(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.Polling(time.Hour), enginetest.MaxAttempts(2),
		func(o *enginetest.Options) { o.Retry.Base, o.Retry.Max = time.Hour, time.Hour })
	b.OnWork(b.Worker.Wake)
	b.Start()
	ctx := t.Context()

	b.MustAppend(enginetest.Opened("a", 1))
	b.MustWait("a", 1)

	b.MustAppend(enginetest.Spent("a", 2), enginetest.Noted("a"))
	must.Eventually(t, "the event fails", func() bool { return b.MustRow("a", 2).Row.Status == event.Failed })
	must.Get(b.RetryRow(ctx, enginetest.Operator, "a", 2)).Or(t)
	must.Eventually(t, "a retried event is tried at once", func() bool { return b.MustRow("a", 2).Row.Status == event.Dead })

	b.ExecProjections(`update accounts set balance = 100`)
	b.MustRequeue("a", 2)
	b.MustWait("a", 3)

	b.MustPause("a")
	b.MustAppend(enginetest.Noted("a"), enginetest.Noted("b"))
	b.MustWait("b", 1)
	must.Equal(t, must.Get(b.AppliedSeq(ctx, "a")).Or(t), 3, "where a paused campaign stands")
	b.MustResume("a")
	b.MustWait("a", 4).MustHaveApplied("a", 4)
}

func TestRun_isWokenByARepairedGap(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.Polling(time.Hour))
	var deaf atomic.Bool
	b.OnWork(func() {
		if !deaf.Load() {
			b.Worker.Wake()
		}
	})
	b.Start()
	b.MustAppend(enginetest.Notes("a", 2)...)
	b.MustWait("a", 2).MustPause("a")
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.LoseRows("a", "seq between 3 and 5")
	deaf.Store(true) // or the worker finds and repairs the gap before the operator does
	b.MustResume("a")
	deaf.Store(false)
	if repaired, err := b.ReplayCampaign(t.Context(), enginetest.Operator, "a"); err != nil || repaired.Inserted != 3 && repaired.Inserted != 0 { // the self-check may have been first
		t.Fatalf("repaired %+v (%v), want 3 rows inserted", repaired, err)
	}
	b.MustWait("a", 5).MustHaveApplied("a", 5)
}

func TestRun_retriesAFailedHeadWhenItIsDueAndNotAtTheNextPoll(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.Polling(time.Hour), func(o *enginetest.Options) { o.Retry = quickRetries })
	b.MustAppend(enginetest.Opened("a", 1), enginetest.Spent("a", 2), enginetest.Noted("a"))
	b.Start()
	must.Eventually(t, "the event fails", func() bool { return b.MustRow("a", 2).Row.AttemptCount > 0 })
	b.ExecProjections(`update accounts set balance = 100`)
	b.MustWait("a", 3).MustHaveApplied("a", 3)
}

func TestRun_takesOverWhenALeaseEndsAndNotAtTheNextPoll(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 3)...)
	died := outbox.Worker{ID: "died", Build: "test"}
	must.Get(b.Claim(t.Context(), died, outbox.ClaimLimits{Rows: 10, Lease: 200 * time.Millisecond})).Or(t)
	b.Start()
	b.MustWait("a", 3).MustHaveApplied("a", 3)
}

func TestRun_goesOnAtOnceAfterACrashOnTheSameHost(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.Polling(time.Hour))
	b.MustAppend(enginetest.Notes("a", 2)...)
	gone := storetest.Killed(t, "gone", time.Now())
	must.OK(t, b.Heartbeat(t.Context(), gone))
	uncollected := exec.Command("true")
	must.OK(t, uncollected.Start())
	t.Cleanup(func() { _ = uncollected.Wait() })
	gone.ID, gone.PID = "gone, not collected", uncollected.Process.Pid
	must.OK(t, b.Heartbeat(t.Context(), gone))
	must.Eventually(t, "a process has ended without being collected", func() bool {
		all, err := b.Processes(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(i campaign.InstanceState) bool { return i.Process != campaign.ProcessGone })
	})
	claims, err := b.Claim(t.Context(), outbox.Worker{ID: "gone"}, outbox.ClaimLimits{Rows: 10, Lease: time.Hour})
	must.Need(t, err == nil && len(claims) == 1, "claimed %v, %v", claims, err)
	must.Get(b.Runs.Start(t.Context(), operator.Command{}, replay.RunRequest{Kind: replay.RunVerify, All: true}, []campaign.ProjectionInfo{{Name: "p", Version: "v"}})).Or(t)
	held, ok, err := b.Runs.Claim(t.Context(), outbox.Worker{ID: "gone"}, map[string]string{"p": "v"}, time.Hour)
	must.Need(t, err == nil && ok, "claimed a run: %v, %v", ok, err)
	b.Start()
	b.MustWait("a", 2).MustHaveApplied("a", 2)
	run, err := b.Runs.Get(t.Context(), held.Run.ID)
	must.Hold(t, err == nil && (run.Lease == nil || run.Lease.Owner != "gone" || !run.Lease.ExpiresAt.After(time.Now())), "the run of the worker whose process is gone is still its own: %+v, %v", run, err)
	for _, i := range must.Get(b.Instances(t.Context())).Or(t) {
		here := !strings.HasPrefix(i.ID, "gone")
		must.Hold(t, (i.StoppedAt == nil) == here && (i.State(time.Now()) == campaign.InstanceCrashed) != here && i.Here == here, "instance %s is stopped at %v, and here: %v", i.ID, i.StoppedAt, i.Here)
	}
}

func TestRun_endsCleanlyUnderLoad(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.BatchSize(50))
	b.OnWork(b.Worker.Wake)
	const campaigns, each = 20, 20
	for i := range campaigns {
		b.MustAppend(enginetest.Notes(fmt.Sprint("c", i), each)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var appending sync.WaitGroup
	appending.Go(func() {
		for ctx.Err() == nil {
			b.MustAppend(enginetest.Notes("load", 5)...)
		}
	})
	stop := b.Start()
	b.MustWait("c0", 5)
	stop()
	cancel()
	appending.Wait()

	mustBeUntouched(t, b)
	instances, err := b.Instances(t.Context())
	must.Need(t, err == nil && len(instances) == 1, "instances %+v (%v), want one", instances, err)
	me := instances[0]
	must.Hold(t, me.ID == b.Worker.ID() && me.StoppedAt != nil && me.Applied != 0 && me.Failed+me.Fenced == 0 && me.Rates == (campaign.Throughput{}), "the instance says %+v", me)
	b.Sound()
	b.Drain()
	for i := range campaigns {
		b.MustHaveApplied(fmt.Sprint("c", i), each)
	}
}

func TestRun_writesNothingWhileItIsIdle(t *testing.T) {
	t.Parallel()
	for _, m := range campaign.Modes {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(m))
		b.MustAppend(enginetest.Notes("a", 5)...)
		if m == campaign.ModeInline {
			must.OK(t, b.Worker.ApplyInline(t.Context(), "a"))
		}
		for range 3 { // the work, and the heartbeats that report it
			takeSteps(t, b)
		}
		before := b.Modified("instances")
		for range 5 {
			takeSteps(t, b)
		}
		must.Equal(t, b.Modified("instances"), before, "an idle worker, "+string(m))
	}
}

func takeSteps(t *testing.T, b *enginetest.Engine) {
	for _, step := range append(b.Worker.TimedSteps(), b.Operations.Step) {
		for more := true; more; {
			var err error
			more, err = step(t.Context())
			must.Need(t, err == nil, "%v", err)
		}
	}
}

// countRetries counts how often the worker logs that it retries.
func countRetries() (*atomic.Int64, enginetest.Option) {
	n := new(atomic.Int64)
	return n, enginetest.Logging(func(message string) {
		if strings.Contains(message, "retrying") {
			n.Add(1)
		}
	})
}

// A fault at the start may end later, like one during work.
func TestRun_beginsOnceItCan(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"instances", "campaigns"} {
		refused, counting := countRetries()
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), counting)
		b.MustAppend(enginetest.Notes("a", 3)...)
		b.Exec(`alter table ` + away + ` rename to elsewhere`)
		b.Worker.Hurry()
		stop := b.Start()
		must.Eventually(t, "a start without "+away+" fails twice", func() bool { return refused.Load() >= 2 })
		b.Exec(`alter table elsewhere rename to ` + away)
		b.MustWait("a", 3)
		stop()
		b.MustHaveApplied("a", 3).Sound()
	}
}

func TestRun_leavesNothingWhereItNeverBegan(t *testing.T) {
	refused, counting := countRetries()
	b := enginetest.Own(t, []string{enginetest.Ledger}, counting)
	b.Exec(`alter table instances rename to elsewhere`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := storetest.Begin(func() error { return b.Worker.Run(ctx) })
	must.Eventually(t, "the start fails", func() bool { return refused.Load() > 0 })
	cancel()
	must.OK(t, <-ended)
	b.Exec(`alter table elsewhere rename to instances`)
	states, err := b.Instances(t.Context())
	must.Hold(t, err == nil && len(states) == 0, "instances are %+v, %v", states, err)
}

func serving(patterns ...string) enginetest.Option {
	return func(o *enginetest.Options) {
		scope, err := campaign.ParseScope(patterns)
		if err != nil {
			panic(err)
		}
		o.Worker.Campaigns = scope
	}
}

func explained(tb testing.TB, b *enginetest.Engine, id string) campaign.Explanation {
	summary := must.Get(b.Store.Summary(tb.Context())).Or(tb)
	return b.MustCampaign(id).Explain(time.Now(), summary.Surroundings())
}

func TestRun_appliesTheCampaignsThatItServesAndOthersSayWhyTheyWait(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, serving("trial-*"), enginetest.Polling(20*time.Millisecond))
	stop := b.Start()
	b.MustAppend(enginetest.Opened("trial-1", 1), enginetest.Opened("other", 1))
	must.Eventually(t, "the trial is applied", func() bool { return b.MustCampaign("trial-1").LagEvents() == 0 })
	must.Eventually(t, "the other says why", func() bool { return explained(t, b, "other").Blocker == campaign.BlockerUnserved })
	e := explained(t, b, "other")
	must.Hold(t, e.ClaimableAt == nil && strings.Contains(e.Why, "match trial-*"), "it says %+v", e)
	must.Equal(t, b.MustCampaign("other").LagEvents(), 1, "the other lags by")

	second := b.Beside(enginetest.Polling(20 * time.Millisecond))
	defer second.Start()()
	must.Eventually(t, "another instance takes it", func() bool { return b.MustCampaign("other").LagEvents() == 0 })
	stop()
	b.Sound()
}

func TestApplyInline_leavesCampaignsThatItDoesNotServe(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeInline), serving("trial"))
	must.OK(t, appendInline(t, b, enginetest.Opened("trial", 1)))
	err := appendInline(t, b, enginetest.Opened("other", 1))
	must.Hold(t, errors.Is(err, event.ErrNotYet) && strings.Contains(err.Error(), "match trial"), "what it does not serve: %v", err)
	b.MustStand("other", 1, event.Pending, 0)
}

func TestWorker_appliesWhatLostItsRows(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		running bool
		logs    string
	}{
		"before it starts": {false, "level=INFO msg=reconciled campaigns=1 named=[c] rows_inserted=5"},
		"while it runs":    {true, `level=WARN msg="the self-check repaired a campaign" campaign=c counts_corrected=true`},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			b := enginetest.Own(t, []string{enginetest.Ledger}, func(o *enginetest.Options) { o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			b.Worker.Hurry()
			stop := func() {}
			applied := func(campaign string, seq int64) func() bool {
				return func() bool { return b.MustCampaign(campaign).AppliedSeq == seq }
			}
			lose := func(id string) {
				b.MustAppend(enginetest.Noted(id))
				b.MustPause(id)
				b.MustAppend(enginetest.Notes(id, 4)...)
				b.Exec(`delete from projection_apply_outbox where campaign_id = '` + id + `'`)
				b.MustResume(id)
			}
			if scene.running { // once it has repaired one behind it, the first reconcile has passed the place of c
				stop = b.Start()
				lose("d")
				must.Eventually(t, "the worker works", applied("d", 5))
			}
			lose("c")
			if !scene.running {
				stop = b.Start()
			}
			must.Eventually(t, "all events are applied", applied("c", 5))
			stop()
			must.Hold(t, strings.Contains(log.String(), scene.logs), "logged\n%s\nwant %q", log.String(), scene.logs)
		})
	}
}

func rehearse(tb testing.TB, b *enginetest.Engine) { must.Get(b.Worker.Rehearse(tb.Context())).Or(tb) }

// rehearsals reads the recorded rehearsals by campaign id.
func rehearsals(tb testing.TB, b *enginetest.Engine) map[string]outbox.Rehearsal {
	all := make(map[string]outbox.Rehearsal)
	rows := must.Get(b.JournalDB.QueryContext(tb.Context(), `select campaign_id, rehearsed_seq, coalesce(failed_seq, 0), error, fingerprint from rehearsals`)).Or(tb)
	defer rows.Close()
	for rows.Next() {
		var r outbox.Rehearsal
		must.OK(tb, rows.Scan(&r.CampaignID, &r.RehearsedSeq, &r.FailedSeq, &r.Error, &r.Fingerprint))
		all[r.CampaignID] = r
	}
	must.OK(tb, rows.Err())
	return all
}

// mustHaveRehearsed compares the recorded rehearsals; of errors only whether there is one.
func mustHaveRehearsed(tb testing.TB, b *enginetest.Engine, want ...outbox.Rehearsal) {
	got := rehearsals(tb, b)
	expected := make(map[string]outbox.Rehearsal)
	for _, r := range want {
		expected[r.CampaignID] = r
		if g := got[r.CampaignID]; (g.Error != "") == (g.FailedSeq != 0) && g.Fingerprint == event.Fingerprint(g.Error) {
			g.Error, g.Fingerprint = "", ""
			got[r.CampaignID] = g
		}
	}
	must.Equal(tb, got, expected, "rehearsals")
}

// It leaves no cursor of a pause either, and is not repeated where nothing has changed.
func TestRehearse_recordsWhatWouldHappenAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for rows, accounts := range map[int]string{2: enginetest.Accounts, 1000: enginetest.LenientAccounts} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally, accounts), enginetest.InMode(campaign.ModeShadow), enginetest.BatchSize(rows),
			enginetest.MaxAttempts(1), enginetest.At(storetest.NewClock()))
		b.MustAppend(enginetest.Notes("a", 5)...)
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 3), enginetest.Noted("b"), enginetest.Spent("b", 100), enginetest.Noted("b"))
		b.MustAppend(enginetest.Notes("c", 2)...)
		b.PauseProjection("tally", "")
		before := b.Dump("rehearsals")
		rehearse(t, b)

		must.Equal(t, b.Dump("rehearsals"), before, "a rehearsal")
		mustHaveRehearsed(t, b, outbox.Rehearsal{CampaignID: "a", RehearsedSeq: 5},
			outbox.Rehearsal{CampaignID: "b", RehearsedSeq: 3, FailedSeq: 4}, outbox.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
		for seq, says := range map[int64]string{3: "", 4: checkFailed(b)} {
			r := b.MustRow("b", seq).Rehearsal
			must.Hold(t, r != nil && !r.At.IsZero() && strings.Contains(r.Error, says) && (r.Error == "") == (says == ""), "the row of event %d says of its rehearsal %+v, want %q", seq, r, says)
		}
		must.Hold(t, b.MustRow("b", 5).Rehearsal == nil, "the row behind the one that would fail says of a rehearsal")
		mustBeUntouched(t, b)
		b.Sound()
		before = b.Dump()
		b.Clock.Advance(time.Hour)
		rehearse(t, b)
		must.Equal(t, b.Dump(), before, "rehearsing the same again")
		b.MustAppend(enginetest.Noted("c"))
		rehearse(t, b)
		must.Equal(t, rehearsals(t, b)["c"].RehearsedSeq, 3, "after another event it is rehearsed up to")
	}
}

func TestRehearse_beginsAtTheWatermark(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 3)).MustAppend(enginetest.Spent("a", 7), enginetest.Spent("a", 1))
	rehearse(t, b.Beside(enginetest.InMode(campaign.ModeShadow)))

	mustHaveRehearsed(t, b, outbox.Rehearsal{CampaignID: "a", RehearsedSeq: 3, FailedSeq: 4})
	b.MustHaveApplied("a", 2).MustHaveBalances("a 7").Sound()
}

func TestRehearse_recordsHangsAndGoesOn(t *testing.T) {
	b := ownForever(t, enginetest.InMode(campaign.ModeShadow))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) { return "", errors.New("not today") })
	b.MustAppend(enginetest.Noted("a"), enginetest.EventOf("a", "endless", `{}`), enginetest.Noted("a"))
	b.MustAppend(enginetest.Noted("b"), enginetest.Probed("b", t.Name()))
	b.MustAppend(enginetest.Notes("c", 2)...)
	before := b.Dump("rehearsals")
	rehearse(t, b)

	must.Equal(t, b.Dump("rehearsals"), before, "a rehearsal")
	mustHaveRehearsed(t, b, outbox.Rehearsal{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2},
		outbox.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2}, outbox.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
	all := rehearsals(t, b)
	must.Hold(t, strings.Contains(all["a"].Error, "cut off") && strings.Contains(all["b"].Error, "not today"), "the rehearsals say %q and %q", all["a"].Error, all["b"].Error)
}

func TestRun_rehearsesInShadowModeAndAppliesNothing(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.InMode(campaign.ModeShadow), enginetest.Polling(time.Hour))
	b.OnWork(b.Worker.Wake)
	b.MustAppend(enginetest.Notes("a", 3)...)
	before := b.Dump("rehearsals", "instances")
	stop := b.Start()
	rehearsed := func(seq int64) func() bool { return func() bool { return rehearsals(t, b)["a"].RehearsedSeq == seq } }
	must.Eventually(t, "the journal is rehearsed", rehearsed(3))
	must.Equal(t, b.Dump("rehearsals", "instances"), before, "a run in shadow mode")
	b.MustAppend(enginetest.Notes("a", 2)...)
	must.Eventually(t, "an append wakes the rehearsal", rehearsed(5))
	stop()
	mustBeUntouched(t, b)
	b.MustHaveApplied("a", 0)
}

func TestStart_appliesBesideTheFirstReconcile(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	b.Worker.Hurry()
	var goesOn atomic.Bool
	works := make(chan struct{})
	b.OnReconcile(func(context.Context) error {
		if !goesOn.Load() {
			return errors.New("the disk is slow")
		}
		return nil
	})
	b.Worker.Beside = append(b.Worker.Beside, func(context.Context) { close(works) })
	b.MustAppend(enginetest.Noted("c"))
	b.Start()
	must.Eventually(t, "the event is applied, and it is told what waits", func() bool {
		text, stalled := b.Worker.Trouble()
		return b.MustCampaign("c").AppliedSeq == 1 && !stalled && strings.HasSuffix(text, "runs and operations wait for the first reconcile, which fails: reconcile: the disk is slow")
	})
	select {
	case <-works:
		t.Error("other work began before the reconcile ended")
	default:
	}
	goesOn.Store(true)
	must.Receive(t, works, "other work never begins")
	text, _ := b.Worker.Trouble()
	must.Equal(t, text, "", "trouble")
}
