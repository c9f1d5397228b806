package jobs

import "github.com/outboxweb/outboxweb/internal/replay"

func runActionName(kind replay.RunKind) string {
	switch kind {
	case replay.RunVerify:
		return "Verify"
	case replay.RunRebuild:
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
