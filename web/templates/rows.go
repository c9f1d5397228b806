package templates

import (
	"slices"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

func rowID(r outbox.Row) string { return "row-" + r.CampaignID + "-" + itoa(r.Seq) }

func statusChoices(p Page, f outbox.RowFilter) []choice {
	chosen := f.Status
	f.Status, f.Reverse, f.Cursor = "", false, ""
	all := []choice{{"any status", p.Links.Rows(f), chosen == ""}}
	for _, f.Status = range outbox.Statuses {
		all = append(all, choice{statusGlyph(f.Status) + " " + string(f.Status), p.Links.Rows(f), chosen == f.Status})
	}
	return all
}

// bulky reports whether a list has dead rows, or may have them on another page, which can be
// requeued in bulk.
func bulky(p Page, v RowsView) bool {
	if slices.ContainsFunc(v.Page.Items, func(r outbox.Row) bool { return r.Status == outbox.Dead }) {
		return true
	}
	whole := v.Page.NextCursor == nil && v.Page.PrevCursor == nil && !v.Page.Partial
	return !p.NoneDead && !whole && v.Filter.Status == ""
}

func bulkFilter(f outbox.RowFilter) outbox.RequeueFilter {
	return outbox.RequeueFilter{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
}

// attemptLine is the heading of one attempt in the history.
func attemptLine(a outbox.Attempt) string {
	s := "Attempt " + itoa(a.Attempt)
	if a.Worker != "" {
		s += " by " + a.Worker
	}
	if a.Build != "" {
		s += " (" + a.Build + ")"
	}
	return s
}

// EventTitle is the title of the browser tab.
func EventTitle(campaign string, seq int64) string { return "Event " + itoa(seq) + " of " + campaign }

func entityText(e outbox.EventLine) string {
	if e.EntityType == "" && e.EntityID == "" {
		return "–"
	}
	return Visible(e.EntityType + " " + e.EntityID)
}

func retryMeaning(p Page, r outbox.Row) string {
	was := "it is already due"
	if r.NextAttemptAt.After(p.Now) {
		was = "it was due to be retried " + relative(r.NextAttemptAt, p.Now)
	}
	return "Retry now makes it due at once; " + was + ". The " + count(int64(r.AttemptCount), "failure", "failures") + " so far still count."
}
