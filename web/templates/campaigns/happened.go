package campaigns

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// moment is one line of an event's history: a step, or consecutive failed attempts with the same
// error, of the same build and version of the projection.
type moment struct {
	campaign.EventStep                    // the last of its steps
	First              time.Time          // when its first step happened
	Attempts           []campaign.Attempt // the failed ones, oldest first
	Changed            string             // what differs from the attempt before; empty for the first one
	Without            []string           // the projections that an applied one was not applied to then
}

// lacking are the projections that do not have an applied event.
func (v EventView) lacking() (names []string) {
	for _, c := range campaign.Lacking(v.Held, v.Event.Seq) {
		names = append(names, c.Projection)
	}
	return names
}

// moments returns the lines of a history, oldest first, with the actions that are not in it. lacking are
// the projections that do not have the event.
func moments(h campaign.EventHistory, acts []operator.AuditEntry, lacking ...string) []moment {
	var lines []moment
	for _, s := range h.Steps {
		if s.Replay != nil {
			lacking = append(lacking, s.Replay.Projection)
		}
	}
	var before *campaign.Attempt
	for _, s := range withActs(h.Steps, acts) {
		if n := len(lines); n > 0 && lines[n-1].continues(s) {
			lines[n-1].EventStep = s
			lines[n-1].Attempts = append(lines[n-1].Attempts, *s.Attempt)
			continue
		}
		m := moment{EventStep: s, First: s.At}
		switch {
		case s.Kind == campaign.StepApplied:
			m.Without = slices.Compact(slices.Sorted(slices.Values(append(quarantined(lines), lacking...))))
		case s.Attempt != nil:
			m.Attempts, m.Changed = []campaign.Attempt{*s.Attempt}, changedSince(before, *s.Attempt)
			before = s.Attempt
		}
		lines = append(lines, m)
	}
	return lines
}

// quarantined are the projections that lines say were quarantined.
func quarantined(lines []moment) (names []string) {
	for _, m := range lines {
		if m.Kind == campaign.StepQuarantined && !slices.Contains(names, m.Attempt.Projection) {
			names = append(names, m.Attempt.Projection)
		}
	}
	return names
}

// withActs adds the actions to the steps that these lack, such as refused ones, in order of time.
func withActs(steps []campaign.EventStep, acts []operator.AuditEntry) []campaign.EventStep {
	all := slices.Clone(steps)
	for i := range acts {
		told := slices.ContainsFunc(steps, func(s campaign.EventStep) bool { return s.AuditEntry != nil && s.AuditEntry.ID == acts[i].ID })
		if !told {
			all = append(all, campaign.EventStep{Kind: campaign.StepActed, At: acts[i].At, AuditEntry: &acts[i]})
		}
	}
	campaign.SortSteps(all)
	return all
}

// continues reports whether a step is another attempt of the same kind right after those of a line.
func (m moment) continues(s campaign.EventStep) bool {
	return m.Kind == campaign.StepFailed && s.Attempt != nil && m.Attempt.Error == s.Attempt.Error && changedSince(m.Attempt, *s.Attempt) == ""
}

// changedSince says how the program or the projection differs from the attempt before; empty if
// neither does, or there was none.
func changedSince(before *campaign.Attempt, a campaign.Attempt) string {
	if before == nil {
		return ""
	}
	var changes []string
	if before.Build != a.Build {
		changes = append(changes, "another build: "+cmp.Or(before.Build, "unknown")+" → "+cmp.Or(a.Build, "unknown"))
	}
	if before.Projection == a.Projection && before.ProjectionVersion != a.ProjectionVersion {
		changes = append(changes, "another version of projection "+a.Projection+": "+event.ShortHash(before.ProjectionVersion)+" → "+event.ShortHash(a.ProjectionVersion))
	}
	return ui.Sentence(strings.Join(changes, "; "))
}

// look is the glyph and hue of a line.
func (m moment) look() ui.Look {
	switch m.Kind {
	case campaign.StepFailed, campaign.StepQuarantined:
		return ui.StatusLook(event.Failed)
	case campaign.StepDied:
		return ui.StatusLook(event.Dead)
	case campaign.StepApplied, campaign.StepReplayed:
		return ui.StateLook(campaign.StateCurrent)
	case campaign.StepPassedOver:
		return ui.Look{Glyph: ui.SkippedGlyph, Hue: "s-skipped"}
	case campaign.StepActed:
		return ui.Look{Glyph: "→", Hue: "s-processing"}
	}
	return ui.Look{Glyph: "+", Hue: "s-pending"}
}

// began returns when the line began. The time at which an event was skipped is known exactly.
func (m moment) began() time.Time {
	if m.Kind == campaign.StepApplied {
		return m.Span.BeganAt
	}
	return m.First
}

// failedWords says how many times in a row an event failed, and what came of it.
func (m moment) failedWords() string {
	words := "Failed"
	if n := len(m.Attempts); n > 1 {
		words += " " + ui.Count(int64(n), "time", "times") + " with the same error"
	}
	switch m.Kind {
	case campaign.StepDied:
		words += ", now dead"
	case campaign.StepQuarantined:
		words += ", projection " + m.Attempt.Projection + " quarantined"
	}
	return words
}

// appliedWords says with which other events an event was applied, and without which projections. If rows
// were remade, others may have got it later than the history tells.
func (m moment) appliedWords(remade bool) string {
	words := "Applied"
	switch n := len(m.Without); {
	case n > 1:
		words += " without projections " + strings.Join(m.Without[:n-1], ", ") + " and " + m.Without[n-1] + ","
	case n == 1:
		words += " without projection " + m.Without[0] + ","
	case remade:
		words += " to the projections that were live then,"
	}
	if s := m.Span; s.FirstSeq < s.LastSeq {
		words += " with events " + ui.Num(s.FirstSeq) + " to " + ui.Num(s.LastSeq)
	}
	return strings.TrimSuffix(words, ",")
}

// unrecorded describes an applied event whose history does not say when it was applied; empty if it
// does, or if the event is not applied.
func unrecorded(h campaign.EventHistory, c campaign.Campaign) string {
	if h.Seq > c.AppliedSeq || slices.ContainsFunc(h.Steps, func(s campaign.EventStep) bool { return s.Span != nil }) {
		return ""
	}
	return "Applied. Time and worker are not on record."
}

// attemptsWords says what the details of a line hold.
func attemptsWords(m moment) string {
	if len(m.Attempts) == 1 {
		return attemptLine(m.Attempts[0])
	}
	return ui.Count(int64(len(m.Attempts)), "attempt", "attempts") + ", the same error"
}
