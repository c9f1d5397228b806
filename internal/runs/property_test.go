package runs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// remade is a system with failures whose projections are also rebuilt, verified and replayed, by processes that die meanwhile.
type remade struct {
	*enginetest.Troubled
	late     []func() error // late steps of dead runs' processes
	blocking bool           // accounts block a campaign in which they fail
	seen     map[string]int // the longest trail a reader has seen
}

func (s *remade) startRun(t *rapid.T) {
	b := s.Either(t)
	order := replay.RunRequest{Kind: rapid.SampledFrom(replay.ScopedRunKinds).Draw(t, "kind")}
	if order.All = rapid.Bool().Draw(t, "all"); !order.All {
		order.Campaigns = []string{s.Campaign(t)}
	}
	if rapid.Bool().Draw(t, "one projection") {
		order.Projections = []string{rapid.SampledFrom([]string{"trail", "accounts"}).Draw(t, "projection")}
	}
	_, err := b.Runs.Start(context.Background(), enginetest.Operator, order, b.Infos)
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

func (s *remade) pauseOrResumeProjection(t *rapid.T) {
	b, campaign := s.Either(t), ""
	if rapid.Bool().Draw(t, "one campaign") {
		campaign = s.Campaign(t)
	}
	if s.blocking { // the applied events would depend on when it was paused
		t.Skip("accounts block")
	}
	_, err := b.Runs.PauseProjection(context.Background(), enginetest.Operator, "accounts", campaign, b.Infos)
	if errors.Is(err, event.ErrConflict) {
		_, err = b.Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", campaign, b.Infos)
	}
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

// workOnRuns executes runs until there are none. The leases of a dead run have to expire, for which the clock has to move.
func (s *remade) workOnRuns(t *rapid.T) {
	for _, campaignID := range enginetest.TroubledCampaigns {
		if lease := s.Engines[0].MustCampaign(campaignID).Lease; lease != nil && campaign.IsRun(lease.Owner) {
			s.Clock.Advance(storetest.Lease + time.Second)
		}
	}
	s.Either(t).StepRuns()
}

func (s *remade) dieInRun(t *rapid.T) {
	next := must.Get(s.Either(t).RunWorker.DieInRun(context.Background(), rapid.IntRange(0, 2).Draw(t, "stage"))).Or(t)
	if next != nil {
		s.late = append(s.late, next)
	}
}

func (s *remade) wakeLate(t *rapid.T) {
	if len(s.late) == 0 {
		t.Skip("no run sleeps")
	}
	next := s.late[0]
	s.late = s.late[1:]
	err := next()
	must.Need(t, err == nil || errors.Is(err, event.ErrLeaseLost), "%v", err)
}

func (s *remade) cancelOrResume(t *rapid.T) {
	b := s.Either(t)
	page := must.Get(b.Runs.List(context.Background(), replay.RunFilter{Limit: 1})).Or(t)
	if len(page.Items) == 0 {
		t.Skip("there is no run")
	}
	var err error
	if run := page.Items[0]; run.Status.Active() {
		_, err = b.Runs.Cancel(context.Background(), enginetest.Operator, run.ID)
	} else {
		_, err = b.Runs.Resume(context.Background(), enginetest.Operator, run.ID, b.Infos)
	}
	must.Need(t, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
}

// Invariants hold after every step: each trail has the events 1 to the watermark, each once and in order, and never fewer than a reader saw before.
func (s *remade) Invariants(t *rapid.T) {
	for _, campaign := range enginetest.TroubledCampaigns {
		seqs := storetest.Column[int](s.TB, s.Engines[0].ProjectionsDB, `select seq from trail where campaign_id = $1 order by place`, campaign)
		for i, seq := range seqs {
			must.Need(t, seq == i+1, "campaign %q has event %d in place %d", campaign, seq, i+1)
		}
		must.Need(t, len(seqs) >= s.seen[campaign], "campaign %q had %d events and now %d", campaign, s.seen[campaign], len(seqs))
		s.seen[campaign] = len(seqs)
		applied, err := s.Engines[0].AppliedSeq(context.Background(), campaign)
		must.Need(t, err == nil && int(applied) == len(seqs), "campaign %q is applied up to %d (%v), with %d events in its trail", campaign, applied, err, len(seqs))
	}
}

// Settle ends all problems except faulty events.
func (s *remade) Settle() {
	for _, campaign := range append([]string{""}, enginetest.TroubledCampaigns...) {
		_, err := s.Engines[0].Runs.ResumeProjection(context.Background(), enginetest.Operator, "accounts", campaign, s.Engines[0].Infos)
		must.Need(s.TB, err == nil || errors.Is(err, event.ErrConflict), "%v", err)
	}
	for range 4 {
		s.Clock.Advance(time.Hour)
		for _, b := range s.Engines {
			b.StepRuns()
			must.Get(b.RequeueDead(context.Background(), enginetest.Operator, campaign.RequeueFilter{})).Or(s.TB)
			b.UntilStuck()
		}
	}
}

// digests are those of all live rows, by campaign and projection.
func (s *remade) digests(b *enginetest.Engine) map[string]map[string]string {
	live := must.Get(b.Live(context.Background())).Or(s.TB)
	defer live.Close()
	all := make(map[string]map[string]string)
	for _, campaign := range enginetest.TroubledCampaigns {
		digests, _, err := b.Set.Digests(context.Background(), live, campaign)
		must.OK(s.TB, err)
		all[campaign] = digests
	}
	return all
}

func TestRuns_leaveWhatOneReplayMakesWhateverHappened(t *testing.T) {
	t.Parallel()
	blocking, lenient := enginetest.Define(t, enginetest.Trail, enginetest.Accounts), enginetest.Define(t, enginetest.Trail, enginetest.LenientAccounts)
	rapid.Check(t, func(r *rapid.T) {
		tb, sources, blocks := enginetest.RapidTB{TB: t, R: r}, lenient, rapid.Bool().Draw(r, "accounts block")
		if blocks {
			sources = blocking
		}
		s := &remade{Troubled: enginetest.NewTroubled(tb, sources), blocking: blocks, seen: make(map[string]int)}
		r.Repeat(map[string]func(*rapid.T){
			"append": s.Append, "pass": s.Pass, "pass again": s.Pass, "advance": s.Advance,
			"die after claim": s.DieAfterClaim, "die after apply": s.DieAfterApply,
			"sleep after claim": s.SleepAfterClaim, "wake": s.Wake,
			"requeue": s.Requeue, "start a run": s.startRun, "work on runs": s.workOnRuns,
			"start another run": s.startRun, "die in a run": s.dieInRun, "die in a run again": s.dieInRun,
			"pause or resume a projection": s.pauseOrResumeProjection, "wake from a run": s.wakeLate, "cancel or resume": s.cancelOrResume,
			"": s.Invariants,
		})
		s.Settle()
		must.Get(s.Engines[0].Runs.Start(context.Background(), enginetest.Operator, replay.RunRequest{Kind: replay.RunReplay, All: true}, s.Engines[0].Infos)).Or(r)
		s.workOnRuns(r)
		for _, next := range s.late {
			if err := next(); err != nil && !errors.Is(err, event.ErrLeaseLost) {
				r.Fatal(err)
			}
		}
		s.Invariants(r)
		once := enginetest.Open(tb, sources, enginetest.At(s.Clock), enginetest.MaxAttempts(3))
		for _, campaign := range slices.Sorted(slices.Values(enginetest.TroubledCampaigns)) {
			once.MustAppend(s.Journal[campaign]...)
		}
		once.UntilStuck()
		diff := cmp.Diff(s.digests(once), s.digests(s.Engines[0]))
		must.Need(r, diff == "", "digests (-folded once +after all the trouble):\n%s", diff)
		mustMatchJournal(tb, s.Engines[0], enginetest.TroubledCampaigns...)
		s.Engines[1].Sound()
	})
}

// Statements that a random projection's events run on its tables, and conditions on these.
var (
	randomStatements = []string{
		"insert into things (campaign_id, id, n, word) values (:campaign_id, :payload.id!, :payload.n, :payload.word);",
		"insert into things (campaign_id, id, n, word) values (:campaign_id, :payload.id!, :payload.n, :payload.word) on conflict do nothing;",
		"insert into things (campaign_id, id, n, word) values (:campaign_id, :payload.id!, :payload.n, :payload.word) on conflict (campaign_id, id) do update set n = things.n + excluded.n;",
		"insert into things (campaign_id, id, n, word) values (:campaign_id, :seq, 0, :event_type);",
		"update things set n = n - cast(:payload.n! as bigint) where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);",
		"update things set n = n * 2 + 1, word = word || :payload.word where campaign_id = :campaign_id and id <= cast(:payload.id! as bigint);",
		"update things set word = :payload.word where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);",
		"delete from things where campaign_id = :campaign_id and id = cast(:payload.id! as bigint);",
		"delete from things where campaign_id = :campaign_id and n < 0;",
		"delete from sums where campaign_id = :campaign_id;\ninsert into sums (campaign_id, total, latest) select cast(:campaign_id as text), sum(n), cast(:seq as bigint) from things where campaign_id = :campaign_id;",
		"insert into sums (campaign_id, total, latest) values (:campaign_id, :payload.n, :seq) on conflict (campaign_id) do update set total = sums.total + excluded.total, latest = excluded.latest;",
		"update sums set total = total - cast(:payload.n! as bigint) where campaign_id = :campaign_id;",
	}
	// Of these only some fail, on null or on a condition.
	lenientStatements = append([]string{"update things set n = n + 1 where campaign_id = :campaign_id;", "update sums set latest = :seq where campaign_id = :campaign_id;"},
		randomStatements[1], randomStatements[6], randomStatements[7], randomStatements[8])
	randomConditions = []string{"", " check (n >= 0)", " check (n <= 9)", " not null", " not null check (n <> 3)"}
	randomUniques    = []string{"", ", unique (campaign_id, word)", ", unique (campaign_id, n)", ", check (word <> 'bad')"}
	randomSums       = []string{"", " check (total >= 0)", " not null check (total < 12)"}
	randomTypes      = []string{"one", "two", "three"}
)

// randomProjection is a projection of random statements; a fix changes some of its parts.
type randomProjection struct {
	condition, unique, sum string
	statements             map[string][]string // by event type
}

func drawProjection(t *rapid.T) randomProjection {
	p := randomProjection{condition: rapid.SampledFrom(randomConditions).Draw(t, "condition"), unique: rapid.SampledFrom(randomUniques).Draw(t, "unique"),
		sum: rapid.SampledFrom(randomSums).Draw(t, "sum"), statements: map[string][]string{}}
	for _, name := range randomTypes {
		p.statements[name] = rapid.SliceOfN(rapid.SampledFrom(randomStatements), 1, 2).Draw(t, name)
	}
	return p
}

// fix changes what one or all event types do and, if schema is set, maybe the conditions.
func (p randomProjection) fix(t *rapid.T, schema bool) randomProjection {
	q, other := p, drawProjection(t)
	q.statements = map[string][]string{}
	if rapid.Bool().Draw(t, "lenient") {
		other.unique = ""
		for _, name := range randomTypes {
			other.statements[name] = rapid.SliceOfN(rapid.SampledFrom(lenientStatements), 1, 2).Draw(t, "lenient "+name)
		}
	}
	one := rapid.SampledFrom(append([]string{"", "", ""}, randomTypes...)).Draw(t, "changed type")
	for name, statements := range p.statements {
		if q.statements[name] = statements; one == "" || one == name {
			q.statements[name] = other.statements[name]
		}
	}
	if schema {
		q.condition, q.unique, q.sum = other.condition, other.unique, other.sum
	}
	return q
}

func (p randomProjection) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- projection: things\n-- tables: things, sums\n\n-- schema\n")
	fmt.Fprintf(&b, "create table things (campaign_id text not null, id bigint not null, n bigint%s, word text, primary key (campaign_id, id)%s);\n", p.condition, p.unique)
	fmt.Fprintf(&b, "create table sums (campaign_id text not null primary key, total bigint%s, latest bigint);\n", p.sum)
	for _, name := range randomTypes {
		fmt.Fprintf(&b, "\n-- on: %s\n%s\n", name, strings.Join(p.statements[name], "\n"))
	}
	return b.String()
}

// ordered reports whether the order in which the database visits rows may decide whether an event fails: an update of several rows of a unique key. A
// rebuild and a copy on PostgreSQL store rows in the order of their key, not in that in which they were made.
func (p randomProjection) ordered() bool {
	return strings.HasPrefix(p.unique, ", unique") && slices.ContainsFunc(slices.Concat(slices.Collect(maps.Values(p.statements))...), func(statement string) bool {
		return strings.HasPrefix(statement, "update things set n = n + 1") || strings.HasPrefix(statement, "update things set n = n * 2")
	})
}

func drawJournal(t *rapid.T, campaign string) []event.Event {
	n := rapid.IntRange(3, 40).Draw(t, "events of "+campaign)
	events := make([]event.Event, n)
	for i := range events {
		number := fmt.Sprint(rapid.IntRange(-2, 6).Draw(t, "n"))
		if rapid.IntRange(0, 15).Draw(t, "null") == 0 {
			number = "null"
		}
		word := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "bad"}).Draw(t, "word")
		events[i] = enginetest.EventOf(campaign, rapid.SampledFrom(randomTypes).Draw(t, "type"), fmt.Sprintf(`{"id":%d,"n":%s,"word":%q}`, rapid.IntRange(1, 6).Draw(t, "id"), number, word))
	}
	return events
}

var randomCampaigns = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}

// TestRehearse_saysWhatTheCanaryFinds compares what a rehearsal says of blocked campaigns with what happens once the changed file is loaded and a
// canary has requeued their dead events: in a soak of a thousand campaigns, otherwise of those of one round of checks.
func TestRehearse_saysWhatTheCanaryFinds(t *testing.T) {
	t.Parallel()
	said, cases := map[string]int{}, size.Of(0, 0, 1000)
	for enough := false; !enough && !t.Failed(); {
		rapid.Check(t, func(r *rapid.T) { saysWhatTheCanaryFinds(t, r, said) })
		passed, failed := said[replay.OutcomeReplayed], said[replay.OutcomeFailed]
		enough = passed+failed >= cases && min(passed, failed) >= cases/10
	}
	t.Log("note:", said)
}

func saysWhatTheCanaryFinds(t *testing.T, r *rapid.T, said map[string]int) {
	tb, clock := enginetest.RapidTB{TB: t, R: r}, storetest.NewClock()
	p := drawProjection(r)
	schema := rapid.IntRange(0, 3).Draw(r, "schema") == 0
	q := p.fix(r, schema)
	if p.text() == q.text() {
		r.Skip("nothing changed")
	}
	b := enginetest.Open(tb, enginetest.Define(t, p.text()), enginetest.At(clock), enginetest.MaxAttempts(1))
	for _, campaign := range randomCampaigns {
		b.MustAppend(drawJournal(r, campaign)...)
	}
	b.Drain()
	dead, err := b.Runs.Rehearse(context.Background(), enginetest.Operator, replay.RehearsalRequest{Files: changedTo(q.text()), Behind: rapid.SampledFrom([]int64{20, 30, 100}).Draw(r, "behind")}, b.Set)
	if err != nil {
		r.Skip("no campaign is blocked, or the files are refused: ", err)
	}
	b.StepRuns()
	d := mustReadRehearsal(tb, b, dead.ID)
	ordered := q.ordered() && (b.OnPostgres() || d.Versions[0].OtherSchema)
	if d.Run.Status != replay.RunCompleted || countsOf(d).NotRehearsed > 0 && !ordered || countsOf(d).NotCompared > 0 {
		r.Fatalf("the rehearsal is %s (%s): %+v", d.Run.Status, d.Run.Error, d.Groups)
	}
	if d.Versions[0].OtherSchema {
		b.ExecProjections("drop table things")
		b.ExecProjections("drop table sums")
	}
	fixed := enginetest.OpenPair(tb, b.Pair, enginetest.Define(t, q.text()), enginetest.At(clock), enginetest.MaxAttempts(1))
	if d.Versions[0].OtherSchema {
		fixed.RunToEnd(enginetest.Rebuild(randomCampaigns...))
	}
	must.Need(r, mustReadRehearsal(tb, fixed, dead.ID).Loaded, "the rehearsed file does not count as loaded")
	refutedBy(tb, fixed, d)
	for _, result := range must.Get(fixed.Runs.Results(context.Background(), replay.ResultFilter{RunID: d.Run.ID})).Or(r).Items {
		campaign := result.CampaignID
		at := fixed.MustCampaign(campaign).AppliedSeq
		if said[result.Outcome]++; result.Outcome == replay.OutcomeNotCompared && !strings.Contains(result.Error, "depending on the order") {
			r.Fatalf("campaign %s is not rehearsed: %s", campaign, result.Error)
		}
		switch {
		case result.Rehearsed.Head == 0: // it was not blocked
		case result.Outcome == replay.OutcomeReplayed:
			must.Need(r, at >= result.Seq, "campaign %s would pass up to event %d, and stands at %d\nloaded:\n%s\nchanged:\n%s", campaign, result.Seq, at, p.text(), q.text())
		case result.Outcome == replay.OutcomeFailed:
			if at != result.Rehearsed.FailedSeq-1 && !d.Versions[0].OtherSchema && !ordered {
				r.Fatalf("campaign %s would fail at event %d, and stands at %d\nloaded:\n%s\nchanged:\n%s", campaign, result.Rehearsed.FailedSeq, at, p.text(), q.text())
			}
		}
	}
}

// refutedBy requeues every dead row, those that would pass with a canary that rests on the rehearsal,
// and fails the test if one of those does not pass.
func refutedBy(tb enginetest.RapidTB, b *enginetest.Engine, d replay.FixRehearsal) {
	ctx := context.Background()
	for _, outcome := range []string{replay.OutcomeReplayed, replay.OutcomeFailed} {
		page := must.Get(b.Runs.Results(ctx, replay.ResultFilter{RunID: d.Run.ID, Outcome: outcome})).Or(tb)
		var rows []event.RowKey
		for _, one := range page.Items {
			if one.Rehearsed.Head > 0 { // it is blocked
				rows = append(rows, event.RowKey{CampaignID: one.CampaignID, Seq: one.Rehearsed.Head})
			}
		}
		if len(rows) == 0 {
			continue
		}
		order := operations.OperationRequest{Selection: operations.Selection{Rows: rows}}
		if outcome == replay.OutcomeReplayed {
			order.Canary, order.Rehearsal = true, d.Run.ID
		}
		op := must.Get(b.Operations.Start(ctx, enginetest.Operator, order)).Or(tb)
		for range 100 {
			changed := must.Get(b.Operations.StepOne(ctx, op.ID)).Or(tb)
			if b.Drain(); !changed && !slices.Contains([]operations.OperationStatus{operations.OperationRunning}, b.Operation(op.ID).Status) {
				break
			}
		}
		end := b.Operation(op.ID)
		must.Need(tb, end.Rehearsal == order.Rehearsal && (end.Rehearsed == end.Totals.Chosen || order.Rehearsal <= 0), "the operation rests on rehearsal %d with %d of %d rows, want %d with all", end.Rehearsal, end.Rehearsed, end.Totals.Chosen, order.Rehearsal)
		must.Need(tb, outcome != replay.OutcomeReplayed || end.Status == operations.OperationDone, "the canary refutes the rehearsal: %s", end.Why)
	}
}
