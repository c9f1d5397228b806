package campaign

import (
	"slices"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// PauseEnd is a pause that ends by itself.
type PauseEnd struct {
	Resume     operator.Action `json:"resume"`      // what ends it
	CampaignID string          `json:"campaign_id"` // empty for all campaigns
	Target     string          `json:"target"`      // the projection or publisher, as in the audit log; empty for a campaign as a whole
	By         string          `json:"by"`
	Until      time.Time       `json:"until"`
}

// PauseEnds are the pauses that end by themselves, the first to end first.
type PauseEnds []PauseEnd

// of continues a sentence about a pause with its end: " until 21:00 UTC"; empty if it has none.
func (l PauseEnds) of(resume operator.Action, campaignID, target string) string {
	i := slices.IndexFunc(l, func(e PauseEnd) bool { return e.Resume == resume && e.CampaignID == campaignID && e.Target == target })
	if i < 0 {
		return ""
	}
	return " until " + event.Minute(l[i].Until)
}

// Campaign continues a sentence about the pause of a campaign with its end; empty if it has none.
func (l PauseEnds) Campaign(id string) string { return l.of(operator.ActionResume, id, "") }

// Projection is Campaign of a projection that is paused for all campaigns.
func (l PauseEnds) Projection(name string) string {
	return l.of(operator.ActionProjectionResume, "", name)
}

// Publisher is Campaign of TOPIC/PUBLISHER.
func (l PauseEnds) Publisher(name string) string {
	return l.of(operator.ActionPublisherResume, "", name)
}

// Campaigns continues a sentence about the pauses of campaigns with the first end among them.
func (l PauseEnds) Campaigns() string {
	for _, e := range l {
		if e.Resume == operator.ActionResume {
			return ", the first" + l.Campaign(e.CampaignID)
		}
	}
	return ""
}
