package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outboxweb/internal/outbox"
)

// tally is a second ledger.
var tally = strings.ReplaceAll(ledger, "ledger", "tally")

// infos are the loaded projections as a caller of the store names them.
func (b *bench) infos() []outbox.ProjectionInfo {
	var infos []outbox.ProjectionInfo
	for _, p := range b.set.Projections() {
		infos = append(infos, outbox.ProjectionInfo{Name: p.Name, Version: p.Version})
	}
	return infos
}

func (b *bench) mustPause(tb testing.TB, projection, campaign string) outbox.ProjectionHold {
	tb.Helper()
	h, err := b.runs.PauseProjection(context.Background(), operator, projection, campaign, b.infos())
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func (b *bench) mustResume(tb testing.TB, projection, campaign string) outbox.ProjectionHold {
	tb.Helper()
	h, err := b.runs.ResumeProjection(context.Background(), operator, projection, campaign, b.infos())
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// told is what a ledger of another name has seen of a campaign, in order.
func (b *bench) told(tb testing.TB, name, campaign string) []int {
	tb.Helper()
	return column[int](tb, b.projections, `select seq from `+name+`_history where campaign_id = $1 order by id`, campaign)
}

func (b *bench) mustHaveTold(tb testing.TB, name, campaign string, last int) {
	tb.Helper()
	want := make([]int, last)
	for i := range want {
		want[i] = i + 1
	}
	if got := b.told(tb, name, campaign); !slices.Equal(got, want) {
		tb.Errorf("%s was told events %v of campaign %q, want 1 to %d", name, got, campaign, last)
	}
}

func (b *bench) cursors(tb testing.TB) []string {
	tb.Helper()
	return column[string](tb, b.projections, `select concat_ws(' ', campaign_id, projection, applied_seq, state) from projection_cursors order by campaign_id, projection`)
}

func (b *bench) mustHaveCursors(tb testing.TB, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, b.cursors(tb)); diff != "" {
		tb.Errorf("cursors (-want +got):\n%s", diff)
	}
}

func TestPass_tellsAProjectionNothingWhileItIsPausedForACampaign(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally))
	b.mustAppend(t, append(notes("a", 3), notes("b", 3)...)...)
	b.drain(t)
	if h := b.mustPause(t, "tally", "a"); h.State != outbox.CursorPaused || h.AppliedSeq != 3 {
		t.Errorf("paused as %+v", h)
	}
	b.mustAppend(t, append(notes("a", 2), notes("b", 2)...)...)
	b.drain(t)
	b.mustHaveApplied(t, "a", 5)
	b.mustHaveTold(t, "tally", "a", 3)
	b.mustHaveTold(t, "tally", "b", 5)
	b.mustHaveCursors(t, "a tally 3 paused")

	if h := b.mustResume(t, "tally", "a"); h.State != outbox.CursorBehind || h.Behind != 1 {
		t.Errorf("resumed as %+v, want behind", h)
	}
	b.mustAppend(t, noted("a"))
	b.drain(t)
	b.mustHaveTold(t, "tally", "a", 3)
	b.mustBeSound(t)
}

func TestPass_goesOnWithAProjectionThatWasResumedAtTheWatermark(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally))
	b.mustAppend(t, notes("a", 3)...)
	b.drain(t)
	b.mustPause(t, "tally", "a")
	if h := b.mustResume(t, "tally", "a"); h.State != outbox.CursorLive || h.Behind != 0 {
		t.Errorf("resumed as %+v, want live", h)
	}
	b.mustAppend(t, notes("a", 2)...)
	b.drain(t)
	b.mustHaveTold(t, "tally", "a", 5)
	b.mustPause(t, "tally", "a")
	b.mustHaveCursors(t, "a tally 5 paused")
	b.mustBeSound(t)
}

// A campaign gets its cursor for a pause of all when it moves.
func TestPass_setsTheCursorsOfAPauseForAllAsCampaignsMove(t *testing.T) {
	t.Parallel()
	for _, of := range []outbox.Mode{outbox.ModeOutbox, outbox.ModeInline} {
		b := open(t, define(t, ledger, tally), mode(of))
		appendTo := func(events ...outbox.Event) {
			t.Helper()
			if of == outbox.ModeInline {
				for e := range slices.Chunk(events, 1) {
					if err := b.appendInline(t, e...); err != nil {
						t.Fatal(err)
					}
				}
				return
			}
			b.mustAppend(t, events...)
			b.drain(t)
		}
		appendTo(append(notes("moves", 2), notes("rests", 2)...)...)
		appendTo(notes("own", 2)...)
		b.mustPause(t, "tally", "own")
		b.mustPause(t, "tally", "")
		b.mustHaveCursors(t, "own tally 2 paused")
		appendTo(append(notes("moves", 2), notes("new", 2)...)...)
		appendTo(notes("own", 1)...)
		b.mustHaveCursors(t, "moves tally 2 paused", "new tally 0 paused", "own tally 2 paused")
		b.mustHaveTold(t, "tally", "moves", 2)
		b.mustHaveTold(t, "tally", "new", 0)
		b.mustHaveApplied(t, "moves", 4)
		b.mustBeSound(t)

		if h := b.mustResume(t, "tally", ""); h.State != outbox.CursorLive || h.Behind != 2 {
			t.Errorf("resumed as %+v, want two behind", h)
		}
		b.mustHaveCursors(t, "moves tally 2 behind", "new tally 0 behind", "own tally 2 paused")
		appendTo(notes("rests", 1)...)
		b.mustHaveTold(t, "tally", "rests", 3)
		b.mustBeSound(t)
	}
}

// A head that fails while the projection is paused for all leaves a cursor at
// the watermark, which is level when the pause ends.
func TestPass_goesOnAfterAPauseForAllThatNoEventPassed(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, tally, accounts), at(now))
	b.mustAppend(t, opened("a", 10))
	b.drain(t)
	b.mustPause(t, "tally", "")
	b.mustAppend(t, spent("a", 100))
	b.drain(t)
	b.mustHaveCursors(t, "a tally 1 paused")
	b.mustResume(t, "tally", "")
	b.mustHaveCursors(t, "a tally 1 live")
	mustExec(t, b.projections, `update accounts set balance = 1000`)
	now.advance(time.Hour)
	b.drain(t)
	b.mustHaveTold(t, "tally", "a", 2)
	b.mustBeSound(t)
}

func TestPass_leavesAQuarantinedProjectionQuarantinedThroughAPauseForAll(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, lenientAccounts), maxAttempts(1))
	b.mustAppend(t, opened("b", 10), spent("b", 100))
	b.drain(t)
	b.mustPause(t, "accounts", "")
	b.mustAppend(t, noted("b"))
	b.drain(t)
	b.mustHaveCursors(t, "b accounts 1 quarantined")
	b.mustResume(t, "accounts", "")
	b.mustHaveCursors(t, "b accounts 1 quarantined")
	b.mustBeSound(t)
}

func TestRehearse_leavesNoCursorOfAPause(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally, accounts), mode(outbox.ModeShadow))
	b.mustAppend(t, opened("a", 1), spent("a", 2))
	b.mustPause(t, "tally", "")
	before := b.dump(t, "rehearsals")
	b.rehearse(t)
	mustEqual(t, "a rehearsal", before, b.dump(t, "rehearsals"))
}

// TestPass_tellsNothingOnceAPauseHasReturned pauses and resumes, for campaigns
// and for all of them, while workers of two processes apply events. A projection
// is told a prefix of a campaign, without a gap or a repeat, that ends where its
// cursor stands; and nothing at all from the end of the pause's act on.
func TestPass_tellsNothingOnceAPauseHasReturned(t *testing.T) {
	t.Parallel()
	one := open(t, define(t, ledger, tally), batchSize(7), waves(2), polling(5*time.Millisecond))
	two := one.beside(t, batchSize(5), waves(2), polling(5*time.Millisecond))
	stops := []func(){one.start(t), two.start(t)}
	const campaigns, events = 24, 40
	var writing sync.WaitGroup
	writing.Go(func() {
		for range events {
			for c := range campaigns {
				one.mustAppend(t, noted(fmt.Sprint("c-", c)))
			}
		}
	})
	for c := range campaigns {
		id := fmt.Sprint("c-", c)
		eventually(t, id+" moves", func() bool { return len(one.told(t, "ledger", id)) > c/2 })
		if c%8 == 3 {
			one.pauseForAllBriefly(t)
			continue
		}
		h, err := one.runs.PauseProjection(context.Background(), operator, "tally", id, one.infos())
		if errors.Is(err, outbox.ErrConflict) {
			continue // a pause for all came by
		}
		if err != nil {
			t.Fatal(err)
		}
		seen := one.told(t, "tally", id)
		if int64(len(seen)) != h.AppliedSeq {
			t.Errorf("paused at %d, and tally was told %v", h.AppliedSeq, seen)
		}
		if c%2 == 0 {
			if _, err := two.runs.ResumeProjection(context.Background(), operator, "tally", id, one.infos()); err != nil {
				t.Fatal(err)
			}
		}
	}
	writing.Wait()
	for c := range campaigns {
		one.mustWait(t, fmt.Sprint("c-", c), events)
	}
	for _, stop := range stops {
		stop()
	}
	for c := range campaigns {
		id := fmt.Sprint("c-", c)
		one.mustHaveApplied(t, id, events)
		cursors, err := one.runs.Cursors(context.Background(), id, one.infos())
		if err != nil {
			t.Fatal(err)
		}
		one.mustHaveTold(t, "tally", id, int(cursors[1].AppliedSeq))
	}
	one.mustBeSound(t)
}

// pauseForAllBriefly makes sure that nothing is told meanwhile, and goes on.
func (b *bench) pauseForAllBriefly(tb testing.TB) {
	tb.Helper()
	all := func() []int {
		return column[int](tb, b.projections, `select count(*) from tally_history`)
	}
	others := func() []int64 {
		return column[int64](tb, b.projections, `select sum(applied_seq) from projection_watermarks`)
	}
	b.mustPause(tb, "tally", "")
	before, moved := all(), others()
	deadline := time.After(50 * time.Millisecond)
	for others()[0] < moved[0]+20 {
		select {
		case <-deadline:
			moved[0] = -20
		default:
		}
	}
	if after := all(); !slices.Equal(before, after) {
		tb.Errorf("tally was told %v events before and %v after a pause for all", before, after)
	}
	b.mustResume(tb, "tally", "")
}

func TestPass_recordsEachFailedAttemptOfABlockingProjectionOnce(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, accounts), at(now), maxAttempts(3))
	b.mustAppend(t, notes("a", 5)...)
	b.mustAppend(t, opened("b", 10), spent("b", 100), spent("b", 1))
	b.mustAppend(t, opened("c", 10), noted("c"), spent("c", 100))
	for n := 1; n <= 3; n++ {
		b.drain(t)
		if got, want := failures(t, b), []string{fmt.Sprint("b accounts 2 ", n), fmt.Sprint("c accounts 3 ", n)}; !slices.Equal(got, want) {
			t.Errorf("open failures %q, want %q", got, want)
		}
		b.mustBeSound(t)
		now.advance(time.Hour)
	}
	page, err := b.Failures(t.Context(), outbox.FailureFilter{CampaignID: "b", Status: outbox.FailureOpen})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("failures %+v, %v", page, err)
	}
	f := page.Items[0]
	if f.EventType != "spent" || f.Fingerprint != outbox.Fingerprint(f.Message) || !strings.HasPrefix(f.Message, "projection accounts") || f.LastAt.Sub(f.FirstAt) != 2*time.Hour {
		t.Errorf("failure %+v", f)
	}
	mustExec(t, b.projections, `update accounts set balance = 1000 where campaign_id = 'b'`)
	b.mustRequeue(t, "b", 2)
	b.mustSkip(t, "c", 3)
	b.drain(t)
	if open := failures(t, b); len(open) > 0 {
		t.Errorf("failures %q are open after their events were passed", open)
	}
	if f, err = b.Failure(t.Context(), f.ID); err != nil || f.Status != outbox.FailureResolved || f.ResolvedAt == nil || !f.ResolvedAt.Equal(now.now()) || f.Attempts != 3 {
		t.Errorf("failure %+v, %v; want it resolved", f, err)
	}
	b.mustBeSound(t)
}

func TestPass_keepsTheFailureOfAProjectionThatIsSetAsideOpen(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, accounts), maxAttempts(1))
	b.mustAppend(t, opened("b", 10), spent("b", 100), noted("b"))
	b.drain(t)
	b.mustPause(t, "accounts", "b")
	b.mustRequeue(t, "b", 2)
	b.drain(t)
	b.mustHaveApplied(t, "b", 3)
	if open := failures(t, b); !slices.Equal(open, []string{"b accounts 2 1"}) {
		t.Errorf("open failures %q, want the one that the paused projection stands at", open)
	}
	b.mustBeSound(t)
}

func TestPass_recordsAFailureThatTookTheTransactionWithIt(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, forever), at(now), cuttingOffAfter(overtime))
	b.mustAppend(t, notes("a", 2)...)
	b.mustAppend(t, noted("b"), eventOf("b", "endless", `{}`), noted("b"))
	b.pass(t)
	now.advance(time.Second)
	b.pass(t)
	if open := failures(t, b); !slices.Equal(open, []string{"b forever 2 2"}) {
		t.Errorf("open failures %q, want two attempts", open)
	}
	b.mustBeSound(t)
}

func TestSQLitePass_recordsTheFailureOfAProjectionThatPanicked(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, probing))
	onProbe(t, t.Name(), func([]string) (string, error) { panic("out of cheese") })
	b.mustAppend(t, noted("b"), probed("b", t.Name()))
	b.pass(t)
	if open := failures(t, b); !slices.Equal(open, []string{"b probing 2 1"}) {
		t.Errorf("open failures %q", open)
	}
	b.mustBeSound(t)
}

func TestApplyInline_recordsAndResolvesFailures(t *testing.T) {
	t.Parallel()
	now := newClock()
	b := open(t, define(t, ledger, accounts), mode(outbox.ModeInline), at(now))
	for _, events := range [][]outbox.Event{{opened("a", 10), spent("a", 100)}, {noted("a")}} {
		now.advance(time.Minute)
		if err := b.appendInline(t, events...); err == nil {
			t.Fatal("an event that cannot be applied was not refused")
		}
	}
	if open := failures(t, b); !slices.Equal(open, []string{"a accounts 2 2"}) {
		t.Errorf("open failures %q, want two attempts at one event", open)
	}
	mustExec(t, b.projections, `update accounts set balance = 1000`)
	now.advance(time.Minute)
	if err := b.worker.ApplyInline(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if open := failures(t, b); len(open) > 0 {
		t.Errorf("failures %q are open after their events were applied", open)
	}
	b.mustBeSound(t)
}

// A worker that was taken over, and fails at the event that the new owner has
// applied or failed at, records nothing.
func TestPass_recordsNoFailureOnceItsLeaseWasTakenOver(t *testing.T) {
	t.Parallel()
	now := newClock()
	a := open(t, define(t, ledger, accounts), at(now))
	_, stale := takenOver(t, now, a, opened("d", 10), spent("d", 100), noted("d"))
	before := a.dump(t)
	if err := a.worker.FinishClaims(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	mustEqual(t, "a worker that was taken over", before, a.dump(t))
	if open := failures(t, a); !slices.Equal(open, []string{"d accounts 2 1"}) {
		t.Errorf("open failures %q, want that of the new owner alone", open)
	}
}

// An un-skip sets back what was set aside at the skipped event too.
func TestUnskip_setsBackAProjectionThatWasPausedAtTheSkippedEvent(t *testing.T) {
	t.Parallel()
	b := open(t, define(t, ledger, tally, accounts), maxAttempts(1))
	b.mustAppend(t, opened("a", 10), spent("a", 100))
	b.drain(t)
	b.mustSkip(t, "a", 2)
	b.drain(t)
	b.mustPause(t, "tally", "a")
	b.mustHaveCursors(t, "a tally 2 paused")
	b.mustUnskip(t, "a", 2)
	mustExec(t, b.projections, `update accounts set balance = 1000`)
	b.drain(t)
	b.mustHaveCursors(t, "a tally 1 paused")
	if h := b.mustResume(t, "tally", "a"); h.State != outbox.CursorBehind {
		t.Errorf("resumed as %+v, want behind by the event that is no longer skipped", h)
	}
	b.mustBeSound(t)
}
