package runs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// orders needs two fields of an event of type ordered.
const orders = `-- projection: orders
-- tables: orders

-- schema
create table orders (campaign_id text not null, seq bigint not null, sku text not null, number text not null, primary key (campaign_id, seq));

-- on: ordered
insert into orders (campaign_id, seq, sku, number) values (:campaign_id, :seq, :payload.sku!, :payload.number!);
`

// withoutSKU is orders, but an event needs no sku.
var withoutSKU = strings.ReplaceAll(orders, ":payload.sku!", "coalesce(:payload.sku, 'none')")

// lacksSKU and lacksNumber are events that orders fails on, each with an error of its own.
func lacksSKU(campaign string) outbox.Event {
	return enginetest.EventOf(campaign, "ordered", `{"number":"1"}`)
}

func lacksNumber(campaign string) outbox.Event {
	return enginetest.EventOf(campaign, "ordered", `{"sku":"s"}`)
}

// rehearsedWithoutSKU has two campaigns that lack a sku and passed the rehearsal of a file that needs
// none, and one more campaign of either error that was blocked after it.
func rehearsedWithoutSKU(t *testing.T) (*enginetest.Engine, *storetest.Clock, outbox.FixRehearsal) {
	clock := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, orders, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	b.Feed(lacksSKU("a"), lacksSKU("b"))
	d := mustRehearse(t, b, outbox.RehearsalRequest{Files: changedTo(withoutSKU)})
	must.Need(t, d.Passed(), "the rehearsal says %q", d.Answer)
	clock.Advance(time.Minute)
	b.Feed(lacksSKU("later"), lacksNumber("other"))
	return b, clock, d
}

// assessed is the error that blocks a campaign, as pages show it.
func assessed(t *testing.T, b *enginetest.Engine, campaign string) outbox.AssessedGroup {
	t.Helper()
	all := must.Get(b.Store.ErrorGroups(t.Context())).Or(t)
	versions := map[string]string{}
	for _, p := range b.Infos {
		versions[p.Name] = p.Version
	}
	groups := all.Assessed(outbox.Running{Build: "test", Versions: versions}, nil)
	must.OK(t, b.Runs.RestOnRehearsals(t.Context(), groups, b.Infos))
	for _, g := range groups {
		if g.Fingerprint == b.MustRow(campaign, b.MustCampaign(campaign).HeadSeq).Row.Fingerprint {
			return g
		}
	}
	t.Fatalf("no error blocks campaign %s", campaign)
	return outbox.AssessedGroup{}
}

func TestRestOn_leavesOutRowsThatWereRetriedSince(t *testing.T) {
	t.Parallel()
	before, clock, d := rehearsedWithoutSKU(t)
	before.MustRequeue("b", 1)
	before.Drain()
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	selection := outbox.Selection{Rows: []outbox.RowKey{{CampaignID: "a", Seq: 1}, {CampaignID: "b", Seq: 1}}}
	p, err := b.Operations.Preview(t.Context(), selection, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 2 && p.Rehearsed == 1 && p.RehearsedFailing == 0, "it covers %d of %d rows, %d failing (%v)", p.Rehearsed, p.Rows, p.RehearsedFailing, err)
	passed, err := b.Operations.PassedHeads(t.Context(), d.Run.ID)
	must.Hold(t, err == nil && len(passed) == 1 && passed[0].CampaignID == "a", "those that would pass are %v (%v), want that of a", passed, err)
	clock.Advance(time.Second)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, outbox.OperationRequest{Selection: selection, Rehearsal: d.Run.ID})).Or(t)
	must.Equal(t, mustOperation(enginetest.RapidTB{TB: t}, b, op.ID).CoverText(), "1 of the operation's 2 rows passed it", "the operation that rests on it")
}

func TestRestOn_callsOnARehearsalOnlyForWhatItTried(t *testing.T) {
	t.Parallel()
	before, clock, d := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	g := assessed(t, b, "other")
	must.Hold(t, g.Rehearsal == 0 && !strings.Contains(g.Verdict, "rehearsal"), "of an error that it never tried: rehearsal %d: %s", g.Rehearsal, g.Verdict)
	partly := assessed(t, b, "later")
	if want := "2 of these 3 campaigns passed rehearsal 1; the other 1 was not tried in it, or retried since: rehearse again"; !strings.HasSuffix(partly.Verdict, want) || partly.RehearsedHeads != 2 || partly.Remedy() != outbox.RemedyRehearse {
		t.Errorf("of three campaigns of which it tried two: %q, remedy %s", partly.Verdict, partly.Remedy())
	}
	again := mustRehearse(t, b, outbox.RehearsalRequest{Files: changedTo(withoutSKU), Fingerprint: partly.Fingerprint}) // the loaded file
	g = assessed(t, b, "later")
	must.Hold(t, again.Loaded && g.Rehearsal == again.Run.ID && g.RehearsedHeads == 3 && g.Remedy() == outbox.RemedyRequeue, "rehearsed again with what is loaded: %q", g.Verdict)
	every := outbox.Selection{}
	p, err := b.Operations.Preview(t.Context(), every, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 4 && p.Rehearsed == 2, "it covers %d of %d rows (%v), want 2 of 4", p.Rehearsed, p.Rows, err)
	tried, err := b.Operations.PassedHeads(t.Context(), d.Run.ID)
	want := []outbox.RowKey{{CampaignID: "a", Seq: 1}, {CampaignID: "b", Seq: 1}}
	must.Hold(t, err == nil && len(tried) == 2 && tried[0] == want[0] && tried[1] == want[1], "it tried %v (%v), want %v", tried, err, want)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, outbox.OperationRequest{Selection: every, Rehearsal: d.Run.ID})).Or(t)
	if o := mustOperation(enginetest.RapidTB{TB: t}, b, op.ID); o.Rehearsed != 2 || o.CoverText() != "2 of the operation's 4 rows passed it" {
		t.Errorf("the operation that rests on it: %s", o.CoverText())
	}
	b.MustSkip("later", 1)
	g = assessed(t, b, "a")
	must.Hold(t, strings.HasSuffix(g.Verdict, "every blocked campaign passed rehearsal 2: requeue with a canary"), "of the campaigns that it tried: %q", g.Verdict)
}

// A rehearsal that fixes one cause everywhere, one in part and one nowhere says so of each, and what rests on it takes what passed.
func TestRestOn_saysWhatFailedInTheRehearsal(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	before := enginetest.Open(t, enginetest.Define(t, orders), enginetest.MaxAttempts(1), enginetest.At(clock))
	// A longer number fails in the changed file only.
	before.Feed(lacksSKU("a"), lacksSKU("b"), lacksNumber("c"), enginetest.EventOf("long", "ordered", `{"number":"12345"}`))
	fixed := strings.ReplaceAll(withoutSKU, "number text not null", "number text not null check (length(number) < 5)")
	d := mustRehearse(t, before, outbox.RehearsalRequest{Files: changedTo(fixed)})
	mustCount(t, d, outbox.RehearsalCounts{Passes: 2, FailsSame: 1, FailsDifferently: 1})
	clock.Advance(time.Minute)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, fixed), enginetest.MaxAttempts(1), enginetest.At(clock))

	some, none := assessed(t, b, "a"), assessed(t, b, "c")
	if want := ", and with the loaded files 2 of these 3 campaigns passed rehearsal 1, 1 failed in it: requeue those that passed with a canary, and fix the cause for the others"; !strings.HasSuffix(some.Verdict, want) || some.Remedy() != outbox.RemedyRequeue || some.RehearsedFailing != 1 {
		t.Errorf("of a cause that it fixes in part: %s, %d failing: %s", some.Remedy(), some.RehearsedFailing, some.Verdict)
	}
	if want := ", and with the loaded files every blocked campaign failed in rehearsal 1: requeuing will fail again until the cause is fixed"; !strings.HasSuffix(none.Verdict, want) || none.Remedy() != outbox.RemedyInspect || none.Rehearsal != d.Run.ID {
		t.Errorf("of a cause that it does not fix: %s: %s", none.Remedy(), none.Verdict)
	}
	every := outbox.Selection{}
	p, err := b.Operations.Preview(t.Context(), every, d.Run.ID)
	must.Hold(t, err == nil && p.Rows == 2 && p.Rehearsed == 2 && p.RehearsedFailing == 2, "an operation that rests on it takes %d rows, %d of them passed, %d failed (%v)", p.Rows, p.Rehearsed, p.RehearsedFailing, err)
	only := outbox.OperationRequest{Selection: outbox.Selection{Filter: outbox.RequeueFilter{Fingerprint: none.Fingerprint}}, Rehearsal: d.Run.ID}
	_, err = b.Operations.Start(t.Context(), enginetest.Operator, only)
	must.Hold(t, errors.Is(err, outbox.ErrConflict) && strings.Contains(err.Error(), "rehearsal 1 found all matching dead rows failing"), "an operation on what failed: %v", err)
	op := must.Get(b.Operations.Start(t.Context(), enginetest.Operator, outbox.OperationRequest{Selection: every, Rehearsal: d.Run.ID})).Or(t)
	if o := mustOperation(enginetest.RapidTB{TB: t}, b, op.ID); o.Totals.Chosen != 2 || o.CoverText() != "2 of the operation's 2 rows passed it" {
		t.Errorf("the operation that rests on it has %d rows: %s", o.Totals.Chosen, o.CoverText())
	}
}

// A head that would be applied, with an event behind it that fails, is no reason to call its cause unfixed.
func TestRestOn_tellsALaterEventFromTheHead(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	before := enginetest.Open(t, enginetest.Define(t, orders), enginetest.MaxAttempts(1), enginetest.At(clock))
	before.Feed(lacksSKU("a"), lacksNumber("a"))
	d := mustRehearse(t, before, outbox.RehearsalRequest{Files: changedTo(withoutSKU)})
	clock.Advance(time.Minute)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU), enginetest.MaxAttempts(1), enginetest.At(clock))
	g := assessed(t, b, "a")
	want := "every blocked campaign passed this event in rehearsal 1, and failed at a later one: requeue with a canary to get there, or fix that first"
	must.Hold(t, d.Counts.FailsDifferently == 1 && strings.HasSuffix(g.Verdict, want) && g.Outlook == outbox.OutlookSome && g.RehearsedLater == 1, "%s, %d later: %s", g.Outlook, g.RehearsedLater, g.Verdict)
}

func TestRestOn_alsoOfRowsThatWereNotRetried(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock()
	before := enginetest.Open(t, enginetest.Define(t, orders), enginetest.MaxAttempts(1), enginetest.At(clock))
	before.Feed(lacksSKU("a"), lacksSKU("b"), lacksSKU("c"))
	changed := strings.ReplaceAll(orders, "-- on: ordered", "-- on: ordered\n-- changed")
	d := mustRehearse(t, before, outbox.RehearsalRequest{Files: changedTo(changed)})
	clock.Advance(time.Minute)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, changed), enginetest.MaxAttempts(1), enginetest.At(clock))
	b.MustRequeue("a", 1)
	b.Drain()
	g := assessed(t, b, "b")
	must.Hold(t, strings.HasPrefix(g.Verdict, "1 of 3 rows failed with the loaded version of projection orders, and the others with an earlier one alone, and with the loaded files 0 of these 3 campaigns passed rehearsal 1, 2 failed in it; the other 1 was not tried in it, or retried since") && g.Rehearsal == d.Run.ID, "with one of three retried: %s", g.Verdict)
	b.MustRequeue("b", 1)
	b.MustRequeue("c", 1)
	b.Drain()
	g = assessed(t, b, "b")
	must.Hold(t, g.Outlook == outbox.OutlookNone && g.Rehearsal == 0, "with all retried: %s: %s", g.Outlook, g.Verdict)
}

func TestRestOn_isRefutedByARetry(t *testing.T) {
	t.Parallel()
	before, clock, _ := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	b.ExecProjections("insert into orders (campaign_id, seq, sku, number) values ('a', 1, '', '')")
	b.MustRequeue("a", 1)
	b.Drain()
	d, err := b.Runs.RehearsalOf(t.Context(), b.MustRow("a", 1).Row.Fingerprint, b.Infos)
	must.Hold(t, d == nil && err == nil, "a campaign that failed again: %+v (%v)", d, err)
	must.Equal(t, assessed(t, b, "b").RehearsedHeads, 1, "campaigns are vouched for")
}

func TestRestOn_needsEveryProjectionAsRehearsed(t *testing.T) {
	t.Parallel()
	before, clock, d := rehearsedWithoutSKU(t)
	for name, c := range map[string]struct {
		sources []string
		says    string
	}{
		"another one changed":  {[]string{withoutSKU, enginetest.Ledger + "-- changed\n"}, "ran with another version of projection ledger; rehearse again"},
		"another one is gone":  {[]string{withoutSKU}, "ran with projection ledger, which is not loaded any more; rehearse again without it"},
		"another one is there": {[]string{withoutSKU, enginetest.Ledger, gate}, "ran without projection gate, which is loaded; rehearse again with it: on the server's page, or with its file in the command's --projections"},
	} {
		b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, c.sources...), enginetest.MaxAttempts(1), enginetest.At(clock))
		must.Equal(t, assessed(t, b, "a").Rehearsal, 0, name)
		r := mustReadRehearsal(t, b, d.Run.ID)
		must.Hold(t, !r.Loaded && r.Outdated() && len(r.Others) == 1, "%s: loaded: %v, the others: %+v", name, r.Loaded, r.Others)
		storetest.Refused(t, b.Runs.RestOn(t.Context(), d.Run.ID, b.Infos), outbox.ErrConflict, c.says)
	}
}
