package worker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPass_setsAQuarantiningProjectionAsideAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(most))
		b.MustAppend(enginetest.Opened("a", 10), enginetest.Spent("a", 1), enginetest.Spent("a", 1))
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 1), enginetest.Spent("b", 100), enginetest.Noted("b"), enginetest.Spent("b", 1))
		b.Clock.Advance(time.Second)
		for n := 1; n < most; n++ {
			b.Pass().MustStand("b", 3, event.Failed, n).MustHaveApplied("b", 2)
			must.Equal(t, b.OpenFailures(), []string{fmt.Sprint("b accounts 3 ", n)}, "the failures after attempt", n)
			b.Clock.Advance(10 * time.Minute)
		}
		b.Drain()

		b.MustHaveApplied("a", 3).MustHaveApplied("b", 5)
		must.Equal(t, b.OpenFailures(), []string{fmt.Sprint("b accounts 3 ", most)}, "open failures")
		b.MustHaveCursors("b accounts 2 quarantined").MustHaveBalances("a 8", "b 9").Sound()
		mustHaveRecorded(t, b, most)
	}
}

func TestPass_holdsTheCampaignWhenABlockingProjectionFailsBesideAQuarantinedOne(t *testing.T) {
	strict := strings.ReplaceAll(enginetest.Accounts, "accounts", "vaults")
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.LenientAccounts, strict}, enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
	b.Clock.Advance(time.Hour)
	b.Drain()

	b.MustStand("b", 2, event.Dead, 1)
	text := b.MustRow("b", 2).Row.LastError
	must.Hold(t, strings.HasPrefix(text, "projection vaults"), "the row died of %q, want of the blocking projection", text)
	b.MustHaveApplied("b", 1)

	b.ExecProjections(`update vaults set balance = 1000`)
	b.MustRequeue("b", 2)
	b.Drain().MustHaveApplied("b", 3).MustHaveBalances("b 10").Sound()
}

// Attempts of one projection are not those of another that fails at the same event, before it or after.
func TestPass_countsTheAttemptsOfEachProjectionForItself(t *testing.T) {
	t.Parallel()
	const most = 4
	vaults := strings.ReplaceAll(enginetest.Accounts, "accounts", "vaults")
	brief := strings.Replace(enginetest.LenientAccounts, "-- tables", "-- max-attempts: 2\n-- tables", 1)
	now := storetest.NewClock()
	start := func(projections ...string) (b *enginetest.Engine, fail func(times int)) {
		b = enginetest.Open(t, enginetest.Define(t, append(projections, enginetest.Ledger)...), enginetest.At(now), enginetest.MaxAttempts(most))
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
		return b, func(times int) {
			for range times {
				b.Pass()
				now.Advance(10 * time.Minute)
			}
		}
	}

	b, fail := start(brief, vaults)
	fail(most) // the second attempt, the last of accounts, is the first of vaults
	b.MustStand("b", 2, event.Failed, most)
	fail(1)
	b.MustStand("b", 2, event.Dead, most+1)
	all, err := b.ErrorGroups(t.Context())
	must.Need(t, err == nil && len(all.Groups) == 1, "%+v, %v", all, err)
	g := all.Groups[0]
	must.Hold(t, g.Attempts == most && g.Alike == most && len(g.Tried) == 1 && g.Tried[0].Projection == "vaults" && g.Tried[0].Rows == 1, "the error has %d attempts, %d of them alike, by %+v, want the %d of vaults", g.Attempts, g.Alike, g.Tried, most)
	b.MustRequeue("b", 2)
	fail(most - 1)
	must.Equal(t, b.MustRow("b", 2).Row.Status, event.Failed, "the status of the requeued row")

	b, fail = start(vaults, enginetest.LenientAccounts)
	fail(most - 1)
	b.ExecProjections(`update vaults set balance = 1000`)
	fail(most - 1)
	b.MustStand("b", 2, event.Failed, 2*(most-1))
	fail(1)
	b.MustHaveApplied("b", 3).Sound()
}

// mustHaveRecorded asserts that the charts count for accounts what was applied to it, and for all every
// attempt, and that the event's history has them all.
func mustHaveRecorded(t *testing.T, b *enginetest.Engine, attempts int) {
	must.Equal(t, b.Worker.Counted().Failed, int64(attempts), "failed attempts are counted")
	must.OK(t, b.FlushCounts(t.Context()))
	got := storetest.Column[string](t, b.JournalDB, `select concat_ws(' ', kind, label, sum(value)) from series_samples where step = 60 and kind like 'projection%' group by kind, label order by kind, label`)
	must.Equal(t, got, []string{"projection accounts 5", "projection ledger 8", fmt.Sprint("projection_failed accounts ", attempts)}, "charts have")
	h := must.Get(b.EventHistory(t.Context(), "b", 3)).Or(t)
	kinds := make([]campaign.StepKind, len(h.Steps))
	for i, s := range h.Steps {
		kinds[i] = s.Kind
	}
	want := append([]campaign.StepKind{campaign.StepAppended}, slices.Repeat([]campaign.StepKind{campaign.StepFailed}, attempts-1)...)
	want = append(want, campaign.StepQuarantined, campaign.StepApplied)
	must.Hold(t, slices.Equal(kinds, want), "the event's history is %q, want %q", kinds, want)
	last := h.Steps[attempts].Attempt
	must.Hold(t, last != nil && last.Attempt == attempts && last.Projection == "accounts", "the last attempt is %+v, want number %d, of accounts", last, attempts)
}

func TestPass_countsNothingAsAppliedToAPausedProjection(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts})
	b.Feed(enginetest.Opened("a", 10)).PauseProjection("accounts", "").Feed(enginetest.Spent("a", 1), enginetest.Opened("b", 1))
	must.OK(t, b.FlushCounts(t.Context()))
	got := storetest.Column[string](t, b.JournalDB, `select concat_ws(' ', label, sum(value)) from series_samples where step = 60 and kind = 'projection' group by label order by label`)
	must.Equal(t, got, []string{"accounts 1", "ledger 3"}, "the chart")
}

// damagePage overwrites a page of a closed SQLite file.
func damagePage(t *testing.T, path string, number int) {
	const size = 4096
	f := must.Get(os.OpenFile(path, os.O_WRONLY, 0)).Or(t)
	defer f.Close()
	must.Get(f.WriteAt(make([]byte, size), int64(number-1)*size)).Or(t)
}

// reopened is the engine after a change to its closed files.
func reopened(t *testing.T, b *enginetest.Engine, do func(journal, projections string), options ...enginetest.Option) *enginetest.Engine {
	for _, db := range []interface{ Close() error }{b.JournalDB, b.ProjectionsDB, b.Store} {
		must.OK(t, db.Close())
	}
	path := func(url string) string { return filepath.Clean(strings.TrimPrefix(url, "sqlite:")) }
	for _, url := range []string{b.Pair.Journal, b.Pair.Projections} {
		_, err := os.Stat(path(url) + "-wal")
		must.Need(t, err != nil, "%s has a log that was not written back", path(url))
	}
	do(path(b.Pair.Journal), path(b.Pair.Projections))
	return enginetest.OpenPair(t, b.Pair, b.Sources, options...)
}

// An unreadable page blocks only the campaign whose event it has.
func TestSQLitePass_unreadableEventFailsAlone(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.At(storetest.NewClock()))
	b.MustAppend(enginetest.Notes("a", 3)...)
	for _, text := range []string{"readable", "unreadable", "readable"} { // each on its own page
		b.MustAppend(enginetest.EventOf("culprit", "noted", fmt.Sprintf(`{"text":"%s %s"}`, text, strings.Repeat("x", 3300))))
	}
	b.MustAppend(enginetest.Notes("z", 3)...)
	b = reopened(t, b, func(journal, _ string) {
		data := must.Get(os.ReadFile(journal)).Or(t)
		damagePage(t, journal, bytes.Index(data, []byte("unreadable xxx"))/4096+1)
	}, enginetest.At(b.Clock), enginetest.MaxAttempts(2))

	b.Pass().MustHaveAppliedEach("a z", 3).MustHaveApplied("culprit", 0)
	r := b.MustRow("culprit", 1).Row
	must.Hold(t, r.Status == event.Failed && r.AttemptCount == 1 && strings.Contains(r.LastError, "malformed"), "the head before the unreadable event is %+v", r)
	b.Clock.Advance(time.Minute)
	b.Pass()
	must.Equal(t, b.MustRow("culprit", 1).Row.Status, event.Dead, "after its last attempt it")
}

// Unreadable rows cannot be claimed either: their campaign is excluded for a while, and the worker reports it.
func TestSQLitePass_unreadableRowsHoldUpTheirCampaignAlone(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.MustAppend(enginetest.Notes("campaign-of-unreadable-rows", 400)...)
	b.MustAppend(enginetest.Notes("z", 3)...)
	page := storetest.Column[int](t, b.JournalDB, `select pageno from dbstat where name = 'projection_apply_outbox' and pagetype = 'leaf' order by path limit 1 offset 3`)[0]
	b = reopened(t, b, func(journal, _ string) { damagePage(t, journal, page) })

	for range 3 {
		b.Pass()
	}
	b.MustHaveAppliedEach("a z", 3)
	text, stalled := b.Worker.Trouble()
	must.Hold(t, !stalled && strings.Contains(text, `campaign "campaign-of-unreadable-rows"`) && strings.Contains(text, "malformed"), "the worker tells of %q, stalled: %v", text, stalled)
	b.Pass(enginetest.Notes("later", 2)...).MustHaveApplied("later", 2)
}

// An unreadable campaign row blocks the campaigns on its page, also after a restart; check lists them and the page.
func TestSQLiteRun_unreadableCampaignsHoldUpNobodyElse(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	for i := range 120 {
		b.MustAppend(enginetest.Notes(fmt.Sprintf("c-%03d", i), 2)...)
	}
	leaf := func(table string) int {
		return storetest.Column[int](t, b.JournalDB, `select pageno from dbstat where name = $1 and pagetype = 'leaf' order by path limit 1`, table)[0]
	}
	row, queued := leaf("campaigns"), leaf("projection_apply_outbox")
	b = reopened(t, b, func(journal, _ string) { damagePage(t, journal, row); damagePage(t, journal, queued) })
	report := must.Get(b.Check(t.Context(), func(int64, int64) {})).Or(t)
	held, pages := map[string]bool{}, 0
	for _, v := range report.Violations {
		switch {
		case v.Invariant == "readable" && v.CampaignID != "":
			held[v.CampaignID] = true
		case v.Invariant == "readable" && strings.Contains(v.Detail, fmt.Sprintf("page %d:", row)), v.Invariant == "readable" && strings.Contains(v.Detail, fmt.Sprintf("page %d:", queued)):
			pages++
		}
	}
	must.Need(t, pages == 2 && len(held) >= 3 && len(held) <= 60 && report.Checked["campaigns"] >= 60, "check found %d pages and %d campaigns and looked at %d; want both pages, some campaigns and most: %+v", pages, len(held), report.Checked["campaigns"], report.Violations)

	b.Worker.Hurry()
	b.Start()
	must.Eventually(t, "all others are applied", func() bool {
		done := storetest.Column[string](t, b.ProjectionsDB, `select campaign_id from projection_watermarks where applied_seq = 2`)
		for i := range 120 {
			if id := fmt.Sprintf("c-%03d", i); !held[id] && !slices.Contains(done, id) {
				return false
			}
		}
		return true
	})
	text, stalled := b.Worker.Trouble()
	must.Hold(t, !stalled && strings.Contains(text, "malformed"), "the worker tells of %q, stalled: %v", text, stalled)
}

// A statement that rolls back the transaction takes the events of others with it: it counts as a failed event, and the others are applied.
func TestSQLitePass_eventThatRollsTheTransactionBackFailsAlone(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.At(storetest.NewClock()))
	b.ExecProjections(`create trigger rolls_back before insert on accounts begin select raise(rollback, 'rolled back'); end`)
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.MustAppend(enginetest.Noted("culprit"), enginetest.Opened("culprit", 10), enginetest.Noted("culprit"))
	b.Pass(enginetest.Notes("z", 3)...)
	b.MustHaveAppliedEach("a z", 3).MustHaveApplied("culprit", 1).MustStand("culprit", 2, event.Failed, 1)
	r := b.MustRow("culprit", 2).Row
	must.Hold(t, strings.Contains(r.LastError, "projection accounts") && strings.Contains(r.LastError, "rolled back"), "its error does not say where and why: %s", r.LastError)
	b.Sound()
}

// An event that exceeded its deadline is tried alone from then on, after the others of its wave are applied and settled.
func TestSQLitePass_slowEventIsTriedAfterTheOthers(t *testing.T) {
	now := storetest.NewClock()
	var b *enginetest.Engine
	var left []int64 // unapplied rows of the quick campaign at each apply
	looking := func(o *enginetest.Options) {
		o.Now = func() time.Time {
			if enginetest.CalledFrom(whenApplying) && b != nil {
				left = append(left, storetest.Column[int64](t, b.JournalDB, `select count(*) from projection_apply_outbox where campaign_id = 'quick'`)...)
			}
			return now.Now()
		}
	}
	b = ownForever(t, looking)
	b.MustAppend(enginetest.EventOf("slow", "endless", `{}`))
	b.Pass(enginetest.EventOf("slow too", "endless", `{}`))
	b.MustStand("slow", 1, event.Failed, 1).MustStand("slow too", 1, event.Failed, 1)

	now.Advance(time.Minute)
	b.MustAppend(enginetest.Notes("quick", 3)...)
	left = nil
	b.Pass()
	must.Hold(t, len(left) >= 2 && left[0] == 3 && left[1] == 0, "the quick campaign had %v rows as waves were applied, want 3 and then none", left)
	b.MustHaveApplied("quick", 3).MustStand("slow", 1, event.Failed, 2).MustStand("slow too", 1, event.Pending, 1)
	b.Pass().MustStand("slow too", 1, event.Failed, 2).Sound()
}

// The instances table is unreadable: events are still applied.
func TestSQLiteRun_unreadableInstancesKeepNothingFromBeingApplied(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	b.Start()()
	b.MustAppend(enginetest.Notes("a", 3)...)
	page := storetest.Column[int](t, b.JournalDB, `select rootpage from sqlite_master where name = 'instances'`)[0]
	b = reopened(t, b, func(journal, _ string) { damagePage(t, journal, page) })
	b.Start()
	must.Eventually(t, "everything is applied", func() bool {
		return slices.Equal(storetest.Column[int](t, b.ProjectionsDB, `select applied_seq from projection_watermarks where campaign_id = 'a'`), []int{3})
	})
}
