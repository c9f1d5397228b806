package sample

import (
	"encoding/json"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// line is an event as append reads it: only what append needs to be told.
type line struct {
	CampaignID    string          `json:"campaign_id"`
	Seq           int64           `json:"seq"`
	EventID       string          `json:"event_id"`
	EventType     string          `json:"event_type"`
	OccurredAt    time.Time       `json:"occurred_at"`
	ActorType     string          `json:"actor_type,omitempty"`
	ActorID       string          `json:"actor_id,omitempty"`
	EntityType    string          `json:"entity_type,omitempty"`
	EntityID      string          `json:"entity_id,omitempty"`
	SessionID     string          `json:"session_id,omitempty"`
	RequestID     string          `json:"request_id,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	Payload       json.RawMessage `json:"payload"`
}

// Line is an event as a line of JSON that `outboxweb append` reads, its line
// feed included.
func Line(e event.Event) ([]byte, error) {
	text, err := json.Marshal(line{CampaignID: e.CampaignID, Seq: e.Seq, EventID: e.EventID, EventType: e.EventType, OccurredAt: e.OccurredAt,
		ActorType: e.ActorType, ActorID: e.ActorID, EntityType: e.EntityType, EntityID: e.EntityID, SessionID: e.SessionID,
		RequestID: e.RequestID, CorrelationID: e.CorrelationID, Metadata: e.Metadata, Payload: e.Payload})
	return append(text, '\n'), err
}
