package templates

import (
	"cmp"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// look distinguishes states by a glyph, for readers who see no colours, and by a hue. States of the
// same severity have the same hue.
type look struct{ glyph, hue string }

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

var levelGlyphs = map[outbox.Level]string{
	outbox.LevelOK:   "✓",
	outbox.LevelBusy: "◐",
	outbox.LevelWarn: "!",
}

var conditionGlyphs = map[outbox.Condition]string{
	outbox.InstanceRunning: "✓",
	outbox.InstanceIdle:    "○",
	outbox.InstanceSilent:  "!",
	outbox.InstanceCrashed: "✕",
}

var operationLook = looksOf(map[outbox.OperationStatus]look{
	outbox.OperationRunning:   {"◐", "s-processing"},
	outbox.OperationStopped:   {"✕", "s-blocked"},
	outbox.OperationCancelled: {"⊘", "s-paused"},
}, look{"✓", "s-current"})

var resultLook = looksOf(map[outbox.RowResult]look{
	outbox.ResultWaiting:     {"○", "s-pending"},
	outbox.ResultRequeued:    {"◐", "s-processing"},
	outbox.ResultDone:        {"✓", "s-current"},
	outbox.ResultQuarantined: {"!", "s-failed"},
	outbox.ResultSkipped:     {"↷", "s-paused"},
	outbox.ResultFailedAgain: {"✕", "s-dead"},
	outbox.ResultLeft:        {"‖", "s-pending"},
	outbox.ResultUnwatched:   {"?", "s-lagging"},
}, look{"?", "s-pending"})

var runLook = looksOf(map[outbox.RunStatus]look{
	outbox.RunQueued:      {"○", "s-pending"},
	outbox.RunRunning:     {"◐", "s-processing"},
	outbox.RunCancelling:  {"⊘", "s-paused"},
	outbox.RunCancelled:   {"⊘", "s-paused"},
	outbox.RunCompleted:   {"✓", "s-current"},
	outbox.RunInterrupted: {"!", "s-failed"},
}, look{"✕", "s-dead"})

var outcomeLook = looksOf(map[string]look{
	outbox.OutcomeDrift:       {"≠", "s-diverged"},
	outbox.OutcomeFailed:      {"✕", "s-dead"},
	outbox.OutcomeNotCompared: {"‖", "s-paused"},
}, look{"✓", "s-current"})

var changeLook = looksOf(map[string]look{
	outbox.RowAdded:   {"+", "s-current"},
	outbox.RowRemoved: {"−", "s-dead"},
}, look{"≠", "s-failed"})

var cursorLook = looksOf(map[string]look{
	outbox.CursorLive:   {"✓", "s-current"},
	outbox.CursorPaused: {"‖", "s-paused"},
	outbox.CursorBehind: {"○", "s-lagging"},
}, look{"✕", "s-dead"})

var publisherLook = looksOf(map[outbox.PublisherState]look{
	outbox.PublisherIsStopped:  {"■", "s-dead"},
	outbox.PublisherIsFailed:   {"✕", "s-dead"},
	outbox.PublisherIsRetrying: {"↻", "s-failed"},
	outbox.PublisherIsNotHeld:  {"!", "s-failed"},
	outbox.PublisherIsPaused:   {"‖", "s-paused"},
}, look{"✓", "s-current"})

var tokenLook = looksOf(map[string]look{
	"valid":   {"✓", "s-current"},
	"revoked": {"✕", "s-dead"},
}, look{"○", "s-idle"})

// looksOf finds the look of a state among those listed; any other state looks like other.
func looksOf[S comparable](listed map[S]look, other look) func(S) look {
	return func(s S) look { return cmp.Or(listed[s], other) }
}

func statusGlyph(s outbox.Status) string { return cmp.Or(statusGlyphs[s], "·") }
func stateGlyph(s outbox.State) string   { return cmp.Or(stateGlyphs[s], "·") }
func levelGlyph(l outbox.Level) string   { return cmp.Or(levelGlyphs[l], "✕") }
func statusLook(s outbox.Status) look    { return look{statusGlyph(s), "s-" + string(s)} }
func eventLook(state string) look {
	switch state {
	case outbox.EventApplied:
		return look{stateGlyph(outbox.StateCurrent), "s-current"}
	case outbox.EventSkipped:
		return look{skippedGlyph, "s-skipped"}
	case outbox.EventWaiting:
		return statusLook(outbox.Pending)
	}
	return statusLook(outbox.Status(state))
}
func stateLook(s outbox.State) look { return look{stateGlyph(s), "s-" + string(s)} }
func conditionLook(c outbox.Condition) look {
	return look{cmp.Or(conditionGlyphs[c], "‖"), "s-" + string(c)}
}
