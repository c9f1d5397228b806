package runs_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

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

func drawJournal(t *rapid.T, campaign string) []outbox.Event {
	n := rapid.IntRange(3, 40).Draw(t, "events of "+campaign)
	events := make([]outbox.Event, n)
	for i := range events {
		number := fmt.Sprint(rapid.IntRange(-2, 6).Draw(t, "n"))
		if rapid.IntRange(0, 15).Draw(t, "null") == 0 {
			number = "null"
		}
		word := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "bad"}).Draw(t, "word")
		events[i] = enginetest.EventOf(campaign, rapid.SampledFrom(randomTypes).Draw(t, "type"),
			fmt.Sprintf(`{"id":%d,"n":%s,"word":%q}`, rapid.IntRange(1, 6).Draw(t, "id"), number, word))
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
		passed, failed := said[outbox.OutcomePasses], said[outbox.OutcomeFailsSame]+said[outbox.OutcomeFailsDifferently]
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
	dead, err := b.Runs.Rehearse(context.Background(), enginetest.Operator, outbox.RehearsalRequest{Files: changedTo(q.text()), Behind: rapid.SampledFrom([]int64{20, 30, 100}).Draw(r, "behind")}, b.Set)
	if err != nil {
		r.Skip("no campaign is blocked, or the files are refused: ", err)
	}
	b.StepRuns()
	d := mustReadRehearsal(tb, b, dead.ID)
	ordered := q.ordered() && (b.OnPostgres() || d.Versions[0].OtherSchema)
	if d.Run.Status != outbox.RunCompleted || d.Counts.NotRehearsed > 0 && !ordered || d.Counts.NotCompared > 0 {
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
	page := must.Get(fixed.Runs.Results(context.Background(), outbox.ResultFilter{RunID: d.Run.ID})).Or(r)
	for _, result := range page.Items {
		campaign := result.CampaignID
		at := fixed.MustCampaign(campaign).AppliedSeq
		if said[result.Outcome]++; result.Outcome == outbox.OutcomeNotRehearsed && !strings.Contains(result.Error, "depending on the order") {
			r.Fatalf("campaign %s is not rehearsed: %s", campaign, result.Error)
		}
		switch result.Outcome {
		case outbox.OutcomePasses:
			if at < result.Seq {
				r.Fatalf("campaign %s would pass up to event %d, and stands at %d\nloaded:\n%s\nchanged:\n%s", campaign, result.Seq, at, p.text(), q.text())
			}
		case outbox.OutcomeFailsSame, outbox.OutcomeFailsDifferently:
			if at != result.Rehearsed.FailedSeq-1 && !d.Versions[0].OtherSchema && !ordered {
				r.Fatalf("campaign %s would fail at event %d, and stands at %d\nloaded:\n%s\nchanged:\n%s", campaign, result.Rehearsed.FailedSeq, at, p.text(), q.text())
			}
		}
	}
}

// refutedBy requeues every dead row, those that would pass with a canary that rests on the rehearsal,
// and fails the test if one of those does not pass.
func refutedBy(tb enginetest.RapidTB, b *enginetest.Engine, d outbox.FixRehearsal) {
	ctx := context.Background()
	for _, outcome := range []string{outbox.OutcomePasses, outbox.OutcomeFailsDifferently, outbox.OutcomeFailsSame} {
		page := must.Get(b.Runs.Results(ctx, outbox.ResultFilter{RunID: d.Run.ID, Outcome: outcome})).Or(tb)
		var rows []outbox.RowKey
		for _, one := range page.Items {
			rows = append(rows, outbox.RowKey{CampaignID: one.CampaignID, Seq: one.Rehearsed.Head})
		}
		if len(rows) == 0 {
			continue
		}
		order := outbox.OperationRequest{Selection: outbox.Selection{Rows: rows}}
		if outcome == outbox.OutcomePasses {
			order.Canary, order.Rehearsal = true, d.Run.ID
		}
		op := must.Get(b.Operations.Start(ctx, enginetest.Operator, order)).Or(tb)
		for range 100 {
			changed := must.Get(b.Operations.StepOne(ctx, op.ID)).Or(tb)
			if b.Drain(); !changed && !slices.Contains([]outbox.OperationStatus{outbox.OperationRunning}, mustOperation(tb, b, op.ID).Status) {
				break
			}
		}
		end := mustOperation(tb, b, op.ID)
		must.Need(tb, end.Rehearsal == order.Rehearsal && (end.Rehearsed == end.Totals.Chosen || order.Rehearsal <= 0), "the operation rests on rehearsal %d with %d of %d rows, want %d with all", end.Rehearsal, end.Rehearsed, end.Totals.Chosen, order.Rehearsal)
		must.Need(tb, outcome != outbox.OutcomePasses || end.Status == outbox.OperationDone, "the canary refutes the rehearsal: %s", end.Why)
	}
}

func mustOperation(tb enginetest.RapidTB, b *enginetest.Engine, id int64) outbox.OperationDetail {
	return must.Get(b.Operations.Get(context.Background(), id)).Or(tb)
}
