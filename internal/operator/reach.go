package operator

import (
	"fmt"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Seek is the effect of moving a publisher's position.
type Seek struct {
	SubscriptionName
	From    int64 `json:"from"`    // the position before
	To      int64 `json:"to"`      // the position after
	Repeats int64 `json:"repeats"` // events of the topic that are delivered again
	Skips   int64 `json:"skips"`   // events of the topic that are never delivered
	Capped  bool  `json:"capped"`  // counting stopped early: the numbers are lower bounds
}

// phrase is the phrase that confirms the seek; empty if it skips nothing.
func (s Seek) phrase() string {
	if s.Skips == 0 {
		return ""
	}
	return fmt.Sprintf(s.phraseForm(), s.Skips)
}

// SkipsText is the number of events the seek skips: "1 event", "at least 5,000 events".
func (s Seek) SkipsText() string {
	text := event.Count(s.Skips, "event", "events")
	if s.Capped {
		return "at least " + text
	}
	return text
}

func (s Seek) phraseForm() string {
	if s.Capped {
		return "skip over %d events"
	}
	return "skip %d events"
}

// IntakeHandOver is a source that is taken from another journal.
type IntakeHandOver struct {
	Source string `json:"source" redact:"-"`
	From   string `json:"from" redact:"-"` // the id of the journal that has it
	To     string `json:"to" redact:"-"`   // of this one
}

// DeliveryErrorKind is the cause of a delivery error.
type DeliveryErrorKind string

// The kinds of errors of deliveries.
const (
	// DestinationError means that the destination is down, overloaded or misconfigured: the event
	// is not at fault, and no other event would get through.
	DestinationError DeliveryErrorKind = "destination"
	// EventError means that the event is at fault: its destination takes others.
	EventError DeliveryErrorKind = "event"
	// UnknownError means that the event was refused, and that it is not known whether the event or its
	// destination is at fault: until a test event was taken or refused, any event may fare alike.
	UnknownError DeliveryErrorKind = "unknown"
)
