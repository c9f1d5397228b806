package inbound

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
)

// IntakeSource is a service's database whose rows become events, and how moving them goes.
type IntakeSource struct {
	Name         string          `json:"name" redact:"-"`
	Place        string          `json:"place"`         // a path, or a URL without secrets
	Configured   bool            `json:"configured"`    // this process has the source in its configuration
	Journalled   int64           `json:"journalled"`    // rows moved to the journal so far
	JournalledAt *time.Time      `json:"journalled_at"` // the last time that rows were moved
	LookedAt     *time.Time      `json:"looked_at"`     // when its table was last read; nil before the first time
	Waiting      int64           `json:"waiting"`       // rows in its table then; counted up to waiting_limit
	WaitingLimit int64           `json:"waiting_limit"` // where counting stops
	OldestAt     *time.Time      `json:"oldest_at"`     // of the first row then: when its event occurred, or where that is unknown, when the row was first seen
	OldestAge    float64         `json:"oldest_age_seconds"`
	Rejected     int64           `json:"rejected"`    // rows that wait for an operator
	RejectedAt   *time.Time      `json:"rejected_at"` // when the first of them was rejected; a retry that fails counts anew. nil if rejected is 0
	Error        string          `json:"error"`       // why its table cannot be read now; empty if it can
	ErrorAt      *time.Time      `json:"error_at"`
	Lease        *campaign.Lease `json:"lease"` // of the process that moves its rows; nil without one
	// the id of another journal, to which the source belongs; empty if it belongs to this one, and while
	// that is not known. Its rows are not moved to this one unless an operator hands it over
	Owner      string     `json:"owner" redact:"-"`
	OwnedSince *time.Time `json:"owned_since"` // since when it belongs to the owner; nil without one
	HandedOver bool       `json:"handed_over"` // an operator has handed it over, which the next read carries out
}

// IntakeState is the state of a source in a word.
type IntakeState string

// The states of a source, the worst first.
const (
	IntakeFailing  IntakeState = "failing"  // its database cannot be read
	IntakeStopped  IntakeState = "stopped"  // no process moves its rows
	IntakeRejected IntakeState = "rejected" // rows wait for an operator, with their campaigns
	IntakeMoving   IntakeState = "moving"   // rows wait to be moved
	IntakeCaughtUp IntakeState = "caught up"
)

// State is the most urgent state of the source.
func (s IntakeSource) State(now time.Time) IntakeState {
	switch {
	case s.Error != "":
		return IntakeFailing
	case s.Lease == nil || s.Lease.ExpiresAt.Before(now):
		return IntakeStopped
	case s.Rejected > 0:
		return IntakeRejected
	case s.Waiting > 0:
		return IntakeMoving
	}
	return IntakeCaughtUp
}

// InUse reports whether the process has the source in its configuration, or one has tried to read it
// lately: a source that was removed from all configurations is no problem.
func (s IntakeSource) InUse(now time.Time) bool {
	return s.Configured || s.triedWithin(campaign.NewsFor, now)
}

func (s IntakeSource) triedWithin(span time.Duration, now time.Time) bool {
	within := func(at *time.Time) bool { return at != nil && now.Sub(*at) < span }
	return within(s.LookedAt) || within(s.ErrorAt)
}

// UnreadSources returns the sources in use whose rows do not move: their database cannot be read, or
// no process reads it. A lease that changes hands is no reason.
func UnreadSources(all []IntakeSource, now time.Time) (unread []IntakeSource) {
	for _, s := range all {
		switch state := s.State(now); {
		case state == IntakeFailing && s.InUse(now), state == IntakeStopped && s.InUse(now) && !s.triedWithin(campaign.SilentAfter, now):
			unread = append(unread, s)
		}
	}
	return unread
}

// IntakeRejectionStatus is the state of a rejected row.
type IntakeRejectionStatus string

// The statuses of a rejected row.
const (
	IntakeOpen       IntakeRejectionStatus = "open"       // it waits for an operator
	IntakeRetrying   IntakeRejectionStatus = "retrying"   // it is tried again at the next read
	IntakeDiscarding IntakeRejectionStatus = "discarding" // it is deleted from its table at the next read
	IntakeDiscarded  IntakeRejectionStatus = "discarded"  // it was deleted from its table, and its content kept here
)

// IntakeRejection is a row of a source that could not be journalled.
type IntakeRejection struct {
	ID         int64                 `json:"id"`
	Source     string                `json:"source" redact:"-"`
	RowKey     string                `json:"row_key" redact:"-"` // its place in the order of its table
	CampaignID string                `json:"campaign_id" redact:"-"`
	EventID    string                `json:"event_id"`
	EventType  string                `json:"event_type" redact:"-"`
	Reason     string                `json:"reason"`
	Attempts   int64                 `json:"attempts"`
	RejectedAt time.Time             `json:"rejected_at"` // the last time
	Status     IntakeRejectionStatus `json:"status" api:"enum=open retrying discarding discarded"`
	// the row. Values that look like secrets are "[redacted]" in answers of the API, and nil is all of
	// it where the server hides payloads (--hide-payloads). A payload that is not a JSON object is a
	// text here
	Content      json.RawMessage `json:"content" api:"object,nullable"`
	ContentBytes int64           `json:"content_bytes"` // of the documents in the row; content has less of them if they are over the limit
	ChangedAt    *time.Time      `json:"changed_at"`    // the last action on it
	ChangedBy    string          `json:"changed_by"`
	ChangeReason string          `json:"change_reason"`
}

// Discards is the rejected row in the phrase that confirms discarding it: "shop 12".
func (r IntakeRejection) Discards() string { return r.Source + " " + strconv.FormatInt(r.ID, 10) }

// IntakeOwners is the table, beside that of a source, that says to which journal the source belongs.
const IntakeOwners = "outboxweb_intake_owner"

// CreateIntakeOwners is the statement that makes the table of that name, on PostgreSQL and SQLite.
func CreateIntakeOwners(name string) string {
	return "create table if not exists " + name + " (source_table text primary key, journal text not null, since bigint not null)"
}

// DiscardRequest asks for the discard of a rejected row.
type DiscardRequest struct {
	Reason  string `json:"reason" validate:"reason" api:"required,min=1" placeholder:"TEXT" help:"The reason, for the audit log."`
	Confirm string `json:"confirm" validate:"phrase" api:"required" placeholder:"PHRASE" help:"Confirms it, such as 'discard shop 12'. Prompted for at a terminal if not given."` // the words "discard SOURCE ID"
}

// HandOverRequest asks for the hand-over of a source.
type HandOverRequest struct {
	Reason  string `json:"reason" validate:"reason" api:"required,min=1" placeholder:"TEXT" help:"The reason, for the audit log."`
	Confirm string `json:"confirm" validate:"phrase" api:"required" placeholder:"PHRASE" help:"Confirms it, such as 'hand over shop'. Prompted for at a terminal if not given."` // the words "hand over SOURCE"
}

// RejectionKey names a rejected row.
type RejectionKey struct {
	Source string `arg:"" help:"The source, as named in the configuration file."`
	ID     int64  `arg:"" help:"The rejected row's ID, as shown by intake rejections."`
}
