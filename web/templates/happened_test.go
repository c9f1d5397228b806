package templates

import (
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

func TestMoments_foldFailuresWithTheSameError(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	h := outbox.EventHistory{Seq: 3}
	step := func(kind outbox.StepKind, message string) {
		s := outbox.EventStep{Kind: kind, At: start.Add(time.Duration(len(h.Steps)) * time.Minute)}
		if message != "" {
			s.Attempt = &outbox.Attempt{Error: message}
		}
		h.Steps = append(h.Steps, s)
	}
	step(outbox.StepAppended, "")
	step(outbox.StepFailed, "boom")
	step(outbox.StepFailed, "boom")
	step(outbox.StepDied, "boom")
	step(outbox.StepDied, "boom")
	step(outbox.StepFailed, "bang")
	lines := moments(h)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4: %+v", len(lines), lines)
	}
	if m := lines[1]; m.Count != 3 || m.failedWords() != "Failed 3 times with the same error, now dead" || m.At.Sub(m.began()) != 2*time.Minute {
		t.Errorf("the first failures: %q from %s to %s", m.failedWords(), m.began(), m.At)
	}
	if words := lines[2].failedWords(); words != "Failed, now dead" {
		t.Errorf("a death of its own: %q", words)
	}
	if words := lines[3].failedWords(); words != "Failed" {
		t.Errorf("another error: %q", words)
	}
	if words := unrecorded(h, outbox.Campaign{AppliedSeq: 2}); words != "" {
		t.Errorf("an event that is not applied: %q", words)
	}
	if words := unrecorded(h, outbox.Campaign{AppliedSeq: 3}); words == "" {
		t.Error("nothing says that the event is applied")
	}
}
