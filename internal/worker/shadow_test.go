package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/enginetest"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
	"outboxweb/internal/storetest"
)

func rehearse(tb testing.TB, b *enginetest.Engine) {
	tb.Helper()
	if _, err := b.Worker.Rehearse(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// mustHaveRehearsed compares what was recorded, leaving out the texts of
// errors: whether there is one has to agree.
func mustHaveRehearsed(tb testing.TB, b *enginetest.Engine, want ...store.Rehearsal) {
	tb.Helper()
	got, err := b.Rehearsals(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	expected := make(map[string]store.Rehearsal)
	for _, r := range want {
		expected[r.CampaignID] = r
		if g := got[r.CampaignID]; (g.Error != "") == (g.FailedSeq != 0) && g.Fingerprint == outbox.Fingerprint(g.Error) {
			g.Error, g.Fingerprint = "", ""
			got[r.CampaignID] = g
		}
	}
	if diff := cmp.Diff(expected, got); diff != "" {
		tb.Errorf("rehearsals (-want +got):\n%s", diff)
	}
}

func TestRehearse_recordsWhatWouldHappenAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{2, 1000} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.InMode(outbox.ModeShadow), enginetest.BatchSize(rows))
		b.MustAppend(t, enginetest.Notes("a", 5)...)
		b.MustAppend(t, enginetest.Opened("b", 10), enginetest.Spent("b", 3), enginetest.Noted("b"), enginetest.Spent("b", 100), enginetest.Noted("b"))
		b.MustAppend(t, enginetest.Notes("c", 2)...)
		before := b.Dump(t, "rehearsals")
		rehearse(t, b)

		enginetest.MustEqual(t, "a rehearsal", before, b.Dump(t, "rehearsals"))
		mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 5},
			store.Rehearsal{CampaignID: "b", RehearsedSeq: 3, FailedSeq: 4}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
		all, err := b.Rehearsals(t.Context())
		if text := all["b"].Error; err != nil || !strings.Contains(text, checkFailed(b)) {
			t.Errorf("the rehearsal says %q (%v), want why the event would fail", text, err)
		}
		mustBeUntouched(t, b)
		b.MustBeSound(t)
	}
}

func TestRehearse_beginsAtTheWatermark(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts))
	b.MustAppend(t, enginetest.Opened("a", 10), enginetest.Spent("a", 3))
	b.Drain(t)
	b.MustAppend(t, enginetest.Spent("a", 7), enginetest.Spent("a", 1))
	rehearse(t, b.Beside(t, enginetest.InMode(outbox.ModeShadow)))

	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 3, FailedSeq: 4})
	b.MustHaveApplied(t, "a", 2)
	enginetest.MustHaveBalances(t, b, "a 7")
	b.MustBeSound(t)
}

func TestRehearse_doesNotRepeatWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	now := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Accounts), enginetest.InMode(outbox.ModeShadow), enginetest.At(now))
	b.MustAppend(t, enginetest.Noted("a"))
	b.MustAppend(t, enginetest.Opened("b", 1), enginetest.Spent("b", 2))
	rehearse(t, b)
	before := b.Dump(t)
	now.Advance(time.Hour)
	rehearse(t, b)
	enginetest.MustEqual(t, "rehearsing the same again", before, b.Dump(t))

	b.MustAppend(t, enginetest.Noted("a"))
	rehearse(t, b)
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2}, store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2})
}

func TestRehearse_recordsHangsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing, forever), enginetest.InMode(outbox.ModeShadow), enginetest.CuttingOffAfter(enginetest.Overtime))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) { return "", errors.New("not today") })
	b.MustAppend(t, enginetest.Noted("a"), enginetest.EventOf("a", "endless", `{}`), enginetest.Noted("a"))
	b.MustAppend(t, enginetest.Noted("b"), enginetest.Probed("b", t.Name()))
	b.MustAppend(t, enginetest.Notes("c", 2)...)
	before := b.Dump(t, "rehearsals")
	rehearse(t, b)

	enginetest.MustEqual(t, "a rehearsal", before, b.Dump(t, "rehearsals"))
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2},
		store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
	all, err := b.Rehearsals(t.Context())
	if err != nil || !strings.Contains(all["a"].Error, "cut off") || !strings.Contains(all["b"].Error, "not today") {
		t.Errorf("the rehearsals say %q and %q (%v)", all["a"].Error, all["b"].Error, err)
	}
}

func TestSQLiteRehearse_recordsPanicsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Probing), enginetest.InMode(outbox.ModeShadow))
	enginetest.OnProbe(t, t.Name(), func([]string) (string, error) { panic("out of cheese") })
	b.MustAppend(t, enginetest.Noted("a"), enginetest.Noted("a"), enginetest.Probed("a", t.Name()))
	b.MustAppend(t, enginetest.Notes("b", 2)...)
	before := b.Dump(t, "rehearsals")
	rehearse(t, b)

	enginetest.MustEqual(t, "a rehearsal", before, b.Dump(t, "rehearsals"))
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2, FailedSeq: 3}, store.Rehearsal{CampaignID: "b", RehearsedSeq: 2})
	if all, err := b.Rehearsals(t.Context()); err != nil || !strings.Contains(all["a"].Error, "out of cheese") {
		t.Errorf("the rehearsal says %q (%v)", all["a"].Error, err)
	}
}

func TestRun_rehearsesInShadowModeAndAppliesNothing(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(outbox.ModeShadow), enginetest.Polling(time.Hour))
	b.OnWork(b.Worker.Wake)
	b.MustAppend(t, enginetest.Notes("a", 3)...)
	before := b.Dump(t, "rehearsals", "instances")
	stop := b.Start(t)
	rehearsed := func(seq int64) func() bool {
		return func() bool {
			all, err := b.Rehearsals(t.Context())
			return err == nil && all["a"].RehearsedSeq == seq
		}
	}
	storetest.Eventually(t, "the journal is rehearsed", rehearsed(3))
	enginetest.MustEqual(t, "a run in shadow mode", before, b.Dump(t, "rehearsals", "instances"))
	b.MustAppend(t, enginetest.Notes("a", 2)...)
	storetest.Eventually(t, "an append wakes the rehearsal", rehearsed(5))
	stop()
	mustBeUntouched(t, b)
	b.MustHaveApplied(t, "a", 0)
}
