package destination

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// TestType is the type of made-up events that test a destination.
const TestType = "outboxweb.test"

// Event is an event for delivery. Subscriptions share it, so that it is encoded as a CloudEvent
// only once. It is safe for concurrent use.
type Event struct {
	event.Event
	source string
	test   string // id of a made-up event; empty for those of the journal
	once   sync.Once
	json   []byte
	err    error
}

// NewEvent returns e for delivery. source identifies the journal to receivers; the event's id there
// is its position.
func NewEvent(e event.Event, source string) *Event { return &Event{Event: e, source: source} }

// TestEvent returns a made-up event, which is in no journal and has no position, campaign or seq.
// Its id must differ from those of other test events.
func TestEvent(source, id string) *Event {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return &Event{source: source, test: id, Event: event.Event{
		EventID: id, EventType: TestType, OccurredAt: now, RecordedAt: now,
		Tags: json.RawMessage("{}"), Metadata: json.RawMessage("{}"),
		Payload: json.RawMessage(`{"message":"An operator is testing this destination; nothing has happened."}`),
	}}
}

// Source returns the default source of a journal's events.
func Source(journalID string) string { return "urn:outboxweb:journal:" + journalID }

// ID identifies the event among those of its source: its position in the journal, or the id given
// to TestEvent.
func (e *Event) ID() string {
	if e.test != "" {
		return e.test
	}
	return strconv.FormatInt(e.Position, 10)
}

// CloudEvent returns the event as a CloudEvent 1.0 in JSON, on one line without a line ending. It
// is encoded at the first call; callers must not change the bytes.
func (e *Event) CloudEvent() ([]byte, error) {
	e.once.Do(func() { e.json, e.err = e.encode() })
	return e.json, e.err
}

// cloudEvent is an event in the JSON format of CloudEvents 1.0, its attributes in the order of the
// CloudEvents SDK for Go.
type cloudEvent struct {
	SpecVersion     string       `json:"specversion"`
	ID              string       `json:"id"`
	Source          string       `json:"source"`
	Type            string       `json:"type"`
	Subject         string       `json:"subject,omitempty"`
	DataContentType string       `json:"datacontenttype"`
	Time            time.Time    `json:"time,omitzero"`
	Data            *event.Event `json:"data"`
	CampaignID      string       `json:"campaignid,omitempty"`
	Seq             int64        `json:"seq,omitempty,string"` // a string: integers of CloudEvents have fewer than 64 bits
}

func (e *Event) encode() ([]byte, error) {
	source, err := url.Parse(e.source)
	if err != nil {
		return nil, fmt.Errorf("the event cannot be written as a CloudEvent: %w", err)
	}
	if blank(e.EventType) || e.CampaignID != "" && blank(e.CampaignID) {
		return nil, errors.New("the event cannot be written as a CloudEvent: receivers refuse a type or a subject that is blank")
	}
	var out bytes.Buffer
	out.Grow(1536 + len(e.Tags) + len(e.Metadata) + len(e.Payload))
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false) // would change the payload's bytes
	err = enc.Encode(cloudEvent{
		SpecVersion: "1.0", ID: e.ID(), Source: source.String(), Type: e.EventType, Subject: e.CampaignID,
		DataContentType: "application/json", Time: e.OccurredAt.UTC(), Data: &e.Event, CampaignID: e.CampaignID, Seq: e.Seq,
	})
	if err != nil {
		return nil, fmt.Errorf("the event cannot be written as JSON: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }
