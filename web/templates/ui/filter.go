package ui

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/request"
)

// FilterForm asks for the filter of a list. It has an input for each field of the filter with the tag label;
// the tag hint says what to type. Others that are set stay as they are.
type FilterForm struct {
	Filter any
	To     URL                 // the whole list
	Name   string              // of the form, where a page has several
	Does   string              // the words of its button
	Clear  bool                // offers the whole list
	First  []string            // the fields that come first; the others follow in the order of the source
	Always int                 // how many always show, the others once opened or used; 0 for all
	Words  map[string][]Option // the choices of fields whose values are no words for people
	Offers map[string][]string // values that there are, of fields that may have others
}

// filterInput is the input for one field.
type filterInput struct {
	name, label, hint, value string
	choices                  []Option // nil for any text
	offered                  []string
}

// id is the input's in the page, such as "f-entity" of entity_id.
func (i filterInput) id() string {
	return "f-" + strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(i.name, "event_"), "_id"), "_", "-")
}

// parts are the fields that stay as they are, the inputs that always show, and the rarer ones.
func (f FilterForm) parts() (kept []NamedText, always, more []filterInput) {
	values, ofPage := request.Values(f.Filter), []string{"cursor", "limit", "settled"}
	for _, field := range request.Fields(reflect.TypeOf(f.Filter)) {
		name, label := request.Name(field), field.Tag.Get("label")
		if label != "" {
			always = append(always, filterInput{name, label, field.Tag.Get("hint"), values.Get(name), f.choices(field), f.Offers[name]})
		} else if values.Has(name) && !slices.Contains(ofPage, name) {
			kept = append(kept, NamedText{name, values.Get(name)})
		}
	}
	place := func(i filterInput) uint { return uint(slices.Index(f.First, i.name)) } // without one it is far behind
	slices.SortStableFunc(always, func(a, b filterInput) int { return cmp.Compare(place(a), place(b)) })
	n := cmp.Or(f.Always, len(always))
	return kept, always[:n], always[n:]
}

// choices are those of a field; any, unless it has a default. They are nil if it may have other values.
func (f FilterForm) choices(field reflect.StructField) []Option {
	all := slices.Clone(f.Words[request.Name(field)])
	for _, word := range request.Choices(field) {
		if len(f.Words[request.Name(field)]) == 0 {
			all = append(all, Option{word, word})
		}
	}
	if len(all) > 0 && !strings.HasPrefix(field.Tag.Get("api"), "default=") {
		all = slices.Insert(all, 0, Option{"", "any"})
	}
	return all
}

// WholeList reports whether a filter selects all items, but for some fields, in whatever order.
func WholeList(filter any, but ...string) bool {
	values := request.Values(filter)
	for _, name := range append(but, "sort", "reverse", "cursor", "limit") {
		values.Del(name)
	}
	return len(values) == 0
}
