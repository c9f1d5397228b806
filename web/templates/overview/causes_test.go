package overview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// A writer's mistake half an hour after a deploy is not put down to the deploy.
func TestCause_isPutDownToADeployJustBeforeItAlone(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		20 * time.Second: `ago</time>, after <a href="/projections/orders">projection orders changed to v2 on h</a>`,
		30 * time.Minute: `ago</time>; the last change was 30 min earlier: <a href="/projections/orders">`,
		2 * time.Hour:    `ago</time></span>`,
	} {
		g := campaign.ErrorGroup{Dead: 1, Heads: 1, Campaigns: 1, FirstAt: &first, Tried: []campaign.Tried{{Projection: "orders"}}}
		m := samples.Marker{At: first.Add(-ago), Kind: samples.MarkerVersion, Subject: "orders", Version: "v2", Host: "h"}
		c := causeView{AssessedGroup: campaign.AssessedGroup{ErrorGroup: g}, After: deployBefore([]samples.Marker{m}, g)}
		html := string(must.Get(templ.ToGoHTML(t.Context(), cause(ui.Page{Now: first.Add(time.Minute)}, c))).Or(t))
		text := html
		must.Hold(t, strings.Contains(text, want), "%v before: lacks %q:\n%s", ago, want, text)
	}
}

// What ran before a deploy and had the error, too, shows that the deploy is not to blame.
func TestDeployBefore_isNotOneWhoseErrorIsOlder(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	at := func(m int) time.Time { return first.Add(time.Duration(m) * time.Minute) }
	version := func(m int, from, to string) samples.Marker {
		return samples.Marker{At: at(m), Kind: samples.MarkerVersion, Subject: "orders", Previous: from, Version: to}
	}
	build := samples.Marker{At: at(-1), Kind: samples.MarkerDeploy, Previous: "b1", Version: "b2"}
	tried := func(versions ...string) (all []campaign.Tried) {
		for _, v := range versions {
			all = append(all, campaign.Tried{Build: "b2", Projection: "orders", ProjectionVersion: v})
		}
		return all
	}
	for name, c := range map[string]struct {
		markers []samples.Marker
		tried   []campaign.Tried
		earlier *time.Time
		want    bool
	}{
		"a deploy":                         {[]samples.Marker{version(-1, "v1", "v2")}, tried("v2"), nil, true},
		"a failed fix after it":            {[]samples.Marker{version(-1, "v1", "v2"), version(5, "v2", "v3")}, tried("v3", "v2"), nil, true},
		"a rollback that failed, too":      {[]samples.Marker{version(-1, "v1", "v2"), version(5, "v2", "v1")}, tried("v1", "v2"), nil, false},
		"one before the version before it": {[]samples.Marker{version(-9, "v0", "v1"), version(-1, "v1", "v2")}, tried("v0", "v2"), nil, false},
		"settled rows failed before it":    {[]samples.Marker{version(-1, "v1", "v2")}, tried("v2"), new(at(-30)), false},
		"the same bad version again":       {[]samples.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-39)), true},
		"settled rows failed between them": {[]samples.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-10)), false},
		"settled rows failed after it":     {[]samples.Marker{version(-3, "v1", "v2")}, tried("v2"), new(at(-2)), true},
		"a build":                          {[]samples.Marker{build}, tried("v2"), nil, true},
		"a build and the one before it":    {[]samples.Marker{build}, append(tried("v2"), campaign.Tried{Build: "b1"}), nil, false},
	} {
		g := campaign.ErrorGroup{FirstAt: &first, EarlierAt: c.earlier, Tried: c.tried}
		m := deployBefore(c.markers, g)
		must.Hold(t, (m != nil) == c.want, "%s: put down to %+v", name, m)
	}
}

func TestFailuresView_foldsALongListThatRepeatsTheCauses(t *testing.T) {
	t.Parallel()
	open := campaign.FailureFilter{Status: campaign.FailureOpen, Limit: 50}
	failures := func(n int, fingerprint string) (all []campaign.ProjectionFailure) {
		for i := range n {
			all = append(all, campaign.ProjectionFailure{CampaignID: fmt.Sprintf("c-%d", i), Fingerprint: fingerprint})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		filter campaign.FailureFilter
		stuck  []campaign.ProjectionFailure
		want   bool
	}{
		{"long and repeated", open, failures(20, "no seat"), true},
		{"short", open, failures(campaignsOnPage, "no seat"), false},
		{"with an error that is no cause", open, append(failures(20, "no seat"), failures(1, "quarantined")...), false},
		{"chosen", campaign.FailureFilter{Status: campaign.FailureOpen, Projection: "seats", Limit: 50}, failures(20, "no seat"), false},
		{"of all statuses", campaign.FailureFilter{Limit: 50}, failures(20, "no seat"), false},
	} {
		v := FailuresView{Filter: c.filter, All: []campaign.AssessedGroup{{ErrorGroup: campaign.ErrorGroup{Fingerprint: "no seat"}}}}
		v.Stuck.Items = c.stuck
		must.Equal(t, v.repeated(), c.want, "a list", c.name, "folded")
	}
}
