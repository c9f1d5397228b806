package delivery

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/inbound"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// SourceView is a source with a page of its rejected rows.
type SourceView struct {
	Source     inbound.IntakeSource
	Rejections event.Page[inbound.IntakeRejection]
	Cursor     string
	Limit      int
}

var intakeLooks = map[inbound.IntakeState]ui.Look{
	inbound.IntakeFailing:  {Glyph: "✕", Hue: "s-dead"},
	inbound.IntakeStopped:  {Glyph: "‖", Hue: "s-paused"},
	inbound.IntakeRejected: {Glyph: "!", Hue: "s-failed"},
	inbound.IntakeMoving:   {Glyph: "○", Hue: "s-pending"},
	inbound.IntakeCaughtUp: {Glyph: "✓", Hue: "s-current"},
}

var rejectionLooks = map[inbound.IntakeRejectionStatus]ui.Look{
	inbound.IntakeOpen:       {Glyph: "!", Hue: "s-failed"},
	inbound.IntakeRetrying:   {Glyph: "○", Hue: "s-pending"},
	inbound.IntakeDiscarding: {Glyph: "○", Hue: "s-pending"},
	inbound.IntakeDiscarded:  {Glyph: ui.SkippedGlyph, Hue: "s-skipped"},
}

// intakeHealth sums up the sources, the worst first.
func intakeHealth(all []inbound.IntakeSource, now time.Time) finding.Health {
	var failing, stopped, rejected int64
	for _, s := range all {
		switch s.State(now) {
		case inbound.IntakeFailing:
			failing++
		case inbound.IntakeStopped:
			stopped++
		}
		rejected += s.Rejected
	}
	var h finding.Health
	add := func(level finding.Level, n int64, one, many string) {
		switch {
		case n == 0:
		case h.Sentence == "":
			h.Level, h.Sentence = level, ui.Count(n, one, many)
		default:
			h.Notes = append(h.Notes, ui.Count(n, one, many))
		}
	}
	add(finding.Bad, failing, "source cannot be read.", "sources cannot be read.")
	add(finding.Warn, rejected, "row is rejected and blocks its campaign.", "rows are rejected, and each blocks its campaign.")
	add(finding.Warn, stopped, "source is not read by any server.", "sources are not read by any server.")
	if h.Sentence == "" {
		h.Level, h.Sentence = finding.OK, "All sources are read, and no row is rejected."
	}
	return h
}

func sourceSentence(s inbound.IntakeSource, now time.Time) string {
	switch s.State(now) {
	case inbound.IntakeFailing:
		switch {
		case s.HandedOver:
			return "It was handed over to this journal; the server takes it at the next read."
		case s.Owner != "":
			return "It belongs to another journal; none of its rows is moved to this one."
		}
		return "The database cannot be read; the server keeps trying."
	case inbound.IntakeStopped:
		return "No server reads this source."
	case inbound.IntakeRejected:
		return ui.Count(s.Rejected, "row is rejected and blocks its campaign.", "rows are rejected, and each blocks its campaign.")
	case inbound.IntakeMoving:
		return "Rows are being moved to the journal."
	}
	return "All rows are in the journal."
}

// waitingText is the number of rows that waited in a source's table when it was last read.
func waitingText(s inbound.IntakeSource) string {
	if s.LookedAt == nil {
		return "not known"
	}
	if s.Waiting >= s.WaitingLimit {
		return ui.Num(s.WaitingLimit) + "+"
	}
	return ui.Num(s.Waiting)
}

func retryFormID(r inbound.IntakeRejection) string   { return "retry-" + ui.Itoa(r.ID) }
func discardFormID(r inbound.IntakeRejection) string { return "discard-" + ui.Itoa(r.ID) }

// rejectionForms are the ids of the page's forms.
func rejectionForms(v SourceView) []string {
	forms := []string{handOverForm}
	for _, r := range v.Rejections.Items {
		if r.Status == inbound.IntakeOpen {
			forms = append(forms, retryFormID(r), discardFormID(r))
		}
	}
	return forms
}

func discardPhrase(r inbound.IntakeRejection) string {
	return operator.ActionIntakeDiscard.Phrase(operator.Reach{Discards: r.Discards()})
}

const handOverForm = "hand-over-form"

func handOverPhrase(s inbound.IntakeSource) string {
	return operator.ActionIntakeHandOver.Phrase(operator.Reach{Takes: operator.IntakeHandOver{Source: s.Name}})
}

func handOverTwins(p ui.Page, s inbound.IntakeSource) ui.Twins {
	return p.Asks(operator.ActionIntakeHandOver, inbound.HandOverRequest{Reason: ui.AnyReason.Reason, Confirm: handOverPhrase(s)}, s.Name)
}

func discardTwins(p ui.Page, r inbound.IntakeRejection) ui.Twins {
	return p.Asks(operator.ActionIntakeDiscard, inbound.DiscardRequest{Reason: ui.AnyReason.Reason, Confirm: discardPhrase(r)}, r.Source, ui.Itoa(r.ID))
}

const exampleSources = `sources:
  shop: {url: "postgres://outboxweb:${SHOP_PASSWORD}@db.example/shop"}`
