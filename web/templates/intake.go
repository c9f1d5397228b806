package templates

import (
	"encoding/json"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// SourceView is a source with a page of its rejected rows.
type SourceView struct {
	Source     outbox.IntakeSource
	Rejections outbox.Page[outbox.IntakeRejection]
	Cursor     string
	Limit      int
}

// Intake is the list of sources, and its counterpart in the API.
func (l Links) Intake() URL { return l.at(nil, "intake") }

// Source is one source with its rejected rows.
func (l Links) Source(name, cursor string, limit int) URL {
	return l.at(values("cursor", cursor, "limit", positive(int64(limit))), "intake", name)
}

// SourceOf is one source, from its first rejected row.
func (l Links) SourceOf(name string) URL { return l.Source(name, "", 0) }

// Rejections is the API's list of a source's rejected rows.
func (l Links) Rejections(name string) URL { return l.at(nil, "intake", name, "rejections") }

var intakeLooks = map[outbox.IntakeState]look{
	outbox.IntakeFailing:  {"✕", "s-dead"},
	outbox.IntakeStopped:  {"‖", "s-paused"},
	outbox.IntakeRejected: {"!", "s-failed"},
	outbox.IntakeMoving:   {"○", "s-pending"},
	outbox.IntakeCaughtUp: {"✓", "s-current"},
}

var rejectionLooks = map[outbox.IntakeRejectionStatus]look{
	outbox.IntakeOpen:       {"!", "s-failed"},
	outbox.IntakeRetrying:   {"○", "s-pending"},
	outbox.IntakeDiscarding: {"○", "s-pending"},
	outbox.IntakeDiscarded:  {skippedGlyph, "s-skipped"},
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
	add := func(level outbox.Level, n int64, one, many string) {
		switch {
		case n == 0:
		case h.Sentence == "":
			h.Level, h.Sentence = level, count(n, one, many)
		default:
			h.Notes = append(h.Notes, count(n, one, many))
		}
	}
	add(outbox.LevelBad, failing, "source cannot be read.", "sources cannot be read.")
	add(outbox.LevelWarn, rejected, "row is rejected and blocks its campaign.", "rows are rejected, and each blocks its campaign.")
	add(outbox.LevelWarn, stopped, "source is not read by any server.", "sources are not read by any server.")
	if h.Sentence == "" {
		h.Level, h.Sentence = outbox.LevelOK, "All sources are read, and no row is rejected."
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
		return count(s.Rejected, "row is rejected and blocks its campaign.", "rows are rejected, and each blocks its campaign.")
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
		return num(s.WaitingLimit) + "+"
	}
	return num(s.Waiting)
}

func retryFormID(r outbox.IntakeRejection) string   { return "retry-" + itoa(r.ID) }
func discardFormID(r outbox.IntakeRejection) string { return "discard-" + itoa(r.ID) }

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

func handOverTwins(p Page, s outbox.IntakeSource) Twins {
	return p.asks(outbox.ActionIntakeHandOver, outbox.HandOverRequest{Reason: anyReason.Reason, Confirm: handOverPhrase(s)}, s.Name)
}

func discardTwins(p Page, r outbox.IntakeRejection) Twins {
	return p.asks(outbox.ActionIntakeDiscard, outbox.DiscardRequest{Reason: anyReason.Reason, Confirm: discardPhrase(r)}, r.Source, itoa(r.ID))
}

// intakeActionSentence describes an action on a source or a rejected row.
func intakeActionSentence(a outbox.AuditEntry) string {
	var d struct {
		Source string `json:"source"`
		ID     int64  `json:"rejection"`
		From   string `json:"from"`
	}
	_ = json.Unmarshal(a.After, &d) // missing fields stay empty
	if a.Action == outbox.ActionIntakeHandOver {
		return "Source " + d.Source + " is taken from journal " + d.From + " at the next read."
	}
	if a.Action == outbox.ActionIntakeRetry {
		return "Rejected row " + itoa(d.ID) + " of source " + d.Source + " is retried at the next read."
	}
	return "Rejected row " + itoa(d.ID) + " of source " + d.Source + " is deleted at the next read."
}

const exampleSources = `sources:
  shop: {url: "postgres://outboxweb:${SHOP_PASSWORD}@db.example/shop"}`
