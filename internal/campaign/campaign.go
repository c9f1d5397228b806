package campaign

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Lease is one worker's exclusive right to work on a campaign until a time.
type Lease struct {
	Owner     string    `json:"owner"`
	Epoch     int64     `json:"epoch"` // the fencing number; it only grows
	ExpiresAt time.Time `json:"expires_at"`
}

// Pause says who paused a campaign, when and why.
type Pause struct {
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// Campaign is one ordering scope with the progress of its projections.
type Campaign struct {
	CampaignID       string `redact:"-"`
	HighWaterSeq     int64  // the last event's seq
	AppliedSeq       int64  // the highest contiguous seq applied
	HeadSeq          int64  // the lowest seq that has a row; 0 if none has
	HeadStatus       event.Status
	HeadNextAttempt  time.Time // when the head is due; zero without a head
	DueAt            time.Time // when workers check it next; zero if they do not, or if unknown
	Unqueued         bool      // workers do not check it
	Counts           Counts
	OldestEnqueuedAt time.Time // append time of the oldest unapplied event; zero if all are applied
	Lease            *Lease    // nil when no worker has leased it
	Paused           *Pause    // nil unless it is paused
	Diverged         string    // why nothing may be applied until a rebuild; empty if not diverged
	ProjectionsSeq   int64     // of a diverged campaign, the last event the projections have from another journal; set only where a campaign is read by itself
	Skips            int64     // events that are skipped and never applied
	Drifted          int64     // projections whose live rows differ from the journal, as of the last verify; set where campaigns are shown
	OutdatedDrift    int64     // of the drifted ones, those that were compared with another version than the loaded one
	Unverifiable     int64     // projections that the last verify could not compare, since the journal could not be replayed; set where campaigns are shown
	OutdatedFailed   int64     // of those, the ones that were replayed with another version than the loaded one
	// Unverified is the first of those projections; nil if there is none, and in lists of
	// campaigns.
	Unverified *Verification
	UpdatedAt  time.Time
}

// State is a campaign's condition in one word.
type State string

// The states, worst first. A campaign is in the first one that applies.
const (
	StateDiverged     State = "diverged"     // its watermark contradicts the journal
	StateBlocked      State = "blocked"      // its head is dead
	StatePaused       State = "paused"       // an operator paused it
	StateFailing      State = "failing"      // its head failed and will be retried
	StateUnverifiable State = "unverifiable" // the last verify could not replay the journal
	StateDrifted      State = "drifted"      // live rows differ from the journal, as of the last verify
	StateLagging      State = "lagging"      // events wait to be applied
	StateCurrent      State = "current"      // everything is applied
)

// States lists every state, worst first.
var States = []State{StateDiverged, StateBlocked, StatePaused, StateFailing, StateUnverifiable, StateDrifted, StateLagging, StateCurrent}

// State is the campaign's condition.
func (c Campaign) State() State {
	switch {
	case c.Diverged != "":
		return StateDiverged
	case c.HeadStatus == event.Dead:
		return StateBlocked
	case c.Paused != nil:
		return StatePaused
	case c.HeadStatus == event.Failed:
		return StateFailing
	case c.Unverifiable > 0:
		return StateUnverifiable
	case c.Drifted > 0:
		return StateDrifted
	case c.LagEvents() > 0:
		return StateLagging
	default:
		return StateCurrent
	}
}

// In reports whether the campaign belongs to the list of a state. It is in those of all states that an
// operator has to end, also while it is in a worse one, as they are counted.
func (c Campaign) In(s State) bool {
	switch s {
	case StateBlocked:
		return c.HeadStatus == event.Dead
	case StatePaused:
		return c.Paused != nil
	case StateUnverifiable:
		return c.Unverifiable > 0
	case StateDrifted:
		return c.Drifted > 0
	}
	return c.State() == s
}

// LagEvents is the number of events that are not applied yet.
func (c Campaign) LagEvents() int64 { return max(0, c.HighWaterSeq-c.AppliedSeq) }

// Lag is the age of the oldest unapplied event, counted from its append.
func (c Campaign) Lag(now time.Time) time.Duration {
	if c.OldestEnqueuedAt.IsZero() {
		return 0
	}
	return max(0, now.Sub(c.OldestEnqueuedAt))
}

// BlockedBehind is the number of rows that wait behind a failed or dead head.
func (c Campaign) BlockedBehind() int64 {
	if !c.HeadStatus.Stuck() {
		return 0
	}
	return max(0, c.Counts.Total()-1)
}

// Gap is the number of events above the watermark that have no row.
func (c Campaign) Gap() int64 { return max(0, c.LagEvents()-c.Counts.Total()) }

// Blocked is a campaign that needs attention, with the error of its head.
type Blocked struct {
	Campaign
	Error       string // empty if the head did not fail
	Fingerprint string `redact:"-"`
}

// CampaignFilter selects campaigns for a page. Zero fields select all.
type CampaignFilter struct {
	State   State        `json:"state" validate:"omitempty,state" placeholder:"S" values:"campaign-state" help:"Only campaigns in this state: diverged, blocked, paused, failing, unverifiable, drifted, lagging or current."`
	Sort    CampaignSort `json:"sort" validate:"omitempty,oneof=id trouble lag age" api:"default=id" label:"Order" kong:"-"` // trouble has those that need attention first, then those that wait, the oldest first
	Q       string       `json:"q" validate:"id" label:"Campaign" hint:"part of its id" kong:"-"`                            // part of the id; upper and lower case differ. In the order of ids those that begin with it are first. A page looks at so many campaigns and is then partial
	Reverse bool         `json:"reverse" api:"default=false" kong:"-"`                                                       // reverse the order
	Cursor  string       `json:"cursor" validate:"cursor" kong:"-"`                                                          // next_cursor or prev_cursor of another page, with the same filter and order
	Limit   int          `json:"limit" validate:"omitempty,pagesize" api:"default=DefaultPage" kong:"-"`
}

// CampaignSort is an order of campaigns.
type CampaignSort string

// The orders. SortID is the default.
const (
	SortTrouble CampaignSort = "trouble" // those that need attention first, see Campaign.Rank, then those that wait, the oldest first
	SortID      CampaignSort = "id"      // by campaign id
	SortLag     CampaignSort = "lag"     // most events behind first
	SortAge     CampaignSort = "age"     // oldest unapplied event first
)

// The ranks of campaigns in SortTrouble.
const (
	RankBlocked  = 0 // its head is dead
	RankFailing  = 1 // its head failed and is retried
	RankDiverged = 2
	RankFound    = 3 // verifying found drift, or failed
	RankLagging  = 4 // rows are waiting
	RankCurrent  = 5
)

// Rank is the campaign's place in SortTrouble, before its id.
func (c Campaign) Rank() int64 {
	switch {
	case c.HeadStatus == event.Dead:
		return RankBlocked
	case c.HeadStatus == event.Failed:
		return RankFailing
	case c.Diverged != "":
		return RankDiverged
	case c.Drifted+c.Unverifiable > 0:
		return RankFound
	case !c.OldestEnqueuedAt.IsZero():
		return RankLagging
	default:
		return RankCurrent
	}
}

// Gap is a campaign with events that are neither applied nor have a row.
type Gap struct {
	CampaignID   string `json:"campaign_id" redact:"-"`
	AppliedSeq   int64  `json:"applied_seq"`
	HighWaterSeq int64  `json:"high_water_seq"`
	Missing      int64  `json:"missing"`
}
