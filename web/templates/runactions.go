package templates

import (
	"fmt"

	"outboxweb/internal/outbox"
)

// How many drifted campaigns and active runs the overview names.
const (
	driftNamed = 5
	runsNamed  = 3
)

// requestOver is an order of a kind over one campaign or all, and one projection
// or all.
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

// driftedCampaigns is the first verification of each campaign in a list that is
// ordered by campaign.
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

// driftSentence says how many campaigns differ; a full list may have been cut
// off.
func driftSentence(drifted []outbox.Verification) string {
	n := int64(len(driftedCampaigns(drifted)))
	least := ""
	if len(drifted) == DriftShown {
		least = "At least "
	}
	return fmt.Sprintf("%s%s drifted: live rows differed from the journal at the last verification.", least, count(n, "campaign", "campaigns"))
}

// driftCause is where a difference is shown: in the run that found it, or where
// a run can look closer.
func driftCause(p Page, v outbox.Verification) URL {
	if v.RunID > 0 {
		return p.Links.RunResult(v.RunID, v.CampaignID)
	}
	return p.Links.Campaign(v.CampaignID)
}
