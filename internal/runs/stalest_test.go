package runs_test

import (
	"testing"
	"time"

	"outboxweb/internal/outbox"
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
	if err != nil || next != "" || len(got) != 3 || got[0].CampaignID != "c" || got[1].CampaignID != "d" || got[2].CampaignID != "b" || got[0].AppliedSeq != 1 {
		t.Errorf("stalest are %+v, %q, %v", got, next, err)
	}
	if got, _, err = f.Runs.Stalest(f.Ctx, "b", 9); err != nil || len(got) != 2 {
		t.Errorf("after b they are %+v, %v", got, err)
	}
}
