package operations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// gate blocks a campaign at an event of type spent without n.
const gate = `-- projection: gate
-- tables: gate

-- schema
create table gate (campaign_id text not null, seq bigint not null, n bigint not null, primary key (campaign_id, seq));

-- on: spent
insert into gate (campaign_id, seq, n) values (:campaign_id, :seq, :payload.n!);
`

// overdrawnBehindGate has campaigns that the gate blocks at event 2, on which accounts fails too and is quarantined. They are opened with a gate that
// lets them pass. The order of the projections is that in which they are applied.
func overdrawnBehindGate(t *testing.T, campaigns int, order func(gate string) []string) (*enginetest.Engine, *storetest.Clock) {
	t.Parallel()
	now, pair := storetest.NewClock(), dbtest.New(t)
	options := []enginetest.Option{enginetest.At(now), enginetest.MaxAttempts(1)}
	b := enginetest.OpenPair(t, pair, enginetest.Define(t, order(gate)...), options...)
	for i := range campaigns {
		id := fmt.Sprintf("c-%02d", i)
		b.MustAppend(enginetest.Opened(id, 10), enginetest.Spent(id, 100), enginetest.Noted(id))
	}
	b.Drain()
	now.Advance(time.Hour)
	return enginetest.OpenPair(t, pair, enginetest.Define(t, order(strings.ReplaceAll(gate, ":payload.n!", "1"))...), options...), now
}

func TestOperation_stopsIfApplyingQuarantinesAProjection(t *testing.T) {
	b, now := overdrawnBehindGate(t, 5, func(gate string) []string { return []string{gate, enginetest.LenientAccounts} })
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	d := settleOperation(t, b, op.ID)
	wantTotals(t, d, operations.OperationStopped, operations.OperationTotals{Chosen: 5, Quarantined: 1, Left: 4})
	if want := "event 2 of campaign c-00 was applied, but projection accounts failed at it and was quarantined"; d.Groups[0].Reason != want || d.StopReason != want {
		t.Errorf("the group stopped since %q, want %q", d.Groups[0].Reason, want)
	}
	want := "0 rows failed again, 1 applied with a projection quarantined, 4 not attempted"
	must.Hold(t, strings.HasSuffix(d.Why, want), "it says %q", d.Why)
	rows := resultRows(t, b, op.ID, operations.ResultQuarantined)
	must.Hold(t, len(rows) == 1 && strings.HasPrefix(rows[0].Detail, "applied; projection accounts failed at it and was quarantined: projection accounts (") && rows[0].FailedFingerprint != "", "the row says %+v", rows)
	must.Hold(t, len(d.NewQuarantines) == 1 && d.NewQuarantines[0].CampaignID == "c-00" && d.NewQuarantines[0].Seq == 2, "new quarantines are %+v", d.NewQuarantines)
	// Another campaign's failure is none of the operation's.
	now.Advance(time.Minute)
	b.Feed(enginetest.Opened("other", 10), enginetest.Spent("other", 100))
	all := b.StartOperation(operations.OperationRequest{})
	wantTotals(t, settleOperation(t, b, all.ID), operations.OperationStopped, operations.OperationTotals{Chosen: 4, Quarantined: 4})
	must.Equal(t, len(b.Operation(all.ID).NewQuarantines), 4, "new quarantines")
	must.Equal(t, len(b.Operation(op.ID).NewQuarantines), 1, "after its end new quarantines")
}

// A projection that failed at the row before the operation, so that it did not block the row, is not the operation's doing.
func TestOperation_isNotStoppedByAnEarlierQuarantine(t *testing.T) {
	b, _ := overdrawnBehindGate(t, 2, func(gate string) []string { return []string{enginetest.LenientAccounts, gate} })
	b.MustHaveCursors("c-00 accounts 1 quarantined", "c-01 accounts 1 quarantined")
	op := b.StartOperation(operations.OperationRequest{Canary: true})
	d := settleOperation(t, b, op.ID)
	wantTotals(t, d, operations.OperationDone, operations.OperationTotals{Chosen: 2, Done: 2})
	must.Equal(t, len(d.NewQuarantines), 0, "new quarantines")
}
