package templates

import (
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
