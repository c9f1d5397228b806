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

	"outboxweb/internal/outbox"
)

// TestType is the type of events that are made up to test a destination.
const TestType = "outboxweb.test"

// Event is an event on its way to destinations. Several subscriptions share one, so
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
		Payload: json.RawMessage(`{"message":"An operator is testing this destination; nothing has happened."}`),
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

// cloudEvent is an event in the JSON format of CloudEvents 1.0, its attributes in
// the order of the SDK of CloudEvents for Go.
type cloudEvent struct {
	SpecVersion     string        `json:"specversion"`
	ID              string        `json:"id"`
	Source          string        `json:"source"`
	Type            string        `json:"type"`
	Subject         string        `json:"subject,omitempty"`
	DataContentType string        `json:"datacontenttype"`
	Time            time.Time     `json:"time,omitzero"`
	Data            *outbox.Event `json:"data"`
	CampaignID      string        `json:"campaignid,omitempty"`
	Seq             int64         `json:"seq,omitempty,string"` // a text: 64 bits are more than the integers of CloudEvents have
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
