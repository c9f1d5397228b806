package campaigns

import (
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// DryRunNext is how many events after the row's a dry run tries by default.
const DryRunNext = 10

func inProjection(at replay.Rehearsed) string {
	if at.Projection == "" {
		return ""
	}
	return " in projection " + at.Projection
}

func triedLevel(r replay.RunResult) finding.Level {
	if r.Outcome == replay.OutcomeFailed {
		return finding.Bad
	}
	return finding.OK
}

// dryRunTwins are the shell commands for the same dry run.
func dryRunTwins(p ui.Page, v DryRunView) ui.Twins {
	t := ui.Twins{Curl: p.CurlGet(p.Links.API().DryRun(v.Trial))}
	if p.CommandLoads() {
		command := "requeue --dry-run --next=" + ui.Itoa(v.Next)
		if v.Without {
			command += " --without"
		}
		t.CLI = p.Command(command, nil, v.CampaignID, ui.Itoa(v.Seq))
	}
	return t
}
