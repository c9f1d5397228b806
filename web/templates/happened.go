package templates

import (
	"time"

	"outboxweb/internal/outbox"
)

// moment is one line of an event's history: a step, or consecutive failed attempts with the same
// error.
type moment struct {
	outbox.EventStep           // the last of its steps
	First            time.Time // when its first step happened
	Count            int64
}

// moments returns the lines of a history, oldest first.
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

// began returns when the line began. The time at which an event was skipped is known exactly.
func (m moment) began() time.Time {
	if m.Kind == outbox.StepApplied {
		return m.Span.BeganAt
	}
	return m.First
}

// failedWords says how many times in a row an event failed, and whether it died.
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

// appliedWords says with which other events an event was applied.
func (m moment) appliedWords() string {
	if s := m.Span; s.FirstSeq < s.LastSeq {
		return "Applied with events " + num(s.FirstSeq) + " to " + num(s.LastSeq)
	}
	return "Applied"
}

// unrecorded describes an applied event whose history does not say when it was applied; empty if it
// does, or if the event is not applied.
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
