package campaign_test

import (
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestErrorGroup_verdict(t *testing.T) {
	t.Parallel()
	build := func(name string, n int64) []campaign.Tally { return []campaign.Tally{{Name: name, Count: n}} }
	tried := func(build, version string) campaign.Tried {
		t := campaign.Tried{Build: build, Attempts: 8}
		if version != "" {
			t.Projection, t.ProjectionVersion = "roster", version
		}
		return t
	}
	never := func(build, version string) campaign.Tried {
		t := tried(build, version)
		t.Attempts, t.Permanent = 1, 1
		return t
	}
	gone := tried("v2", "now")
	gone.Projection = "gone"
	of := func(all ...campaign.Tried) campaign.ErrorGroup {
		g := campaign.ErrorGroup{Dead: 1, Tried: all, Builds: build(all[0].Build, 8)}
		for _, t := range all {
			g.Attempts, g.Alike, g.Permanent = g.Attempts+t.Attempts, g.Alike+t.Attempts, g.Permanent+t.Permanent
		}
		return g
	}
	varied := of(tried("v2", ""))
	varied.Alike = 3
	two := of(tried("v2", ""), tried("v1", ""))
	two.Builds = append(build("v2", 8), build("v1", 8)...)
	once := func(rows int64) campaign.ErrorGroup {
		g := of(tried("v2", ""))
		g.Dead, g.Failed, g.Attempts, g.Alike, g.Tried[0].Rows = 0, rows, rows, rows, rows
		return g
	}
	examined := once(3)
	examined.Failed = 5_000
	failed := of(tried("v1", ""))
	failed.Dead, failed.Failed = 0, 1
	for name, c := range map[string]struct {
		group campaign.ErrorGroup
		hope  campaign.RetryOutlook
		says  string
	}{
		"nothing on record":            {campaign.ErrorGroup{Dead: 1}, campaign.OutlookUnknown, "No attempt"},
		"alike on this build":          {of(tried("v2", "")), campaign.OutlookNone, "8 of 8 attempts failed with the same error on one build: retrying will fail again until the cause is fixed"},
		"alike on two builds":          {two, campaign.OutlookNone, "16 of 16 attempts failed with the same error on 2 builds"},
		"in several ways":              {varied, campaign.OutlookSome, "3 of 8 attempts"},
		"tried once":                   {once(1), campaign.OutlookUnknown, "Only one attempt"},
		"three, tried once":            {once(3), campaign.OutlookUnknown, "one attempt each"},
		"many, three of them examined": {examined, campaign.OutlookUnknown, "3 of 3 attempts failed with the same error on one build, one attempt each"},
		"found in shadow mode":         {campaign.ErrorGroup{Rehearsed: 2}, campaign.OutlookNone, "Rehearsed in shadow_only mode, nothing was applied: it would fail until the cause is fixed"},
		"alike with this projection":   {of(tried("v2", "now")), campaign.OutlookNone, "8 of 8"},
		"alike with both projections":  {of(tried("v2", "now"), tried("v2", "before")), campaign.OutlookNone, "16 of 16 attempts failed with the same error on one build and 2 versions of the projection"},
		"another build":                {of(tried("v1", "")), campaign.OutlookSome, "Since the last failure the build changed (v1, now v2): requeue to see whether that fixes it"},
		"another build, none dead":     {failed, campaign.OutlookSome, "Since the last failure the build changed (v1, now v2): retry to see whether that fixes it"},
		"another build alone":          {of(tried("v1", "now")), campaign.OutlookSome, "Since the last failure the build changed (v1, now v2) and projection roster did not: requeue to see whether that fixes it"},
		"another projection alone":     {of(tried("v2", "before")), campaign.OutlookSome, "Since the last failure projection roster changed (before, now now) and the build did not: requeue to see whether that fixes it"},
		"both are others":              {of(tried("v1", "before")), campaign.OutlookSome, "Since the last failure the build (v1, now v2) and projection roster (before, now now) changed: requeue to see whether that fixes it"},
		"the projection is gone":       {of(gone), campaign.OutlookNone, "Projection gone is not loaded any more: a retry passes without it, and its rows lack the event; load it again first, unless it was removed for good"},
		"never with this projection":   {of(never("v2", "now")), campaign.OutlookNone, "It can never succeed with this version of the projection (roster now): retrying will fail again until the projection is fixed"},
		"never, whatever the build":    {of(never("v1", "now")), campaign.OutlookNone, "(roster now); since the last failure the build changed (v1, now v2) and projection roster did not: retrying will fail again until the projection is fixed"},
		"never with the one before":    {of(never("v2", "before")), campaign.OutlookSome, ": requeue to see whether that fixes it"},
		"now never, otherwise before":  {of(never("v2", "now"), tried("v2", "now")), campaign.OutlookNone, "can never succeed"},
	} {
		hope, says := c.group.Verdict(campaign.Running{Build: "v2", Versions: map[string]string{"roster": "now"}})
		must.Hold(t, hope == c.hope && strings.Contains(says, c.says), "%s: %s, %q", name, hope, says)
	}
}

// A row that failed in a projection that was removed is not said to have a chance with another version.
func TestRowDetail_hopelessSaysWhatBecameOfTheProjection(t *testing.T) {
	t.Parallel()
	now := campaign.Running{Versions: map[string]string{"roster": "now"}}
	for failedIn, want := range map[campaign.Attempt]string{
		{Permanent: true, Projection: "roster", ProjectionVersion: "now"}:    "can never succeed with this version of the projection",
		{Permanent: true, Projection: "roster", ProjectionVersion: "before"}: "The projection has changed since: a dry run shows whether it passes now",
		{Permanent: true, Projection: "gone", ProjectionVersion: "before"}:   "Failed permanently in projection gone, which is not loaded any more.",
		{Projection: "roster", ProjectionVersion: "now"}:                     "",
	} {
		got := campaign.RowDetail{Row: campaign.Row{Status: event.Dead}, Attempts: []campaign.Attempt{failedIn}}.Hopeless(now)
		must.Hold(t, strings.Contains(got, want) && (got == "") == (want == ""), "%+v: %q", failedIn, got)
	}
}

func TestRunning_knowsWhichErrorsAreOfAFile(t *testing.T) {
	t.Parallel()
	now := campaign.Running{Versions: map[string]string{"orders-2": "1", "rooms": "2"}, InGo: map[string]bool{"rooms": true}}
	for message, want := range map[string]bool{
		"": true,
		"projection orders-2 (orders.sql:3) on order.paid: boom":                                                     true,
		"projection rooms (rooms.go:3) on room.sold: boom":                                                           false,
		"projection gone (gone.sql:3) on order.paid: boom":                                                           false,
		event.CutOff + "10s and was cut off: projection rooms (rooms.go:3) on room.sold: context deadline exceeded":  false,
		event.CutOff + "10s and was cut off: projection orders-2 (o.sql:3) on order.paid: context deadline exceeded": true,
		"panic while applying event 3: boom":                                                                         true,
	} {
		must.Equal(t, now.InFile(event.Fingerprint(message)), want, message)
	}
	code := (campaign.Running{Versions: map[string]string{"rooms": "2"}, InGo: map[string]bool{"rooms": true}})
	must.Hold(t, !code.InFile(""), "no projection is a file")
}
