package ui

import (
	"cmp"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// Look distinguishes states by a glyph, for readers who see no colours, and by a hue. States of the
// same severity have the same hue.
type Look struct{ Glyph, Hue string }

var statusGlyphs = map[event.Status]string{
	event.Pending:    "○",
	event.Processing: "◐",
	event.Failed:     "↻",
	event.Dead:       "✕",
}

var stateGlyphs = map[campaign.State]string{
	campaign.StateDiverged:     "≠",
	campaign.StateBlocked:      "✕",
	campaign.StatePaused:       "‖",
	campaign.StateFailing:      "↻",
	campaign.StateUnverifiable: "✕",
	campaign.StateDrifted:      "≠",
	campaign.StateLagging:      "○",
	campaign.StateCurrent:      "✓",
}

var levelGlyphs = map[finding.Level]string{
	finding.OK:   "✓",
	finding.Busy: "◐",
	finding.Warn: "!",
}

var conditionGlyphs = map[campaign.Condition]string{
	campaign.InstanceRunning: "✓",
	campaign.InstanceIdle:    "○",
	campaign.InstanceSilent:  "!",
	campaign.InstanceCrashed: "✕",
}

var OperationLook = looksOf(map[operations.OperationStatus]Look{
	operations.OperationRunning:   {"◐", "s-processing"},
	operations.OperationStopped:   {"✕", "s-blocked"},
	operations.OperationCancelled: {"⊘", "s-paused"},
}, Look{"✓", "s-current"})

var ResultLook = looksOf(map[operations.RowResult]Look{
	operations.ResultWaiting:     {"○", "s-pending"},
	operations.ResultRequeued:    {"◐", "s-processing"},
	operations.ResultDone:        {"✓", "s-current"},
	operations.ResultQuarantined: {"!", "s-failed"},
	operations.ResultSkipped:     {"↷", "s-paused"},
	operations.ResultFailedAgain: {"✕", "s-dead"},
	operations.ResultLeft:        {"‖", "s-pending"},
	operations.ResultUnwatched:   {"?", "s-lagging"},
}, Look{"?", "s-pending"})

var RunLook = looksOf(map[replay.RunStatus]Look{
	replay.RunQueued:      {"○", "s-pending"},
	replay.RunRunning:     {"◐", "s-processing"},
	replay.RunCancelling:  {"⊘", "s-paused"},
	replay.RunCancelled:   {"⊘", "s-paused"},
	replay.RunCompleted:   {"✓", "s-current"},
	replay.RunInterrupted: {"!", "s-failed"},
}, Look{"✕", "s-dead"})

var OutcomeLook = looksOf(map[string]Look{
	replay.OutcomeDrift:       {"≠", "s-diverged"},
	replay.OutcomeFailed:      {"✕", "s-dead"},
	replay.OutcomeNotCompared: {"‖", "s-paused"},
}, Look{"✓", "s-current"})

var ChangeLook = looksOf(map[string]Look{
	projection.RowAdded:   {"+", "s-current"},
	projection.RowRemoved: {"−", "s-dead"},
}, Look{"≠", "s-failed"})

var CursorLook = looksOf(map[string]Look{
	campaign.CursorLive:   {"✓", "s-current"},
	campaign.CursorPaused: {"‖", "s-paused"},
	campaign.CursorBehind: {"○", "s-lagging"},
}, Look{"✕", "s-dead"})

var PublisherLook = looksOf(map[subscription.PublisherState]Look{
	subscription.PublisherIsStopped:  {"■", "s-dead"},
	subscription.PublisherIsFailed:   {"✕", "s-dead"},
	subscription.PublisherIsRetrying: {"↻", "s-failed"},
	subscription.PublisherIsNotHeld:  {"!", "s-failed"},
	subscription.PublisherIsPaused:   {"‖", "s-paused"},
}, Look{"✓", "s-current"})

var TokenLook = looksOf(map[string]Look{
	"valid":   {"✓", "s-current"},
	"revoked": {"✕", "s-dead"},
}, Look{"○", "s-idle"})

// looksOf finds the look of a state among those listed; any other state looks like other.
func looksOf[S comparable](listed map[S]Look, other Look) func(S) Look {
	return func(s S) Look { return cmp.Or(listed[s], other) }
}

func StatusGlyph(s event.Status) string  { return cmp.Or(statusGlyphs[s], "·") }
func StateGlyph(s campaign.State) string { return cmp.Or(stateGlyphs[s], "·") }
func LevelGlyph(l finding.Level) string  { return cmp.Or(levelGlyphs[l], "✕") }
func StatusLook(s event.Status) Look     { return Look{StatusGlyph(s), "s-" + string(s)} }

func EventLook(state string) Look {
	switch state {
	case search.EventApplied:
		return Look{StateGlyph(campaign.StateCurrent), "s-current"}
	case search.EventSkipped:
		return Look{SkippedGlyph, "s-skipped"}
	case search.EventWaiting:
		return StatusLook(event.Pending)
	}
	return StatusLook(event.Status(state))
}

func StateLook(s campaign.State) Look { return Look{StateGlyph(s), "s-" + string(s)} }

func ConditionLook(c campaign.Condition) Look {
	return Look{cmp.Or(conditionGlyphs[c], "‖"), "s-" + string(c)}
}

const SkippedGlyph = "»"
