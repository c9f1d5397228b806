// Package overview holds the overview and the page of causes: what is wrong now, and what to do.
package overview

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// cell is one of the counts, or of the three numbers that an operator reads first, which have a sub.
type cell struct {
	name, glyph, hue, number, sub, meaning, testID string
	zero                                           bool
	link                                           ui.URL
}

// stripCells are the counts that are not zero, and that no number above them has.
func stripCells(p ui.Page, s campaign.Summary) (cells []cell) {
	add := func(n int64, c cell) {
		if n > 0 {
			c.number = ui.Num(n)
			cells = append(cells, c)
		}
	}
	for _, status := range event.Statuses {
		add(s.Counts.Of(status), cell{name: string(status), glyph: ui.StatusGlyph(status), hue: string(status),
			meaning: "Rows that " + statusMeaning(status), testID: "count-" + string(status), link: p.Links.Rows(campaign.RowFilter{Status: status})})
	}
	for _, x := range []struct {
		state           campaign.State
		n               int64
		meaning, testID string
	}{
		{campaign.StateBlocked, s.Campaigns.Blocked, "Campaigns blocked by a permanently failed event", ""},
		{campaign.StatePaused, s.Campaigns.Paused, "Campaigns paused by an operator", ""},
		{campaign.StateDiverged, s.Campaigns.Diverged, "Diverged: campaigns whose projections were built from another journal", ""},
		{campaign.StateUnverifiable, s.Campaigns.Unverifiable, "Campaigns whose journal the last verify could not replay", "count-unverifiable"},
		{campaign.StateDrifted, s.Campaigns.Drifted, "Drift: campaigns whose live rows differed from the journal at the last verification", "count-drifted"},
	} {
		name := string(x.state)
		if x.state == campaign.StatePaused { // projections and publishers can be, too
			name = "paused campaigns"
		}
		add(x.n, cell{name: name, glyph: ui.StateGlyph(x.state), hue: string(x.state), meaning: x.meaning, testID: x.testID, link: p.Links.Campaigns(campaign.CampaignFilter{State: x.state})})
	}
	age := func(name, meaning, testID string, o *campaign.Oldest) {
		if o != nil {
			cells = append(cells, cell{name: name, glyph: ui.StateGlyph(campaign.StateLagging), hue: string(campaign.StateLagging), number: event.Age(p.Now.Sub(o.EnqueuedAt)), testID: testID, meaning: meaning, link: p.Links.Event(o.CampaignID, o.Seq)})
		}
	}
	age("oldest event", "Age of the oldest unapplied event", "oldest-age", s.Oldest)
	age("oldest retryable", "Age of the oldest event that workers retry by themselves (not in a campaign that is blocked, paused, diverged or served by no running instance)", "retryable-age", s.OldestRetryable)
	add(s.Campaigns.Skips, cell{name: "skipped", glyph: ui.SkippedGlyph, hue: "skipped", testID: "count-skips", meaning: "Skipped events, which are never applied", link: p.Links.Audit(operator.AuditFilter{Action: operator.ActionSkip})})
	return cells
}

// health is the state of the whole, and what becomes of the backlog.
func (v Overview) health() finding.Health {
	h := v.Summary.Overall(v.Summary.Findings)
	if h.Level != finding.OK && v.Summary.Campaigns.Total > 0 {
		h.Notes = append([]string{v.Tonight.Backlog}, h.Notes...)
	}
	return h
}

// calm says that nothing is wrong, or that what is will be over by itself.
func (v Overview) calm() string {
	if v.Summary.Findings.Worst() == finding.OK {
		return "Nothing needs attention."
	}
	if n := v.Summary.Outlook.Held; n > 0 {
		return "Nothing fails, but " + event.Count(n, "event waits", "events wait") + " for an operator."
	}
	return "Nothing needs an operator."
}

// offs are the settings that apply events otherwise, or keep changes from being made.
func offs(p ui.Page, v Overview) []ui.NamedText {
	var all []ui.NamedText
	if v.Summary.Mode == campaign.ModeInline {
		all = append(all, ui.NamedText{Name: ui.ModeName(v.Summary.Mode), Value: ui.ModeMeaning(v.Summary.Mode)})
	}
	if p.ReadOnly {
		all = append(all, ui.NamedText{Name: "read-only", Value: "this server refuses every change over HTTP"})
	}
	return all
}

// stopped are the findings that say so of something, and not of campaigns.
func (v Overview) stopped() finding.List {
	all := v.Summary.Findings.Of(campaign.FindsWorker, campaign.FindsShadow, campaign.FindsNotLoaded, campaign.FindsNotDelivered)
	return slices.DeleteFunc(all, func(f finding.Finding) bool { return f.Level == finding.Busy }) // a worker is about to start
}

// heldLink links to a projection, or, if it is paused for some campaigns, to those.
func heldLink(p ui.Page, h campaign.HeldProjection) ui.URL {
	if h.Paused != nil {
		return p.Links.Projection(h.Projection)
	}
	return p.Links.ProjectionCursors(campaign.CursorFilter{Projection: h.Projection, State: campaign.CursorPaused})
}

// Limits on the drifted campaigns and active runs that the overview names.
const (
	runsNamed = 3
)

func curlAppend(p ui.Page) string {
	return p.Curl() + "-H 'Content-Type: application/json' \\\n  -d '{\"event_type\":\"campaign.created\",\"payload\":{\"name\":\"Cinder Ford\"}}' \\\n  " +
		event.ShellWord(p.Origin+string(p.Links.API().Events("c-1")))
}

func statusMeaning(s event.Status) string {
	switch s {
	case event.Pending:
		return "wait for their turn"
	case event.Processing:
		return "held by a worker now"
	case event.Failed:
		return "will be retried"
	default:
		return "need an operator"
	}
}

// troubleActions are the actions on the objects that the overview lists.
func troubleActions(p ui.Page, v Overview) []operator.Action {
	var all []operator.Action
	for _, g := range v.Causes[:min(len(v.Causes), causesShown)] {
		if g.Dead > 0 {
			all = append(all, operator.ActionOperationStart)
		}
	}
	if len(v.Causes)+len(v.blocks()) > 0 {
		all = append(all, operator.ActionTake)
	}
	if slices.ContainsFunc(v.blocks(), func(f finding.Finding) bool { return f.Runs }) {
		all = append(all, operator.ActionRunStart)
	}
	return all
}
