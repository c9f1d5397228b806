package event

import "time"

// Skip is the ledger's record of a skipped event: while it is active, the watermark advances over
// the event and no projection ever sees it.
type Skip struct {
	ID           int64      `json:"id"`
	CampaignID   string     `json:"campaign_id" redact:"-"`
	Seq          int64      `json:"seq"`
	EventType    string     `json:"event_type" redact:"-"`
	Error        string     `json:"error"` // the row's last error
	SkippedAt    time.Time  `json:"skipped_at"`
	SkippedBy    string     `json:"skipped_by"`
	Reason       string     `json:"reason"`
	AppliedAt    *time.Time `json:"applied_at"` // when the watermark was found to have passed the event; nil before
	UndoneAt     *time.Time `json:"undone_at"`  // nil while the skip is active
	UndoneBy     string     `json:"undone_by"`
	UndoneReason string     `json:"undone_reason"`
}

// Active reports whether the skip has not been undone.
func (s Skip) Active() bool { return s.UndoneAt == nil }

// SkipFilter selects skips of one campaign for a page, newest first.
type SkipFilter struct {
	CampaignID string `json:"-"`
	Cursor     string `json:"cursor" validate:"cursor"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit      int    `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage"`
}

// Undoable reports whether the skip may be undone with the watermark at applied: no later event has
// been applied or skipped.
func (k Skip) Undoable(applied int64) bool { return k.Active() && applied <= k.Seq }
