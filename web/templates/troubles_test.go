package templates

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestOverviewHealth_isNotAllRightBesideARejectedRow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	v := Overview{Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Total: 3}}}
	v.Summary.Worker.Running, v.Summary.Worker.LastSeen = true, &now
	page := Page{Now: now}
	if got := overviewHealth(page, v); got.Level != outbox.LevelOK || got.Sentence != "All 3 campaigns are current." {
		t.Errorf("without trouble: %+v", got)
	}
	v.Sources = []outbox.IntakeSource{{Name: "shop", Configured: true, Rejected: 1, RejectedAt: &now}}
	if got := overviewHealth(page, v); got.Level != outbox.LevelWarn || got.Sentence != "All 3 campaigns are current, but something else needs attention." {
		t.Errorf("with a rejected row: %+v", got)
	}
}

// A rebuild makes what the loaded file says, be it right or wrong.
func TestDriftTrouble_leadsToTheChangeOfAFileBeforeARebuild(t *testing.T) {
	t.Parallel()
	p := Page{Me: outbox.Local()}
	v := Overview{Drifted: []outbox.Verification{{CampaignID: "c", Projection: "orders"}}, OtherBuilt: []outbox.ProjectionInfo{{Name: "seats"}}}
	if got := driftTrouble(p, v); got.action != "Rebuild…" {
		t.Errorf("drift of an unchanged projection: %+v", got)
	}
	v.OtherBuilt = append(v.OtherBuilt, outbox.ProjectionInfo{Name: "orders"})
	if got := driftTrouble(p, v); got.action != "See what changed" || got.to != "/projections/orders" || !strings.Contains(got.title, "orders has changed since rows were built") {
		t.Errorf("drift of a changed projection: %+v", got)
	}
}

// Rows that are not updated, or that another version built, are not all right.
func TestOverviewHealth_isNotAllRightBesideRowsOfNone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	v := Overview{Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Total: 3}}}
	v.Summary.Worker.Running, v.Summary.Worker.LastSeen = true, &now
	v.Summary.Held = []outbox.HeldProjection{{Projection: "orders", NotLoaded: true}}
	if got := overviewHealth(Page{Now: now}, v); got.Level != outbox.LevelWarn || got.Sentence != "All 3 campaigns are current in the loaded projections." || len(got.Notes) != 1 {
		t.Errorf("with a projection that is not loaded: %+v", got)
	}
	v.Summary.Held, v.OtherBuilt = nil, []outbox.ProjectionInfo{{Name: "orders"}}
	if got := overviewHealth(Page{Now: now}, v); got.Level != outbox.LevelWarn || got.Sentence != "All 3 campaigns are current, but not all rows were built by the loaded projections." {
		t.Errorf("with rows of another version: %+v", got)
	}
}
