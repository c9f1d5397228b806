package outbox

import (
	"encoding/json"
	"time"
)

// Part names one of the three JSON documents that an event carries.
type Part string

// The parts.
const (
	PartPayload  Part = "payload"
	PartTags     Part = "tags"
	PartMetadata Part = "metadata"
)

// Document is one of the event's JSON documents.
func (e Event) Document(p Part) json.RawMessage {
	switch p {
	case PartTags:
		return e.Tags
	case PartMetadata:
		return e.Metadata
	default:
		return e.Payload
	}
}

// Sizes are the lengths of an event's documents, in bytes.
type Sizes struct{ Payload, Tags, Metadata int64 }

// Of is the length of one document, in bytes.
func (s Sizes) Of(p Part) int64 {
	switch p {
	case PartTags:
		return s.Tags
	case PartMetadata:
		return s.Metadata
	default:
		return s.Payload
	}
}

// EventDetail is an event with what its page shows beside it.
type EventDetail struct {
	Event Event // without the documents that are larger than was asked for: those are nil
	Sizes Sizes
	// RowStatus is that of the event's row; empty when it has none.
	RowStatus Status
	// CorrelationSeq and CausationSeq are the events of the same campaign
	// whose ids the event names as its correlation and cause; 0 when none of
	// the campaign has that id.
	CorrelationSeq, CausationSeq int64
}

// EventLine is an event in one line: what it is, and whether it has a row.
type EventLine struct {
	Seq                  int64
	EventType            string
	EntityType, EntityID string
	OccurredAt           time.Time
	RowStatus            Status // empty when the event has no row
	Skipped              bool   // passed over and never applied, or about to be
}

// The states of a cursor.
const (
	CursorLive        = "live"        // it follows the watermark
	CursorQuarantined = "quarantined" // set aside for this campaign after a failure, until a run brings it back
	CursorPaused      = "paused"      // set aside by an operator, for this campaign or for all
	CursorBehind      = "behind"      // resumed, and waiting for a replay to bring it level
)

// Cursor is how far one projection is in one campaign.
type Cursor struct {
	Projection string `json:"projection"`
	AppliedSeq int64  `json:"applied_seq"`
	Generation int64  `json:"generation"` // raised by each rebuild, from 1
	State      string `json:"state"`
	// Failure is what set the projection aside; nil while it is live.
	Failure *CursorFailure `json:"failure"`
	// Version is the hash of the loaded definition, BuiltVersion that of the
	// one that made the rows; empty when somebody else made the tables.
	Version      string `json:"version"`
	BuiltVersion string `json:"built_version"`
}

// CursorFailure is the failure that set a projection aside for a campaign.
type CursorFailure struct {
	Seq         int64     `json:"seq"`
	EventType   string    `json:"event_type"`
	Message     string    `json:"message"`
	Fingerprint string    `json:"fingerprint"`
	Attempts    int64     `json:"attempts"`
	At          time.Time `json:"at"`
}
