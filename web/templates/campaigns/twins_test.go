package campaigns

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

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
