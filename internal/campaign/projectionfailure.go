package campaign

import "time"

// FailureStatus says whether a projection's failure is open.
type FailureStatus string

// The statuses of a failure.
const (
	FailureOpen     FailureStatus = "open"
	FailureResolved FailureStatus = "resolved" // the projection's cursor has passed the event
)

// ProjectionFailure is an event that failed in a projection. There is one open record per campaign,
// projection and seq; it outlives rebuilds.
type ProjectionFailure struct {
	ID          int64         `json:"id"`
	CampaignID  string        `json:"campaign_id" redact:"-"`
	Projection  string        `json:"projection" redact:"-"`
	Seq         int64         `json:"seq"`
	EventType   string        `json:"event_type" redact:"-"`
	Fingerprint string        `json:"fingerprint" redact:"-"`
	Message     string        `json:"message"`
	Attempts    int64         `json:"attempts"`
	FirstAt     time.Time     `json:"first_at"`
	LastAt      time.Time     `json:"last_at"`
	Status      FailureStatus `json:"status"`
	ResolvedAt  *time.Time    `json:"resolved_at"` // when the projection passed the event; nil while open
}

// FailureFilter selects failures for a page. Zero fields select all.
type FailureFilter struct {
	Status      FailureStatus `json:"status" validate:"omitempty,oneof=open resolved all" placeholder:"S" values:"failure-status" column:"status" help:"Only failures with this status: open or resolved."` // default is all
	CampaignID  string        `json:"campaign" validate:"id" column:"campaign_id" name:"campaign" placeholder:"C" help:"Only failures in this campaign."`
	Projection  string        `json:"projection" validate:"id" column:"projection" placeholder:"P" help:"Only failures of this projection."`
	Fingerprint string        `json:"fingerprint" validate:"fingerprint" column:"fingerprint" kong:"-"`
	Cursor      string        `json:"cursor" validate:"cursor" kong:"-"` // next_cursor or prev_cursor of another page, with the same filter and order
	Limit       int           `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// QuarantineCause is an error by which a projection is quarantined in some campaigns.
type QuarantineCause struct {
	Projection  string    `json:"projection" redact:"-"`
	Fingerprint string    `json:"fingerprint" redact:"-"`
	Example     string    `json:"example"`   // the error of one of them
	Campaigns   int64     `json:"campaigns"` // where it is quarantined at an event that failed with the error
	Capped      bool      `json:"capped"`    // campaigns is a lower bound
	FirstAt     time.Time `json:"first_at"`  // of the failures
	LastAt      time.Time `json:"last_at"`
}
