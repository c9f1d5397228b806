package campaigns

import (
	"fmt"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// mark is an event's state: in one word, with the look that the state has everywhere.
type mark struct {
	ui.Look
	word string
}

// noRowLook is that of an event that is not applied and has no row.
var noRowLook = ui.Look{Glyph: "?", Hue: "s-failed"}

// appliedInPart reports whether some of the projections that are not live in a campaign lack an
// event, which the others have applied.
func appliedInPart(c campaign.Campaign, held []campaign.Cursor, seq int64) bool {
	return seq <= c.AppliedSeq && len(campaign.Lacking(held, seq)) > 0
}

// inPartTitle says which projections lack what the others have applied.
func inPartTitle(lacking []campaign.Cursor) string {
	return "Applied, but " + campaign.Standings(lacking)
}

// markOf returns the state of a campaign's event; held are the projections that are not live there.
func markOf(c campaign.Campaign, held []campaign.Cursor, l campaign.EventLine) mark {
	switch {
	case l.Skipped:
		return mark{ui.EventLook(search.EventSkipped), "skipped"}
	case appliedInPart(c, held, l.Seq):
		return mark{ui.CursorLook(campaign.CursorPaused), search.AppliedInPart}
	case l.Seq <= c.AppliedSeq:
		return mark{ui.StateLook(campaign.StateCurrent), "applied"}
	case l.RowStatus == "":
		return mark{noRowLook, "no row"}
	case l.RowStatus == event.Pending && l.Seq != c.HeadSeq:
		return mark{ui.StatusLook(l.RowStatus), "waits"}
	}
	return mark{ui.StatusLook(l.RowStatus), string(l.RowStatus)}
}

// position names what is special about an event's place: the head, the watermark, the last one.
func position(c campaign.Campaign, seq int64) string {
	switch {
	case seq == c.HeadSeq:
		return "head"
	case seq == c.AppliedSeq && seq == c.HighWaterSeq:
		return "watermark, the last event"
	case seq == c.AppliedSeq:
		return "watermark"
	case seq == c.HighWaterSeq:
		return "the last event"
	}
	return ""
}

// cellText describes a cell of the timeline in full.
func cellText(c campaign.Campaign, held []campaign.Cursor, l campaign.EventLine) string {
	text := fmt.Sprintf("Event %d, %s: %s", l.Seq, l.EventType, markOf(c, held, l).word)
	if p := position(c, l.Seq); p != "" {
		text += ", " + p
	}
	return text
}

// milestones names the watermark, the head and the last event.
func milestones(c campaign.Campaign) string {
	text := "The watermark is at " + ui.Num(c.AppliedSeq)
	if c.Diverged != "" {
		text = "The watermark is at " + ui.Num(c.ProjectionsSeq) + " of another journal"
	}
	if c.HeadSeq > 0 {
		text += ", the head at " + ui.Num(c.HeadSeq)
	}
	return text + ", the last event at " + ui.Num(c.HighWaterSeq) + "."
}

// beyond says how many events precede and follow a timeline.
func beyond(c campaign.Campaign, lines []campaign.EventLine) string {
	if len(lines) == 0 {
		return "No events."
	}
	before, behind := lines[0].Seq-1, c.HighWaterSeq-lines[len(lines)-1].Seq
	switch {
	case before > 0 && behind > 0:
		return ui.Num(before) + " earlier and " + ui.Count(behind, "later event", "later events") + " are not shown."
	case before > 0:
		return ui.Count(before, "earlier event is", "earlier events are") + " not shown."
	case behind > 0:
		return ui.Count(behind, "later event is", "later events are") + " not shown."
	}
	return ""
}

// eventStands says in a sentence whether and how an event was applied.
func eventStands(v EventView) string {
	seq, c := v.Event.Seq, v.Campaign
	upTo := fmt.Sprintf("events up to %s are applied", ui.Num(c.AppliedSeq))
	if but := campaign.Standings(campaign.Lacking(v.Held, c.AppliedSeq)); but != "" {
		upTo += ", but " + but
	}
	switch {
	case v.Event.Skipped != nil && seq <= c.AppliedSeq:
		return "Skipped: no projection applied it; all other " + upTo + "."
	case seq <= c.AppliedSeq && v.Held == nil:
		return "Applied, though perhaps not to every projection: which are paused or quarantined cannot be read at the moment."
	case appliedInPart(c, v.Held, seq):
		return inPartTitle(campaign.Lacking(v.Held, seq)) + "."
	case seq <= c.AppliedSeq:
		return "Applied. All " + upTo + "."
	case v.RowStatus == "":
		return "Not applied, and without a row. All " + upTo + "; replay the campaign to apply this event."
	case seq == c.HeadSeq:
		return "Not applied: it is the head of its campaign. All " + upTo + "."
	}
	return fmt.Sprintf("Not applied yet: it waits behind event %s. All %s.", ui.Num(c.HeadSeq), upTo)
}
