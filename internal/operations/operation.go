package operations

import (
	"fmt"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// OperationStatus is the state of an operation.
type OperationStatus string

// The statuses of an operation. One that is not running has ended, and waits for an operator to
// acknowledge the outcome.
const (
	OperationRunning   OperationStatus = "running"
	OperationStopped   OperationStatus = "stopped"   // automatically: rows of a group failed again
	OperationCancelled OperationStatus = "cancelled" // by an operator
	OperationDone      OperationStatus = "done"      // every row has its result
)

// OperationStatuses lists every status of an operation.
var OperationStatuses = []OperationStatus{OperationRunning, OperationStopped, OperationCancelled, OperationDone}

// CutShort reports whether the operation has ended before all of its rows were tried.
func (s OperationStatus) CutShort() bool { return s == OperationStopped || s == OperationCancelled }

// RowResult is the outcome of one row of an operation.
type RowResult string

// The results. Waiting and requeued rows have no outcome yet.
const (
	ResultWaiting     RowResult = "waiting"      // not touched yet
	ResultRequeued    RowResult = "requeued"     // pending again, and watched until it and the next events are applied
	ResultDone        RowResult = "done"         // applied
	ResultQuarantined RowResult = "quarantined"  // applied, but a projection failed at it or right behind it and was quarantined
	ResultSkipped     RowResult = "skipped"      // changed since the operation began, or unable to move; left unchanged
	ResultFailedAgain RowResult = "failed_again" // dead again after one attempt
	ResultLeft        RowResult = "left"         // not attempted: its group stopped or the operation was cancelled
	ResultUnwatched   RowResult = "unwatched"    // requeued, but not watched to its outcome
)

// RowResults lists every result in the order in which a row may reach them.
var RowResults = []RowResult{ResultWaiting, ResultRequeued, ResultDone, ResultQuarantined, ResultSkipped, ResultFailedAgain, ResultLeft, ResultUnwatched}

// OperationTotals counts an operation's rows by result.
type OperationTotals struct {
	Chosen      int64 `json:"chosen"`
	Waiting     int64 `json:"waiting"`
	Requeued    int64 `json:"requeued"`
	Done        int64 `json:"done"`
	Quarantined int64 `json:"quarantined"`
	Skipped     int64 `json:"skipped"`
	FailedAgain int64 `json:"failed_again"`
	Left        int64 `json:"left"`
	Unwatched   int64 `json:"unwatched"`
}

// Of is the number of rows with result r; 0 for an unknown one.
func (t OperationTotals) Of(r RowResult) int64 {
	if n := t.Field(r); n != nil {
		return *n
	}
	return 0
}

// Field returns the counter of a result, to be changed; nil for an unknown one.
func (t *OperationTotals) Field(r RowResult) *int64 {
	switch r {
	case ResultWaiting:
		return &t.Waiting
	case ResultRequeued:
		return &t.Requeued
	case ResultDone:
		return &t.Done
	case ResultQuarantined:
		return &t.Quarantined
	case ResultSkipped:
		return &t.Skipped
	case ResultFailedAgain:
		return &t.FailedAgain
	case ResultLeft:
		return &t.Left
	case ResultUnwatched:
		return &t.Unwatched
	}
	return nil
}

// Ended is the number of rows that have an outcome.
func (t OperationTotals) Ended() int64 { return t.Chosen - t.Waiting - t.Requeued }

// Operation is a requeue of many rows that workers carry out: a frozen selection of dead rows,
// requeued in waves and watched.
type Operation struct {
	ID             int64                   `json:"id"`
	Kind           string                  `json:"kind" api:"enum=requeue"` // requeue
	Status         OperationStatus         `json:"status"`
	Canary         bool                    `json:"canary"`    // one head of each error group goes first, then waves of 1, 2, 4, …
	Filter         *campaign.RequeueFilter `json:"filter"`    // nil when the rows were named one by one
	Rehearsal      int64                   `json:"rehearsal"` // the rehearsal that it rests on; 0 without one
	StartedBy      string                  `json:"started_by"`
	Via            string                  `json:"via"`
	Reason         string                  `json:"reason"`
	RequestID      string                  `json:"request_id"`
	StartedAt      time.Time               `json:"started_at"`
	UpdatedAt      time.Time               `json:"updated_at"`
	FinishedAt     *time.Time              `json:"finished_at"` // nil while it runs
	Heads          int64                   `json:"heads"`       // chosen rows that were heads of their campaign at the start
	Released       int64                   `json:"released"`    // rows waiting behind those heads at the start
	Refused        int64                   `json:"refused"`     // named rows that were not chosen: not dead, or part of another running operation
	Totals         OperationTotals         `json:"totals"`
	StopReason     string                  `json:"stop_reason"`
	CancelledBy    string                  `json:"cancelled_by"`
	AcknowledgedBy string                  `json:"acknowledged_by"`
	AcknowledgedAt *time.Time              `json:"acknowledged_at"` // nil until acknowledged
}

// Cancellable reports whether the operation still requeues or watches rows.
func (o Operation) Cancellable() bool { return o.Status == OperationRunning }

// Acknowledgeable reports whether the operation has ended and is not acknowledged yet.
func (o Operation) Acknowledgeable() bool {
	return o.Status != OperationRunning && o.AcknowledgedAt == nil
}

// GroupStatus is the state of one error group of an operation.
type GroupStatus string

// The statuses of a group.
const (
	GroupRunning GroupStatus = "running"
	GroupStopped GroupStatus = "stopped" // something failed, or an operator cancelled it; no more of its rows are requeued
	GroupDone    GroupStatus = "done"
)

// OperationGroup is the rows of an operation that died of the same error.
type OperationGroup struct {
	Number      int64           `json:"number"`
	Fingerprint string          `json:"fingerprint" redact:"-"`
	Example     string          `json:"example"` // the error of one of its rows
	Status      GroupStatus     `json:"status"`
	Wave        int64           `json:"wave"`      // −1 before any of its rows was requeued; 0 is the canary
	WaveSize    int64           `json:"wave_size"` // rows requeued in that wave
	Reason      string          `json:"reason"`    // why it stopped
	Totals      OperationTotals `json:"totals"`
}

// OperationRow is one row of an operation.
type OperationRow struct {
	CampaignID        string     `json:"campaign_id" redact:"-"`
	Seq               int64      `json:"seq"`
	EventType         string     `json:"event_type" redact:"-"`
	Group             int64      `json:"group"`
	Fingerprint       string     `json:"fingerprint" redact:"-"` // of the error it died of before the operation
	Status            RowResult  `json:"status"`
	Wave              int64      `json:"wave"`                          // −1 if not requeued
	Detail            string     `json:"detail"`                        // what happened to it, as a sentence; may be empty
	FailedFingerprint string     `json:"failed_fingerprint" redact:"-"` // of the error it failed with again
	RequeuedAt        *time.Time `json:"requeued_at"`
	FinishedAt        *time.Time `json:"finished_at"`
	Ordinal           int64      `json:"-"` // its place in the operation
}

// WatchedRow is a requeued row without an outcome yet, and why.
type WatchedRow struct {
	CampaignID string `json:"campaign_id" redact:"-"`
	Seq        int64  `json:"seq"`
	WatchSeq   int64  `json:"watch_seq"` // the row is done once events up to here are applied
	AppliedSeq int64  `json:"applied_seq"`
	Why        string `json:"why"`
}

// NewFailuresNamed is how many new failures of each kind an operation names.
const NewFailuresNamed = 50

// OperationDetail is an operation with everything that its page shows.
type OperationDetail struct {
	Operation
	Groups     []OperationGroup `json:"groups" api:"max=200"` // largest first, at most 200
	MoreGroups int64            `json:"more_groups"`          // smaller ones that are left out
	Watched    []WatchedRow     `json:"watched" api:"max=20"` // at most 20
	// rows that the rehearsal on which the operation rests tried and found passing; 0 without one
	Rehearsed int64 `json:"rehearsed"`
	// versions of projections that were loaded in place of others while it ran, the first ones; at most 20
	Loads []campaign.VersionLoad `json:"loads" api:"max=20"`
	// rows that are not part of the operation, failed since its start, in its campaigns or with its
	// errors, and still are failed or dead; at most 50
	NewFailures []campaign.Row `json:"new_failures" api:"max=50"`
	// open failures since its start that quarantined projections in its campaigns; at most 50
	NewQuarantines []campaign.ProjectionFailure `json:"new_quarantines" api:"max=50"`
	Why            string                       `json:"why"` // one sentence on its progress or its end
}

// Phase is the progress of a running operation: "canary", or "wave 3".
func (d OperationDetail) Phase() string {
	most, canary := int64(1), false
	for _, g := range d.Groups {
		most = max(most, g.Wave)
		canary = canary || g.Status == GroupRunning && g.Wave <= 0
	}
	if canary {
		most = 0
	}
	return PhaseOf(d.Canary, most)
}

// PhaseOf is the progress of a running operation, with or without a canary, whose rows are in a
// wave: "canary", or "wave 3".
func PhaseOf(canary bool, wave int64) string {
	if canary && wave <= 0 {
		return "canary"
	}
	return fmt.Sprintf("wave %d", max(wave, 1))
}

// Describe says in one sentence what the operation is doing, or how it ended.
func (d OperationDetail) Describe(working bool) string {
	t := d.Totals
	switch {
	case d.Status == OperationDone:
		return fmt.Sprintf("Done: %s of %s applied, %s skipped", event.Number(t.Done), event.Count(t.Chosen, "row", "rows"), event.Number(t.Skipped))
	case d.Status == OperationStopped:
		quarantined := ""
		if t.Quarantined > 0 {
			quarantined = fmt.Sprintf(", %s applied with a projection quarantined", event.Number(t.Quarantined))
		}
		return fmt.Sprintf("Stopped: %s; %s failed again%s, %s not attempted", d.StopReason, event.Count(t.FailedAgain, "row", "rows"), quarantined, event.Number(t.Left))
	case d.Status == OperationCancelled:
		return fmt.Sprintf("Cancelled by %s; %s not attempted, %s requeued before and not watched since", d.CancelledBy, event.Count(t.Left, "row", "rows"), event.Number(t.Unwatched))
	case !working:
		return "No worker is running; start a worker, or cancel the operation"
	case len(d.Watched) > 0:
		w := d.Watched[0]
		return fmt.Sprintf("In %s, waiting for %s; event %d of campaign %s: %s", d.Phase(), event.Count(t.Requeued, "row", "rows"), w.Seq, w.CampaignID, w.Why)
	default:
		return fmt.Sprintf("In %s: about to requeue the next rows", d.Phase())
	}
}

// CoverText says how many of the operation's rows passed the rehearsal on which it rests.
func (d OperationDetail) CoverText() string {
	return fmt.Sprintf("%s of the operation's %s passed it", event.Number(d.Rehearsed), event.Count(d.Totals.Chosen, "row", "rows"))
}

// LoadText says that other files of a projection were loaded while the operation ran.
func (d OperationDetail) LoadText(l campaign.VersionLoad) string {
	text := fmt.Sprintf("Version %s of projection %s, in place of %s: rows requeued after that were tried with it", event.ShortHash(l.Version), l.Projection, event.ShortHash(l.Previous))
	if d.Rehearsal > 0 {
		text += fmt.Sprintf(", and rehearsal %d was not of it", d.Rehearsal)
	}
	return text
}

// Selection selects the dead rows to requeue: those in Rows or, without any, those that match
// Filter, where a limit of 0 means all.
type Selection struct {
	Rows   []event.RowKey // at most 10,000
	Filter campaign.RequeueFilter
}

// OperationRequest configures an operation, with the preview that the operator was shown.
type OperationRequest struct {
	Selection
	Canary bool
	// Rehearsal is the rehearsal that the operation rests on; 0 without one.
	Rehearsal int64
	// ExpectedRows and ExpectedReleased are the preview's numbers; nil skips the comparison.
	ExpectedRows, ExpectedReleased *int64
}

// OperationPreview is what an operation would do now.
type OperationPreview struct {
	Rows      int64 `json:"rows"`
	Heads     int64 `json:"heads"`
	Released  int64 `json:"released"`  // rows waiting behind those heads
	Refused   int64 `json:"refused"`   // named rows that are not dead, or part of a running operation
	Rehearsed int64 `json:"rehearsed"` // rows that the rehearsal on which it is to rest tried and found passing; 0 without one
	// RehearsedFailing is how many matching rows that rehearsal tried and found failing: they are left out.
	RehearsedFailing int64            `json:"rehearsed_failing"`
	Campaigns        PreviewCampaigns `json:"campaigns"`
	Groups           []PreviewGroup   `json:"groups" api:"max=20"` // largest first, at most 20
	// GroupsTotal is how many groups there are in all.
	GroupsTotal int64 `json:"groups_total"`
	// EstimatedSeconds is how long workers would take at EventsPerSecond, the highest rate of the last
	// 15 minutes in which events were applied; both are nil if none was within a day.
	EstimatedSeconds *float64 `json:"estimated_seconds"`
	EventsPerSecond  *float64 `json:"events_per_second"`
	Confirm          string   `json:"confirm"` // the phrase required to start it; empty if none is
}

// PreviewCampaigns names the campaigns that an operation would touch.
type PreviewCampaigns struct {
	Total int64    `json:"total"`
	Named []string `json:"named" api:"max=20"` // most rows released first, at most 20
}

// PreviewGroup is the rows of a preview that died of the same error.
type PreviewGroup struct {
	Fingerprint string `json:"fingerprint" redact:"-"`
	Example     string `json:"example"`
	Rows        int64  `json:"rows"`
}

// OperationFilter selects operations for a page. Zero fields select all.
type OperationFilter struct {
	Status       OperationStatus `json:"status" validate:"omitempty,operationstatus" column:"status" placeholder:"S" values:"operation-status" help:"Only operations with this status: running, stopped, cancelled or done."`
	Acknowledged *bool           `json:"acknowledged" kong:"-"`
	Cursor       string          `json:"cursor" validate:"cursor" kong:"-"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit        int             `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// OperationRowFilter selects rows of one operation for a page.
type OperationRowFilter struct {
	Status RowResult `json:"status" validate:"omitempty,rowresult"`
	Cursor string    `json:"cursor" validate:"cursor"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit  int       `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// Action is the action on the operation; empty if there is none.
func (o Operation) Action() operator.Action {
	switch {
	case o.Cancellable():
		return operator.ActionOperationCancel
	case o.Acknowledgeable():
		return operator.ActionOperationAcknowledge
	}
	return ""
}

// OperationActionRequest asks for an action on an operation.
type OperationActionRequest struct {
	operator.ReasonRequest
	Expected *ExpectedOperation `json:"expected,omitempty" kong:"-"`
}

// ExpectedOperation is the operation's status that the caller saw.
type ExpectedOperation struct {
	Status OperationStatus `json:"status" validate:"omitempty,operationstatus"`
}

// Seen is the status of the operation that the caller saw; empty if the caller does not tell.
func (r OperationActionRequest) Seen() OperationStatus {
	if r.Expected == nil {
		return ""
	}
	return r.Expected.Status
}

// OperationStartRequest asks for an operation, or its preview: either rows or a filter. The empty
// filter selects every dead row.
type OperationStartRequest struct {
	Kind   string             `json:"kind,omitempty" validate:"omitempty,oneof=requeue" kong:"-"`
	Rows   []event.RowKey     `json:"rows,omitempty" validate:"dive" api:"max=MaxNamed" kong:"-"`
	Filter *campaign.DeadRows `json:"filter,omitempty"`
	OperationOptions
}

// OperationOptions are what an operation is asked for with beside its rows.
type OperationOptions struct {
	Canary    bool  `json:"canary" api:"default=false" help:"With --dead: start an operation that workers carry out: one head of each error group first, then waves of 1, 2, 4, …"`
	Rehearsal int64 `json:"rehearsal,omitempty" validate:"min=0" api:"default=0" placeholder:"N" help:"With --canary: the rehearsal that the operation rests on; its files must be loaded."` // the rehearsal that it rests on, whose files must be loaded; 0 for none
	operator.ReasonRequest
	Confirm          string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"Confirms a requeue that affects more than ${confirm_above} rows, e.g. 'requeue 43 rows'. Prompted for at a terminal if not given."` // required above 1,000 rows chosen or released: the phrase requeue N rows
	ExpectedRows     *int64 `json:"expected_rows,omitempty" validate:"omitnil,min=0" kong:"-"`                                                                                                                                         // number from the preview; refused if it differs
	ExpectedReleased *int64 `json:"expected_released,omitempty" validate:"omitnil,min=0" kong:"-"`                                                                                                                                     // number from the preview; refused if now more by a tenth and by more than 100
}

// Order is the operation that is asked for. Selecting every dead row must be explicit.
func (r OperationStartRequest) Order() (OperationRequest, error) {
	o := OperationRequest{Selection: Selection{Rows: r.Rows}, Canary: r.Canary, Rehearsal: r.Rehearsal, ExpectedRows: r.ExpectedRows, ExpectedReleased: r.ExpectedReleased}
	switch {
	case len(r.Rows) > 0 && r.Filter != nil:
		return o, event.Invalid("rows", "name the rows or give a filter, not both")
	case len(r.Rows) == 0 && r.Filter == nil:
		return o, event.Invalid("filter", "say which rows: name them in rows, or give a filter; the empty filter {} selects every dead row")
	case r.Filter != nil:
		o.Filter = r.Filter.Filter()
	}
	return o, nil
}
