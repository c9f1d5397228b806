package delivery

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func TestLagText_saysHowMuchIsKnown(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]subscription.Publisher{
		"0; ": {}, "1,204; the first waiting for 1 min": {LagEvents: 1204, LagSeconds: 70}, "at least 1,204; the first waiting for 1 min": {LagEvents: 1204, LagSeconds: 70, LagCapped: true},
		"not known; scanning; no event of the topic found so far": {LagCapped: true},
	} {
		must.Equal(t, lagText(p)+"; "+lagNote(&p), want)
	}
}

func TestExactly_isForSettingsWhichAreNotAges(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{.05: "50 ms", 1: "1 s", 1.5: "1,500 ms", 60: "1 min", 90: "90 s", 5400: "90 min", 3600: "1 h"} {
		must.Equal(t, exactly(seconds), want)
	}
}

func TestPublisherTwins_haveACommandInAnEmbeddedConsole(t *testing.T) {
	t.Parallel()
	p := ui.Page{Embedded: true, Me: operator.Identity{Role: operator.RoleAdmin}, Running: campaign.Running{InGo: map[string]bool{"rooms": true}}}
	for _, twins := range []ui.Twins{publisherTwins(p, subscription.Publisher{}), p.AsksOn(operator.ActionIntakeRetry, nil, "shop", "1")} {
		must.Hold(t, twins.Curl != "" && twins.CLI != "", "%+v", twins)
	}
}
