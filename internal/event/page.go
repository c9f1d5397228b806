package event

// Page is one page of a keyset-paged list.
type Page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor" redact:"-"` // nil on the last page
	PrevCursor *string `json:"prev_cursor" redact:"-"` // nil on the first page
	// number of matches on all pages; nil if unknown. It may be a second older than the items
	Total       *int64 `json:"total"`
	TotalCapped bool   `json:"total_capped"`      // total is where counting stopped; at least so many match
	Partial     bool   `json:"partial,omitempty"` // the search for one page stopped early; more may match further on
}

// Wording converts stored texts to what readers are shown, in which RowFilter.Q is searched: a
// reader who may not read a secret must not be able to guess it piece by piece. nil shows texts as
// stored. It is safe for concurrent use.
type Wording interface{ Text(stored string) string }
