package runs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/enginetest"
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
	t.Helper()
	clock := storetest.NewClock()
	b := enginetest.Open(t, enginetest.Define(t, orders, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	b.MustAppend(t, lacksSKU("a"), lacksSKU("b"))
	b.Drain(t)
	d := mustRehearse(t, b, outbox.RehearsalRequest{Files: changedTo(withoutSKU)})
	if !d.Passed() {
		t.Fatalf("the rehearsal says %q", d.Answer)
	}
	clock.Advance(time.Minute)
	b.MustAppend(t, lacksSKU("later"), lacksNumber("other"))
	b.Drain(t)
	return b, clock, d
}

// assessed is the error that blocks a campaign, as pages show it.
func assessed(t *testing.T, b *enginetest.Engine, campaign string) outbox.AssessedGroup {
	t.Helper()
	all, err := b.Store.ErrorGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, p := range b.Infos() {
		versions[p.Name] = p.Version
	}
	groups := all.Assessed(outbox.Running{Build: "test", Versions: versions}, nil)
	if err := b.Runs.RestOnRehearsals(t.Context(), groups, b.Infos()); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Fingerprint == b.MustRow(t, campaign, b.MustCampaign(t, campaign).HeadSeq).Row.Fingerprint {
			return g
		}
	}
	t.Fatalf("no error blocks campaign %s", campaign)
	return outbox.AssessedGroup{}
}

func TestRestOn_callsOnARehearsalOnlyForWhatItTried(t *testing.T) {
	t.Parallel()
	before, clock, d := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	if g := assessed(t, b, "other"); g.Rehearsal != 0 || strings.Contains(g.Verdict, "rehearsal") {
		t.Errorf("of an error that it never tried: rehearsal %d: %s", g.Rehearsal, g.Verdict)
	}
	partly := assessed(t, b, "later")
	if want := "2 of these 3 campaigns passed rehearsal 1, which did not try the other 1: rehearse again"; !strings.HasSuffix(partly.Verdict, want) || partly.RehearsedHeads != 2 || partly.Remedy() != outbox.RemedyRehearse {
		t.Errorf("of three campaigns of which it tried two: %q, remedy %s", partly.Verdict, partly.Remedy())
	}
	again := mustRehearse(t, b, outbox.RehearsalRequest{Files: changedTo(withoutSKU), Fingerprint: partly.Fingerprint}) // the loaded file
	if g := assessed(t, b, "later"); !again.Loaded || g.Rehearsal != again.Run.ID || g.RehearsedHeads != 3 || g.Remedy() != outbox.RemedyRequeue {
		t.Errorf("rehearsed again with what is loaded: %q", g.Verdict)
	}
	every := outbox.Selection{}
	if p, err := b.Operations.Preview(t.Context(), every, d.Run.ID); err != nil || p.Rows != 4 || p.Rehearsed != 2 {
		t.Errorf("it covers %d of %d rows (%v), want 2 of 4", p.Rehearsed, p.Rows, err)
	}
	tried, err := b.Operations.TriedHeads(t.Context(), d.Run.ID)
	if want := []outbox.RowKey{{CampaignID: "a", Seq: 1}, {CampaignID: "b", Seq: 1}}; err != nil || len(tried) != 2 || tried[0] != want[0] || tried[1] != want[1] {
		t.Errorf("it tried %v (%v), want %v", tried, err, want)
	}
	op, err := b.Operations.Start(t.Context(), enginetest.Operator, outbox.OperationRequest{Selection: every, Rehearsal: d.Run.ID})
	if err != nil {
		t.Fatal(err)
	}
	if o := mustOperation(enginetest.RapidTB{TB: t}, b, op.ID); o.Rehearsed != 2 || o.CoverText() != "it tried 2 of the operation's 4 rows" {
		t.Errorf("the operation that rests on it: %s", o.CoverText())
	}
	b.MustSkip(t, "later", 1)
	if g := assessed(t, b, "a"); !strings.HasSuffix(g.Verdict, "every blocked campaign passed rehearsal 2: requeue with a canary") {
		t.Errorf("of the campaigns that it tried: %q", g.Verdict)
	}
}

// What failed again with the loaded files is not vouched for any more.
func TestRestOn_isRefutedByARetry(t *testing.T) {
	t.Parallel()
	before, clock, _ := rehearsedWithoutSKU(t)
	b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, withoutSKU, enginetest.Ledger), enginetest.MaxAttempts(1), enginetest.At(clock))
	b.Meddle(t, "insert into orders (campaign_id, seq, sku, number) values ('a', 1, '', '')")
	b.MustRequeue(t, "a", 1)
	b.Drain(t)
	if d, err := b.Runs.PassedRehearsal(t.Context(), b.MustRow(t, "a", 1).Row.Fingerprint, b.Infos()); d != nil || err != nil {
		t.Errorf("a campaign that failed again: %+v (%v)", d, err)
	}
	if g := assessed(t, b, "b"); g.RehearsedHeads != 1 {
		t.Errorf("%d campaigns are vouched for, want b alone", g.RehearsedHeads)
	}
}

func TestRestOn_needsEveryProjectionAsRehearsed(t *testing.T) {
	t.Parallel()
	before, clock, d := rehearsedWithoutSKU(t)
	for name, sources := range map[string][]string{
		"another one changed":  {withoutSKU, enginetest.Ledger + "-- changed\n"},
		"another one is gone":  {withoutSKU},
		"another one is there": {withoutSKU, enginetest.Ledger, gate},
	} {
		b := enginetest.OpenPair(t, before.Pair, enginetest.Define(t, sources...), enginetest.MaxAttempts(1), enginetest.At(clock))
		if g := assessed(t, b, "a"); g.Rehearsal != 0 {
			t.Errorf("%s: %s", name, g.Verdict)
		}
		if r := mustReadRehearsal(t, b, d.Run.ID); r.Loaded || !r.Outdated() || len(r.Others) != 1 {
			t.Errorf("%s: loaded: %v, the others: %+v", name, r.Loaded, r.Others)
		}
		if err := b.Runs.RestOn(t.Context(), d.Run.ID, b.Infos()); !errors.Is(err, outbox.ErrConflict) || !strings.Contains(err.Error(), "another version of projection") {
			t.Errorf("%s: an operation may rest on it: %v", name, err)
		}
	}
}
