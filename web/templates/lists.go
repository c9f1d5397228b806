package templates

import (
	"net/url"
	"strconv"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/request"
)

// exportOf is a whole list as a file: "csv" or "json".
func (l Links) exportOf(list, format string, query url.Values) URL {
	query.Del("cursor")
	query.Del("limit")
	query.Set("format", format)
	return l.at(query, "export", list)
}

// ExportRows is the file of all rows that match f; format is "csv" or "json".
func (l Links) ExportRows(f outbox.RowFilter, format string) URL {
	return l.exportOf("rows", format, request.Values(f))
}

// ExportCampaigns is the file of all campaigns that match f.
func (l Links) ExportCampaigns(f outbox.CampaignFilter, format string) URL {
	return l.exportOf("campaigns", format, request.Values(f))
}

// ExportAudit is the file of all actions that match f.
func (l Links) ExportAudit(f outbox.AuditFilter, format string) URL {
	return l.exportOf("audit", format, request.Values(f))
}

// rowRevision changes whenever a row's appearance in a list changes.
func rowRevision(r outbox.Row) string {
	revision := strconv.FormatInt(r.UpdatedAt.UnixMicro(), 36) + string(r.Status)
	if r.IsHead {
		revision += "^"
	}
	return revision
}

// choosable reports whether a page of rows has selectable ones.
func choosable(p Page, rows []outbox.Row) bool {
	for _, r := range rows {
		if r.Status == outbox.Dead {
			return p.Offers(outbox.ActionOperationStart)
		}
	}
	return false
}

// choice is one filter of a list.
type choice struct {
	name   string
	to     URL
	chosen bool
}

// pagerView is the navigation of a list. An empty link is not offered.
type pagerView struct {
	Shown             string // the number shown, of the total
	Note              string
	First, Prev, Next URL
	CSV, JSON         URL // the whole list
}

// pagerOf returns the navigation of a page that was read from a cursor; at makes the link to
// another.
func pagerOf[T any](page outbox.Page[T], cursor string, at func(cursor string) URL) pagerView {
	v := pagerView{Shown: shownOf(page)}
	if page.NextCursor != nil {
		v.Next = at(*page.NextCursor)
	}
	if page.PrevCursor != nil {
		v.Prev = at(*page.PrevCursor)
	}
	if cursor != "" {
		v.First = at("")
	}
	switch {
	case page.Partial && len(page.Items) == 0:
		v.Shown = "scan limit reached; more may match further on"
	case page.Partial:
		v.Note = "scan limit reached; more may match further on"
	case page.NextCursor == nil && len(page.Items) > 0:
		v.Note = "the end"
	}
	return v
}

// shownOf says "50 of 1,000+ shown"; empty for an empty page.
func shownOf[T any](page outbox.Page[T]) string {
	n := int64(len(page.Items))
	switch {
	case n == 0: // the list says so itself
		return ""
	case page.Total == nil, page.TotalCapped && *page.Total <= n:
		return num(n) + " shown"
	case page.TotalCapped:
		return num(n) + " of " + num(*page.Total) + "+ shown"
	default:
		return num(n) + " of " + num(*page.Total) + " shown"
	}
}

// heading is the heading of a column. One with a link can be sorted by; Sorted is its direction:
// "ascending", "descending", or empty.
type heading struct {
	Name   string
	Class  string
	To     URL
	Sorted string
}

func (h heading) glyph() string {
	switch h.Sorted {
	case "ascending":
		return "▲"
	case "descending":
		return "▼"
	}
	return "⇅"
}

// sortable makes a heading sort by one of the orders of campaigns: its own direction first, then
// the other.
func sortable(p Page, f outbox.CampaignFilter, h heading, by outbox.CampaignSort, own, other string) heading {
	chosen := f.Sort == by
	if chosen {
		h.Sorted = own
		if f.Reverse {
			h.Sorted = other
		}
	}
	f.Sort, f.Reverse, f.Cursor = by, chosen && !f.Reverse, ""
	h.To = p.Links.Campaigns(f)
	return h
}

func rowsPager(p Page, v RowsView) pagerView {
	view := pagerOf(v.Page, v.Filter.Cursor, func(cursor string) URL {
		v.Filter.Cursor = cursor
		return p.Links.Rows(v.Filter)
	})
	view.CSV, view.JSON = p.Links.ExportRows(v.Filter, "csv"), p.Links.ExportRows(v.Filter, "json")
	return view
}

func campaignsPager(p Page, v CampaignsView) pagerView {
	view := pagerOf(v.Page, v.Filter.Cursor, func(cursor string) URL {
		v.Filter.Cursor = cursor
		return p.Links.Campaigns(v.Filter)
	})
	view.CSV, view.JSON = p.Links.ExportCampaigns(v.Filter, "csv"), p.Links.ExportCampaigns(v.Filter, "json")
	return view
}

func auditPager(p Page, v AuditView) pagerView {
	view := pagerOf(v.Page, v.Filter.Cursor, func(cursor string) URL {
		v.Filter.Cursor = cursor
		return p.Links.Audit(v.Filter)
	})
	view.CSV, view.JSON = p.Links.ExportAudit(v.Filter, "csv"), p.Links.ExportAudit(v.Filter, "json")
	return view
}

// noRowFilter reports whether f selects all rows, in whatever order.
func noRowFilter(f outbox.RowFilter) bool { return f.OnlyStatus() && f.Status == "" }

// auditHeadings are the column headings of actions; a filter makes the first one sortable.
func auditHeadings(p Page, f *outbox.AuditFilter) []heading {
	when := heading{Name: "When"}
	if f != nil {
		turned := *f
		turned.Reverse, turned.Cursor = !f.Reverse, ""
		when.To, when.Sorted = p.Links.Audit(turned), "descending"
		if f.Reverse {
			when.Sorted = "ascending"
		}
	}
	return []heading{when, {Name: "Who"}, {Name: "Outcome"}, {Name: "What"}, {Name: "Reason"}, {Name: "Request"}}
}
