package templates

import (
	"strconv"

	"github.com/a-h/templ"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// rowMarks name the row of a list, with a revision that changes whenever its appearance does.
func rowMarks(r *outbox.Row) templ.OrderedAttributes {
	revision := strconv.FormatInt(r.UpdatedAt.UnixMicro(), 36) + string(r.Status)
	if r.IsHead {
		revision += "^"
	}
	return marks("id", "row-"+r.CampaignID+"-"+itoa(r.Seq), "data-rev", revision)
}

func statusChoices(p Page, f outbox.RowFilter) []choice {
	f.Reverse, f.Cursor = false, ""
	return choicesOf("any status", outbox.Statuses, f.Status, statusGlyph, func(s outbox.Status) URL {
		f.Status = s
		return p.Links.Rows(f)
	})
}

// bulky reports whether a list has dead rows, or may have them on another page, which can be
// requeued in bulk.
func bulky(p Page, v RowsView) bool {
	whole := v.Page.NextCursor == nil && v.Page.PrevCursor == nil && !v.Page.Partial
	return someDead(v.Page.Items) || !p.NoneDead && !whole && v.Filter.Status == ""
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
