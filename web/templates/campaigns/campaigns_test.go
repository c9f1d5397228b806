package campaigns

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// For a problem the overview links to the guide for the worst one, and to none if all is well.
func TestCampaignGuide_followsTheState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	behind := campaign.Campaign{HighWaterSeq: 3, HeadSeq: 1, HeadStatus: event.Pending, HeadNextAttempt: now}
	for _, c := range []struct {
		name     string
		campaign campaign.Campaign
		found    finding.List
		want     ui.Guide
	}{
		{"current", campaign.Campaign{}, nil, ""},
		{"paused", campaign.Campaign{Paused: &campaign.Pause{}}, nil, ""},
		{"diverged", campaign.Campaign{Diverged: "so"}, nil, ui.GuideDiverged},
		{"dead", campaign.Campaign{HeadStatus: event.Dead}, nil, ui.GuideDead},
		{"failed", campaign.Campaign{HeadStatus: event.Failed}, nil, ui.GuideFailed},
		{"behind", behind, nil, ui.GuideLag},
		{"nobody works", behind, finding.List{{Kind: campaign.FindsWorker}}, ui.GuideWorker},
	} {
		must.Equal(t, campaignGuide(ui.Page{Findings: c.found}, c.campaign), c.want, c.name, ": leads to")
	}
}

func TestPct_isHowMuchIsApplied(t *testing.T) {
	t.Parallel()
	must.Equal(t, pct(campaign.Campaign{}), "100")
	must.Equal(t, pct(campaign.Campaign{HighWaterSeq: 3, AppliedSeq: 1}), "33")
}
