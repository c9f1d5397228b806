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

func inProjection(at outbox.Rehearsed) string {
	if at.Projection == "" {
		return ""
	}
	return " in projection " + at.Projection
}

func triedLevel(r outbox.RunResult) outbox.Level {
	if r.Outcome == outbox.OutcomeFailed {
		return outbox.LevelBad
	}
	return outbox.LevelOK
}

// dryRunTwins are the shell commands for the same dry run.
func dryRunTwins(p Page, v DryRunView) Twins {
	t := Twins{Curl: p.curlGet(p.Links.API().DryRun(v.CampaignID, v.Seq, v.Next))}
	if p.commandLoads() {
		t.CLI = p.command("requeue --dry-run --next="+itoa(v.Next), nil, v.CampaignID, itoa(v.Seq))
	}
	return t
}
