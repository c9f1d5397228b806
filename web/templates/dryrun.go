package templates

import (
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// DryRunNext is how many events after the row's a dry run tries by default.
const DryRunNext = 10

// DryRunForm is the target of the form of a dry run.
func (l Links) DryRunForm(campaign string, seq int64) URL {
	return l.at(nil, rowPath(campaign, seq, "dry-run")...)
}

func inProjection(f outbox.DryRunFailure) string {
	if f.Projection == "" {
		return ""
	}
	return " in projection " + f.Projection
}

// dryRunTwins are the shell commands for the same dry run.
func dryRunTwins(p Page, v DryRunView) Twins {
	t := Twins{Curl: p.curlGet(p.Links.API().DryRun(v.CampaignID, v.Seq, v.Next))}
	if p.commandLoads() {
		t.CLI = p.onRow("requeue --dry-run --next "+itoa(v.Next), v.CampaignID, v.Seq)
	}
	return t
}
