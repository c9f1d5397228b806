package ui

import (
	"cmp"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Look distinguishes states by a glyph, for readers who see no colours, and by a hue. States of the
// same severity have the same hue.
type Look struct{ Glyph, Hue string }

var statusGlyphs = map[outbox.Status]string{
	outbox.Pending:    "○",
	outbox.Processing: "◐",
	outbox.Failed:     "↻",
	outbox.Dead:       "✕",
}

var stateGlyphs = map[outbox.State]string{
	outbox.StateDiverged:     "≠",
	outbox.StateBlocked:      "✕",
	outbox.StatePaused:       "‖",
	outbox.StateFailing:      "↻",
	outbox.StateUnverifiable: "✕",
	outbox.StateDrifted:      "≠",
	outbox.StateLagging:      "○",
	outbox.StateCurrent:      "✓",
}

var levelGlyphs = map[finding.Level]string{
	finding.OK:   "✓",
	finding.Busy: "◐",
	finding.Warn: "!",
}

var conditionGlyphs = map[outbox.Condition]string{
	outbox.InstanceRunning: "✓",
	outbox.InstanceIdle:    "○",
	outbox.InstanceSilent:  "!",
	outbox.InstanceCrashed: "✕",
}

var OperationLook = looksOf(map[outbox.OperationStatus]Look{
	outbox.OperationRunning:   {"◐", "s-processing"},
	outbox.OperationStopped:   {"✕", "s-blocked"},
	outbox.OperationCancelled: {"⊘", "s-paused"},
}, Look{"✓", "s-current"})

var ResultLook = looksOf(map[outbox.RowResult]Look{
	outbox.ResultWaiting:     {"○", "s-pending"},
	outbox.ResultRequeued:    {"◐", "s-processing"},
	outbox.ResultDone:        {"✓", "s-current"},
	outbox.ResultQuarantined: {"!", "s-failed"},
	outbox.ResultSkipped:     {"↷", "s-paused"},
	outbox.ResultFailedAgain: {"✕", "s-dead"},
	outbox.ResultLeft:        {"‖", "s-pending"},
	outbox.ResultUnwatched:   {"?", "s-lagging"},
}, Look{"?", "s-pending"})

var RunLook = looksOf(map[outbox.RunStatus]Look{
	outbox.RunQueued:      {"○", "s-pending"},
	outbox.RunRunning:     {"◐", "s-processing"},
	outbox.RunCancelling:  {"⊘", "s-paused"},
	outbox.RunCancelled:   {"⊘", "s-paused"},
	outbox.RunCompleted:   {"✓", "s-current"},
	outbox.RunInterrupted: {"!", "s-failed"},
}, Look{"✕", "s-dead"})

var OutcomeLook = looksOf(map[string]Look{
	outbox.OutcomeDrift:       {"≠", "s-diverged"},
	outbox.OutcomeFailed:      {"✕", "s-dead"},
	outbox.OutcomeNotCompared: {"‖", "s-paused"},
}, Look{"✓", "s-current"})

var ChangeLook = looksOf(map[string]Look{
	outbox.RowAdded:   {"+", "s-current"},
	outbox.RowRemoved: {"−", "s-dead"},
}, Look{"≠", "s-failed"})

var CursorLook = looksOf(map[string]Look{
	outbox.CursorLive:   {"✓", "s-current"},
	outbox.CursorPaused: {"‖", "s-paused"},
	outbox.CursorBehind: {"○", "s-lagging"},
}, Look{"✕", "s-dead"})

var PublisherLook = looksOf(map[outbox.PublisherState]Look{
	outbox.PublisherIsStopped:  {"■", "s-dead"},
	outbox.PublisherIsFailed:   {"✕", "s-dead"},
	outbox.PublisherIsRetrying: {"↻", "s-failed"},
	outbox.PublisherIsNotHeld:  {"!", "s-failed"},
	outbox.PublisherIsPaused:   {"‖", "s-paused"},
}, Look{"✓", "s-current"})

var TokenLook = looksOf(map[string]Look{
	"valid":   {"✓", "s-current"},
	"revoked": {"✕", "s-dead"},
}, Look{"○", "s-idle"})

// looksOf finds the look of a state among those listed; any other state looks like other.
func looksOf[S comparable](listed map[S]Look, other Look) func(S) Look {
	return func(s S) Look { return cmp.Or(listed[s], other) }
}

func StatusGlyph(s outbox.Status) string { return cmp.Or(statusGlyphs[s], "·") }
func StateGlyph(s outbox.State) string   { return cmp.Or(stateGlyphs[s], "·") }
func LevelGlyph(l finding.Level) string  { return cmp.Or(levelGlyphs[l], "✕") }
func StatusLook(s outbox.Status) Look    { return Look{StatusGlyph(s), "s-" + string(s)} }

func EventLook(state string) Look {
	switch state {
	case outbox.EventApplied:
		return Look{StateGlyph(outbox.StateCurrent), "s-current"}
	case outbox.EventSkipped:
		return Look{SkippedGlyph, "s-skipped"}
	case outbox.EventWaiting:
		return StatusLook(outbox.Pending)
	}
	return StatusLook(outbox.Status(state))
}

func StateLook(s outbox.State) Look { return Look{StateGlyph(s), "s-" + string(s)} }

func ConditionLook(c outbox.Condition) Look {
	return Look{cmp.Or(conditionGlyphs[c], "‖"), "s-" + string(c)}
}

const SkippedGlyph = "»"
