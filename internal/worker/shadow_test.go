package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func rehearse(tb testing.TB, b *enginetest.Engine) {
	must.Get(b.Worker.Rehearse(tb.Context())).Or(tb)
}

// rehearsals reads the recorded rehearsals by campaign id.
func rehearsals(tb testing.TB, b *enginetest.Engine) map[string]store.Rehearsal {
	tb.Helper()
	all := make(map[string]store.Rehearsal)
	rows, err := b.JournalDB.QueryContext(tb.Context(), `select campaign_id, rehearsed_seq, coalesce(failed_seq, 0), error, fingerprint from rehearsals`)
	for err == nil && rows.Next() {
		var r store.Rehearsal
		err = rows.Scan(&r.CampaignID, &r.RehearsedSeq, &r.FailedSeq, &r.Error, &r.Fingerprint)
		all[r.CampaignID] = r
	}
	if err != nil || rows.Err() != nil {
		tb.Fatal(err, rows.Err())
	}
	return all
}

// mustHaveRehearsed compares the recorded rehearsals; of errors only whether there is one.
func mustHaveRehearsed(tb testing.TB, b *enginetest.Engine, want ...store.Rehearsal) {
	got := rehearsals(tb, b)
	expected := make(map[string]store.Rehearsal)
	for _, r := range want {
		expected[r.CampaignID] = r
		if g := got[r.CampaignID]; (g.Error != "") == (g.FailedSeq != 0) && g.Fingerprint == outbox.Fingerprint(g.Error) {
			g.Error, g.Fingerprint = "", ""
			got[r.CampaignID] = g
		}
	}
	must.Equal(tb, got, expected, "rehearsals")
}

func TestRehearse_recordsWhatWouldHappenAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{2, 1000} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.InMode(outbox.ModeShadow), enginetest.BatchSize(rows))
		b.MustAppend(enginetest.Notes("a", 5)...)
		b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 3), enginetest.Noted("b"), enginetest.Spent("b", 100), enginetest.Noted("b"))
		b.MustAppend(enginetest.Notes("c", 2)...)
		before := b.Dump("rehearsals")
		rehearse(t, b)

		must.Equal(t, b.Dump("rehearsals"), before, "a rehearsal")
		mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 5},
			store.Rehearsal{CampaignID: "b", RehearsedSeq: 3, FailedSeq: 4}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
		for seq, says := range map[int64]string{3: "", 4: checkFailed(b)} {
			r := b.MustRow("b", seq).Rehearsal
			must.Hold(t, r != nil && !r.At.IsZero() && strings.Contains(r.Error, says) && (r.Error == "") == (says == ""), "the row of event %d says of its rehearsal %+v, want %q", seq, r, says)
		}
		r := b.MustRow("b", 5).Rehearsal
		must.Hold(t, r == nil, "the row behind the one that would fail says of a rehearsal %+v", r)
		mustBeUntouched(t, b)
		b.Sound()
	}
}

func TestRehearse_recordsWhatWouldQuarantine(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.LenientAccounts), enginetest.InMode(outbox.ModeShadow), enginetest.MaxAttempts(1))
	b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b"))
	rehearse(t, b)
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2})
	mustBeUntouched(t, b)
}

func TestRehearse_beginsAtTheWatermark(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 3))
	b.MustAppend(enginetest.Spent("a", 7), enginetest.Spent("a", 1))
	rehearse(t, b.Beside(enginetest.InMode(outbox.ModeShadow)))

	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 3, FailedSeq: 4})
	b.MustHaveApplied("a", 2)
	b.MustHaveBalances("a 7")
	b.Sound()
}

func TestRehearse_doesNotRepeatWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.InMode(outbox.ModeShadow), enginetest.At(now))
	b.MustAppend(enginetest.Noted("a"))
	b.MustAppend(enginetest.Opened("b", 1), enginetest.Spent("b", 2))
	rehearse(t, b)
	before := b.Dump()
	now.Advance(time.Hour)
	rehearse(t, b)
	must.Equal(t, b.Dump(), before, "rehearsing the same again")

	b.MustAppend(enginetest.Noted("a"))
	rehearse(t, b)
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2}, store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2})
}

func TestRehearse_recordsHangsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := openForever(t, enginetest.InMode(outbox.ModeShadow))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) { return "", errors.New("not today") })
	b.MustAppend(enginetest.Noted("a"), enginetest.EventOf("a", "endless", `{}`), enginetest.Noted("a"))
	b.MustAppend(enginetest.Noted("b"), enginetest.Probed("b", t.Name()))
	b.MustAppend(enginetest.Notes("c", 2)...)
	before := b.Dump("rehearsals")
	rehearse(t, b)

	must.Equal(t, b.Dump("rehearsals"), before, "a rehearsal")
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2},
		store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
	all := rehearsals(t, b)
	if !strings.Contains(all["a"].Error, "cut off") || !strings.Contains(all["b"].Error, "not today") {
		t.Errorf("the rehearsals say %q and %q", all["a"].Error, all["b"].Error)
	}
}

func TestRun_rehearsesInShadowModeAndAppliesNothing(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(outbox.ModeShadow), enginetest.Polling(time.Hour))
	b.OnWork(b.Worker.Wake)
	b.MustAppend(enginetest.Notes("a", 3)...)
	before := b.Dump("rehearsals", "instances")
	stop := b.Start()
	rehearsed := func(seq int64) func() bool {
		return func() bool { return rehearsals(t, b)["a"].RehearsedSeq == seq }
	}
	storetest.Eventually(t, "the journal is rehearsed", rehearsed(3))
	must.Equal(t, b.Dump("rehearsals", "instances"), before, "a run in shadow mode")
	b.MustAppend(enginetest.Notes("a", 2)...)
	storetest.Eventually(t, "an append wakes the rehearsal", rehearsed(5))
	stop()
	mustBeUntouched(t, b)
	b.MustHaveApplied("a", 0)
}
