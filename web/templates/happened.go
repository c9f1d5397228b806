package templates

import (
	"time"

	"outboxweb/internal/outbox"
)

// moment is one line of what happened to an event: a step, or failed attempts
// in a row that came to the same error.
type moment struct {
	outbox.EventStep           // the last of them
	First            time.Time // when the first of them was
	Count            int64
}

// moments are the lines of a history, the oldest first.
func moments(h outbox.EventHistory) []moment {
	var lines []moment
	for _, s := range h.Steps {
		if n := len(lines); n > 0 && lines[n-1].Kind == outbox.StepFailed && s.Attempt != nil && lines[n-1].Attempt.Error == s.Attempt.Error {
			lines[n-1].EventStep = s
			lines[n-1].Count++
			continue
		}
		lines = append(lines, moment{EventStep: s, First: s.At, Count: 1})
	}
	return lines
}

// began is when the line began. When an event was passed over is known exactly.
func (m moment) began() time.Time {
	if m.Kind == outbox.StepApplied {
		return m.Span.BeganAt
	}
	return m.First
}

// failedWords say how often an event failed in a row, and whether it died of it.
func (m moment) failedWords() string {
	words := "Failed"
	if m.Count > 1 {
		words += " " + count(m.Count, "time", "times") + " with the same error"
	}
	if m.Kind == outbox.StepDied {
		words += ", now dead"
	}
	return words
}

// appliedWords say with which others an event was applied.
func (m moment) appliedWords() string {
	if s := m.Span; s.FirstSeq < s.LastSeq {
		return "Applied with events " + num(s.FirstSeq) + " to " + num(s.LastSeq)
	}
	return "Applied"
}

// unrecorded says what became of an applied event whose history does not tell
// when; empty when it does, or the event is not applied.
func unrecorded(h outbox.EventHistory, c outbox.Campaign) string {
	if h.Seq > c.AppliedSeq {
		return ""
	}
	for _, s := range h.Steps {
		if s.Span != nil {
			return ""
		}
	}
	return "Applied. Time and worker are not on record."
}
