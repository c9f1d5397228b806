package campaign

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// CampaignView is a campaign as the API and the commands show it: its facts and their consequences.
type CampaignView struct {
	CampaignID   string `json:"campaign_id" redact:"-"`
	HighWaterSeq int64  `json:"high_water_seq"`
	AppliedSeq   int64  `json:"applied_seq"` // of a diverged campaign, the seq recorded in the journal as applied
	// the last event that the projections have from another journal; only of a diverged campaign
	// that is read by itself
	ProjectionsSeq int64 `json:"projections_seq,omitempty"`
	// unapplied events; of a diverged campaign, those that wait until the right journal is back or
	// its projections are rebuilt
	LagEvents     int64        `json:"lag_events"`
	LagSeconds    float64      `json:"lag_seconds"`
	HeadSeq       int64        `json:"head_seq"`                // 0 without a row
	HeadStatus    event.Status `json:"head_status" api:"empty"` // empty without a row
	NextAttemptAt *time.Time   `json:"head_next_attempt_at"`
	Counts        Counts       `json:"counts"`
	BlockedBehind int64        `json:"blocked_behind"`
	Gap           int64        `json:"gap"` // events above the watermark without a row
	Lease         *Lease       `json:"lease"`
	Paused        *Pause       `json:"paused"`
	Skips         int64        `json:"skips"`   // events that are skipped and never applied
	Drifted       int64        `json:"drifted"` // projections whose live rows differ from the journal, as of the last verify
	// of the drifted ones, those that differed from a version that is not loaded any more: verify again
	OutdatedDrift int64 `json:"outdated_drift"`
	// projections that the last verify could not compare, since the journal could not be replayed;
	// why names the event at fault
	Unverifiable int64 `json:"unverifiable"`
	State        State `json:"state"`
	// Held are the projections that are not caught up. It is absent where a campaign is part of
	// another answer, and in lists while the projections database cannot be read.
	Held []Cursor `json:"held_projections,omitzero"`
	Explanation
	Of Campaign `json:"-" redact:"-"` // what it is a view of, its secrets hidden like those of the view
}

// WithHeldProjections is the view with the projections that are not live in the campaign.
func (v CampaignView) WithHeldProjections(held []Cursor) CampaignView {
	v.Held, v.Explanation = held, v.Explanation.WithHeldProjections(held)
	return v
}

// View is the campaign as shown at the given time.
func (c Campaign) View(now time.Time, around Surroundings) CampaignView {
	v := CampaignView{
		CampaignID: c.CampaignID, HighWaterSeq: c.HighWaterSeq, AppliedSeq: c.AppliedSeq, ProjectionsSeq: c.ProjectionsSeq,
		LagEvents: c.LagEvents(), LagSeconds: c.Lag(now).Seconds(),
		HeadSeq: c.HeadSeq, HeadStatus: c.HeadStatus, Counts: c.Counts,
		BlockedBehind: c.BlockedBehind(), Gap: c.Gap(), Lease: c.Lease, Paused: c.Paused, Skips: c.Skips, Drifted: c.Drifted,
		OutdatedDrift: c.OutdatedDrift, Unverifiable: c.Unverifiable,
		State: c.State(), Explanation: c.Explain(now, around), Of: c,
	}
	if !c.HeadNextAttempt.IsZero() {
		v.NextAttemptAt = &c.HeadNextAttempt
	}
	return v
}
