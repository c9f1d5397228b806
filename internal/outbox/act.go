package outbox

import (
	"encoding/json"
	"time"
)

// Operator is the one who acts: a person, or a script on a person's behalf.
type Operator struct {
	Name string // shown and recorded, such as "ana" or "local"
	Via  string // how the act came in: "page", "api", "cli", "system"
	From string // where from: a remote address, or empty
}

// Order is an operator's instruction as a store method receives it: who, why,
// and what the operator believed when giving it.
type Order struct {
	By             Operator
	Reason         string // at most 500 bytes
	RequestID      string
	IdempotencyKey string    // a second order with the same key and target answers with the first one's result
	Expected       *Expected // what the operator was shown; nil skips the comparison
}

// Expected is the state an operator saw before acting. Zero fields are not
// compared.
type Expected struct {
	Status       Status `json:"status,omitempty"`
	AttemptCount *int   `json:"attempt_count,omitempty"`
	HeadSeq      int64  `json:"head_seq,omitempty"`
}

// Act is the audit record of one operator's act, written in the act's own
// transaction.
type Act struct {
	ID         int64           `json:"id"`
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor"`
	Via        string          `json:"via"`
	From       string          `json:"from"`
	Action     string          `json:"action"` // requeue, requeue_many, retry, pause, resume, replay, repair_gaps, operation_start, operation_cancel, operation_acknowledge
	CampaignID string          `json:"campaign_id"`
	Seq        int64           `json:"seq"` // 0 when the act is not about one row
	Before     json.RawMessage `json:"before"`
	After      json.RawMessage `json:"after"`
	Reason     string          `json:"reason"`
	RequestID  string          `json:"request_id"`
}

// ActFilter selects audit records for a page. Zero fields select all.
type ActFilter struct {
	Actor      string
	Action     string
	CampaignID string
	Seq        int64
	Cursor     string
	Limit      int // 0 means 50; at most 200
}

// RequeueFilter selects dead rows to requeue, in order of next attempt, then
// seq. Zero fields select all.
type RequeueFilter struct {
	CampaignID  string `json:"campaign_id"`
	EventType   string `json:"event_type"`
	Fingerprint string `json:"fingerprint"`
	Limit       int    `json:"limit"` // 0 means 100; at most 10,000
}

// Requeued is what a requeue of many rows did.
type Requeued struct {
	Requeued int64 `json:"requeued"` // rows set back to pending
	Heads    int64 `json:"heads"`    // of those, heads of their campaign
	Released int64 `json:"released"` // rows that waited behind those heads
}

// Repaired is what a replay or gap repair did.
type Repaired struct {
	Campaigns int64 `json:"campaigns"` // campaigns that had something to repair
	Inserted  int64 `json:"inserted"`  // events that got a row
	Removed   int64 `json:"removed"`   // rows of events already applied
	Diverged  int64 `json:"diverged"`  // campaigns found to contradict the journal
}

// Add counts another repair in.
func (r *Repaired) Add(other Repaired) {
	r.Campaigns += other.Campaigns
	r.Inserted += other.Inserted
	r.Removed += other.Removed
	r.Diverged += other.Diverged
}
