package operator

import (
	"encoding/json"
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
	// how the actor was authenticated: local, jwt, proxy-header, token, host, os or system; empty in
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

// AuditFilter selects audit records for a page, as store.AuditBy says. Zero fields select all.
type AuditFilter struct {
	Actor      string `json:"actor" validate:"id" column:"actor" label:"Who" hint:"exact name"`
	Action     Action `json:"action" validate:"omitempty,action" column:"action" label:"What"`
	CampaignID string `json:"campaign" validate:"id" column:"campaign_id" label:"Campaign" hint:"exact id"` // actions on the campaign, and actions on many rows that touched one of its rows
	Seq        int64  `json:"seq" validate:"min=0" column:"seq" label:"Seq" hint:"of a row"`
	// the object other than a campaign or row: run 7, operation 3, projection NAME, publisher
	// TOPIC/NAME, token 4
	Target    Target       `json:"target" validate:"text,maxbytes=500" column:"target" label:"Target" hint:"such as run 7"`
	Outcome   AuditOutcome `json:"outcome" validate:"omitempty,oneof=done refused" column:"outcome" label:"Outcome"`
	Auth      Auth         `json:"auth" validate:"omitempty,auth" column:"auth" label:"Authentication"` // how the actor was authenticated
	Role      Role         `json:"role" validate:"omitempty,role" column:"role" label:"Role"`           // the actor's role
	RequestID string       `json:"request_id" validate:"id" column:"request_id" label:"Request" hint:"its id"`
	// actions at or after this: RFC 3339, a date (UTC), or relative: -2h, or 14:00, the last one that is
	// past
	Since time.Time `json:"since" validate:"text,maxbytes=100" column:"at >=" label:"Since (UTC)" hint:"14:00, -2h or a date"`
	// actions before this: RFC 3339; relative, where 14:10 is the first one from since; or a date (UTC),
	// which is included
	Until   time.Time `json:"until" validate:"text,maxbytes=100" column:"at <" label:"Until (UTC)" hint:"14:10 or a date"`
	Reverse bool      `json:"reverse" api:"default=false"` // reverse the order
	Cursor  string    `json:"cursor" validate:"cursor"`    // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int       `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}
