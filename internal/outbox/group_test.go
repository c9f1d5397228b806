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
	for name, c := range map[string]struct {
		group outbox.ErrorGroup
		hope  outbox.Hope
		says  string
	}{
		"nothing on record":    {outbox.ErrorGroup{Dead: 1}, outbox.HopeUnknown, "No attempt"},
		"alike on this build":  {outbox.ErrorGroup{Dead: 1, Attempts: 8, Alike: 8, Builds: build("v2", 8)}, outbox.HopeNone, "8 of 8 the same error on one build"},
		"alike on two builds":  {outbox.ErrorGroup{Dead: 1, Attempts: 8, Alike: 8, Builds: append(build("v2", 5), build("v1", 3)...)}, outbox.HopeNone, "8 of 8 the same error on 2 builds"},
		"not on this build":    {outbox.ErrorGroup{Dead: 1, Attempts: 8, Alike: 8, Builds: build("v1", 8)}, outbox.HopeSome, "All 8 attempts were by other builds than the v2"},
		"in several ways":      {outbox.ErrorGroup{Dead: 1, Attempts: 8, Alike: 3, Builds: build("v2", 8)}, outbox.HopeSome, "3 of 8 attempts"},
		"tried once":           {outbox.ErrorGroup{Failed: 1, Attempts: 1, Alike: 1, Builds: build("v2", 1)}, outbox.HopeUnknown, "once only"},
		"three, tried once":    {outbox.ErrorGroup{Failed: 3, Attempts: 3, Alike: 3, Builds: build("v2", 3)}, outbox.HopeUnknown, "each tried once"},
		"three, tried several": {outbox.ErrorGroup{Dead: 3, Attempts: 24, Alike: 24, Builds: build("v2", 24)}, outbox.HopeNone, "24 of 24"},
	} {
		if hope, says := c.group.Verdict("v2"); hope != c.hope || !strings.Contains(says, c.says) {
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
		{At: at(-5), Applied: 40}, // a process was forgotten, and with it what it had applied
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
