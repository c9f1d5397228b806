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

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPass_tellsAProjectionNothingWhileItIsPausedForACampaign(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally})
	b.Feed(enginetest.Notes("a b", 3)...)
	h := must.Get(b.Runs.PauseProjection(b.Ctx, enginetest.Operator, "tally", "a", b.Infos)).Or(t)
	must.Hold(t, h.State == campaign.CursorPaused && h.AppliedSeq == 3, "paused as %+v", h)
	b.PauseProjection("tally", "b")
	h = b.ResumeProjection("tally", "b") // at the watermark
	must.Hold(t, h.State == campaign.CursorLive && h.Behind == 0, "resumed as %+v, want live", h)
	b.Feed(enginetest.Notes("a b", 2)...).MustHaveApplied("a", 5).MustHaveTold("tally", "a", 3).MustHaveTold("tally", "b", 5)
	b.PauseProjection("tally", "b").MustHaveCursors("a tally 3 paused", "b tally 5 paused")

	h = b.ResumeProjection("tally", "a")
	must.Hold(t, h.State == campaign.CursorBehind && h.Behind == 1, "resumed as %+v, want behind", h)
	b.Feed(enginetest.Noted("a")).MustHaveTold("tally", "a", 3).Sound()
}

func TestPass_setsTheCursorsOfAPauseForAllAsCampaignsMove(t *testing.T) {
	t.Parallel()
	for _, of := range []campaign.Mode{campaign.ModeOutbox, campaign.ModeInline} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger, enginetest.Tally), enginetest.InMode(of))
		appendTo := func(events ...event.Event) {
			if of == campaign.ModeInline {
				for e := range slices.Chunk(events, 1) {
					must.OK(t, appendInline(t, b, e...))
				}
				return
			}
			b.Feed(events...)
		}
		appendTo(enginetest.Notes("moves rests", 2)...)
		appendTo(enginetest.Notes("own", 2)...)
		b.PauseProjection("tally", "own").PauseProjection("tally", "").MustHaveCursors("own tally 2 paused")
		appendTo(enginetest.Notes("moves new", 2)...)
		appendTo(enginetest.Notes("own", 1)...)
		b.MustHaveCursors("moves tally 2 paused", "new tally 0 paused", "own tally 2 paused").MustHaveTold("tally", "moves", 2)
		b.MustHaveTold("tally", "new", 0).MustHaveApplied("moves", 4).Sound()

		h := b.ResumeProjection("tally", "")
		must.Hold(t, h.State == campaign.CursorLive && h.Behind == 2, "resumed as %+v, want two behind", h)
		b.MustHaveCursors("moves tally 2 behind", "new tally 0 behind", "own tally 2 paused")
		appendTo(enginetest.Notes("rests", 1)...)
		b.MustHaveTold("tally", "rests", 3).Sound()
	}
}

// A head that fails while the projection is paused for all campaigns leaves a cursor at the watermark, which is caught up when the pause ends.
func TestPass_goesOnAfterAPauseForAllThatNoEventPassed(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally, enginetest.Accounts}, enginetest.At(storetest.NewClock()))
	b.Feed(enginetest.Opened("a", 10)).PauseProjection("tally", "").Feed(enginetest.Spent("a", 100))
	b.MustHaveCursors("a tally 1 paused")
	b.ResumeProjection("tally", "")
	b.MustHaveCursors("a tally 1 live")
	b.ExecProjections(`update accounts set balance = 1000`)
	b.Clock.Advance(time.Hour)
	b.Drain().MustHaveTold("tally", "a", 2).Sound()
}

func TestPass_leavesAQuarantinedProjectionQuarantinedThroughAPauseForAll(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.LenientAccounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 100)).PauseProjection("accounts", "").Feed(enginetest.Noted("b"))
	b.MustHaveCursors("b accounts 1 quarantined")
	b.ResumeProjection("accounts", "")
	b.MustHaveCursors("b accounts 1 quarantined").Sound()
}

// This test pauses and resumes, for single campaigns and for all, while workers of two processes apply events. A projection receives a prefix of a
// campaign, without a gap or a repeat, that ends at its cursor, and nothing after the pause action has returned.
func TestPass_tellsNothingOnceAPauseHasReturned(t *testing.T) {
	one := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally}, enginetest.BatchSize(7), enginetest.Waves(2), enginetest.Polling(5*time.Millisecond))
	two := one.Beside(enginetest.BatchSize(5), enginetest.Waves(2), enginetest.Polling(5*time.Millisecond))
	stops := []func(){one.Start(), two.Start()}
	campaigns, events := size.Of(8, 12, 24), size.Of(16, 20, 40)
	var writing sync.WaitGroup
	writing.Go(func() {
		for range events {
			for c := range campaigns {
				one.MustAppend(enginetest.Noted(fmt.Sprint("c-", c)))
			}
		}
	})
	for c := range campaigns {
		id := fmt.Sprint("c-", c)
		must.Eventually(t, id+" moves", func() bool { return len(one.Entries("ledger", id)) > c/2 })
		if c%8 == 3 {
			pauseForAllBriefly(t, one)
			continue
		}
		h, err := one.Runs.PauseProjection(context.Background(), enginetest.Operator, "tally", id, one.Infos)
		if errors.Is(err, event.ErrConflict) {
			continue // it was paused for all campaigns meanwhile
		}
		must.OK(t, err)
		seen := one.Entries("tally", id)
		must.Equal(t, int64(len(seen)), h.AppliedSeq, "where it is paused")
		if c%2 == 0 {
			must.Get(two.Runs.ResumeProjection(context.Background(), enginetest.Operator, "tally", id, one.Infos)).Or(t)
		}
	}
	writing.Wait()
	for c := range campaigns {
		one.MustWait(fmt.Sprint("c-", c), int64(events))
	}
	for _, stop := range stops {
		stop()
	}
	for c := range campaigns {
		id := fmt.Sprint("c-", c)
		one.MustHaveApplied(id, events)
		cursors := must.Get(one.Runs.Cursors(context.Background(), id, one.Infos)).Or(t)
		one.MustHaveTold("tally", id, int(cursors[1].AppliedSeq))
	}
	one.Sound()
}

// pauseForAllBriefly pauses for all campaigns, checks that nothing is applied meanwhile, and resumes.
func pauseForAllBriefly(tb testing.TB, b *enginetest.Engine) {
	all := func() []int { return storetest.Column[int](tb, b.ProjectionsDB, `select count(*) from tally_history`) }
	others := func() []int64 {
		return storetest.Column[int64](tb, b.ProjectionsDB, `select sum(applied_seq) from projection_watermarks`)
	}
	b.PauseProjection("tally", "")
	before, moved := all(), others()
	deadline := time.After(50 * time.Millisecond)
	for others()[0] < moved[0]+20 {
		select {
		case <-deadline:
			moved[0] = -20
		default:
		}
	}
	must.Equal(tb, before, all(), "what tally was told before a pause for all and after it")
	b.ResumeProjection("tally", "")
}

func TestPass_recordsEachFailedAttemptOfABlockingProjectionOnce(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(3))
	b.MustAppend(enginetest.Notes("a", 5)...)
	b.MustAppend(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Spent("b", 1))
	b.MustAppend(enginetest.Opened("c", 10), enginetest.Noted("c"), enginetest.Spent("c", 100))
	for n := 1; n <= 3; n++ {
		b.Drain()
		must.Equal(t, b.OpenFailures(), []string{fmt.Sprint("b accounts 2 ", n), fmt.Sprint("c accounts 3 ", n)}, "open failures")
		b.Sound()
		b.Clock.Advance(time.Hour)
	}
	page, err := b.Failures(t.Context(), campaign.FailureFilter{CampaignID: "b", Status: campaign.FailureOpen})
	must.Need(t, err == nil && len(page.Items) == 1, "failures %+v, %v", page, err)
	f := page.Items[0]
	must.Hold(t, f.EventType == "spent" && f.Fingerprint == event.Fingerprint(f.Message) && strings.HasPrefix(f.Message, "projection accounts") && f.LastAt.Sub(f.FirstAt) == 2*time.Hour, "failure %+v", f)
	b.ExecProjections(`update accounts set balance = 1000 where campaign_id = 'b'`)
	b.MustRequeue("b", 2)
	b.MustSkip("c", 3)
	b.Drain()
	open := b.OpenFailures()
	must.Hold(t, len(open) == 0, "failures %q are open after their events were passed", open)
	f, err = b.Failure(t.Context(), f.ID)
	must.Hold(t, err == nil && f.Status == campaign.FailureResolved && f.ResolvedAt != nil && f.ResolvedAt.Equal(b.Clock.Now()) && f.Attempts == 3, "failure %+v, %v; want it resolved", f, err)
	b.Sound()
}

func TestPass_keepsTheFailureOfAProjectionThatIsSetAsideOpen(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("b", 10), enginetest.Spent("b", 100), enginetest.Noted("b")).PauseProjection("accounts", "b")
	b.MustRequeue("b", 2)
	b.Drain().MustHaveApplied("b", 3)
	must.Equal(t, b.OpenFailures(), []string{"b accounts 2 1"}, "open failures")
	b.Sound()
}

// An unskip also sets back projections that were paused or quarantined at the skipped event.
func TestUnskip_setsBackAProjectionThatWasPausedAtTheSkippedEvent(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger, enginetest.Tally, enginetest.Accounts}, enginetest.MaxAttempts(1))
	b.Feed(enginetest.Opened("a", 10), enginetest.Spent("a", 100)).MustSkip("a", 2)
	b.Drain().PauseProjection("tally", "a").MustHaveCursors("a tally 2 paused")
	b.MustUnskip("a", 2)
	b.ExecProjections(`update accounts set balance = 1000`)
	b.Drain().MustHaveCursors("a tally 1 paused")
	must.Equal(t, b.ResumeProjection("tally", "a").State, campaign.CursorBehind, "resumed as")
	b.Sound()
}
