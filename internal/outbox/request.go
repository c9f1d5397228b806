package outbox

import "time"

// The requests of actions. Each is the form of a page, the body of the API, the flags of a command
// and the body of a curl command. A field is in the order in which the latter show it.

// ReasonRequest asks for an action with a reason only.
type ReasonRequest struct {
	Reason string `json:"reason" validate:"reason" placeholder:"TEXT" help:"The reason, for the audit log."`
}

// ActionRequest asks for an action on what the caller saw.
type ActionRequest struct {
	ReasonRequest
	Expected *Expected `json:"expected,omitempty" kong:"-"`
}

// Expected is the state that the caller saw.
type Expected struct {
	Status       Status     `json:"status,omitempty" validate:"omitempty,status"`
	AttemptCount *int       `json:"attempt_count,omitempty" validate:"omitnil,min=0"`
	HeadSeq      int64      `json:"head_seq,omitempty" validate:"min=0"`
	UpdatedAt    *time.Time `json:"updated_at,omitempty"` // the row's: another one is a conflict, also with the same status and attempts
}

// RequeueRowRequest asks for an action on a row that may require a phrase.
type RequeueRowRequest struct {
	ReasonRequest
	// required when more than 1,000 rows are released: the phrase release N rows, with N from the
	// row's blocked_behind
	Confirm  string    `json:"confirm,omitempty" validate:"phrase"`
	Expected *Expected `json:"expected,omitempty" kong:"-"`
}

// SkipRequest asks for the skip of an event.
type SkipRequest struct {
	Reason   string    `json:"reason" validate:"reason" api:"required,min=1" placeholder:"TEXT" help:"The reason, for the audit log. Required for a skip."`
	Confirm  string    `json:"confirm" validate:"phrase" api:"required" placeholder:"PHRASE" help:"The phrase 'skip CAMPAIGN SEQ', with the values of the event. Prompted for at a terminal if not given."` // the words "skip CAMPAIGN SEQ"
	Expected *Expected `json:"expected,omitempty" kong:"-"`
}

// RetryRequest selects the rows to requeue, or to retry.
type RetryRequest struct {
	CampaignID  string `json:"campaign_id" validate:"id" name:"campaign" placeholder:"C" help:"With --failed: only the head of this campaign."`
	EventType   string `json:"event_type" validate:"id" placeholder:"T" help:"With --failed: only rows of this event type."`
	Fingerprint string `json:"fingerprint" validate:"fingerprint" placeholder:"F" help:"With --failed: only rows whose error has this fingerprint."`
	Limit       *int   `json:"limit" validate:"omitnil,requeued" api:"default=DefaultRequeue" placeholder:"N" help:"With --failed: at most this many rows. Default ${default_requeue}."`
	ReasonRequest
}

// Filter is the rows that the request selects; a limit of 0 means the store's default.
func (r RetryRequest) Filter() RequeueFilter {
	return DeadRows{r.CampaignID, r.EventType, r.Fingerprint, r.Limit}.Filter()
}

// RequeueRequest selects the dead rows to requeue, which may require a phrase.
type RequeueRequest struct {
	RetryRequest
	Confirm string `json:"confirm" validate:"phrase"` // required when more than 1,000 rows are requeued or released: the phrase requeue N rows
}

// NoteRequest pins a note to the rows that failed with a fingerprint; an empty note removes it.
type NoteRequest struct {
	Fingerprint string `json:"fingerprint" validate:"required,fingerprint" arg:"" help:"The fingerprint of the error."`
	Note        string `json:"note" validate:"note" arg:"" help:"The note."` // empty removes the note
	ReasonRequest
}

// PauseRequest asks for the pause or the resume of a projection. Without a campaign it covers all.
type PauseRequest struct {
	CampaignID string `json:"campaign_id" validate:"id" name:"campaign" placeholder:"C" help:"Only in this campaign."` // empty for all campaigns
	ReasonRequest
}

// OperationActionRequest asks for an action on an operation.
type OperationActionRequest struct {
	ReasonRequest
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

// PublisherSkipRequest asks for the skip of a publisher's blocking event.
type PublisherSkipRequest struct {
	Position int64  `json:"position" validate:"required,min=1" arg:"" help:"The position of the blocking event, as reported by show."`                                                                             // position of the blocking event, as in error_position
	Reason   string `json:"reason" validate:"reason" api:"required" placeholder:"TEXT" help:"The reason, for the audit log. Required for a skip."`                                                                 // required
	Confirm  string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"The phrase 'skip anyway', required when the last error is the destination's. Prompted for at a terminal if not given."` // 'skip anyway' where the last error blames the destination
}

// AlertMuteRequest asks for the mute of a rule of alerts.
type AlertMuteRequest struct {
	For string `json:"for" validate:"oneof=1h 8h 24h" api:"required" enum:"1h,8h,24h" default:"1h" help:"How long: 1h, 8h or 24h."`
	ReasonRequest
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

// SeekRequest moves a publisher's position to one of position, time and to.
type SeekRequest struct {
	Position *int64        `json:"position,omitempty" validate:"omitnil,min=0" placeholder:"N" help:"Continue with the first event after this position."`    // continue with the first event after this position
	Time     string        `json:"time,omitempty" placeholder:"T" help:"Continue with the first event recorded at or after this time: RFC 3339, or a date."` // RFC 3339, or a date: continue with the first event recorded at or after it
	To       string        `json:"to,omitempty" validate:"omitempty,oneof=head beginning" enum:",head,beginning" default:"" placeholder:"WHERE" help:"Continue with the next event appended (head), or with the first event of the journal (beginning)."`
	DryRun   bool          `json:"dry_run,omitempty" help:"Change nothing; print what the seek would repeat or skip."`                                   // change nothing and answer with what the seek would do
	Expected *ExpectedSeek `json:"expected,omitempty" kong:"-"`                                                                                          // the result of a dry run; if the seek would now repeat or skip many more events it is refused with 409
	Reason   string        `json:"reason" validate:"reason" placeholder:"TEXT" help:"The reason, for the audit log. Required if the seek skips events."` // required when events are skipped
	// required when events are skipped: the phrase skip N events, with N from the dry run; skip
	// over N events if that number is capped
	Confirm string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"Confirms a seek that skips events, e.g. 'skip 43 events'. Prompted for at a terminal if not given."`
}

// ExpectedSeek is the preview of a seek that the caller saw.
type ExpectedSeek struct {
	Repeats int64 `json:"repeats" validate:"min=0"`
	Skips   int64 `json:"skips" validate:"min=0"`
	Capped  bool  `json:"capped,omitempty"`
}

// Target returns the target of the seek; exactly one field must name it.
func (r SeekRequest) Target() (SeekTarget, error) {
	when, err := ParseSince("time", r.Time)
	if err != nil {
		return SeekTarget{}, err
	}
	given := 0
	for _, is := range []bool{r.Position != nil, r.Time != "", r.To != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return SeekTarget{}, Invalid("position", "give exactly one of position, time and to; %d are given", given)
	}
	return SeekTarget{Position: r.Position, Time: when, Head: r.To == "head", Beginning: r.To == "beginning"}, nil
}

// Seen is the preview that the caller saw; nil if the caller does not tell.
func (r SeekRequest) Seen() *Seek {
	if r.Expected == nil {
		return nil
	}
	return &Seek{Repeats: r.Expected.Repeats, Skips: r.Expected.Skips, Capped: r.Expected.Capped}
}

// OperationStartRequest asks for an operation, or its preview: either rows or a filter. The empty
// filter selects every dead row.
type OperationStartRequest struct {
	Kind   string    `json:"kind,omitempty" validate:"omitempty,oneof=requeue" kong:"-"`
	Rows   []RowKey  `json:"rows,omitempty" validate:"dive" api:"max=MaxNamed" kong:"-"`
	Filter *DeadRows `json:"filter,omitempty"`
	OperationOptions
}

// DeadRows selects dead rows by a filter.
type DeadRows struct {
	CampaignID  string `json:"campaign_id" validate:"id" name:"campaign" placeholder:"C" help:"With --dead: only rows of this campaign."`
	EventType   string `json:"event_type" validate:"id" placeholder:"T" help:"With --dead: only rows of this event type."`
	Fingerprint string `json:"fingerprint" validate:"fingerprint" placeholder:"F" help:"With --dead: only rows whose error has this fingerprint."`
	Limit       *int   `json:"limit,omitempty" validate:"omitnil,operated" placeholder:"N" help:"With --dead: at most this many rows. Default ${default_requeue}; with --canary, all."` // without it all matching rows, which must be at most 20,000
}

// Filter is the rows that are selected; a limit of 0 is none.
func (r DeadRows) Filter() RequeueFilter {
	f := RequeueFilter{CampaignID: r.CampaignID, EventType: r.EventType, Fingerprint: r.Fingerprint}
	if r.Limit != nil {
		f.Limit = *r.Limit
	}
	return f
}

// OperationOptions are what an operation is asked for with beside its rows.
type OperationOptions struct {
	Canary    bool  `json:"canary" api:"default=false" help:"With --dead: start an operation that workers carry out: one head of each error group first, then waves of 1, 2, 4, …"`
	Rehearsal int64 `json:"rehearsal,omitempty" validate:"min=0" api:"default=0" placeholder:"N" help:"With --canary: the rehearsal that the operation rests on; its files must be loaded."` // the rehearsal that it rests on, whose files must be loaded; 0 for none
	ReasonRequest
	Confirm          string `json:"confirm,omitempty" validate:"phrase" placeholder:"PHRASE" help:"Confirms a requeue that affects more than ${confirm_above} rows, e.g. 'requeue 43 rows'. Prompted for at a terminal if not given."` // required above 1,000 rows chosen or released: the phrase requeue N rows
	ExpectedRows     *int64 `json:"expected_rows,omitempty" validate:"omitnil,min=0" kong:"-"`                                                                                                                                         // number from the preview; refused if it differs
	ExpectedReleased *int64 `json:"expected_released,omitempty" validate:"omitnil,min=0" kong:"-"`                                                                                                                                     // number from the preview; refused if now more by a tenth and by more than 100
}

// Order is the operation that is asked for. Selecting every dead row must be explicit.
func (r OperationStartRequest) Order() (OperationRequest, error) {
	o := OperationRequest{Selection: Selection{Rows: r.Rows}, Canary: r.Canary, Rehearsal: r.Rehearsal, ExpectedRows: r.ExpectedRows, ExpectedReleased: r.ExpectedReleased}
	switch {
	case len(r.Rows) > 0 && r.Filter != nil:
		return o, Invalid("rows", "name the rows or give a filter, not both")
	case len(r.Rows) == 0 && r.Filter == nil:
		return o, Invalid("filter", "say which rows: name them in rows, or give a filter; the empty filter {} selects every dead row")
	case r.Filter != nil:
		o.Filter = r.Filter.Filter()
	}
	return o, nil
}
