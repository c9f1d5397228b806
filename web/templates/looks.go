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

var operationLooks = map[outbox.OperationStatus]look{
	outbox.OperationRunning:   {"◐", "s-processing"},
	outbox.OperationStopped:   {"✕", "s-blocked"},
	outbox.OperationCancelled: {"⊘", "s-paused"},
}

var resultLooks = map[outbox.RowResult]look{
	outbox.ResultWaiting:     {"○", "s-pending"},
	outbox.ResultRequeued:    {"◐", "s-processing"},
	outbox.ResultDone:        {"✓", "s-current"},
	outbox.ResultQuarantined: {"!", "s-failed"},
	outbox.ResultSkipped:     {"↷", "s-paused"},
	outbox.ResultFailedAgain: {"✕", "s-dead"},
	outbox.ResultLeft:        {"‖", "s-pending"},
	outbox.ResultUnwatched:   {"?", "s-lagging"},
}

var runLooks = map[outbox.RunStatus]look{
	outbox.RunQueued:      {"○", "s-pending"},
	outbox.RunRunning:     {"◐", "s-processing"},
	outbox.RunCancelling:  {"⊘", "s-paused"},
	outbox.RunCancelled:   {"⊘", "s-paused"},
	outbox.RunCompleted:   {"✓", "s-current"},
	outbox.RunInterrupted: {"!", "s-failed"},
}

var outcomeLooks = map[string]look{
	outbox.OutcomeDrift:       {"≠", "s-diverged"},
	outbox.OutcomeFailed:      {"✕", "s-dead"},
	outbox.OutcomeNotCompared: {"‖", "s-paused"},
}

var changeLooks = map[string]look{
	outbox.RowAdded:   {"+", "s-current"},
	outbox.RowRemoved: {"−", "s-dead"},
}

var cursorLooks = map[string]look{
	outbox.CursorLive:   {"✓", "s-current"},
	outbox.CursorPaused: {"‖", "s-paused"},
	outbox.CursorBehind: {"○", "s-lagging"},
}

var publisherLooks = map[outbox.PublisherState]look{
	outbox.PublisherIsStopped:  {"■", "s-dead"},
	outbox.PublisherIsFailed:   {"✕", "s-dead"},
	outbox.PublisherIsRetrying: {"↻", "s-failed"},
	outbox.PublisherIsNotHeld:  {"!", "s-failed"},
	outbox.PublisherIsPaused:   {"‖", "s-paused"},
}

var tokenLooks = map[string]look{
	"valid":   {"✓", "s-current"},
	"revoked": {"✕", "s-dead"},
}

// The last argument of cmp.Or is the look of an unknown state.

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
func operationLook(s outbox.OperationStatus) look {
	return cmp.Or(operationLooks[s], look{"✓", "s-current"})
}
func resultLook(r outbox.RowResult) look { return cmp.Or(resultLooks[r], look{"?", "s-pending"}) }
func runLook(s outbox.RunStatus) look    { return cmp.Or(runLooks[s], look{"✕", "s-dead"}) }
func outcomeLook(outcome string) look    { return cmp.Or(outcomeLooks[outcome], look{"✓", "s-current"}) }
func changeLook(kind string) look        { return cmp.Or(changeLooks[kind], look{"≠", "s-failed"}) }
func cursorLook(state string) look       { return cmp.Or(cursorLooks[state], look{"✕", "s-dead"}) }
func publisherLook(s outbox.PublisherState) look {
	return cmp.Or(publisherLooks[s], look{"✓", "s-current"})
}
func tokenLook(state string) look { return cmp.Or(tokenLooks[state], look{"○", "s-idle"}) }
