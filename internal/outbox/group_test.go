package outbox_test

import (
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

func TestErrorGroup_verdict(t *testing.T) {
	t.Parallel()
	build := func(name string, n int64) []outbox.Tally { return []outbox.Tally{{Name: name, Count: n}} }
	tried := func(build, version string) outbox.Tried {
		t := outbox.Tried{Build: build, Attempts: 8}
		if version != "" {
			t.Projection, t.ProjectionVersion = "roster", version
		}
		return t
	}
	never := func(build, version string) outbox.Tried {
		t := tried(build, version)
		t.Attempts, t.Permanent = 1, 1
		return t
	}
	gone := tried("v2", "now")
	gone.Projection = "gone"
	of := func(all ...outbox.Tried) outbox.ErrorGroup {
		g := outbox.ErrorGroup{Dead: 1, Tried: all, Builds: build(all[0].Build, 8)}
		for _, t := range all {
			g.Attempts, g.Alike, g.Permanent = g.Attempts+t.Attempts, g.Alike+t.Attempts, g.Permanent+t.Permanent
		}
		return g
	}
	varied := of(tried("v2", ""))
	varied.Alike = 3
	two := of(tried("v2", ""), tried("v1", ""))
	two.Builds = append(build("v2", 8), build("v1", 8)...)
	once := func(rows int64) outbox.ErrorGroup {
		g := of(tried("v2", ""))
		g.Dead, g.Failed, g.Attempts, g.Alike = 0, rows, rows, rows
		return g
	}
	for name, c := range map[string]struct {
		group outbox.ErrorGroup
		hope  outbox.RetryOutlook
		says  string
	}{
		"nothing on record":           {outbox.ErrorGroup{Dead: 1}, outbox.OutlookUnknown, "No attempt"},
		"alike on this build":         {of(tried("v2", "")), outbox.OutlookNone, "8 of 8 failed with the same error on one build: retrying will fail again until the cause is fixed"},
		"alike on two builds":         {two, outbox.OutlookNone, "16 of 16 failed with the same error on 2 builds"},
		"in several ways":             {varied, outbox.OutlookSome, "3 of 8 attempts"},
		"tried once":                  {once(1), outbox.OutlookUnknown, "Only one attempt"},
		"three, tried once":           {once(3), outbox.OutlookUnknown, "one attempt each"},
		"alike with this projection":  {of(tried("v2", "now")), outbox.OutlookNone, "8 of 8"},
		"alike with both projections": {of(tried("v2", "now"), tried("v2", "before")), outbox.OutlookNone, "16 of 16 failed with the same error on one build and 2 versions of the projection"},
		"another build":               {of(tried("v1", "")), outbox.OutlookSome, "Since the last failure the build changed (v1, now v2): retry to see whether that fixes it"},
		"another build alone":         {of(tried("v1", "now")), outbox.OutlookSome, "Since the last failure the build changed (v1, now v2) and projection roster did not: retry to see whether that fixes it"},
		"another projection alone":    {of(tried("v2", "before")), outbox.OutlookSome, "Since the last failure projection roster changed (before, now now) and the build did not: retry to see whether that fixes it"},
		"both are others":             {of(tried("v1", "before")), outbox.OutlookSome, "Since the last failure the build (v1, now v2) and projection roster (before, now now) changed: retry to see whether that fixes it"},
		"the projection is gone":      {of(gone), outbox.OutlookSome, "projection gone changed (now, now not loaded)"},
		"never with this projection":  {of(never("v2", "now")), outbox.OutlookNone, "It can never succeed with this version of the projection (roster now): retrying will fail again until the projection is fixed"},
		"never, whatever the build":   {of(never("v1", "now")), outbox.OutlookNone, "(roster now); since the last failure the build changed (v1, now v2) and projection roster did not: retrying will fail again until the projection is fixed"},
		"never with the one before":   {of(never("v2", "before")), outbox.OutlookSome, "retry to see whether that fixes it"},
		"now never, otherwise before": {of(never("v2", "now"), tried("v2", "now")), outbox.OutlookNone, "can never succeed"},
	} {
		if hope, says := c.group.Verdict(outbox.Running{Build: "v2", Versions: map[string]string{"roster": "now"}}); hope != c.hope || !strings.Contains(says, c.says) {
			t.Errorf("%s: %s, %q", name, hope, says)
		}
	}
}

func TestSeries_carriesOnWhatDidNotChange(t *testing.T) {
	t.Parallel()
	at := func(min int) time.Time { return noon.Add(time.Duration(min) * time.Minute) }
	samples := []outbox.Sample{
		{At: at(-90), Counts: outbox.Counts{Pending: 1}, Applied: 10},
		{At: at(-10), Counts: outbox.Counts{Dead: 2}, Applied: 70, Failed: 60, OldestEnqueuedAt: at(-20)},
		{At: at(-5), Applied: 40}, // a process's record was removed, and with it its applied events
	}
	h := outbox.Series(samples, outbox.SpanHour, noon.Add(20*time.Second))
	if len(h.Points) != 60 || h.StepSeconds != 60 || !h.Points[59].At.Equal(noon) || !h.Points[0].At.Equal(at(-59)) {
		t.Fatalf("%d points from %s to %s", len(h.Points), h.Points[0].At, h.Points[len(h.Points)-1].At)
	}
	before, then, after := h.Points[48], h.Points[49], h.Points[50]
	if before.Counts.Pending != 1 || before.AppliedPerSecond != 0 {
		t.Errorf("before: %+v", before)
	}
	if then.Counts.Dead != 2 || then.AppliedPerSecond != 1 || then.FailedPerSecond != 1 || then.OldestAgeSeconds != 600 {
		t.Errorf("then: %+v", then)
	}
	if after.AppliedPerSecond != 0 || after.OldestAgeSeconds != 660 {
		t.Errorf("after: %+v", after)
	}
	if forgotten := h.Points[54]; forgotten.AppliedPerSecond != 0 || forgotten.OldestAgeSeconds != 0 {
		t.Errorf("when totals shrink: %+v", forgotten)
	}
}
