package worker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

func (b *bench) rehearse(tb testing.TB) {
	tb.Helper()
	if _, err := b.worker.Rehearse(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// mustHaveRehearsed compares what was recorded, leaving out the texts of
// errors: whether there is one has to agree.
func mustHaveRehearsed(tb testing.TB, b *bench, want ...store.Rehearsal) {
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
		b := open(t, define(t, ledger, accounts), mode(outbox.ModeShadow), batchSize(rows))
		b.mustAppend(t, notes("a", 5)...)
		b.mustAppend(t, opened("b", 10), spent("b", 3), noted("b"), spent("b", 100), noted("b"))
		b.mustAppend(t, notes("c", 2)...)
		before := b.dump(t, "rehearsals")
		b.rehearse(t)

		mustEqual(t, "a rehearsal", before, b.dump(t, "rehearsals"))
		mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 5},
			store.Rehearsal{CampaignID: "b", RehearsedSeq: 3, FailedSeq: 4}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
		all, err := b.Rehearsals(t.Context())
		if text := all["b"].Error; err != nil || !strings.Contains(text, b.checkFailed()) {
			t.Errorf("the rehearsal says %q (%v), want why the event would fail", text, err)
		}
		mustBeUntouched(t, b)
		b.mustBeSound(t)
	}
}

func TestRehearse_beginsAtTheWatermark(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, accounts))
	b.mustAppend(t, opened("a", 10), spent("a", 3))
	b.drain(t)
	b.mustAppend(t, spent("a", 7), spent("a", 1))
	b.beside(t, mode(outbox.ModeShadow)).rehearse(t)

	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 3, FailedSeq: 4})
	b.mustHaveApplied(t, "a", 2)
	mustHaveBalances(t, b, "a 7")
	b.mustBeSound(t)
}

func TestRehearse_doesNotRepeatWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, accounts), mode(outbox.ModeShadow), at(now))
	b.mustAppend(t, noted("a"))
	b.mustAppend(t, opened("b", 1), spent("b", 2))
	b.rehearse(t)
	before := b.dump(t)
	now.advance(time.Hour)
	b.rehearse(t)
	mustEqual(t, "rehearsing the same again", before, b.dump(t))

	b.mustAppend(t, noted("a"))
	b.rehearse(t)
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2}, store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2})
}

func TestRehearse_recordsHangsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, probing, forever), mode(outbox.ModeShadow), cuttingOffAfter(overtime))
	onProbe(t, t.Name(), func([]string) (string, error) { return "", errors.New("not today") })
	b.mustAppend(t, noted("a"), eventOf("a", "endless", `{}`), noted("a"))
	b.mustAppend(t, noted("b"), probed("b", t.Name()))
	b.mustAppend(t, notes("c", 2)...)
	before := b.dump(t, "rehearsals")
	b.rehearse(t)

	mustEqual(t, "a rehearsal", before, b.dump(t, "rehearsals"))
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 1, FailedSeq: 2},
		store.Rehearsal{CampaignID: "b", RehearsedSeq: 1, FailedSeq: 2}, store.Rehearsal{CampaignID: "c", RehearsedSeq: 2})
	all, err := b.Rehearsals(t.Context())
	if err != nil || !strings.Contains(all["a"].Error, "cut off") || !strings.Contains(all["b"].Error, "not today") {
		t.Errorf("the rehearsals say %q and %q (%v)", all["a"].Error, all["b"].Error, err)
	}
}

func TestSQLiteRehearse_recordsPanicsAndGoesOn(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, probing), mode(outbox.ModeShadow))
	onProbe(t, t.Name(), func([]string) (string, error) { panic("out of cheese") })
	b.mustAppend(t, noted("a"), noted("a"), probed("a", t.Name()))
	b.mustAppend(t, notes("b", 2)...)
	before := b.dump(t, "rehearsals")
	b.rehearse(t)

	mustEqual(t, "a rehearsal", before, b.dump(t, "rehearsals"))
	mustHaveRehearsed(t, b, store.Rehearsal{CampaignID: "a", RehearsedSeq: 2, FailedSeq: 3}, store.Rehearsal{CampaignID: "b", RehearsedSeq: 2})
	if all, err := b.Rehearsals(t.Context()); err != nil || !strings.Contains(all["a"].Error, "out of cheese") {
		t.Errorf("the rehearsal says %q (%v)", all["a"].Error, err)
	}
}

func TestRun_rehearsesInShadowModeAndAppliesNothing(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger), mode(outbox.ModeShadow), polling(time.Hour))
	b.OnWork(b.worker.Wake)
	b.mustAppend(t, notes("a", 3)...)
	before := b.dump(t, "rehearsals", "instances")
	stop := b.start(t)
	rehearsed := func(seq int64) func() bool {
		return func() bool {
			all, err := b.Rehearsals(t.Context())
			return err == nil && all["a"].RehearsedSeq == seq
		}
	}
	eventually(t, "the journal is rehearsed", rehearsed(3))
	mustEqual(t, "a run in shadow mode", before, b.dump(t, "rehearsals", "instances"))
	b.mustAppend(t, notes("a", 2)...)
	eventually(t, "an append wakes the rehearsal", rehearsed(5))
	stop()
	mustBeUntouched(t, b)
	b.mustHaveApplied(t, "a", 0)
}
