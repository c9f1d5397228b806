package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// forget replaces the journal by one that ends at an event of the campaign, or does not have it. Only a process that begins then finds a journal that was always so.
func forget(tb testing.TB, b *enginetest.Engine, campaign string, last int) {
	b.Tamper(`delete from events where campaign_id = $1 and seq > $2`, campaign, last)
	b.Exec(`delete from projection_apply_outbox where campaign_id = $1`, campaign)
	if last == 0 {
		b.Exec(fmt.Sprintf(`delete from campaigns where campaign_id = '%s'`, campaign))
		return
	}
	b.Exec(fmt.Sprintf(`update campaigns set high_water_seq = %d, applied_seq = 0,
  chain_hash = (select chain_hash from events e where e.campaign_id = '%s' and e.seq = %d) where campaign_id = '%s'`, last, campaign, last, campaign))
}

// other is an event that the projections have not applied.
func other(campaign string) outbox.Event {
	return enginetest.EventOf(campaign, "noted", `{"of":"another journal"}`)
}

// mustHaveSwallowedNothing fails unless a campaign is diverged, its projections are unchanged and n new events still wait.
func mustHaveSwallowedNothing(t *testing.T, b *enginetest.Engine, campaign string, n int64) {
	t.Helper()
	c := b.MustCampaign(campaign)
	if c.State() != outbox.StateDiverged || !strings.Contains(c.Diverged, "event 3") || c.Lease != nil {
		t.Errorf("campaign %q is %s (%q), lease %v; want it diverged because of event 3", campaign, c.State(), c.Diverged, c.Lease)
	}
	must.Equal(t, c.Counts, outbox.Counts{Pending: n}, "campaign", campaign, "has rows")
	b.MustHaveApplied(campaign, 3)
}

// mustNotCountAsApplied fails when waiting for the event reports it as applied.
func mustNotCountAsApplied(t *testing.T, b *enginetest.Engine, campaign string, seq int64) {
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	defer cancel()
	applied, err := b.WaitApplied(ctx, campaign, seq)
	must.Hold(t, errors.Is(err, outbox.ErrNotYet) && strings.Contains(err.Error(), "diverged") && ctx.Err() == nil, "event %d of campaign %q is answered as applied up to %d, %v; want at once that the campaign has diverged", seq, campaign, applied, err)
}

func TestPass_neverCountsANewEventAsAppliedByProjectionsOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		has, appended, rows int
	}{
		"that does not know the campaign": {0, 1, 1000},
		"that is behind":                  {1, 1, 1000},
		"that comes level":                {1, 2, 1000},
		"that goes on":                    {1, 4, 1000},
		"that goes on in small waves":     {0, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.BatchSize(c.rows))
			b.Feed(enginetest.Notes("a", 3)...)
			forget(t, b, "a", c.has)
			b = b.Beside(enginetest.BatchSize(c.rows))
			for range c.appended {
				b.MustAppend(other("a"))
			}
			mustNotCountAsApplied(t, b, "a", int64(c.has+1))
			b.Drain()
			mustHaveSwallowedNothing(t, b, "a", int64(c.appended))
			mustNotCountAsApplied(t, b, "a", int64(c.has+1))
		})
	}
}

// What was read ahead of a wave is of no use to the one after the next.
func TestPass_dropsWhatItReadAheadOfAWave(t *testing.T) {
	t.Parallel()
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.BatchSize(2))
	b.MustAppend(enginetest.Notes("a", 4)...)
	b.MustPass()
	must.Get(b.PauseCampaign(t.Context(), enginetest.Operator, "a")).Or(t)
	b.MustAppend(enginetest.Noted("b"))
	b.MustPass()
	forget(t, b, "a", 2)
	must.Get(b.Reconcile(t.Context())).Or(t)
	b.MustAppend(other("a"), other("a"))
	must.Get(b.ResumeCampaign(t.Context(), enginetest.Operator, "a")).Or(t)
	b.Drain()
	b.MustHaveApplied("a", 4)
	b.Sound()
}

func TestApplyInline_neverCountsANewEventAsAppliedByProjectionsOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for _, has := range []int{0, 1, 2} {
		b := openInline(t, enginetest.Ledger)
		must.OK(t, appendInline(t, b, enginetest.Notes("a", 3)...))
		forget(t, b, "a", has)
		b = b.Beside(enginetest.InMode(outbox.ModeInline))
		err := appendInline(t, b, other("a"))
		must.Hold(t, errors.Is(err, outbox.ErrConflict) && strings.Contains(err.Error(), "diverged"), "with %d events: applied inline: %v", has, err)
		mustHaveSwallowedNothing(t, b, "a", int64(has+1))
	}
}

// spokenLog is a log that may be read while it is written.
type spokenLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *spokenLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *spokenLog) says(all []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(all, func(text string) bool { return !strings.Contains(l.text.String(), text) })
}

func TestStart_saysLoudlyThatTheProjectionsAreOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known []string
		want  []string
	}{
		"the journal is empty": {nil, []string{`level=ERROR`, "the journal is empty, but the projections have events", "the URL of the journal database", "campaigns=2"}},
		"it lacks a campaign":  {[]string{"b"}, []string{`level=ERROR`, "restore the right journal", "campaigns=1", "rebuild"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log spokenLog
			b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), func(o *enginetest.Options) {
				o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			b.MustAppend(enginetest.Notes("a", 3)...)
			b.Feed(enginetest.Notes("b", 3)...)
			for _, id := range []string{"a", "b"} {
				if len(c.known) == 0 || id == "a" {
					forget(t, b, id, 0)
				}
			}
			stop := b.Start()
			storetest.Eventually(t, "campaign a is diverged, and the log says it", func() bool {
				got, err := b.Campaign(t.Context(), "a")
				return err == nil && got.State() == outbox.StateDiverged && log.says(c.want)
			})
			stop()
			reasons := strings.Join(b.Ready(t.Context()), " ")
			must.Hold(t, (len(c.known) == 0) == strings.Contains(reasons, "the journal is empty, but the projections have events"), "readiness says %q", reasons)
			b.MustAppend(other("a"))
			mustHaveSwallowedNothing(t, b, "a", 1)
		})
	}
}
