package event

// Status is the state of an outbox row.
type Status string

// The statuses. An applied row is deleted, so it has none.
const (
	Pending    Status = "pending"    // waits for its turn
	Processing Status = "processing" // a worker is applying it
	Failed     Status = "failed"     // will be retried at next_attempt_at
	Dead       Status = "dead"       // needs an operator
)

// Statuses lists every status in the order in which a row passes through them.
var Statuses = []Status{Pending, Processing, Failed, Dead}

// Stuck reports whether a head of the status blocks its campaign.
func (s Status) Stuck() bool { return s == Failed || s == Dead }

// RowKey names one row.
type RowKey struct {
	CampaignID string `json:"campaign_id" validate:"id" api:"required"`
	Seq        int64  `json:"seq" api:"required,min=1"`
}
