package templates

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// cell is one of the counts, or of the three numbers that an operator reads first, which have a sub.
type cell struct {
	name, glyph, hue, number, sub, meaning, testID string
	zero                                           bool
	link                                           URL
}

func stripCells(p Page, s outbox.Summary) []cell {
	var cells []cell
	for _, status := range outbox.Statuses {
		n := s.Counts.Of(status)
		cells = append(cells, cell{name: string(status), glyph: statusGlyph(status), hue: string(status), number: num(n),
			meaning: "Rows that " + statusMeaning(status), testID: "count-" + string(status), zero: n == 0, link: p.Links.Rows(outbox.RowFilter{Status: status})})
	}
	states := []struct {
		state   outbox.State
		n       int64
		meaning string
		testID  string
	}{
		{outbox.StateBlocked, s.Campaigns.Blocked, "Campaigns blocked by a permanently failed event", ""},
		{outbox.StatePaused, s.Campaigns.Paused, "Campaigns paused by an operator", ""},
		{outbox.StateDiverged, s.Campaigns.Diverged, "Diverged: campaigns whose projections were built from another journal", ""},
		{outbox.StateUnverifiable, s.Campaigns.Unverifiable, "Campaigns whose journal the last verify could not replay", "count-unverifiable"},
		{outbox.StateDrifted, s.Campaigns.Drifted, "Drift: campaigns whose live rows differed from the journal at the last verification", "count-drifted"},
	}
	for _, x := range states {
		if x.state == outbox.StateUnverifiable && x.n == 0 {
			continue // it is rare
		}
		name := string(x.state)
		if x.state == outbox.StatePaused { // projections and publishers can be, too
			name = "paused campaigns"
		}
		cells = append(cells, cell{name: name, glyph: stateGlyph(x.state), hue: string(x.state), number: num(x.n),
			meaning: x.meaning, testID: x.testID, zero: x.n == 0, link: p.Links.Campaigns(outbox.CampaignFilter{State: x.state})})
	}
	oldest := cell{name: "oldest event", glyph: stateGlyph(outbox.StateLagging), hue: string(outbox.StateLagging), number: "none", testID: "oldest-age",
		meaning: "Age of the oldest unapplied event", zero: true, link: p.Links.Campaigns(outbox.CampaignFilter{Sort: outbox.SortAge})}
	if o := s.Oldest; o != nil {
		oldest.number, oldest.zero, oldest.link = outbox.Age(p.Now.Sub(o.EnqueuedAt)), false, p.Links.Event(o.CampaignID, o.Seq)
	}
	skips := cell{name: "skipped", glyph: skippedGlyph, hue: "skipped", number: num(s.Campaigns.Skips), testID: "count-skips",
		meaning: "Skipped events, which are never applied", zero: s.Campaigns.Skips == 0, link: p.Links.Audit(outbox.AuditFilter{Action: outbox.ActionSkip})}
	return append(cells, oldest, skips)
}

// offs are the settings that apply events otherwise, or keep changes from being made.
func offs(p Page, v Overview) []namedText {
	var all []namedText
	if v.Summary.Mode == outbox.ModeInline {
		all = append(all, namedText{modeName(v.Summary.Mode), modeMeaning(v.Summary.Mode)})
	}
	if p.ReadOnly {
		all = append(all, namedText{"read-only", "this server refuses every change over HTTP"})
	}
	return all
}

// stopped are the findings that say so of something, and not of campaigns.
func (v Overview) stopped() finding.List {
	all := v.Findings.Of(outbox.FindsWorker, outbox.FindsShadow, outbox.FindsNotLoaded, outbox.FindsNotDelivered)
	return slices.DeleteFunc(all, func(f finding.Finding) bool { return f.Level == outbox.LevelBusy }) // a worker is about to start
}

// heldLink links to a projection, or, if it is paused for some campaigns, to those.
func heldLink(p Page, h outbox.HeldProjection) URL {
	if h.Paused != nil {
		return p.Links.Projection(h.Projection)
	}
	return p.Links.ProjectionCursors(outbox.CursorFilter{Projection: h.Projection, State: outbox.CursorPaused})
}

// needsOwnPage reports whether an action that releases so many rows is offered not in a list, but
// on its own page with a preview.
func (p Page) needsOwnPage(released int64) bool {
	return outbox.ActionRequeue.Phrase(outbox.Reach{Released: released}) != "" || p.needsReason(released)
}

func (p Page) needsReason(released int64) bool {
	return outbox.NeedsReason(p.ReasonFrom, released)
}

// workTime estimates how long workers take for so many rows; empty if nothing was applied recently.
func workTime(p Page, rows int64) string {
	if estimate := outbox.Estimate(rows, p.Around.Pace); estimate != "" {
		return ", " + estimate
	}
	return ""
}
