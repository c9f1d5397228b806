package outbox

import (
	"encoding/json"
	"strconv"
	"time"
)

// Operator is the actor: a person, or a script on a person's behalf.
type Operator struct {
	Name string // shown and recorded, such as "ana" or "local"
	Via  string // the channel: "page", "api", "cli", "system"
	From string // the remote address, or empty
	Auth Auth   // how the actor was authenticated
	Role Role   // the actor's role
}

// Command is an operator's instruction to a store method: who, why, and the state that the operator
// saw.
type Command struct {
	By             Operator
	Reason         string // at most 500 bytes
	RequestID      string
	IdempotencyKey string    // a second command with the same key and target returns the first one's result
	Expected       *Expected // the state the operator saw; nil skips the comparison
	Confirm        string    // the typed phrase, for actions that require one
}

// ByItself is the command of what a process does without an operator.
func ByItself(reason string) Command {
	return Command{By: Operator{Name: "outboxweb", Via: "system", Auth: AuthSystem}, Reason: reason}
}

// AuditOutcome is whether an action was done or refused.
type AuditOutcome string

// The outcomes of actions.
const (
	AuditDone    AuditOutcome = "done"
	AuditRefused AuditOutcome = "refused"
)

// AuditEntry is the audit record of one action: written in the action's own transaction or, if it
// was refused, in a separate one.
type AuditEntry struct {
	ID    int64     `json:"id"`
	At    time.Time `json:"at"`
	Actor string    `json:"actor" redact:"-"`
	// how the actor was authenticated: local, jwt, proxy-header, token, os or system; empty in
	// records of older versions
	Auth       Auth         `json:"auth" api:"empty"`
	Role       Role         `json:"role" api:"empty"` // the actor's role; empty in records of older versions
	Via        string       `json:"via"`
	From       string       `json:"from"`
	Action     Action       `json:"action"`
	CampaignID string       `json:"campaign_id" redact:"-"`
	Seq        int64        `json:"seq"`     // 0 when the action is not on one row
	Target     Target       `json:"target"`  // the object in addition to a campaign or row, such as run 7; empty if none
	Outcome    AuditOutcome `json:"outcome"` // done or refused
	// why it was refused; empty if it was done. The first ten refusals of the same action and
	// identity within a minute have a record each; one more record then counts the rest, in its
	// sentence and as after.refused
	Refusal   string          `json:"refusal"`
	Before    json.RawMessage `json:"before" api:"object,nullable"`
	After     json.RawMessage `json:"after" api:"object,nullable"`
	Reason    string          `json:"reason"`
	RequestID string          `json:"request_id"`
}

// FailedSince reports whether the row that the action retried has failed again.
func (a AuditEntry) FailedSince(row Row) bool { return row.Status.Stuck() && row.UpdatedAt.After(a.At) }

// SupersededBy reports whether a later action changed the same object, so that this one's outcome
// no longer describes it.
func (a AuditEntry) SupersededBy(later AuditEntry) bool {
	return later.ID > a.ID && later.Seq == a.Seq && later.Action.Effect() != ShowsHidden
}

// RefusedAction is an action that was refused before the store examined it.
type RefusedAction struct {
	Action     Action
	CampaignID string
	Seq        int64
	Target     Target
	Refusal    string // why
}

// Target is the object of an action other than a campaign or row: "run 7", "operation 3",
// "projection NAME", "publisher TOPIC/NAME", "publishers NAME", "token 4", "alert RULE", "receiver NAME", "source NAME", "journal".
type Target string

// The targets of actions.
func JournalTarget() Target                        { return "journal" } // as a whole
func RunTarget(id int64) Target                    { return Target("run " + strconv.FormatInt(id, 10)) }
func OperationTarget(id int64) Target              { return Target("operation " + strconv.FormatInt(id, 10)) }
func ProjectionTarget(name string) Target          { return Target("projection " + name) }
func PublisherTarget(name SubscriptionName) Target { return Target("publisher " + name.String()) }
func PublishersTarget(name string) Target          { return Target("publishers " + name) } // in all topics
func TokenTarget(id int64) Target                  { return Target("token " + strconv.FormatInt(id, 10)) }
func AlertTarget(rule string) Target               { return Target("alert " + rule) }
func AlertReceiverTarget(name string) Target       { return Target("receiver " + name) }

// Revealed is an event with its hidden parts, shown to one admin.
type Revealed struct {
	Event    Event     // as stored
	Row      *Row      // nil if it has none
	Attempts []Attempt // of the row, newest first, at most 50
}

// AuditFilter selects audit records for a page. Zero fields select all.
type AuditFilter struct {
	Actor      string `json:"actor" validate:"id"`
	Action     Action `json:"action" validate:"omitempty,action"`
	CampaignID string `json:"campaign" validate:"id"` // actions on the campaign, and actions on many rows that touched one of its rows
	Seq        int64  `json:"seq" validate:"min=0"`
	// the object other than a campaign or row: run 7, operation 3, projection NAME, publisher
	// TOPIC/NAME, token 4
	Target    Target       `json:"target" validate:"text,maxbytes=500"`
	Outcome   AuditOutcome `json:"outcome" validate:"omitempty,oneof=done refused"`
	Auth      Auth         `json:"auth" validate:"omitempty,oneof=local jwt proxy-header token os system"` // how the actor was authenticated
	Role      Role         `json:"role" validate:"omitempty,role"`                                         // the actor's role
	RequestID string       `json:"request_id" validate:"id"`
	// actions at or after this: RFC 3339, a date (UTC), or relative: -2h, or 14:00, the last one that is
	// past
	Since time.Time `json:"since" validate:"text,maxbytes=100"`
	// actions before this: RFC 3339; relative, where 14:10 is the first one from since; or a date (UTC),
	// which is included
	Until   time.Time `json:"until" validate:"text,maxbytes=100"`
	Reverse bool      `json:"reverse" api:"default=false"` // reverse the order
	Cursor  string    `json:"cursor" validate:"cursor"`    // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int       `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// ParseSince parses the start of a time range: RFC 3339, or a date, meaning its first moment in
// UTC. The empty text is the zero time.
func ParseSince(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, known := ParseTime(text)
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		t, known = day, true
	}
	if !known {
		return time.Time{}, Invalid(field, "%s cannot be %q; write a date like 2026-11-21 or a time like 2026-11-21T07:30:00Z", field, text)
	}
	if t = t.UTC(); t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, Invalid(field, "%s must be between the years 1970 and 9998", field)
	}
	return t, nil
}

// FormatSince formats a time for ParseSince, as short as possible.
func FormatSince(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Equal(t.Truncate(24 * time.Hour)):
		return t.UTC().Format(time.DateOnly)
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// FormatUntil formats the end of a time range, as short as possible.
func FormatUntil(t time.Time) string {
	if !t.IsZero() && t.Equal(t.Truncate(24*time.Hour)) {
		t = t.AddDate(0, 0, -1)
	}
	return FormatSince(t)
}

// Matches reports whether the filter selects a.
func (f AuditFilter) Matches(a AuditEntry) bool {
	return (f.Actor == "" || a.Actor == f.Actor) &&
		(f.Action == "" || a.Action == f.Action) &&
		(f.CampaignID == "" || a.CampaignID == f.CampaignID) &&
		(f.Seq == 0 || a.Seq == f.Seq) &&
		(f.Target == "" || a.Target == f.Target) &&
		(f.Outcome == "" || a.Outcome == f.Outcome) &&
		(f.Auth == "" || a.Auth == f.Auth) &&
		(f.Role == "" || a.Role == f.Role) &&
		(f.RequestID == "" || a.RequestID == f.RequestID) &&
		(f.Since.IsZero() || !a.At.Before(f.Since)) &&
		(f.Until.IsZero() || a.At.Before(f.Until))
}

// Filtered reports whether records must be examined one by one, beyond what their order already
// selects.
func (f AuditFilter) Filtered() bool {
	return f.Actor != "" || f.Action != "" || f.Outcome != "" || f.Auth != "" || f.Role != "" || f.RequestID != "" || !f.Since.IsZero() || !f.Until.IsZero()
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
