package campaign

import (
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
)

// Tonight says whether the system may be left alone, and who is told when it may not be any more.
type Tonight struct {
	Calm    bool   `json:"calm"`    // nothing needs anyone, and nothing grows
	Says    string `json:"says"`    // whether, and why, in a sentence
	Backlog string `json:"backlog"` // what becomes of what waits, likewise
	Told    string `json:"told"`    // who would be told, and whether they took the last message
	Quiet   string `json:"quiet"`   // what is muted; empty if nothing is
}

// Text is all of it.
func (n Tonight) Text() string {
	return strings.TrimSpace(strings.Join([]string{n.Says, n.Backlog, n.Told, n.Quiet}, " "))
}

// Tonight judges all but who is told.
func (s Summary) Tonight() (n Tonight) {
	o, level := s.Outlook, s.Findings.Worst()
	n.Calm = level != finding.Bad && !o.stays() && o.Held == 0
	switch {
	case level == finding.Bad:
		n.Says = "No: " + event.Count(s.Findings.At(finding.Bad), "finding needs", "findings need") + " you."
	case o.stays():
		n.Says = "No: the backlog stays."
	case o.Held > 0:
		n.Says = "Not quite: " + event.Count(o.Held, "event waits", "events wait") + " for an operator."
	case level == finding.Warn:
		n.Says = "Yes, with " + event.Count(s.Findings.At(finding.Warn), "warning", "warnings") + "."
	default:
		n.Says = "Yes: nothing needs you."
	}
	switch {
	case s.Lag.Events == 0:
		n.Backlog = "Nothing waits."
	case o.stays():
		n.Backlog = "It will not be empty at this rate: " + o.Says + "."
	case o.Empty == "unknown":
		n.Backlog = "When the backlog is empty is unknown: " + o.Says + "."
	case o.Held > 0:
		n.Backlog = event.Sentence(o.Says)
	case o.Empty == "now":
		n.Backlog = "Workers keep up."
	default:
		n.Backlog = "The backlog is empty in " + o.Empty + ", " + o.Says + "."
	}
	return n
}
