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

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// damagePage overwrites a page of a closed SQLite file.
func damagePage(t *testing.T, path string, number int) {
	const size = 4096
	f := must.Get(os.OpenFile(path, os.O_WRONLY, 0)).Or(t)
	defer f.Close()
	must.Get(f.WriteAt(make([]byte, size), int64(number-1)*size)).Or(t)
}

// reopened is the engine after a change to its closed files.
func reopened(t *testing.T, b *enginetest.Engine, do func(journal, projections string), options ...enginetest.Option) *enginetest.Engine {
	t.Helper()
	for _, db := range []interface{ Close() error }{b.JournalDB, b.ProjectionsDB, b.Store} {
		must.OK(t, db.Close())
	}
	path := func(url string) string { return filepath.Clean(strings.TrimPrefix(url, "sqlite:")) }
	for _, url := range []string{b.Pair.Journal, b.Pair.Projections} {
		if _, err := os.Stat(path(url) + "-wal"); err == nil {
			t.Fatalf("%s has a log that was not written back", path(url))
		}
	}
	do(path(b.Pair.Journal), path(b.Pair.Projections))
	return enginetest.OpenPair(t, b.Pair, b.Sources, options...)
}

// An unreadable page blocks only the campaign whose event it has.
func TestSQLitePass_unreadableEventFailsAlone(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(now))
	b.MustAppend(enginetest.Notes("a", 3)...)
	for _, text := range []string{"readable", "unreadable", "readable"} { // each on its own page
		b.MustAppend(enginetest.EventOf("culprit", "noted", fmt.Sprintf(`{"text":"%s %s"}`, text, strings.Repeat("x", 3300))))
	}
	b.MustAppend(enginetest.Notes("z", 3)...)
	b = reopened(t, b, func(journal, _ string) {
		data := must.Get(os.ReadFile(journal)).Or(t)
		damagePage(t, journal, bytes.Index(data, []byte("unreadable xxx"))/4096+1)
	}, enginetest.At(now), enginetest.MaxAttempts(2))

	b.MustPass()
	b.MustHaveApplied("a", 3)
	b.MustHaveApplied("z", 3)
	b.MustHaveApplied("culprit", 0)
	r := b.MustRow("culprit", 1).Row
	must.Hold(t, r.Status == outbox.Failed && r.AttemptCount == 1 && strings.Contains(r.LastError, "malformed"), "the head before the unreadable event is %+v", r)
	now.Advance(time.Minute)
	b.MustPass()
	must.Equal(t, b.MustRow("culprit", 1).Row.Status, outbox.Dead, "after its last attempt it")
}

// Unreadable rows cannot be claimed either: their campaign is excluded for a while, and the worker reports it.
func TestSQLitePass_unreadableRowsHoldUpTheirCampaignAlone(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.MustAppend(enginetest.Notes("campaign-of-unreadable-rows", 400)...)
	b.MustAppend(enginetest.Notes("z", 3)...)
	page := storetest.Column[int](t, b.JournalDB, `select pageno from dbstat where name = 'projection_apply_outbox' and pagetype = 'leaf' order by path limit 1 offset 3`)[0]
	b = reopened(t, b, func(journal, _ string) { damagePage(t, journal, page) })

	for range 3 {
		b.MustPass()
	}
	b.MustHaveApplied("a", 3)
	b.MustHaveApplied("z", 3)
	text, stalled := b.Worker.Trouble()
	must.Hold(t, !stalled && strings.Contains(text, `campaign "campaign-of-unreadable-rows"`) && strings.Contains(text, "malformed"), "the worker tells of %q, stalled: %v", text, stalled)
	b.MustAppend(enginetest.Notes("later", 2)...)
	b.MustPass()
	b.MustHaveApplied("later", 2)
}

// An unreadable campaign row blocks the campaigns on its page, also after a restart; check lists them and the page.
func TestSQLiteRun_unreadableCampaignsHoldUpNobodyElse(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	for i := range 120 {
		b.MustAppend(enginetest.Notes(fmt.Sprintf("c-%03d", i), 2)...)
	}
	leaf := func(table string) int {
		return storetest.Column[int](t, b.JournalDB, `select pageno from dbstat where name = $1 and pagetype = 'leaf' order by path limit 1`, table)[0]
	}
	row, queued := leaf("campaigns"), leaf("projection_apply_outbox")
	b = reopened(t, b, func(journal, _ string) {
		damagePage(t, journal, row)
		damagePage(t, journal, queued)
	})
	report := must.Get(b.Check(t.Context(), func(int64, int64) {})).Or(t)
	held := map[string]bool{}
	pages := 0
	for _, v := range report.Violations {
		switch {
		case v.Invariant == "readable" && v.CampaignID != "":
			held[v.CampaignID] = true
		case v.Invariant == "readable" && strings.Contains(v.Detail, fmt.Sprintf("page %d:", row)), v.Invariant == "readable" && strings.Contains(v.Detail, fmt.Sprintf("page %d:", queued)):
			pages++
		}
	}
	if pages != 2 || len(held) < 3 || len(held) > 60 || report.Checked["campaigns"] < 60 {
		t.Fatalf("check found %d pages and %d campaigns and looked at %d; want both pages, some campaigns and most: %+v", pages, len(held), report.Checked["campaigns"], report.Violations)
	}

	b.Worker.Hurry()
	b.Start()
	storetest.Eventually(t, "all others are applied", func() bool {
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
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.At(now))
	b.ExecProjections(`create trigger rolls_back before insert on accounts begin select raise(rollback, 'rolled back'); end`)
	b.MustAppend(enginetest.Notes("a", 3)...)
	b.MustAppend(enginetest.Noted("culprit"), enginetest.Opened("culprit", 10), enginetest.Noted("culprit"))
	b.MustAppend(enginetest.Notes("z", 3)...)
	b.MustPass()
	b.MustHaveApplied("a", 3)
	b.MustHaveApplied("z", 3)
	b.MustHaveApplied("culprit", 1)
	b.MustStand("culprit", 2, outbox.Failed, 1)
	r := b.MustRow("culprit", 2).Row
	must.Hold(t, strings.Contains(r.LastError, "projection accounts") && strings.Contains(r.LastError, "rolled back"), "its error does not say where and why: %s", r.LastError)
	b.Sound()
}

// An event that exceeded its deadline is tried alone from then on, after the others of its wave are applied and settled.
func TestSQLitePass_slowEventIsTriedAfterTheOthers(t *testing.T) {
	t.Parallel()
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
	b = openForever(t, looking)
	b.MustAppend(enginetest.EventOf("slow", "endless", `{}`))
	b.MustAppend(enginetest.EventOf("slow too", "endless", `{}`))
	b.MustPass()
	b.MustStand("slow", 1, outbox.Failed, 1)
	b.MustStand("slow too", 1, outbox.Failed, 1)

	now.Advance(time.Minute)
	b.MustAppend(enginetest.Notes("quick", 3)...)
	left = nil
	b.MustPass()
	must.Hold(t, len(left) >= 2 && left[0] == 3 && left[1] == 0, "the quick campaign had %v rows as waves were applied, want 3 and then none", left)
	b.MustHaveApplied("quick", 3)
	b.MustStand("slow", 1, outbox.Failed, 2)
	b.MustStand("slow too", 1, outbox.Pending, 1)
	b.MustPass()
	b.MustStand("slow too", 1, outbox.Failed, 2)
	b.Sound()
}

// The instances table is unreadable: events are still applied.
func TestSQLiteRun_unreadableInstancesKeepNothingFromBeingApplied(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger))
	b.Start()()
	b.MustAppend(enginetest.Notes("a", 3)...)
	page := storetest.Column[int](t, b.JournalDB, `select rootpage from sqlite_master where name = 'instances'`)[0]
	b = reopened(t, b, func(journal, _ string) { damagePage(t, journal, page) })
	b.Start()
	storetest.Eventually(t, "everything is applied", func() bool {
		return slices.Equal(storetest.Column[int](t, b.ProjectionsDB, `select applied_seq from projection_watermarks where campaign_id = 'a'`), []int{3})
	})
}
