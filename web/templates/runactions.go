package templates

import (
	"slices"

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

// verificationDiffers says how live rows of a campaign differed, or nothing.
func verificationDiffers(p Page, of CampaignView, v outbox.Verification) string {
	c := outbox.Comparison{Added: v.Added, Changed: v.Changed, Removed: v.Removed, FirstSeq: v.FirstSeq, ReplayedWith: outbox.ReplayedWith{Version: v.Version}}
	if !c.Differs() {
		return ""
	}
	if v.Outdated {
		return sentence(changeCounts(c, verifySides) + ", compared with " + outbox.OutdatedWords(p.Loaded, v))
	}
	if i := slices.IndexFunc(of.Cursors, func(one outbox.Cursor) bool { return one.Projection == v.Projection }); i >= 0 {
		c.RowsBuilt = of.Cursors[i].RowsBuilt
	}
	return sentence(changeCounts(c, verifySides) + firstDivergence(c))
}
