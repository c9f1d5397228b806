package outbox

// CheckReport is what a check of both databases found.
type CheckReport struct {
	OK         bool             `json:"ok"`
	Checked    map[string]int64 `json:"checked"` // campaigns, events, rows, skips, tags; and skipped: campaigns that kept moving
	Violations []Violation      `json:"violations"`
	// NotCompared are events that projections which are paused, quarantined or
	// behind were not told of, and that no fold was compared with.
	NotCompared []NotCompared `json:"not_compared"`
}
