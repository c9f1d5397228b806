package publish

import (
	"sync"

	"outboxweb/internal/outbox"
)

// Event is an event on its way to destinations. Several pairs share one, so
// that it is written as a CloudEvent only once. It is safe for concurrent use.
type Event struct {
	outbox.Event
	source string
	once   sync.Once
	json   []byte
	err    error
}

// NewEvent is e as it comes from a source, which tells receivers which journal
// it is of; the journal's position is its id there.
func NewEvent(e outbox.Event, source string) *Event { return &Event{Event: e, source: source} }
