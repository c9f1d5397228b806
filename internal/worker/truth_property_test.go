package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// story records the events applied to a campaign's projections.
const story = `-- projection: story
-- tables: story

-- schema
create table story (campaign_id text not null, seq bigint not null, mark text not null, primary key (campaign_id, seq));

-- on: *
insert into story (campaign_id, seq, mark) values (:campaign_id, :seq, :payload.mark!);
`

// The campaigns of a history. a and b never have bad events; x has events that kill the process, and p some that cannot be applied.
var (
	innocents = []string{"a", "b"}
	everybody = []string{"a", "b", "p", "x"}
)

// honest is a system with random faults that must always report its state correctly.
type honest struct {
	*enginetest.Troubled
	ahead   time.Duration // of this clock
	turned  bool          // the clock was set back once
	mode    campaign.Mode
	sources []string
	journal map[string][]string // marks of the events, in order
	marks   int
	fatal   map[string]bool // by mark
}

func newHonest(tb enginetest.RapidTB, m campaign.Mode, sources []string) *honest {
	s := &honest{Troubled: &enginetest.Troubled{TB: tb, Clock: storetest.NewClock()}, mode: m, sources: sources, journal: make(map[string][]string), fatal: make(map[string]bool)}
	first := enginetest.Open(tb, sources, s.options()...)
	s.Engines = []*enginetest.Engine{first, first.Beside(s.options()...)}
	for _, id := range everybody {
		s.append(first, id, "opened", `"balance":1`)
	}
	return s
}

func (s *honest) options() []enginetest.Option {
	return []enginetest.Option{enginetest.At(s.Clock), enginetest.BatchSize(8), enginetest.MaxAttempts(3), enginetest.InMode(s.mode)}
}

func (s *honest) append(b *enginetest.Engine, id, eventType, fields string) (mark string) {
	s.marks++
	mark = fmt.Sprint("m-", s.marks)
	s.Clock.Advance(time.Millisecond)
	b.MustAppend(enginetest.EventOf(id, eventType, fmt.Sprintf(`{"mark":%q,%s}`, mark, fields)))
	s.journal[id] = append(s.journal[id], mark)
	return mark
}

func (s *honest) write(t *rapid.T) {
	b, id := s.Either(t), rapid.SampledFrom(everybody).Draw(t, "campaign")
	for range rapid.IntRange(1, 6).Draw(t, "events") {
		special := rapid.IntRange(0, 3).Draw(t, "special") == 0
		switch {
		case special && id == "p":
			s.append(b, id, "spent", `"amount":2`)
		case (special || rapid.Bool().Draw(t, "lethal")) && id == "x" && s.mode == campaign.ModeOutbox:
			s.fatal[s.append(b, id, "noted", `"n":1`)] = true
		default:
			s.append(b, id, "noted", `"n":1`)
		}
	}
	if s.mode == campaign.ModeInline && rapid.IntRange(0, 4).Draw(t, "dies") > 0 {
		_ = b.Worker.ApplyInline(context.Background(), id) // it may fail, and the events must be queued then
	}
}

// work processes some waves or suspects.
func (s *honest) work(t *rapid.T) {
	for range rapid.IntRange(1, 5).Draw(t, "waves") {
		if s.pass(t) {
			s.Clock.Advance(storetest.Lease + time.Second) // until it counts as gone
		}
	}
}

// pass processes a wave or a suspect. A process that meets a fatal event dies, and its leases stay.
func (s *honest) pass(t *rapid.T) (died bool) {
	ctx, b := context.Background(), s.Either(t)
	var claims []outbox.Claim
	var err error
	if !rapid.Bool().Draw(t, "a suspect first") {
		claims, err = b.Claim(ctx, b.Worker.Name(), outbox.ClaimLimits{Rows: 8, Lease: storetest.Lease})
	}
	if err == nil && len(claims) == 0 {
		claims, err = b.ClaimSuspect(ctx, b.Worker.Name(), storetest.Lease)
	}
	must.OK(t, err)
	for _, c := range claims {
		for _, mark := range s.journal[c.CampaignID][c.First-1 : min(int(c.Last), len(s.journal[c.CampaignID]))] {
			if s.fatal[mark] {
				return true
			}
		}
	}
	must.OK(t, b.FinishClaims(ctx, claims))
	return false
}

func (s *honest) advance(t *rapid.T) {
	s.Clock.Advance(rapid.SampledFrom([]time.Duration{time.Millisecond, 2 * time.Second, storetest.Lease + time.Second, time.Hour}).Draw(t, "time"))
}

func (s *honest) turnClock(t *rapid.T) {
	const day = 24 * time.Hour
	if s.ahead == 0 {
		s.ahead = day
	} else {
		s.ahead, s.turned = 0, true
		s.Clock.Advance(-2 * day)
	}
	s.Clock.Advance(day)
}

func (s *honest) pauseOrResume(t *rapid.T) {
	b, id := s.Either(t), rapid.SampledFrom(everybody).Draw(t, "campaign")
	_, err := b.PauseCampaign(context.Background(), enginetest.Operator, id)
	if errors.Is(err, event.ErrConflict) {
		_, err = b.ResumeCampaign(context.Background(), enginetest.Operator, id)
	}
	must.Need(t, err == nil || errors.Is(err, event.ErrNotFound), "%v", err)
}

func (s *honest) pauseOrResumeProjection(t *rapid.T) {
	b, id := s.Either(t), rapid.SampledFrom(append([]string{""}, innocents...)).Draw(t, "campaign")
	_, err := b.Runs.PauseProjection(context.Background(), enginetest.Operator, "accounts", id, b.Infos)
	if errors.Is(err, event.ErrConflict) {
		_, err = b.Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", id, b.Infos)
	}
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict) || errors.Is(err, event.ErrNotFound), "%v", err)
}

func (s *honest) verify(t *rapid.T) {
	b := s.Either(t)
	_, err := b.Runs.Start(context.Background(), enginetest.Operator, replay.RunRequest{Kind: replay.RunVerify, All: true}, b.Infos)
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

func (s *honest) workOnRuns(t *rapid.T) { s.Either(t).StepRuns() }

// restore sets a campaign's journal back to an earlier state while no process runs; then others start.
func (s *honest) restore(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "x"}).Draw(t, "campaign")
	last := rapid.IntRange(0, len(s.journal[id])).Draw(t, "events")
	for _, b := range s.Engines {
		must.OK(t, b.EndLeases(context.Background(), b.Worker.Name().ID))
	}
	forget(s.TB, s.Engines[0], id, last)
	s.journal[id] = s.journal[id][:last]
	for i, b := range s.Engines {
		s.Engines[i] = b.Beside(s.options()...)
	}
	s.reconcile()
}

func (s *honest) restart(*rapid.T) { s.reconcile() }

// reconcile runs while no request applies events.
func (s *honest) reconcile() {
	s.Clock.Advance(outbox.InlineWait)
	must.Get(s.Engines[0].Reconcile(context.Background())).Or(s.TB)
}

// rebuild is the operator's response to diverged campaigns.
func (s *honest) rebuild(tb testing.TB, b *enginetest.Engine) {
	for _, c := range must.Get(b.Campaigns(context.Background(), campaign.CampaignFilter{State: campaign.StateDiverged})).Or(tb).Items {
		_, err := b.Runs.Start(context.Background(), enginetest.Operator, replay.RunRequest{Kind: replay.RunRebuild, Campaigns: []string{c.CampaignID}}, b.Infos)
		must.Need(tb, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
	}
}

func (s *honest) told(id string) []string {
	return storetest.Column[string](s.TB, s.Engines[0].ProjectionsDB, `select mark from story where campaign_id = $1 order by seq`, id)
}

func (s *honest) everyStep(t *rapid.T) {
	b := s.Engines[0]
	for _, id := range everybody {
		journal, told := s.journal[id], s.told(id)
		seen := len(told) <= len(journal) && slices.Equal(told, journal[:len(told)])
		c, err := b.Campaign(context.Background(), id)
		if len(journal)+len(told) == 0 { // it was restored to before its first event
			must.Need(t, errors.Is(err, event.ErrNotFound) || c.LagEvents() <= 0, "campaign %q, which has no event: %+v, %v", id, c, err)
			continue
		}
		must.OK(t, err)
		e := c.Explain(s.Clock.Now(), campaign.Surroundings{Mode: s.mode})
		state, applied, lag := c.State(), int(c.AppliedSeq), int(c.LagEvents())
		switch {
		case int(c.HighWaterSeq) != len(journal):
			t.Fatalf("campaign %q has %d events and says %+v", id, len(journal), c)
		case seen == (state == campaign.StateDiverged):
			t.Fatalf("campaign %q: the journal has %v, the projections have %v, and it says %+v", id, journal, told, c)
		case seen && (applied > len(told) || applied < len(told) && e.Blocker != campaign.BlockerLease && e.Blocker != campaign.BlockerNone):
			t.Fatalf("campaign %q: the projections have %d events, and it says %+v", id, len(told), c)
		case seen && lag != len(journal)-applied:
			t.Fatalf("campaign %q: its lag is not %d: %+v", id, len(journal)-applied, c)
		case state == campaign.StateCurrent && lag > 0, lag == 0 && c.Paused == nil && state == campaign.StateLagging:
			t.Fatalf("campaign %q is %s: %+v", id, state, c)
		case slices.Contains(innocents, id) && (c.Counts.Failed > 0 || c.Counts.Dead > 0):
			t.Fatalf("innocent campaign %q: %+v", id, c)
		}
		number := func(query string, args ...any) int {
			return storetest.Column[int](s.TB, b.JournalDB, query, args...)[0]
		}
		due := number(`select count(*) from campaigns where campaign_id = $1 and due_at <= $2`, id, s.Clock.Now().UnixMicro()) > 0
		must.Need(t, due == (e.Blocker == campaign.BlockerNone), "campaign %q can be claimed: %v; and it says %+v", id, due, e)
		rows := number(`select count(*) from projection_apply_outbox where campaign_id = $1`, id)
		must.Need(t, int(c.Counts.Total()) == rows, "campaign %q has %d rows and says %+v", id, rows, c)
		n := number(`select count(*) from projection_apply_outbox where campaign_id = $1 and attempt_count > 0`, id)
		must.Need(t, n <= 0 || !slices.Contains(innocents, id), "%d events of innocent campaign %q are blamed for an attempt", n, id)
	}
}

// look compares the state that a newly started process reports in the summary and by check with the tables.
func (s *honest) look(t *rapid.T) {
	b := s.Engines[0].Beside(s.options()...)
	defer b.Close()
	number := func(query string, args ...any) int64 {
		return storetest.Column[int64](s.TB, s.Engines[0].JournalDB, query, args...)[0]
	}
	var want campaign.Summary
	want.Campaigns.Total = number(`select count(*) from campaigns`)
	want.Campaigns.Blocked = number(`select count(*) from campaigns where exists (
  select 1 from projection_apply_outbox o where o.campaign_id = campaigns.campaign_id and o.seq = campaigns.applied_seq + 1 and o.status = 'dead')`)
	want.Campaigns.Paused = number(`select count(*) from campaigns where paused_at is not null`)
	for _, id := range everybody {
		told := s.told(id)
		if len(told) > len(s.journal[id]) || !slices.Equal(told, s.journal[id][:len(told)]) {
			want.Campaigns.Diverged++
		}
		want.Lag.Events += number(`select coalesce(sum(high_water_seq - applied_seq), 0) from campaigns where campaign_id = $1`, id)
	}
	sum := must.Get(b.Summary(context.Background())).Or(t)
	got := sum.Campaigns
	must.Need(t, got.Total == want.Campaigns.Total && got.Blocked == want.Campaigns.Blocked && got.Paused == want.Campaigns.Paused && got.Diverged == want.Campaigns.Diverged && sum.Lag.Events == want.Lag.Events, "the summary has %+v and a lag of %d, want %+v and %d", got, sum.Lag.Events, want.Campaigns, want.Lag.Events)
	for _, status := range event.Statuses {
		n := number(`select count(*) from projection_apply_outbox where status = $1`, status)
		must.Need(t, sum.Counts.Of(status) == n, "%d rows are %s; the summary has %+v", n, status, sum.Counts)
	}
	const first = `select coalesce(min(e.recorded_at), 0) from events e join campaigns c on c.campaign_id = e.campaign_id where e.seq = c.applied_seq + 1`
	const retryable = first + ` and c.paused_at is null and c.diverged = '' and coalesce(c.head_status, '') <> 'dead'`
	for query, told := range map[string]*campaign.Oldest{first: sum.Oldest, retryable: sum.OldestRetryable} {
		at := number(query)
		must.Need(t, (at != 0) == (told != nil) && (told == nil || told.EnqueuedAt.UnixMicro() == at), "the oldest event is of %d; told: %+v", at, told)
	}
	report := must.Get(b.Check(context.Background(), func(int64, int64) {})).Or(t)
	found := slices.DeleteFunc(report.Violations, func(v campaign.Violation) bool {
		turned := v.Invariant == "recorded_at" || s.turned && strings.Contains(v.Detail, "it should be due at") // until the self-check corrects it
		paused := v.Invariant == "unknown_campaign" && len(s.journal[v.CampaignID]) == 0                        // before it was restored to nothing
		owed := v.Invariant == "replay_owed" && v.CampaignID == "p"                                             // its replay met an event that cannot be applied
		return turned || paused || owed
	})
	must.Need(t, (len(found) == 0) == (got.Diverged == 0), "with %d campaigns diverged check found %+v", got.Diverged, found)
}

func (s *honest) settle(r *rapid.T) {
	ctx, b := context.Background(), s.Engines[0]
	clear(s.fatal)
	s.Clock.Advance(48 * time.Hour)
	for _, id := range append([]string{""}, everybody...) {
		if _, err := b.Runs.ResumeProjection(ctx, enginetest.Operator, "accounts", id, b.Infos); err != nil && !errors.Is(err, event.ErrConflict) && !errors.Is(err, event.ErrNotFound) {
			r.Fatal(err)
		}
		if id == "" {
			continue
		}
		if _, err := b.ResumeCampaign(ctx, enginetest.Operator, id); err != nil && !errors.Is(err, event.ErrConflict) && !errors.Is(err, event.ErrNotFound) {
			r.Fatal(err)
		}
	}
	for range 3 {
		s.reconcile()
		s.rebuild(s.TB, b)
		for _, b := range s.Engines {
			b.StepRuns().ExecProjections(`update accounts set balance = 1000`)
			must.Get(b.RequeueDead(ctx, enginetest.Operator, campaign.RequeueFilter{})).Or(r)
			b.UntilStuck()
		}
	}
}

func TestWorker_tellsTheTruthWhateverHappens(t *testing.T) {
	t.Parallel()
	policies := [][]string{enginetest.Define(t, story, enginetest.Accounts), enginetest.Define(t, story, enginetest.LenientAccounts)}
	rapid.Check(t, func(r *rapid.T) {
		mode := rapid.SampledFrom([]campaign.Mode{campaign.ModeOutbox, campaign.ModeInline}).Draw(r, "mode")
		s := newHonest(enginetest.RapidTB{TB: t, R: r}, mode, rapid.SampledFrom(policies).Draw(r, "policy"))
		r.Repeat(map[string]func(*rapid.T){
			"write": s.write, "write more": s.write, "work": s.work, "work more": s.work, "work even more": s.work,
			"advance": s.advance, "turn the clock": s.turnClock, "pause or resume": s.pauseOrResume,
			"pause or resume a projection": s.pauseOrResumeProjection, "verify": s.verify, "work on runs": s.workOnRuns,
			"restore": s.restore, "restart": s.restart, "requeue": s.Requeue, "look": s.look,
			"": s.everyStep,
		})
		s.settle(r)
		s.everyStep(r)
		s.look(r)
		for _, id := range everybody {
			must.Need(r, slices.Equal(s.told(id), s.journal[id]), "campaign %q is not drained", id)
		}
	})
}
