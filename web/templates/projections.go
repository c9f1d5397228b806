package templates

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// ProjectionView is one projection, the campaigns in which it is not live, its open failures, and
// operators' actions on it.
type ProjectionView struct {
	outbox.ProjectionDetail
	Filter   outbox.CursorFilter `redact:"-"`
	Cursors  outbox.Page[outbox.CampaignCursor]
	Failures outbox.Page[outbox.ProjectionFailure]
	Acts     []outbox.AuditEntry
	Passed   outbox.QuarantinePassed
	Range    outbox.Range `redact:"-"`
	History  outbox.History
}

// ProjectionsView is the list of the loaded projections.
type ProjectionsView struct {
	Loaded []outbox.ProjectionInfo
	Left   []outbox.ProjectionInfo // loaded earlier, and not now
}

// previousVersion names the version before a change; by its hash where the change went back to a
// version before that one.
func previousVersion(c outbox.DefinitionChange) string {
	if c.Again {
		return "version " + outbox.ShortHash(c.Previous)
	}
	return "the previous version"
}

func changed(c outbox.DefinitionChange) string {
	switch {
	case !c.Kept:
		return "; its text is not kept."
	case c.Diff == "":
		return "; there is no text to compare."
	case c.Cut:
		return fmt.Sprintf(": %s lines added, %s removed, of which the first are here.", num(c.Added), num(c.Removed))
	}
	return fmt.Sprintf(": %s added, %s removed.", count(c.Added, "line", "lines"), num(c.Removed))
}

type diffLine struct{ class, text string }

func diffLines(c outbox.DefinitionChange) []diffLine {
	var all []diffLine
	for line := range strings.Lines(c.Diff) {
		all = append(all, diffLine{map[byte]string{'+': "added", '-': "removed", '@': "place"}[line[0]], Visible(strings.TrimSuffix(line, "\n"))})
	}
	return all
}

// notFollowed says in how many campaigns a projection is not live.
func notFollowed(i outbox.ProjectionInfo) string {
	n := i.NotLive()
	switch {
	case n == 0 && i.Blocking > 0:
		return ""
	case n == 0:
		return "Not paused, quarantined or behind in any campaign."
	case i.CountsCapped:
		return "Not live in at least " + count(n, "campaign", "campaigns") + "."
	}
	return "Not live in " + count(n, "campaign, which advances without it.", "campaigns, which advance without it.")
}

// heldUp says how many campaigns wait for a projection that blocks some, blocked or to be retried.
func heldUp(i outbox.ProjectionInfo) string {
	least := ""
	if i.CountsCapped {
		least = "at least "
	}
	return "An event fails in it in " + least + count(i.Blocking, "campaign, which waits.", "campaigns, which wait.")
}

// atLeast formats a count that may be a lower bound.
func atLeast(n int64, capped bool) string {
	if capped {
		return num(n) + " or more"
	}
	return num(n)
}

// pauseFormID is the id of the form that pauses or resumes a projection.
func pauseFormID(projection string) string { return "hold-" + projection }

// pauseVerb is what the action on a projection does: it pauses or resumes it.
func pauseVerb(a outbox.Action) string {
	if a == outbox.ActionProjectionResume {
		return "Resume"
	}
	return "Pause"
}

// pauseSentence describes the outcome of pausing or resuming a projection.
func pauseSentence(a outbox.AuditEntry) string {
	var h outbox.ProjectionPause
	if json.Unmarshal(a.After, &h) != nil {
		return "Done: " + string(a.Action) + "."
	}
	where := "for all campaigns"
	if h.CampaignID != "" {
		where = "for campaign " + h.CampaignID
	}
	said := fmt.Sprintf("Resumed projection %s %s", h.Projection, where)
	switch {
	case a.Action == outbox.ActionProjectionPause && h.CampaignID == "":
		return fmt.Sprintf("Paused projection %s %s.", h.Projection, where)
	case a.Action == outbox.ActionProjectionPause:
		return fmt.Sprintf("Paused projection %s %s, at event %d.", h.Projection, where, h.AppliedSeq)
	case h.Behind > 0 && h.BlockedByRun > 0:
		said += fmt.Sprintf("; the replay of %s waits for run %d to end", count(h.Behind, "campaign", "campaigns"), h.BlockedByRun)
	case h.Behind > 0:
		said += fmt.Sprintf("; %s for a replay", count(h.Behind, "campaign waits", "campaigns wait"))
	}
	if said += "."; h.Quarantined > 0 {
		said += fmt.Sprintf(" It is still quarantined in %s: replay it there once its file is fixed.", count(h.Quarantined, "campaign", "campaigns"))
	}
	return said
}

// pauseTwins are the shell equivalents of pausing a projection for all campaigns, or resuming it.
func pauseTwins(p Page, i outbox.ProjectionInfo) Twins {
	t := p.asksOn(i.Action(), nil, i.Name)
	if !p.commandLoads(i.Name) {
		t.CLI = ""
	}
	return t
}

// failureStatuses are the choices of the list of failures.
var failureStatuses = []outbox.FailureStatus{outbox.FailureOpen, outbox.FailureResolved, ""}

// asideStates are the choices of the list of cursors.
var asideStates = []string{"", outbox.CursorQuarantined, outbox.CursorPaused, outbox.CursorBehind}
