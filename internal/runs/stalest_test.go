package runs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestStalestCampaigns_choosesWhatWasNotVerifiedForLongest(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		f.AppendN(id, 1)
	}
	f.Drain()
	f.AppendN("new", 1)
	var notes []outbox.Verification
	for i, id := range []string{"a", "b", "d"} {
		notes = append(notes, outbox.Verification{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(10-i) * time.Minute), Verdict: outbox.VerdictMatch})
	}
	if err := f.RecordVerifications(f.Ctx, notes); err != nil {
		t.Fatal(err)
	}
	got, next, err := f.Runs.Stalest(f.Ctx, "", 3)
	if err != nil || next != "new" || len(got) != 3 || got[0].CampaignID != "c" || got[1].CampaignID != "d" || got[2].CampaignID != "b" || got[0].AppliedSeq != 1 {
		t.Errorf("stalest are %+v, %q, %v", got, next, err)
	}
	if got, next, err = f.Runs.Stalest(f.Ctx, "b", 9); err != nil || next != "b" || len(got) != 4 {
		t.Errorf("after b they are %+v, %q, %v", got, next, err)
	}
}

// One campaign more than a window is no reason to verify it every other time.
func TestStalestCampaigns_takesTurnsWithOneMoreThanAWindow(t *testing.T) {
	t.Parallel()
	f := open(t)
	const campaigns = 501
	events := make([]outbox.Event, campaigns)
	for i := range events {
		events[i] = storetest.Event(fmt.Sprintf("c%03d", i), "counted")
	}
	f.MustAppend(events...)
	f.Drain()
	after, verified := "", make(map[string]bool)
	for i := range campaigns {
		got, next, err := f.Runs.Stalest(f.Ctx, after, 1)
		if err != nil || len(got) != 1 {
			t.Fatalf("turn %d: %+v, %v", i, got, err)
		}
		id := got[0].CampaignID
		if err := f.RecordVerifications(f.Ctx, []outbox.Verification{{CampaignID: id, Projection: "roster", At: began.Add(time.Duration(i) * time.Minute), Verdict: outbox.VerdictMatch}}); err != nil {
			t.Fatal(err)
		}
		after, verified[id] = next, true
	}
	if len(verified) < campaigns-1 {
		t.Errorf("in %d turns %d campaigns were verified", campaigns, len(verified))
	}
}
