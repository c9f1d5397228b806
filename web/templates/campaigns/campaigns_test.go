package campaigns

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
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

func TestTwins_areWholeCommands(t *testing.T) {
	t.Parallel()
	p := ui.Page{Origin: "http://127.0.0.1:8080"}
	twins := requeueTwins(p, campaign.Row{CampaignID: "it's", Seq: 5, Status: event.Dead, AttemptCount: 8})
	want := `curl -s -H 'Content-Type: application/json' -d '{"reason":"why","expected":{"status":"dead","attempt_count":8}}' 'http://127.0.0.1:8080/api/v1/rows/it%27s/5/requeue'`
	must.Hold(t, twins.Curl == want, "curl: %s", twins.Curl)
	must.Equal(t, twins.CLI, `outboxweb requeue --reason=why -- 'it'\''s' 5`, "command")
}

// The outboxweb command has no projections of a host service: it is shown where it needs none of them.
func TestTwins_ofAnEmbeddedConsole(t *testing.T) {
	t.Parallel()
	p := ui.Page{Embedded: true, Me: operator.Identity{Role: operator.RoleAdmin}, Running: campaign.Running{Versions: map[string]string{"orders": "1", "rooms": "2"}, InGo: map[string]bool{"rooms": true}}}
	failed := campaign.Row{CampaignID: "c", Seq: 1, Status: event.Dead, LastError: "boom"}
	for what, tt := range map[string]struct {
		twins ui.Twins
		shown bool
	}{
		"a dry run":                 {dryRunTwins(p, DryRunView{}), false},
		"the rows of a campaign":    {modelTwins(p, ReadModelView{}), false},
		"a requeue":                 {requeueTwins(p, failed), true},
		"a failed row, in a report": {rowTwins(p, failed), true},
	} {
		must.Hold(t, tt.twins.Curl != "" && (tt.twins.CLI != "") == tt.shown, "%s: %+v", what, tt.twins)
	}
	cli := rowTwins(p, failed).CLI
	must.Hold(t, !strings.Contains(cli, "explain"), "a failed row: %s", cli)
}
