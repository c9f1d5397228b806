package outbox

import (
	"encoding/json"
	"time"
)

// Hidden stands in the place of what is not shown.
const Hidden = "[redacted]"

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
	EventType            string `redact:"-"`
	EntityType, EntityID string
	OccurredAt           time.Time
	RowStatus            Status // empty when the event has no row
	Skipped              bool   // passed over and never applied, or about to be
}

// The states of a cursor.
const (
	CursorLive        = "live"        // it follows the watermark
	CursorQuarantined = "quarantined" // quarantined for this campaign after a failure, until a run catches it up
	CursorPaused      = "paused"      // paused by an operator, for this campaign or for all
	CursorBehind      = "behind"      // resumed, and waiting for a replay to catch it up
)

// Cursor is how far one projection is in one campaign.
type Cursor struct {
	Projection string `json:"projection" redact:"-"`
	AppliedSeq int64  `json:"applied_seq"`
	LagEvents  int64  `json:"lag_events"` // events of the campaign after applied_seq
	// LagSeconds is the age of the first of those, from its append; 0 when there is none.
	LagSeconds float64 `json:"lag_seconds"`
	// LastAppliedAt is when it was last told an event; nil when it never was, or
	// when that is not known.
	LastAppliedAt *time.Time `json:"last_applied_at"`
	Attempts      int64      `json:"attempts"`   // how often the event after applied_seq has failed in it
	Generation    int64      `json:"generation"` // raised by each rebuild, from 1
	// live: it follows the watermark; quarantined: it is set aside for this
	// campaign after a failure; paused: an operator stopped it; behind: it was
	// resumed and waits for a replay
	State string `json:"state" api:"enum=live quarantined paused behind"`
	// ChangedAt is when its state last changed; zero where it always followed.
	ChangedAt    time.Time `json:"-"`
	Paused       *Pause    `json:"paused"`         // who stopped it; nil unless it is paused
	PausedForAll bool      `json:"paused_for_all"` // it is stopped for all campaigns, and so cannot be resumed for this one
	RunID        int64     `json:"run_id"`         // the active run that catches it up; 0 when there is none
	BlockedByRun int64     `json:"blocked_by_run"` // the run at whose end a replay starts that catches it up; 0 when there is none
	// Failure is the first event that the projection failed at and has not
	// passed since; nil when there is none.
	Failure             *CursorFailure `json:"failure"`
	Version             string         `json:"version"`       // hash of the loaded definition
	BuiltVersion        string         `json:"built_version"` // hash of the definition that made the rows; empty when it is not known
	BuiltByOtherVersion bool           `json:"built_by_other_version"`
}

// Follows reports whether the projection goes on with the campaign.
func (c Cursor) Follows() bool { return c.State == CursorLive }

// cursorStates lists every state, CursorLive first.
var cursorStates = []string{CursorLive, CursorQuarantined, CursorPaused, CursorBehind}

// ParseCursorState reads the state of a cursor that is not live; the empty name
// stands for any of those.
func ParseCursorState(name string) (string, error) {
	return parseName("state", name, cursorStates[1:])
}

// CampaignCursor is the cursor of a projection in one of many campaigns.
type CampaignCursor struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	Cursor
}

// CursorFilter selects the campaigns that a projection does not follow. A zero
// state selects any.
type CursorFilter struct {
	Projection string
	State      string
	Cursor     string
	Limit      int // 0 means 50; at most 200
}

// ProjectionPause is what pausing a projection came to, or resuming it.
type ProjectionPause struct {
	Projection string `json:"projection" redact:"-"`
	CampaignID string `json:"campaign_id" redact:"-"` // empty for all campaigns
	// State is that of the campaign's cursor; for all campaigns it is paused
	// or live.
	State      string `json:"state"`
	AppliedSeq int64  `json:"applied_seq"` // where the campaign's cursor stands; 0 for all
	// Behind is how many campaigns wait for a replay, since events were
	// applied to them while the projection was paused.
	Behind int64 `json:"behind"`
	// RunID is the replay that catches them up; 0 when none is needed, and while
	// another run blocks it.
	RunID int64 `json:"run_id"`
	// BlockedByRun is the run that the replay has to wait for; it starts by
	// itself once that one has ended. 0 when nothing blocks it.
	BlockedByRun int64 `json:"blocked_by_run"`
}

// CursorFailure is the failure that a projection of a campaign stands at.
type CursorFailure struct {
	Seq         int64     `json:"seq"`
	EventType   string    `json:"event_type" redact:"-"`
	Message     string    `json:"message"`
	Fingerprint string    `json:"fingerprint" redact:"-"`
	Attempts    int64     `json:"attempts"`
	At          time.Time `json:"at"`
}
