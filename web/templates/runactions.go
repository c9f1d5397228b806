package templates

import (
	"fmt"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Limits on the drifted campaigns and active runs that the overview names.
const (
	runsNamed = 3
)

// requestOver returns a request of a kind over one campaign or all, and one projection or all.
func requestOver(kind outbox.RunKind, campaign, projection string) outbox.RunRequest {
	o := outbox.RunRequest{Kind: kind, All: campaign == ""}
	if campaign != "" {
		o.Campaigns = []string{campaign}
	}
	if projection != "" {
		o.Projections = []string{projection}
	}
	return o
}

func runActionName(kind outbox.RunKind) string {
	switch kind {
	case outbox.RunVerify:
		return "Verify"
	case outbox.RunRebuild:
		return "Rebuild"
	default:
		return "Replay run"
	}
}

func runActionsOver(campaign, projection string) string {
	switch {
	case campaign == "" && projection == "":
		return "all projections, in all campaigns"
	case campaign == "":
		return "projection " + projection + ", in all campaigns"
	case projection == "":
		return "all projections, in this campaign"
	default:
		return "projection " + projection + ", in this campaign"
	}
}

// verificationDiffers says how live rows differed, or nothing.
func verificationDiffers(v outbox.Verification) string {
	c := outbox.Comparison{Added: v.Added, Changed: v.Changed, Removed: v.Removed, FirstSeq: v.FirstSeq}
	if !c.Differs() {
		return ""
	}
	return sentence(changeCounts(c, verifySides) + firstDivergence(c))
}

// driftedCampaigns returns the first verification of each campaign in a list ordered by campaign.
func driftedCampaigns(drifted []outbox.Verification) []outbox.Verification {
	var all []outbox.Verification
	for _, v := range drifted {
		if len(all) == 0 || all[len(all)-1].CampaignID != v.CampaignID {
			all = append(all, v)
		}
	}
	return all
}

// DriftShown is how many verifications the overview reads.
const DriftShown = 200

// driftSentence says how many campaigns have drifted; a full list may be truncated.
func driftSentence(drifted []outbox.Verification) string {
	n := int64(len(driftedCampaigns(drifted)))
	least := ""
	if len(drifted) == DriftShown {
		least = "At least "
	}
	return fmt.Sprintf("%s%s drifted: live rows differed at the last verification from what the loaded projections make of the journal.", least, count(n, "campaign", "campaigns"))
}

// driftCause links to where a difference is shown: the run that found it, or a new run that
// compares it.
func driftCause(p Page, v outbox.Verification) URL {
	if v.RunID > 0 {
		return p.Links.RunResult(v.RunID, v.CampaignID)
	}
	return p.Links.Campaign(v.CampaignID)
}
