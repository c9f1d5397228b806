package templates

import (
	"net/url"
	"slices"

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

// someDead reports whether a page of rows has dead ones.
func someDead(rows []outbox.Row) bool {
	return slices.ContainsFunc(rows, func(r outbox.Row) bool { return r.Status == outbox.Dead })
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

// pagerOf returns the navigation of a page that was read from a cursor; to makes the link to the
// page that the cursor is set to.
func pagerOf[T any](page outbox.Page[T], cursor *string, to func() URL) pagerView {
	read := *cursor
	defer func() { *cursor = read }()
	at := func(c string) URL {
		*cursor = c
		return to()
	}
	v := pagerView{Shown: shownOf(page)}
	if page.NextCursor != nil {
		v.Next = at(*page.NextCursor)
	}
	if page.PrevCursor != nil {
		v.Prev = at(*page.PrevCursor)
	}
	if read != "" {
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

// filed is the navigation of a list that can be had as a file.
func (v pagerView) filed(p Page, list string, filter any) pagerView {
	query := request.Values(filter)
	v.CSV, v.JSON = p.Links.exportOf(list, "csv", query), p.Links.exportOf(list, "json", query)
	return v
}

// sortable is one of the orders of campaigns: its own direction first, then the other.
func sortable(p Page, f outbox.CampaignFilter, by outbox.CampaignSort, own, other string) (o order) {
	chosen := f.Sort == by
	if chosen {
		o.Sorted = own
		if f.Reverse {
			o.Sorted = other
		}
	}
	f.Sort, f.Reverse, f.Cursor = by, chosen && !f.Reverse, ""
	o.To = p.Links.Campaigns(f)
	return o
}

// noRowFilter reports whether f selects all rows, in whatever order.
func noRowFilter(f outbox.RowFilter) bool { return f.OnlyStatus() && f.Status == "" }

// choicesOf are a filter's choices: any, and each of all, by its look if it has one. to makes the
// link to a choice.
func choicesOf[S ~string](any string, all []S, chosen S, looks func(S) string, to func(S) URL) []choice {
	list := []choice{{any, to(""), chosen == ""}}
	for _, one := range all {
		name := string(one)
		if looks != nil {
			name = looks(one) + " " + name
		}
		list = append(list, choice{name, to(one), chosen == one})
	}
	return list
}
