package projections

import (
	"strings"
	"testing"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func TestProjectionCounts_ofOneAreSingular(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{1: ">campaign waiting for it<", 2: ">campaigns waiting for it<"} {
		html := string(must.Get(templ.ToGoHTML(t.Context(), projectionCounts(ui.Page{}, campaign.ProjectionInfo{Name: "orders", Blocking: n}))).Or(t))
		must.Hold(t, strings.Contains(html, want), "%d: %s", n, html)
	}
}

// The outboxweb command has no projections of a host service.
func TestPauseTwins_ofAnEmbeddedConsole(t *testing.T) {
	t.Parallel()
	p := ui.Page{Embedded: true, Me: operator.Identity{Role: operator.RoleAdmin}, Running: campaign.Running{InGo: map[string]bool{"rooms": true}}}
	for name, shown := range map[string]bool{"rooms": false, "orders": true} {
		twins := pauseTwins(p, campaign.ProjectionInfo{Name: name})
		must.Hold(t, twins.Curl != "" && (twins.CLI != "") == shown, "%s: %+v", name, twins)
	}
}
