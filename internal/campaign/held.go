package campaign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// heldNamed is how many projections an explanation names.
const heldNamed = 3

// everythingApplied is the reason why an idle campaign does not move.
const everythingApplied = "Everything is applied"

// HeldCursors returns the cursors of projections that are not live in the campaign.
func HeldCursors(all []Cursor) []Cursor {
	return slices.DeleteFunc(append([]Cursor{}, all...), Cursor.Follows)
}

// Behind returns the cursors of those that lack events of a campaign in which all are applied; none
// for any other campaign.
func (c Campaign) Behind(held []Cursor) []Cursor {
	if c.State() != StateCurrent {
		return nil
	}
	return Lacking(held, c.AppliedSeq)
}

// Lacking returns the cursors of those that have not applied the event.
func Lacking(held []Cursor, seq int64) (lacking []Cursor) {
	for _, c := range held {
		if c.AppliedSeq < seq {
			lacking = append(lacking, c)
		}
	}
	return lacking
}

// Standings describes projections that are not live in their campaign: "projection users is paused, 4
// events behind". It continues a sentence, and is empty if there is none.
func Standings(held []Cursor) string {
	var texts []string
	for _, c := range held[:min(len(held), heldNamed)] {
		texts = append(texts, "projection "+c.Projection+" "+c.Standing())
	}
	if more := len(held) - heldNamed; more > 0 {
		texts = append(texts, event.Count(int64(more), "more is not live", "more are not live"))
	}
	return strings.Join(texts, "; ")
}

// WithHeldProjections adds the projections that are not live in the campaign.
func (e Explanation) WithHeldProjections(held []Cursor) Explanation {
	text := Standings(held)
	if text == "" {
		return e
	}
	if strings.HasPrefix(e.Why, everythingApplied) {
		e.Why += ", but " + text
	} else {
		e.Why += ". P" + strings.TrimPrefix(text, "p")
	}
	return e
}

// Idle reports whether there is no more to say than that everything is applied.
func (e Explanation) Idle() bool { return e.Why == everythingApplied }

// Standing describes a projection that is not live in its campaign: "is paused, 4 events behind".
func (c Cursor) Standing() string {
	lag := event.Count(c.LagEvents, "event behind", "events behind")
	if c.NotLoaded {
		return "is not loaded, " + lag
	}
	if c.State == CursorBehind {
		return "is " + lag + catchUp(c.RunID, c.BlockedByRun)
	}
	text := "is " + c.State
	if c.PausedForAll {
		text += " for all campaigns"
	}
	if c.LagEvents == 0 {
		return text
	}
	return text + ", " + lag
}

// Lacks reports whether the projection lacks events, or will, that others have applied.
func (h HeldProjection) Lacks() bool {
	return h.NotLoaded || h.Paused != nil || h.PausedCampaigns+h.Behind+h.Quarantined > 0
}

// State is the worst state of the projection in any campaign, or paused if it is paused for all.
func (i ProjectionInfo) State() string {
	switch {
	case i.Paused != nil:
		return CursorPaused
	case i.Quarantined > 0:
		return CursorQuarantined
	case i.Behind > 0:
		return CursorBehind
	case i.PausedCampaigns > 0:
		return CursorPaused
	}
	return CursorLive
}

// NotLive counts the campaigns in which the projection is not live.
func (i ProjectionInfo) NotLive() int64 {
	if i.Paused != nil {
		return i.PausedCampaigns
	}
	return i.Quarantined + i.PausedCampaigns + i.Behind
}

// PausedWhere counts the campaigns in which it is paused: "for 2 campaigns"; empty if none.
func (h HeldProjection) PausedWhere() string {
	switch {
	case h.Paused != nil:
		return "for all campaigns"
	case h.PausedCampaigns > 0:
		return "for " + h.Campaigns(h.PausedCampaigns)
	}
	return ""
}

// AdvancedWithout says in how many campaigns events were applied without a projection that is not
// loaded: " Events were applied without it in 4 campaigns; it is quarantined in 2 of them."; empty if in
// none. A quarantine is of an event that was applied without it.
func (h HeldProjection) AdvancedWithout() string {
	n := h.Behind + h.Quarantined
	if n == 0 {
		return ""
	}
	if h.Paused != nil { // in which others is not known
		return " It is quarantined in " + h.Campaigns(n) + "."
	}
	text := " Events were applied without it in " + h.Campaigns(n)
	switch {
	case h.Behind == 0:
		text += ", where it is quarantined"
	case h.Quarantined > 0:
		text += fmt.Sprintf("; it is quarantined in %s of them", event.Number(h.Quarantined))
	}
	return text + "."
}

// OnceLoaded says what catches up a projection that is not loaded, once it is loaded again.
func (h HeldProjection) OnceLoaded() string {
	const stays = "it stays quarantined there until you start a replay of it"
	resumed := "" // nothing catches up a projection that is paused for all campaigns
	if h.Paused != nil {
		resumed = " and resumed"
	}
	switch {
	case h.Quarantined == 0:
		return "Once it is loaded again" + resumed + ", a replay starts by itself and catches it up."
	case h.Behind == 0 && h.Paused == nil:
		return "Also once it is loaded again, " + stays + "."
	}
	return "Once it is loaded again" + resumed + ", a replay starts by itself and catches it up, except where it is quarantined: " + stays + "."
}

// Held is the projection with its counts as a summary has them.
func (i ProjectionInfo) Held() HeldProjection {
	return HeldProjection{Projection: i.Name, NotLoaded: i.NotLoaded, Paused: i.Paused, PausedCampaigns: i.PausedCampaigns, Behind: i.Behind, Quarantined: i.Quarantined,
		CountsCapped: i.CountsCapped, RunID: i.RunID, BlockedByRun: i.BlockedByRun}
}

// Campaigns formats one of the counts.
func (h HeldProjection) Campaigns(n int64) string {
	switch {
	case h.CountsCapped:
		return event.Number(n) + " or more campaigns"
	}
	return Campaigns(n)
}

// CatchUp says what will catch up the projection where it is behind: " and waits for the end of run
// 7". It continues a sentence.
func (h HeldProjection) CatchUp() string { return catchUp(h.RunID, h.BlockedByRun) }

func catchUp(run, blockedBy int64) string {
	switch {
	case blockedBy > 0:
		return fmt.Sprintf(" and waits for run %d to end", blockedBy)
	case run > 0:
		return fmt.Sprintf("; run %d is catching it up", run)
	}
	return ", and no run is catching it up"
}

// ProjectionsNamed names projections: "projection seats", "projections seats and users". There is at least
// one.
func ProjectionsNamed(names []string) string {
	word := "projections "
	if len(names) == 1 {
		word = "projection "
	}
	shown := slices.Clone(names[:min(len(names), heldNamed)])
	if more := len(names) - len(shown); more > 0 {
		shown = append(shown, event.Number(int64(more))+" more")
	}
	return word + event.Joined(shown, " and ")
}
