package search

import (
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Limits of views.
const (
	MaxViews     = 50   // views of one owner
	MaxViewName  = 100  // bytes of a name
	MaxViewQuery = 2000 // bytes of a query
)

// ViewedLists are the lists that views may be of, by the path of their page.
var ViewedLists = []string{"events", "rows", "campaigns", "runs", "operations", "audit"}

// View is a filtered list with a name. Keeping one is no action on the system: it is not
// audited, and every reader may.
type View struct {
	ID        int64
	List      string `redact:"-"` // one of ViewedLists
	Name      string `redact:"-"`
	Query     string `redact:"-"` // of the page's address, without the place in the list
	CreatedAt time.Time
}

// CheckView returns ErrInvalid for a view that cannot be kept, and the view as it is kept.
func CheckView(v View) (View, error) {
	v.Name = strings.TrimSpace(v.Name)
	query, err := url.ParseQuery(v.Query)
	_, unseen := event.UnseenIn(v.Name)
	switch {
	case !slices.Contains(ViewedLists, v.List):
		return v, event.Invalid("list", "list cannot be %q; use %s", v.List, event.OrList(ViewedLists))
	case v.Name == "":
		return v, event.Invalid("name", "a view needs a name")
	case len(v.Name) > MaxViewName || !utf8.ValidString(v.Name) || unseen:
		return v, event.Invalid("name", "a view's name is a line of at most %d bytes without characters that cannot be seen", MaxViewName)
	case err != nil || !utf8.ValidString(v.Query) || strings.Contains(v.Query, "\x00") || strings.Contains(v.Query, "%00"):
		return v, event.Invalid("query", "the view's query is malformed")
	}
	for _, place := range []string{"cursor", "limit", "act"} {
		query.Del(place)
	}
	if v.Query = query.Encode(); len(v.Query) > MaxViewQuery {
		return v, event.Invalid("query", "the filters are %d bytes long; the limit for a view is %d", len(v.Query), MaxViewQuery)
	}
	return v, nil
}
