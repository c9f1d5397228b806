package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/corpus"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// digestsOf are the full digests of every campaign of the journal.
func digestsOf(tb testing.TB, b *enginetest.Engine, events []event.Event) map[string]string {
	snapshot := must.Get(b.Snapshot(context.Background())).Or(tb)
	defer snapshot.Rollback()
	all := make(map[string]string)
	for _, e := range events {
		if _, known := all[e.CampaignID]; known {
			continue
		}
		_, full, err := b.Set.Digests(context.Background(), snapshot, e.CampaignID)
		must.OK(tb, err)
		all[e.CampaignID] = full
	}
	return all
}

// replayed are the digests of a replay of the journal from scratch, without the poisoned event and the events behind it.
func replayed(tb testing.TB, j corpus.Journal, events []event.Event) map[string]string {
	scratch, all := enginetest.NewMemory(tb, "builtin:campaigns"), make(map[string]string)
	for _, e := range events {
		if e.CampaignID == j.Poisoned && e.Seq >= j.PoisonedSeq {
			continue
		}
		must.OK(tb, scratch.Apply(context.Background(), &e))
		all[e.CampaignID] = ""
	}
	for campaign := range all {
		_, digest, err := scratch.Set.Digests(context.Background(), scratch, campaign)
		must.OK(tb, err)
		all[campaign] = digest
	}
	return all
}

func mustHaveOneDeadHead(tb testing.TB, b *enginetest.Engine, j corpus.Journal) {
	dead := must.Get(b.Rows(context.Background(), campaign.RowFilter{Status: event.Dead})).Or(tb)
	must.Hold(tb, len(dead.Items) == 1 && dead.Items[0].CampaignID == j.Poisoned && dead.Items[0].Seq == j.PoisonedSeq && dead.Items[0].IsHead, "dead rows = %+v", dead.Items)
	waiting := storetest.Column[string](tb, b.JournalDB, `select campaign_id from projection_apply_outbox`)
	must.Hold(tb, len(waiting) == j.Waiting && !slices.ContainsFunc(waiting, func(id string) bool { return id != j.Poisoned }), "rows of campaigns %q are left", waiting)
}

// journalled is an engine on which a journal was applied as far as possible, with its audit-only types registered.
func journalled(t *testing.T, p dbtest.Pair, j corpus.Journal, events []event.Event) *enginetest.Engine {
	b := enginetest.OpenPair(t, p, []string{"builtin:campaigns"}, enginetest.MaxAttempts(1))
	intents := make(map[string]event.Intent)
	for _, eventType := range j.AuditOnly {
		intents[eventType] = event.IntentAuditOnly
	}
	must.OK(t, b.RegisterEventTypes(t.Context(), intents))
	b.Feed(events...)
	return b
}

// Each journal is used for all subtests, since appending and applying the recorded one takes long.
func TestWorker_onAWholeJournal(t *testing.T) {
	t.Parallel()
	corpus.EachJournal(t, corpus.Long, func(t *testing.T, j corpus.Journal) {
		t.Parallel()
		events := j.Parse(t)
		b := journalled(t, dbtest.New(t), j, events)
		digests, before := digestsOf(t, b, events), b.Dump("instances")

		t.Run("applies all but the dead head and what waits for it, advancing over audit-only events", func(t *testing.T) {
			mustHaveOneDeadHead(t, b, j)
			b.Sound()
		})
		t.Run("makes of it what a replay from scratch makes, and the other database", func(t *testing.T) {
			must.Equal(t, len(digests), j.Campaigns, "campaigns")
			must.Equal(t, digests, replayed(t, j, events), "digests by campaign")
			if b.OnPostgres() {
				must.Equal(t, digests, digestsOf(t, journalled(t, dbtest.Files(t.TempDir()), j, events), events), "digests by campaign")
			}
		})
		t.Run("changes nothing when it is appended again", func(t *testing.T) {
			again := events
			if b.OnPostgres() {
				again = events[:len(events)/5] // each is applied on its own there
			}
			appendAgain(t, b, again)
			must.Equal(t, b.Dump("instances"), before, "appending it again")
		})
		t.Run("changes nothing on a second start", func(t *testing.T) {
			second := b.Beside(enginetest.MaxAttempts(1))
			stop := second.Start()
			must.Eventually(t, "the second start has announced itself", func() bool { return len(storetest.Column[int](t, b.JournalDB, `select 1 from instances`)) > 0 })
			stop()
			for _, step := range append(second.Worker.TimedSteps(), second.Operations.Step) {
				more, err := step(t.Context())
				must.Hold(t, !more && err == nil, "a step of the second start had something to do: %v %v", more, err)
			}
			must.Equal(t, must.Get(second.Reconcile(t.Context())).Or(t), campaign.Repaired{}, "what the second start repaired")
			must.Equal(t, b.Dump("instances"), before, "a second start")
			must.Equal(t, digestsOf(t, second, events), digests, "digests by campaign")
		})
	})
}

func appendAgain(t *testing.T, b *enginetest.Engine, events []event.Event) {
	for chunk := range slices.Chunk(events, 500) {
		for _, a := range must.Get(b.Append(t.Context(), store.Append{Events: chunk})).Or(t) {
			must.Need(t, a.Existed, "campaign %q seq %d was appended a second time", a.CampaignID, a.Seq)
		}
	}
}

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
func other(campaign string) event.Event {
	return enginetest.EventOf(campaign, "noted", `{"of":"another journal"}`)
}

// mustHaveSwallowedNothing fails unless a campaign is diverged, its projections are unchanged and n new events still wait.
func mustHaveSwallowedNothing(t *testing.T, b *enginetest.Engine, campaignID string, n int64) {
	c := b.MustCampaign(campaignID)
	must.Hold(t, c.State() == campaign.StateDiverged && strings.Contains(c.Diverged, "event 3") && c.Lease == nil, "campaign %q is %s (%q), lease %v; want it diverged because of event 3", campaignID, c.State(), c.Diverged, c.Lease)
	must.Equal(t, c.Counts, campaign.Counts{Pending: n}, "campaign", campaignID, "has rows")
	b.MustHaveApplied(campaignID, 3)
}

// mustNotCountAsApplied fails when waiting for the event reports it as applied.
func mustNotCountAsApplied(t *testing.T, b *enginetest.Engine, campaign string, seq int64) {
	ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
	defer cancel()
	applied, err := b.WaitApplied(ctx, campaign, seq)
	must.Hold(t, errors.Is(err, event.ErrNotYet) && strings.Contains(err.Error(), "diverged") && ctx.Err() == nil, "event %d of campaign %q is answered as applied up to %d, %v; want at once that the campaign has diverged", seq, campaign, applied, err)
}

func TestPass_neverCountsANewEventAsAppliedByProjectionsOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ has, appended, rows int }{
		"that does not know the campaign": {0, 1, 1000},
		"that is behind":                  {1, 1, 1000},
		"that comes level":                {1, 2, 1000},
		"that goes on":                    {1, 4, 1000},
		"that goes on in small waves":     {0, 5, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.BatchSize(c.rows))
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
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.BatchSize(2))
	b.Pass(enginetest.Notes("a", 4)...).MustPause("a")
	b.Pass(enginetest.Noted("b"))
	forget(t, b, "a", 2)
	must.Get(b.Reconcile(t.Context())).Or(t)
	b.MustAppend(other("a"), other("a"))
	b.MustResume("a")
	b.Drain().MustHaveApplied("a", 4).Sound()
}

func TestApplyInline_neverCountsANewEventAsAppliedByProjectionsOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for _, has := range []int{0, 1, 2} {
		b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.InMode(campaign.ModeInline))
		must.OK(t, appendInline(t, b, enginetest.Notes("a", 3)...))
		forget(t, b, "a", has)
		b = b.Beside(enginetest.InMode(campaign.ModeInline))
		err := appendInline(t, b, other("a"))
		must.Hold(t, errors.Is(err, event.ErrConflict) && strings.Contains(err.Error(), "diverged"), "with %d events: applied inline: %v", has, err)
		mustHaveSwallowedNothing(t, b, "a", int64(has+1))
	}
}

func TestStart_saysLoudlyThatTheProjectionsAreOfAnotherJournal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ known, want []string }{
		"the journal is empty": {nil, []string{`level=ERROR`, "the journal is empty, but the projections have events", "the URL of the journal database", "campaigns=2"}},
		"it lacks a campaign":  {[]string{"b"}, []string{`level=ERROR`, "restore the right journal", "campaigns=1", "rebuild"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log storetest.Log
			b := enginetest.Own(t, []string{enginetest.Ledger}, func(o *enginetest.Options) { o.Worker.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			b.MustAppend(enginetest.Notes("a", 3)...)
			b.Feed(enginetest.Notes("b", 3)...)
			for _, id := range []string{"a", "b"} {
				if len(c.known) == 0 || id == "a" {
					forget(t, b, id, 0)
				}
			}
			stop := b.Start()
			must.Eventually(t, "campaign a is diverged, and the log says it", func() bool {
				got, err := b.Campaign(t.Context(), "a")
				return err == nil && got.State() == campaign.StateDiverged && log.Says(c.want...)
			})
			stop()
			reasons := strings.Join(b.Ready(t.Context()), " ")
			must.Hold(t, (len(c.known) == 0) == strings.Contains(reasons, "the journal is empty, but the projections have events"), "readiness says %q", reasons)
			b.MustAppend(other("a"))
			mustHaveSwallowedNothing(t, b, "a", 1)
		})
	}
}

// mustRefuse fails unless event 3 of campaign b fails for the reason, on every attempt, while campaign a is applied to its end.
func mustRefuse(t *testing.T, b *enginetest.Engine, now *storetest.Clock, reason string) {
	for n := 1; n <= 3; n++ {
		b.Pass()
		now.Advance(10 * time.Minute)
		r := b.MustRow("b", 3)
		want := map[bool]event.Status{true: event.Dead, false: event.Failed}[n == 3]
		must.Hold(t, r.Row.Status == want && r.Row.AttemptCount == n, "after try %d the event is %s with %d attempts, want %s", n, r.Row.Status, r.Row.AttemptCount, want)
		must.Hold(t, strings.Contains(r.Row.LastError, reason), "the error is %q, want it to say %q", r.Row.LastError, reason)
	}
	b.MustHaveApplied("a", 5).MustHaveApplied("b", 2)
}

func tampered(t *testing.T, statements ...string) (*enginetest.Engine, *storetest.Clock) {
	b := enginetest.Open(t, enginetest.Define(t, enginetest.Ledger), enginetest.At(storetest.NewClock()), enginetest.MaxAttempts(3))
	b.MustAppend(enginetest.Notes("a b", 5)...)
	for _, statement := range statements {
		b.Tamper(statement)
	}
	return b.Beside(enginetest.MaxAttempts(3)), b.Clock // a process that knows nothing of what is gone, which would be a journal that went back
}

func TestPass_neverAppliesAnEventWhoseContentDoesNotMatchItsHash(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`payload = '{"amount":1000}'`, `event_type = 'opened'`, `occurred_at = occurred_at + 1`, `entity_id = 'somebody else'`} {
		b, now := tampered(t, `update events set `+change+` where campaign_id = 'b' and seq = 3`)
		mustRefuse(t, b, now, "event 3 has changed since it was appended: its content no longer matches its hash")
	}
}

func rewrite(t *testing.T, b *enginetest.Engine, campaign string, seq int64, payload string) {
	e := must.Get(b.Event(t.Context(), campaign, seq)).Or(t)
	e.Payload = []byte(payload)
	b.Tamper(fmt.Sprintf(`update events set payload = '%s', event_hash = '%s' where campaign_id = '%s' and seq = %d`, payload, e.ContentHash(), campaign, seq))
}

func TestPass_neverPassesOverAnEventThatIsGone(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{`seq = 3`, `seq >= 3`} {
		b, now := tampered(t, `delete from events where campaign_id = 'b' and `+gone)
		b.Drain().MustHaveApplied("a", 5).MustHaveApplied("b", 2)
		must.Equal(t, b.MustRow("b", 4).Row.LastError, "", "an event behind the missing one was tried")
		head := storetest.Column[string](t, b.JournalDB, `select status || ': ' || last_error from projection_apply_outbox where campaign_id = 'b' and seq = 3`)
		must.Hold(t, len(head) == 1 && strings.HasPrefix(head[0], "failed: event 3 is missing from the journal"), "the head is %q", head)
		now.Advance(time.Second)
		b.Drain()
	}
}

func TestPass_repairsAGapBelowTheHeadItselfAndAppliesInOrder(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger})
	for campaign, lost := range map[string]string{"a": "seq <= 1", "b": "seq <= 4", "c": "seq <= 5"} {
		b.MustAppend(enginetest.Notes(campaign, 5)...)
		b.LoseRows(campaign, lost)
	}
	b.Feed(enginetest.Notes("a b c", 2)...).MustHaveAppliedEach("a b c", 7).Sound()
}

func TestPass_repairsAGapThatTheCampaignsRowDoesNotKnowOf(t *testing.T) {
	b := enginetest.Own(t, []string{enginetest.Ledger}, enginetest.At(storetest.NewClock()))
	for campaign, lost := range map[string]string{"a": `seq = 1`, "b": `seq in (2, 4)`, "c": `seq = 5`, "d": `seq < 5`, "e": `seq > 0`} {
		b.MustAppend(enginetest.Notes(campaign, 5)...)
		b.Exec(fmt.Sprintf(`delete from projection_apply_outbox where campaign_id = '%s' and %s`, campaign, lost))
	}
	for range 5 { // a wave or an hourly step finds it
		b.Drain()
		takeSteps(t, b)
		b.Clock.Advance(time.Hour)
	}
	b.MustHaveAppliedEach("a b c d e", 5).Sound()
}
