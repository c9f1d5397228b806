package campaign

import (
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// The requests of actions. Each is the form of a page, the body of the API, the flags of a command
// and the body of a curl command. A field is in the order in which the latter show it.

// RequeueRowRequest asks for an action on a row that may require a phrase.
type RequeueRowRequest struct {
	operator.ReasonRequest
	// required when more than 1,000 rows are released: the phrase release N rows, with N from the
	// row's blocked_behind
	Confirm  string             `json:"confirm,omitempty" validate:"phrase"`
	Expected *operator.Expected `json:"expected,omitempty" kong:"-"`
}

// SkipRequest asks for the skip of an event.
type SkipRequest struct {
	Reason   string             `json:"reason" validate:"reason" api:"required,min=1" placeholder:"TEXT" help:"The reason, for the audit log. Required for a skip."`
	Hold     bool               `json:"hold,omitempty" help:"Pause the campaign behind the skip: it can be undone until the campaign is resumed."`                                                                   // pause the campaign, which a resume confirms and an un-skip ends
	Confirm  string             `json:"confirm" validate:"phrase" api:"required" placeholder:"PHRASE" help:"The phrase 'skip CAMPAIGN SEQ', with the values of the event. Prompted for at a terminal if not given."` // the words "skip CAMPAIGN SEQ"
	Expected *operator.Expected `json:"expected,omitempty" kong:"-"`
}

// RetryRequest selects the rows to requeue, or to retry.
type RetryRequest struct {
	CampaignID  string `json:"campaign_id" validate:"id" name:"campaign" placeholder:"C" help:"With --failed: only the head of this campaign."`
	EventType   string `json:"event_type" validate:"id" placeholder:"T" help:"With --failed: only rows of this event type."`
	Fingerprint string `json:"fingerprint" validate:"fingerprint" placeholder:"F" help:"With --failed: only rows whose error has this fingerprint."`
	Limit       *int   `json:"limit" validate:"omitnil,requeued" api:"default=DefaultRequeue" placeholder:"N" help:"With --failed: at most this many rows. Default ${default_requeue}."`
	operator.ReasonRequest
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
	operator.ReasonRequest
}

// TakeRequest asks to be on a finding; the reason is shown as a note.
type TakeRequest struct {
	Kind     finding.Kind `json:"kind" validate:"required,id" arg:"" help:"The kind of what is wrong, as findings name it, such as blocked or publisher."`
	Subject  string       `json:"subject" validate:"id" arg:"" optional:"" help:"What it is wrong with, such as a publisher; without one all of the kind."` // empty for all of the kind
	GiveBack bool         `json:"give_back,omitempty" help:"Nobody is on it any more."`                                                                     // nobody is on it any more
	operator.ReasonRequest
}

// PauseRequest asks for the pause of a projection.
type PauseRequest struct {
	operator.PauseLength
	ResumeRequest
}

// ResumeRequest asks for the resume of a projection. Without a campaign it covers all.
type ResumeRequest struct {
	CampaignID string `json:"campaign_id" validate:"id" name:"campaign" placeholder:"C" help:"Only in this campaign."` // empty for all campaigns
	operator.ReasonRequest
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

// RequeueFilter selects dead rows to requeue, in order of next attempt, then
// seq. Zero fields select all.
type RequeueFilter struct {
	CampaignID  string `json:"campaign_id" redact:"-"`
	EventType   string `json:"event_type" redact:"-"`
	Fingerprint string `json:"fingerprint" redact:"-"`
	Limit       int    `json:"limit" api:"min=0,max=MaxOperation"` // of a requeue 0 means 100, at most 10,000; of an operation 0 takes all, at most 20,000
}

// Requeued is the result of a requeue of many rows.
type Requeued struct {
	Requeued int64 `json:"requeued"` // rows set back to pending
	Heads    int64 `json:"heads"`    // requeued rows that were heads of their campaign
	Released int64 `json:"released"` // rows that waited behind those heads
}

// Retried is the result of a retry of many rows.
type Retried struct {
	Retried int64 `json:"retried"` // failed heads that are now due
}

// Repaired is the result of a replay or gap repair.
type Repaired struct {
	Campaigns int64 `json:"campaigns"` // campaigns that needed repair
	Inserted  int64 `json:"inserted"`  // events that got a row
	Removed   int64 `json:"removed"`   // rows of events already applied
	Diverged  int64 `json:"diverged"`  // campaigns found to contradict the journal
}

// Add adds the counts of another repair.
func (r *Repaired) Add(other Repaired) {
	r.Campaigns += other.Campaigns
	r.Inserted += other.Inserted
	r.Removed += other.Removed
	r.Diverged += other.Diverged
}
