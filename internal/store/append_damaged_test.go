package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestReconcile_givesACampaignItsRowBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ applied, more int }{"of which nothing is applied": {0, 3}, "of which all is": {3, 0}, "of which some is": {2, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			if c.applied > 0 {
				f.AppendN("a", c.applied)
				f.Drain()
			}
			if c.more > 0 {
				f.AppendN("a", c.more)
				f.ClaimOne(one, 2) // by a worker that dies
			}
			before := f.MustCampaign("a")
			f.Exec(`delete from campaigns`)
			report, err := f.Check(f.Ctx, func(int64, int64) {})
			must.Hold(t, err == nil && len(report.Violations) == 1 && report.Violations[0].Invariant == "campaign_row" && report.Violations[0].CampaignID == "a", "check is %+v, %v", report, err)
			for _, appends := range [][]store.Append{{{Events: []outbox.Event{storetest.Event("a", "counted")}}}, {{Events: []outbox.Event{storetest.Event("b", "counted")}}, {Events: []outbox.Event{storetest.Event("a", "counted")}}}} {
				results, errs := f.AppendTogether(appends)
				if last := len(errs) - 1; !errors.Is(errs[last], outbox.ErrConflict) || !strings.Contains(errs[last].Error(), "gaps --repair") {
					t.Errorf("an append to it: %+v, %v", results, errs)
				} else if last > 0 && errs[0] != nil {
					t.Errorf("an append to another campaign: %v", errs[0])
				}
			}
			f.Clock.Advance(time.Minute)
			got, err := f.Reconcile(f.Ctx)
			must.Hold(t, err == nil && got.Campaigns == 1 && got.Diverged == 0, "reconciled %+v, %v", got, err)
			after := f.MustCampaign("a")
			must.Hold(t, after.HighWaterSeq == before.HighWaterSeq && after.AppliedSeq == before.AppliedSeq && after.Lease == nil && after.Counts.Pending == int64(c.more), "campaign is %+v, was %+v", after, before)
			f.MustBeReconciled()
			f.Sound()
			f.AppendN("a", 1)
			f.Drain()
			f.Sound()
		})
	}
}

func TestAppend_toACampaignWhoseRowEndsTooEarlyNamesTheCause(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	f.Exec(`update campaigns set high_water_seq = 2`)
	_, err := f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("a", "counted")}})
	refused(t, err, outbox.ErrConflict, `campaign "a"`, "its last event is 3", "outboxweb check")
	_, err = f.Append(f.Ctx, store.Append{Events: []outbox.Event{storetest.Event("b", "counted"), storetest.Event("a", "counted")}})
	refusal, ok := errors.AsType[*outbox.Refusal](err)
	must.Hold(t, ok && refusal.Index == 1, "the event at fault is not named: %+v", err)
}
