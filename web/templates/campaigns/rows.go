package campaigns

import (
	"slices"
	"strconv"

	"github.com/a-h/templ"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// rowMarks name the row of a list, with a revision that changes whenever its appearance does.
func rowMarks(r *campaign.Row) templ.OrderedAttributes {
	revision := strconv.FormatInt(r.UpdatedAt.UnixMicro(), 36) + string(r.Status)
	if r.IsHead {
		revision += "^"
	}
	return ui.Marks("id", "row-"+r.CampaignID+"-"+ui.Itoa(r.Seq), "data-rev", revision)
}

func statusChoices(p ui.Page, f campaign.RowFilter) []ui.Choice {
	f.Reverse = false
	return ui.ChoicesOf(f, "status", "any status", ui.StatusGlyph, p.Links.Rows)
}

func rowsForm(p ui.Page, f campaign.RowFilter, o ui.Offered) ui.FilterForm {
	clear := f != (campaign.RowFilter{Shown: f.Shown, Sort: f.Sort})
	if f.Sort == campaign.SortAttention { // the order of the page
		f.Sort = ""
	}
	return ui.FilterForm{Filter: f, To: p.Links.Rows(campaign.RowFilter{}), Does: "Filter", Clear: clear,
		Offers: map[string][]string{"event_type": o.Values.EventTypes, "fingerprint": o.Fingerprints}}
}

// bulky reports whether a list has dead rows, or may have them on another page, which can be
// requeued in bulk.
func bulky(p ui.Page, v RowsView) bool {
	whole := v.Page.NextCursor == nil && v.Page.PrevCursor == nil && !v.Page.Partial
	return someDead(v.Page.Items) || !p.NoneDead && !whole && v.Filter.Status == ""
}

func bulkFilter(f campaign.RowFilter) campaign.RequeueFilter {
	return campaign.RequeueFilter{CampaignID: f.CampaignID, EventType: f.EventType, Fingerprint: f.Fingerprint}
}

// attemptLine is the heading of one attempt in the history.
func attemptLine(a campaign.Attempt) string {
	s := "Attempt " + ui.Itoa(a.Attempt)
	if a.Worker != "" {
		s += " by " + a.Worker
	}
	if a.Build != "" {
		s += " (" + a.Build + ")"
	}
	return s
}

// EventTitle is the title of the browser tab.
func EventTitle(campaign string, seq int64) string {
	return "Event " + ui.Itoa(seq) + " of " + ui.ShortID(campaign)
}

func retryMeaning(p ui.Page, r campaign.Row) string {
	was := "it is already due"
	if r.NextAttemptAt.After(p.Now) {
		was = "it was due to be retried " + ui.Relative(r.NextAttemptAt, p.Now)
	}
	return "Retry now makes it due at once; " + was + ". The " + ui.Count(int64(r.AttemptCount), "failure", "failures") + " so far still count."
}

// someDead reports whether a page of rows has dead ones.
func someDead(rows []campaign.Row) bool {
	return slices.ContainsFunc(rows, func(r campaign.Row) bool { return r.Status == event.Dead })
}

// workTime estimates how long workers take for so many rows; empty if nothing was applied recently.
func workTime(p ui.Page, rows int64) string {
	if estimate := campaign.Estimate(rows, p.Around.Pace); estimate != "" {
		return ", " + estimate
	}
	return ""
}
