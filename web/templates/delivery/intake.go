package delivery

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// SourceView is a source with a page of its rejected rows.
type SourceView struct {
	Source     outbox.IntakeSource
	Rejections outbox.Page[outbox.IntakeRejection]
	Cursor     string
	Limit      int
}

var intakeLooks = map[outbox.IntakeState]ui.Look{
	outbox.IntakeFailing:  {Glyph: "✕", Hue: "s-dead"},
	outbox.IntakeStopped:  {Glyph: "‖", Hue: "s-paused"},
	outbox.IntakeRejected: {Glyph: "!", Hue: "s-failed"},
	outbox.IntakeMoving:   {Glyph: "○", Hue: "s-pending"},
	outbox.IntakeCaughtUp: {Glyph: "✓", Hue: "s-current"},
}

var rejectionLooks = map[outbox.IntakeRejectionStatus]ui.Look{
	outbox.IntakeOpen:       {Glyph: "!", Hue: "s-failed"},
	outbox.IntakeRetrying:   {Glyph: "○", Hue: "s-pending"},
	outbox.IntakeDiscarding: {Glyph: "○", Hue: "s-pending"},
	outbox.IntakeDiscarded:  {Glyph: ui.SkippedGlyph, Hue: "s-skipped"},
}

// intakeHealth sums up the sources, the worst first.
func intakeHealth(all []outbox.IntakeSource, now time.Time) outbox.Health {
	var failing, stopped, rejected int64
	for _, s := range all {
		switch s.State(now) {
		case outbox.IntakeFailing:
			failing++
		case outbox.IntakeStopped:
			stopped++
		}
		rejected += s.Rejected
	}
	var h outbox.Health
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

func sourceSentence(s outbox.IntakeSource, now time.Time) string {
	switch s.State(now) {
	case outbox.IntakeFailing:
		switch {
		case s.HandedOver:
			return "It was handed over to this journal; the server takes it at the next read."
		case s.Owner != "":
			return "It belongs to another journal; none of its rows is moved to this one."
		}
		return "The database cannot be read; the server keeps trying."
	case outbox.IntakeStopped:
		return "No server reads this source."
	case outbox.IntakeRejected:
		return ui.Count(s.Rejected, "row is rejected and blocks its campaign.", "rows are rejected, and each blocks its campaign.")
	case outbox.IntakeMoving:
		return "Rows are being moved to the journal."
	}
	return "All rows are in the journal."
}

// waitingText is the number of rows that waited in a source's table when it was last read.
func waitingText(s outbox.IntakeSource) string {
	if s.LookedAt == nil {
		return "not known"
	}
	if s.Waiting >= s.WaitingLimit {
		return ui.Num(s.WaitingLimit) + "+"
	}
	return ui.Num(s.Waiting)
}

func retryFormID(r outbox.IntakeRejection) string   { return "retry-" + ui.Itoa(r.ID) }
func discardFormID(r outbox.IntakeRejection) string { return "discard-" + ui.Itoa(r.ID) }

// rejectionForms are the ids of the page's forms.
func rejectionForms(v SourceView) []string {
	forms := []string{handOverForm}
	for _, r := range v.Rejections.Items {
		if r.Status == outbox.IntakeOpen {
			forms = append(forms, retryFormID(r), discardFormID(r))
		}
	}
	return forms
}

func discardPhrase(r outbox.IntakeRejection) string {
	return outbox.ActionIntakeDiscard.Phrase(outbox.Reach{Discards: r.Discards()})
}

const handOverForm = "hand-over-form"

func handOverPhrase(s outbox.IntakeSource) string {
	return outbox.ActionIntakeHandOver.Phrase(outbox.Reach{Takes: outbox.IntakeHandOver{Source: s.Name}})
}

func handOverTwins(p ui.Page, s outbox.IntakeSource) ui.Twins {
	return p.Asks(outbox.ActionIntakeHandOver, outbox.HandOverRequest{Reason: ui.AnyReason.Reason, Confirm: handOverPhrase(s)}, s.Name)
}

func discardTwins(p ui.Page, r outbox.IntakeRejection) ui.Twins {
	return p.Asks(outbox.ActionIntakeDiscard, outbox.DiscardRequest{Reason: ui.AnyReason.Reason, Confirm: discardPhrase(r)}, r.Source, ui.Itoa(r.ID))
}

const exampleSources = `sources:
  shop: {url: "postgres://outboxweb:${SHOP_PASSWORD}@db.example/shop"}`
