package publish

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"outboxweb/internal/outbox"
)

// TestType is the type of events that are made up to test a destination.
const TestType = "outboxweb.test"

// Event is an event on its way to destinations. Several pairs share one, so
// that it is written as a CloudEvent only once. It is safe for concurrent use.
type Event struct {
	outbox.Event
	source string
	test   string // id of a made-up event; empty for those of the journal
	once   sync.Once
	json   []byte
	err    error
}

// NewEvent is e as it comes from a source, which tells receivers which journal
// it is of; the journal's position is its id there.
func NewEvent(e outbox.Event, source string) *Event { return &Event{Event: e, source: source} }

// TestEvent is a made-up event, which is in no journal and has no position,
// campaign or seq. Its id must differ from those of other test events.
func TestEvent(source, id string) *Event {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return &Event{source: source, test: id, Event: outbox.Event{
		EventID: id, EventType: TestType, OccurredAt: now, RecordedAt: now,
		Tags: json.RawMessage("{}"), Metadata: json.RawMessage("{}"),
		Payload: json.RawMessage(`{"message":"An operator tests this destination; nothing has happened."}`),
	}}
}

// Source is what events of a journal give as their source unless the
// configuration says otherwise.
func Source(journalID string) string { return "urn:outboxweb:journal:" + journalID }

// ID tells receivers the event from others of its source: its position in the
// journal, or what TestEvent was given.
func (e *Event) ID() string {
	if e.test != "" {
		return e.test
	}
	return strconv.FormatInt(e.Position, 10)
}

// CloudEvent is the event as a CloudEvent 1.0 in JSON, in one line without its
// end. It is encoded at the first call; callers must not change the bytes.
func (e *Event) CloudEvent() ([]byte, error) {
	e.once.Do(func() { e.json, e.err = e.encode() })
	return e.json, e.err
}

func (e *Event) encode() ([]byte, error) {
	var data bytes.Buffer
	data.Grow(1024 + len(e.Tags) + len(e.Metadata) + len(e.Payload))
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false) // would change the payload's bytes
	if err := enc.Encode(&e.Event); err != nil {
		return nil, fmt.Errorf("the event cannot be written as JSON: %w", err)
	}
	c := event.New()
	c.SetID(e.ID())
	c.SetSource(e.source)
	c.SetType(e.EventType)
	attributes := c.Context.(*event.EventContextV1)
	attributes.Type = e.EventType // the SDK cuts spaces of all kinds off
	c.SetTime(e.OccurredAt)
	c.SetDataContentType(event.ApplicationJSON)
	if e.CampaignID != "" {
		attributes.Subject = &e.CampaignID
		c.SetExtension("campaignid", e.CampaignID)
		c.SetExtension("seq", strconv.FormatInt(e.Seq, 10))
	}
	c.DataEncoded = bytes.TrimSuffix(data.Bytes(), []byte{'\n'})
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("the event cannot be written as a CloudEvent: %w", err)
	}
	var out bytes.Buffer
	out.Grow(data.Len() + 512)
	if err := event.WriteJson(&c, &out); err != nil {
		return nil, fmt.Errorf("the event cannot be written as a CloudEvent: %w", err)
	}
	return out.Bytes(), nil
}
