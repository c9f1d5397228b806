package outboxweb

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Event is one fact of the journal. To append one, only CampaignID, EventType and Payload are needed.
type Event struct {
	CampaignID string `json:"campaign_id"` // the scope within which events are in order
	EventID    string `json:"event_id"`    // the writer's id, unique in the campaign: appended again, the event changes nothing. Empty: a random one
	EventType  string `json:"event_type"`  // such as order.placed
	// Payload is a JSON object.
	Payload json.RawMessage `json:"payload"`

	OccurredAt    time.Time         `json:"occurred_at,omitzero"` // zero: when it is appended
	ActorType     string            `json:"actor_type,omitempty"`
	ActorID       string            `json:"actor_id,omitempty"`
	EntityType    string            `json:"entity_type,omitempty"`
	EntityID      string            `json:"entity_id,omitempty"`
	SessionID     string            `json:"session_id,omitempty"`
	RequestID     string            `json:"request_id,omitempty"`
	CorrelationID string            `json:"correlation_id,omitempty"`
	CausationID   string            `json:"causation_id,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"` // for publishers and conditional appends
	Metadata      json.RawMessage   `json:"metadata,omitempty"`

	// Assigned by the journal, and read-only. A Seq given to Append is checked: it must be the one
	// that the event gets.
	Seq        int64     `json:"seq,omitempty"`      // the event's number in its campaign, from 1, without gaps
	Position   int64     `json:"position,omitempty"` // its place in the whole journal; it only grows
	RecordedAt time.Time `json:"recorded_at,omitzero"`
}

// Appended is where an event is in the journal.
type Appended struct {
	CampaignID string
	Seq        int64 // in the campaign, from 1
	Position   int64 // in the journal
	EventID    string
	Existed    bool // the same event was there already
}

// stored is the event as the journal takes it.
func (e Event) stored() (event.Event, error) {
	s := event.Event{CampaignID: e.CampaignID, EventID: e.EventID, EventType: e.EventType, Payload: e.Payload, OccurredAt: e.OccurredAt,
		ActorType: e.ActorType, ActorID: e.ActorID, EntityType: e.EntityType, EntityID: e.EntityID, SessionID: e.SessionID, RequestID: e.RequestID,
		CorrelationID: e.CorrelationID, CausationID: e.CausationID, Metadata: e.Metadata, Seq: e.Seq}
	if len(e.Tags) == 0 {
		return s, nil
	}
	for name, value := range e.Tags { // JSON would replace what is invalid
		if !utf8.ValidString(name + value) {
			return s, event.Invalid("tags", "tags is not valid UTF-8")
		}
	}
	tags, err := json.Marshal(e.Tags)
	s.Tags = tags
	return s, err
}

// eventOf is an event of the journal as handlers and publishers get it.
func eventOf(s *event.Event) (Event, error) {
	// Copies: another projection or publisher gets the same stored event.
	e := Event{CampaignID: s.CampaignID, EventID: s.EventID, EventType: s.EventType, Payload: bytes.Clone(s.Payload), OccurredAt: s.OccurredAt,
		ActorType: s.ActorType, ActorID: s.ActorID, EntityType: s.EntityType, EntityID: s.EntityID, SessionID: s.SessionID, RequestID: s.RequestID,
		CorrelationID: s.CorrelationID, CausationID: s.CausationID, Metadata: bytes.Clone(s.Metadata), Seq: s.Seq, Position: s.Position, RecordedAt: s.RecordedAt}
	if len(s.Tags) <= len("{}") {
		return e, nil
	}
	return e, json.Unmarshal(s.Tags, &e.Tags)
}
