package campaign

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// EventDetail is an event with the facts its page shows.
type EventDetail struct {
	Event event.Event // documents larger than requested are nil
	Sizes event.Sizes
	// RowStatus is that of the event's row; empty when it has none.
	RowStatus event.Status
	// CorrelationSeq and CausationSeq are the events of the same campaign whose ids are the event's
	// correlation and causation ids; 0 if the campaign has no event with that id.
	CorrelationSeq, CausationSeq int64
}

// EventLine is an event in one line: its type and whether it has a row.
type EventLine struct {
	Seq                  int64
	EventType            string `redact:"-"`
	EntityType, EntityID string
	OccurredAt           time.Time
	RowStatus            event.Status // empty when the event has no row
	Skipped              bool         // skipped and never applied, or about to be
}

// The states of a cursor.
const (
	CursorLive        = "live"        // it is caught up with the watermark
	CursorQuarantined = "quarantined" // quarantined for this campaign after a failure, until a run catches it up
	CursorPaused      = "paused"      // paused by an operator, for this campaign or for all
	CursorBehind      = "behind"      // resumed, or loaded again, and waiting for a replay to catch it up
)

// Cursor is the position of one projection in one campaign.
type Cursor struct {
	Projection string `json:"projection" redact:"-"`
	AppliedSeq int64  `json:"applied_seq"`
	LagEvents  int64  `json:"lag_events"` // events of the campaign after applied_seq
	// LagSeconds is the age of the first of those events, since its append; 0 if there is none.
	LagSeconds float64 `json:"lag_seconds"`
	// LastAppliedAt is when it last applied an event; nil if never or unknown.
	LastAppliedAt *time.Time `json:"last_applied_at"`
	Attempts      int64      `json:"attempts"`   // failures of the event after applied_seq in this projection
	Generation    int64      `json:"generation"` // raised by each rebuild, from 1
	// live: it follows the watermark; quarantined: it stopped for this campaign after a failure;
	// paused: an operator paused it; behind: events were applied while it was paused or not loaded, and
	// it waits for a replay
	State     string `json:"state" api:"enum=live quarantined paused behind"`
	NotLoaded bool   `json:"not_loaded"` // it is behind, and no replay catches it up before it is loaded again
	// ChangedAt is when its state last changed; zero if it was always live.
	ChangedAt    time.Time `json:"-"`
	RebuiltAt    time.Time `json:"-"`              // when all of its rows were replaced; zero unless it is live since
	Paused       *Pause    `json:"paused"`         // who paused it; nil unless it is paused
	PausedForAll bool      `json:"paused_for_all"` // it is paused for all campaigns, and so cannot be resumed for this one
	RunID        int64     `json:"run_id"`         // the active run that catches it up; 0 if there is none
	BlockedByRun int64     `json:"blocked_by_run"` // the run after which a replay will catch it up; 0 if there is none
	// Failure is the first event that failed in the projection and is not applied yet; nil if there
	// is none.
	Failure *CursorFailure `json:"failure"`
	Version string         `json:"version"` // hash of the loaded definition
	RowsBuilt
	// which version made its rows of which events; absent in lists
	Built BuiltRanges `json:"built,omitempty"`
	// of those, what runs replayed, the earliest run first
	Replayed []BuiltRange `json:"-"`
}

// Follows reports whether the projection is live in the campaign.
func (c Cursor) Follows() bool { return c.State == CursorLive }

// CampaignCursor is the cursor of a projection in one of many campaigns.
type CampaignCursor struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	Cursor
}

// CursorFilter selects campaigns in which a projection is not live. A zero state selects any.
type CursorFilter struct {
	Projection string `json:"-" validate:"-" kong:"-"`
	State      string `json:"state" validate:"omitempty,oneof=quarantined paused behind" column:"state" placeholder:"S" values:"cursor-state" help:"With NAME: only campaigns in which it has this state: quarantined, paused or behind."`
	Cursor     string `json:"cursor" validate:"cursor" kong:"-"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit      int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// ProjectionPause is the result of pausing or resuming a projection.
type ProjectionPause struct {
	Projection string `json:"projection" redact:"-"`
	CampaignID string `json:"campaign_id" redact:"-"` // empty for all campaigns
	// State is that of the campaign's cursor; for all campaigns it is paused or live.
	State      string `json:"state"`
	AppliedSeq int64  `json:"applied_seq"` // the campaign's cursor position; 0 for all
	// Behind is how many campaigns wait for a replay, since events were applied to them while the
	// projection was paused.
	Behind int64 `json:"behind"`
	// Quarantined is in how many campaigns a projection that was resumed for all is quarantined: a resume
	// does not reach those.
	Quarantined int64 `json:"quarantined"`
	// RunID is the replay that catches them up; 0 if none is needed, or while another run blocks
	// it.
	RunID int64 `json:"run_id"`
	// BlockedByRun is the run that the replay waits for; the replay starts automatically when that
	// run ends. 0 when nothing blocks it.
	BlockedByRun int64 `json:"blocked_by_run"`
}

// CursorFailure is the failure at a projection's position in a campaign.
type CursorFailure struct {
	Seq         int64     `json:"seq"`
	EventType   string    `json:"event_type" redact:"-"`
	Message     string    `json:"message"`
	Fingerprint string    `json:"fingerprint" redact:"-"`
	Attempts    int64     `json:"attempts"`
	At          time.Time `json:"at"`
}
