package outbox

import "time"

// CampaignView is a campaign as the API and the commands show it: its facts and their consequences.
type CampaignView struct {
	Campaign
	// unapplied events; of a diverged campaign, those that wait until the right journal is back or
	// its projections are rebuilt
	LagEvents     int64      `json:"lag_events"`
	LagSeconds    float64    `json:"lag_seconds"`
	NextAttemptAt *time.Time `json:"head_next_attempt_at"`
	BlockedBehind int64      `json:"blocked_behind"`
	Gap           int64      `json:"gap"` // events above the watermark without a row
	State         State      `json:"state"`
	// Held are the projections that are not caught up. It is absent where a campaign is part of
	// another answer, and in lists while the projections database cannot be read.
	Held []Cursor `json:"held_projections,omitzero"`
	Explanation
}

// WithHeldProjections is the view with the projections that are not live in the campaign.
func (v CampaignView) WithHeldProjections(held []Cursor) CampaignView {
	v.Held, v.Explanation = held, v.Explanation.WithHeldProjections(held)
	return v
}

// View is the campaign as shown at the given time.
func (c Campaign) View(now time.Time, around Surroundings) CampaignView {
	v := CampaignView{Campaign: c, LagEvents: c.LagEvents(), LagSeconds: c.Lag(now).Seconds(), BlockedBehind: c.BlockedBehind(), Gap: c.Gap(),
		State: c.State(), Explanation: c.Explain(now, around)}
	if !c.HeadNextAttempt.IsZero() {
		v.NextAttemptAt = &c.HeadNextAttempt
	}
	return v
}
