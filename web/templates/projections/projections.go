// Package projections holds the pages of projections, loaded or not.
package projections

import (
	"strings"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// ProjectionView is one projection, the campaigns in which it is not live, its open failures, and
// operators' actions on it.
type ProjectionView struct {
	campaign.ProjectionDetail
	Filter   campaign.CursorFilter `redact:"-"`
	Cursors  event.Page[campaign.CampaignCursor]
	Failures event.Page[campaign.ProjectionFailure]
	Acts     []operator.AuditEntry
	Passed   replay.QuarantinePassed
	Range    samples.Range `redact:"-"`
	History  samples.History
}

// ProjectionsView is the list of the loaded projections.
type ProjectionsView struct {
	Loaded []campaign.ProjectionInfo
	Left   []campaign.ProjectionInfo // loaded earlier, and not now
}

type diffLine struct{ class, text string }

func diffLines(c campaign.DefinitionChange) []diffLine {
	var all []diffLine
	for line := range strings.Lines(c.Diff) {
		all = append(all, diffLine{map[byte]string{'+': "added", '-': "removed", '@': "place"}[line[0]], ui.Visible(strings.TrimSuffix(line, "\n"))})
	}
	return all
}

// notFollowed says in how many campaigns a projection is not live.
func notFollowed(i campaign.ProjectionInfo) string {
	n := i.NotLive()
	switch {
	case n == 0 && i.Blocking > 0:
		return ""
	case n == 0:
		return "Not paused, quarantined or behind in any campaign."
	case i.CountsCapped:
		return "Not live in at least " + ui.Count(n, "campaign", "campaigns") + "."
	}
	return "Not live in " + ui.Count(n, "campaign, which advances without it.", "campaigns, which advance without it.")
}

// heldUp says how many campaigns wait for a projection that blocks some, blocked or to be retried.
func heldUp(i campaign.ProjectionInfo) string {
	least := ""
	if i.CountsCapped {
		least = "at least "
	}
	return "An event fails in it in " + least + ui.Count(i.Blocking, "campaign, which waits.", "campaigns, which wait.")
}

// AtLeast formats a count that may be a lower bound.
func AtLeast(n int64, capped bool) string {
	if capped {
		return ui.Num(n) + " or more"
	}
	return ui.Num(n)
}

// PauseFormID is the id of the form that pauses or resumes a projection.
func PauseFormID(projection string) string { return "hold-" + projection }

// pauseVerb is what the action on a projection does: it pauses or resumes it.
func pauseVerb(a operator.Action) string {
	if a == operator.ActionProjectionResume {
		return "Resume"
	}
	return "Pause"
}

// pauseTwins are the shell equivalents of pausing a projection for all campaigns, or resuming it.
func pauseTwins(p ui.Page, i campaign.ProjectionInfo) ui.Twins {
	t := p.AsksOn(i.Action(), nil, i.Name)
	if !p.CommandLoads(i.Name) {
		t.CLI = ""
	}
	return t
}

// FailureStatuses are the choices of the list of failures.
var FailureStatuses = []campaign.FailureStatus{campaign.FailureOpen, campaign.FailureResolved, ""}

// asideStates are the choices of the list of cursors.
var asideStates = []string{"", campaign.CursorQuarantined, campaign.CursorPaused, campaign.CursorBehind}

// cursorActions are the actions on the projections of a campaign.
func cursorActions(list []campaign.Cursor) []operator.Action {
	var all []operator.Action
	for _, c := range list {
		if a := c.Action(); a != "" {
			all = append(all, a)
		}
	}
	return all
}

func listedHoldActions(list []campaign.ProjectionInfo) []operator.Action {
	all := make([]operator.Action, 0, len(list)+1)
	for _, i := range list {
		all = append(all, i.Action())
	}
	return append(all, operator.ActionRunStart)
}
