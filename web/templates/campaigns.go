package templates

import "github.com/outboxweb/outboxweb/internal/outbox"

func stateChoices(p Page, f outbox.CampaignFilter) []choice {
	f.Cursor = ""
	return choicesOf("any state", outbox.States, f.State, stateGlyph, func(s outbox.State) URL {
		f.State = s
		return p.Links.Campaigns(f)
	})
}

// eventsBefore returns where a campaign's list of events starts so that it ends just before the one
// shown first; ok is false at the journal's start.
func eventsBefore(after int64, shown int) (start int64, ok bool) {
	if after <= 0 {
		return 0, false
	}
	return max(0, after-int64(max(shown, 1))), true
}

func headAction(p Page, c outbox.Campaign) URL {
	return p.Links.Action(c.HeadStatus.HeadActions()[0], c.CampaignID, itoa(c.HeadSeq))
}
