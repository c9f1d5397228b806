package campaign

// OperationCounts is how many operations need attention.
type OperationCounts struct {
	Running        int64 `json:"running"`
	Unacknowledged int64 `json:"unacknowledged"` // ended, and not acknowledged
}
