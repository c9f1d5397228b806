package campaign

import (
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Counts is the number of rows by status.
type Counts struct {
	Pending    int64 `json:"pending"`
	Processing int64 `json:"processing"`
	Failed     int64 `json:"failed"`
	Dead       int64 `json:"dead"`
}

// Total is the number of rows of any status.
func (c Counts) Total() int64 { return c.Pending + c.Processing + c.Failed + c.Dead }

// Of is the number of rows with status s; 0 for an unknown one.
func (c Counts) Of(s event.Status) int64 {
	switch s {
	case event.Pending:
		return c.Pending
	case event.Processing:
		return c.Processing
	case event.Failed:
		return c.Failed
	case event.Dead:
		return c.Dead
	}
	return 0
}

// Row is one outbox entry: an event not yet applied to the projections.
type Row struct {
	CampaignID    string       `json:"campaign_id" redact:"-"`
	Seq           int64        `json:"seq"`
	EventType     string       `json:"event_type" redact:"-"`
	Status        event.Status `json:"status"`
	AttemptCount  int          `json:"attempt_count"`
	NextAttemptAt time.Time    `json:"next_attempt_at"`
	LastError     string       `json:"last_error"`
	Fingerprint   string       `json:"fingerprint" redact:"-"`
	EnqueuedAt    time.Time    `json:"enqueued_at"` // when the event was appended; lag counts from here
	UpdatedAt     time.Time    `json:"updated_at"`
	IsHead        bool         `json:"is_head"`
	BlockedBehind int64        `json:"blocked_behind"` // rows of the campaign that wait for this one; 0 unless it is the head
}

// Attempt is one failed attempt to apply a row.
type Attempt struct {
	Attempt     int       `json:"attempt"` // counted from 1 since the row was written or requeued
	Worker      string    `json:"worker"`  // the instance's id
	Build       string    `json:"build"`   // the version of the program that tried
	At          time.Time `json:"at"`
	Error       string    `json:"error"` // in full, with a stack where there is one
	Fingerprint string    `json:"fingerprint" redact:"-"`
	Died        bool      `json:"died"`        // the row died of it; false in records of older versions
	Quarantined bool      `json:"quarantined"` // it was the last one, and the event was applied without the projection

	Projection        string `json:"projection" redact:"-"` // the projection that failed; empty if unknown
	ProjectionVersion string `json:"projection_version"`    // the hash of its definition
	Permanent         bool   `json:"permanent"`             // it can never succeed with that version of the projection: the row is dead at once
}

// Rehearsal is what applying an event would do, as a worker in shadow mode found.
type Rehearsal struct {
	At          time.Time `json:"at"`
	Error       string    `json:"error"`       // why the event would fail; empty when it would be applied
	Fingerprint string    `json:"fingerprint"` // of the error
}

// RowDetail is a row with everything that its page shows.
type RowDetail struct {
	Row      Row                   `json:"row"`
	Event    event.Event           `json:"event"` // its documents as far as requested; Sizes covers all
	Sizes    event.Sizes           `json:"-"`
	Attempts []Attempt             `json:"attempts"` // newest first, at most 50
	Campaign Campaign              `json:"campaign"`
	Activity []operator.AuditEntry `json:"activity"` // newest first, at most 20
	// Rehearsal is the last one of the event; nil without one.
	Rehearsal *Rehearsal `json:"rehearsal,omitempty"`
	// Previous and Next are the seqs of the campaign's rows before and after
	// this one; 0 when there is none.
	Previous int64 `json:"previous_seq"`
	Next     int64 `json:"next_seq"`
	Queue    []Row `json:"queue"` // the head of the campaign and the rows behind it, at most six
}

// Hopeless says why a dead row was not retried, and what to do: it can never succeed with the
// version of the projection that it failed in last. It is empty for all other rows.
func (d RowDetail) Hopeless(now Running) string {
	if d.Row.Status != event.Dead || len(d.Attempts) == 0 || !d.Attempts[0].Permanent {
		return ""
	}
	switch last := d.Attempts[0]; {
	case now.lacks(last.Projection):
		return "Failed permanently in projection " + last.Projection + ", which is not loaded any more."
	case now.Versions[last.Projection] != last.ProjectionVersion:
		return "Failed permanently in an earlier version of projection " + last.Projection + ". The projection has changed since: a dry run shows whether it passes now."
	}
	return "Not retried: it can never succeed with this version of the projection. Fix the projection, then requeue the row."
}

// RowFilter selects rows for a page, as outbox.RowsBy says. Zero fields select all.
type RowFilter struct {
	Status      event.Status  `json:"status" validate:"omitempty,status" column:"status" placeholder:"S" values:"row-status" help:"Show rows with this status: pending, processing, failed or dead."`
	CampaignID  string        `json:"campaign" validate:"id" column:"campaign_id" label:"Campaign" hint:"exact id" name:"campaign" placeholder:"C" help:"Show rows of this campaign."`
	EventType   string        `json:"event_type" validate:"id" column:"event_type" label:"Event type" hint:"exact type" kong:"-"`
	Fingerprint string        `json:"fingerprint" validate:"fingerprint" column:"fingerprint" label:"Error fingerprint" hint:"as listed" kong:"-"`
	Q           string        `json:"q" validate:"id" label:"Text" hint:"part of id or error" kong:"-"` // part of the campaign id or of the last error; upper and lower case differ
	Shown       event.Wording `json:"-" validate:"-" kong:"-"`
	// without a status or campaign: seq is by campaign and seq; attention has dead heads first, then
	// failed heads, then the others
	Sort    RowSort `json:"sort" validate:"omitempty,oneof=seq attention" api:"default=seq" kong:"-"`
	Reverse bool    `json:"reverse" api:"default=false" kong:"-"` // reverse the order
	Cursor  string  `json:"cursor" validate:"cursor" kong:"-"`    // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int     `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// RowSort is an order of rows without a status or campaign; with one, the status decides.
type RowSort string

// The orders. SortSeq is the default.
const (
	SortSeq       RowSort = "seq"       // by campaign and seq
	SortAttention RowSort = "attention" // dead heads, then failed heads, then the others; each by campaign and seq
)

// Rank is the row's place in SortAttention, before its campaign and seq.
func (r Row) Rank() int64 {
	switch {
	case r.IsHead && r.Status == event.Dead:
		return 0
	case r.IsHead && r.Status == event.Failed:
		return 1
	default:
		return 2
	}
}

// ByNextAttempt reports whether the rows are ordered by their next attempt; all others are ordered
// by campaign and seq.
func (f RowFilter) ByNextAttempt() bool {
	return f.CampaignID == "" && f.Status.Stuck()
}

// Finds reports whether r has the text of the filter, in an error as it is shown.
func (f *RowFilter) Finds(r *Row) bool {
	shown := f.Shown == nil || strings.Contains(f.Shown.Text(r.LastError), f.Q)
	return strings.Contains(r.CampaignID, f.Q) || strings.Contains(r.LastError, f.Q) && shown
}

// Revealed is an event with its hidden parts, shown to one admin.
type Revealed struct {
	Event    event.Event // as stored
	Row      *Row        // nil if it has none
	Attempts []Attempt   // of the row, newest first, at most 50
}
