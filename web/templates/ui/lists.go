package ui

import (
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/request"
)

// exportOf is a whole list as a file: "csv" or "json".
func (l Links) exportOf(list, format string, query url.Values) URL {
	query.Del("cursor")
	query.Del("limit")
	query.Set("format", format)
	return l.at(query, "export", list)
}

// Choice is one filter of a list.
type Choice struct {
	Name   string
	To     URL
	Chosen bool
}

// PagerView is the navigation of a list. An empty link is not offered.
type PagerView struct {
	Shown             string // the number shown, of the total
	Note              string
	First, Prev, Next URL
	CSV, JSON         URL // the whole list
}

// PagerOf returns the navigation of a page that was read from a cursor; to makes the link to the
// page that the cursor is set to.
func PagerOf[T any](page event.Page[T], cursor *string, to func() URL) PagerView {
	read := *cursor
	defer func() { *cursor = read }()
	at := func(c string) URL {
		*cursor = c
		return to()
	}
	v := PagerView{Shown: shownOf(page)}
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
func shownOf[T any](page event.Page[T]) string {
	n := int64(len(page.Items))
	switch {
	case n == 0: // the list says so itself
		return ""
	case page.Total == nil, page.TotalCapped && *page.Total <= n:
		return Num(n) + " shown"
	case page.TotalCapped:
		return Num(n) + " of " + Num(*page.Total) + "+ shown"
	default:
		return Num(n) + " of " + Num(*page.Total) + " shown"
	}
}

// Filed is the navigation of a list that can be had as a file.
func (v PagerView) Filed(p Page, list string, filter any) PagerView {
	query := request.Values(filter)
	v.CSV, v.JSON = p.Links.exportOf(list, "csv", query), p.Links.exportOf(list, "json", query)
	return v
}

// ChoicesOf are links to a list with any value of a field of its filter, and with each that the field may have, by
// its look.
func ChoicesOf[F any, S ~string](f F, name, any string, look func(S) string, to func(F) URL) (all []Choice) {
	v, fields := reflect.ValueOf(&f).Elem(), request.Fields(reflect.TypeFor[F]())
	field := fields[slices.IndexFunc(fields, func(f reflect.StructField) bool { return request.Name(f) == name })]
	v.FieldByName("Cursor").SetString("")
	value := v.FieldByIndex(field.Index)
	chosen := value.String()
	for _, one := range append([]string{""}, request.Choices(field)...) {
		value.SetString(one)
		words := any
		if one != "" {
			words = strings.TrimSpace(look(S(one)) + " " + one)
		}
		all = append(all, Choice{words, to(f), chosen == one})
	}
	return all
}

// Option is one choice of a list.
type Option struct{ Value, Words string }
