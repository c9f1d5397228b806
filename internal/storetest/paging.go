package storetest

import (
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// Pager reads one page of a list at a cursor, as keys.
type Pager func(cursor string) event.Page[string]

// Keyed converts a page of anything to one of keys.
func Keyed[T any](page event.Page[T], key func(T) string) event.Page[string] {
	keys := event.Page[string]{Items: []string{}, NextCursor: page.NextCursor, PrevCursor: page.PrevCursor,
		Total: page.Total, TotalCapped: page.TotalCapped, Partial: page.Partial}
	for _, item := range page.Items {
		keys.Items = append(keys.Items, key(item))
	}
	return keys
}

// Forward is the cursor of the next page.
func Forward(p event.Page[string]) *string { return p.NextCursor }

// Backward is the cursor of the previous page.
func Backward(p event.Page[string]) *string { return p.PrevCursor }

// Follow reads a page and all pages after it, and calls between after each.
func (read Pager) Follow(t *testing.T, page event.Page[string], way func(event.Page[string]) *string, between func()) []event.Page[string] {
	pages := []event.Page[string]{page}
	for way(page) != nil {
		must.Need(t, len(pages) <= 1000, "the pages never end")
		between()
		page = read(*way(page))
		pages = append(pages, page)
	}
	return pages
}

// All reads all pages of a list that does not change.
func (read Pager) All(t *testing.T) []event.Page[string] {
	return read.Follow(t, read(""), Forward, Idle)
}

// Idle is for walking through a list that does not change.
func Idle() {}

// Items are the items of all pages, in order.
func Items(pages []event.Page[string]) []string {
	all := []string{}
	for _, p := range pages {
		all = append(all, p.Items...)
	}
	return all
}

// BothWays fails unless walking back from a list's end visits the same items as walking to it.
func (read Pager) BothWays(t *testing.T, name string) []string {
	there := read.Follow(t, read(""), Forward, Idle)
	must.Hold(t, there[0].PrevCursor == nil, "%s: something comes before the first page", name)
	back := read.Follow(t, there[len(there)-1], Backward, Idle)
	slices.Reverse(back)
	must.Equal(t, Items(back), Items(there), name)
	for i, p := range there {
		if i > 0 && len(p.Items) > 0 && i < len(back) && len(there) == len(back) && !there[1].Partial {
			if got := read(*p.PrevCursor); !there[i-1].Partial && !slices.Equal(got.Items, there[i-1].Items) {
				t.Errorf("%s: back from page %d is %v, it was %v", name, i+1, got.Items, there[i-1].Items)
			}
		}
	}
	return Items(there)
}
