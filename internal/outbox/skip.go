package outbox

import "time"

// Skip is the ledger's entry of an event that is passed over: while it stands,
// the watermark advances over the event and no projection ever sees it.
type Skip struct {
	ID           int64      `json:"id"`
	CampaignID   string     `json:"campaign_id" redact:"-"`
	Seq          int64      `json:"seq"`
	EventType    string     `json:"event_type" redact:"-"`
	Error        string     `json:"error"` // the last one of its row
	SkippedAt    time.Time  `json:"skipped_at"`
	SkippedBy    string     `json:"skipped_by"`
	Reason       string     `json:"reason"`
	AppliedAt    *time.Time `json:"applied_at"` // when the watermark was found to have passed over it; nil before
	UndoneAt     *time.Time `json:"undone_at"`  // nil while the skip stands
	UndoneBy     string     `json:"undone_by"`
	UndoneReason string     `json:"undone_reason"`
}

// Active reports whether the event is still to be passed over.
func (s Skip) Active() bool { return s.UndoneAt == nil }

// SkipFilter selects skips of one campaign for a page, newest first.
type SkipFilter struct {
	CampaignID string
	Cursor     string // from the previous page
	Limit      int    // 0 means 50; at most 200
}
