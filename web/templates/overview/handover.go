package overview

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// summary is the situation as text, for a chat.
func (v HandOver) summary(p ui.Page) string {
	now := p.Now
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s\n", now.UTC().Format("2006-01-02 15:04 UTC"), v.Summary.Overall(v.Summary.Findings).Sentence, v.Tonight.Text())
	for _, f := range v.Summary.Findings {
		fmt.Fprintf(&b, "- %s: %s.", f.Level, f.Says)
		for _, more := range []string{f.Owner.Says(), ui.FirstLine(f.Error)} {
			if more != "" {
				b.WriteString(" " + more)
			}
		}
		b.WriteString("\n")
	}
	for _, says := range v.paused(p) {
		fmt.Fprintf(&b, "- %s\n", says)
	}
	for _, version := range v.Summary.Deployed(v.Since) {
		fmt.Fprintf(&b, "- deployed: %s\n", version)
	}
	for _, a := range v.Acts[:min(len(v.Acts), activitySummed)] {
		fmt.Fprintf(&b, "- %s %s: %s\n", a.At.UTC().Format("15:04"), a.Actor, ui.ActionSentence(a))
	}
	if more := len(v.Acts) - activitySummed; more > 0 {
		fmt.Fprintf(&b, "- and %s before that, in the last day\n", ui.Count(int64(more), "action", "actions"))
	}
	return b.String()
}

// paused says what is paused, why and until when: campaigns, then projections and publishers.
func (v HandOver) paused(p ui.Page) (all []string) {
	for _, c := range v.Paused {
		all = append(all, "Campaign "+c.CampaignID+": "+c.Why(p.Now, p.Around)+".")
	}
	for _, f := range v.Summary.Findings.Of(campaign.FindsPaused, campaign.FindsNotDelivered) {
		all = append(all, f.Says+".")
	}
	return all
}

// activitySummed is how many acts the summary has.
const activitySummed = 5

// handedReach says whom an error blocks, and since when.
func handedReach(c campaign.AssessedGroup, now time.Time) string {
	if c.FirstAt == nil {
		return c.Reach()
	}
	return c.Reach() + ", since " + clockTime(*c.FirstAt, now)
}
