package campaign

import "github.com/outboxweb/outboxweb/internal/event"

// Mode says how appended events are applied. Exactly one mode is active.
type Mode string

// The modes. ModeOutbox is the default.
const (
	ModeOutbox Mode = "outbox_apply_only" // appends enqueue, the worker applies
	ModeInline Mode = "inline_apply_only" // appends apply on the request path, and enqueue events they could not apply
	ModeShadow Mode = "shadow_only"       // appends enqueue, the worker rehearses without changing anything
)

// Modes lists every mode, the default first.
var Modes = []Mode{ModeOutbox, ModeInline, ModeShadow}

// ParseMode parses a mode's name; the empty name is the default.
func ParseMode(name string) (Mode, error) {
	if name == "" {
		return ModeOutbox, nil
	}
	return event.ParseName("mode", name, Modes)
}

// Switches are the settings of older versions, which had no modes.
type Switches struct {
	Outbox bool // rows are written to the outbox
	Worker bool // a worker applies
	Shadow bool // a worker rehearses
}

// Mode returns the mode of the switches. Applying takes precedence over rehearsing; either without
// the outbox is an error.
func (s Switches) Mode() (Mode, error) {
	switch {
	case !s.Outbox && (s.Worker || s.Shadow):
		return "", event.Invalid("mode", "a worker or shadow worker needs the outbox: enable the outbox, or disable both workers")
	case !s.Outbox:
		return ModeInline, nil
	case s.Worker || !s.Shadow:
		return ModeOutbox, nil
	default:
		return ModeShadow, nil
	}
}

// Enqueues reports whether every append in this mode writes an outbox row. In inline mode only
// events that must not be applied at once get one.
func (m Mode) Enqueues() bool { return m != ModeInline }
