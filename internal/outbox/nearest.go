package outbox

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Miss is a value that an empty search named, and that nothing in the journal has.
type Miss struct {
	Field   string   `redact:"-"` // the parameter of the filter, such as event_type
	Value   string   `redact:"-"` // as it was typed
	Nearest []string `redact:"-"` // values that exist and are like it, the nearest first
	// Text: the value is the text of the search, which need not be such an id.
	Text bool
}

// missed say which value does not exist; liked say what is like a text.
var (
	missed = map[string]string{"event_type": "no event has the type", "campaign": "there is no campaign", "event_id": "no event has the id",
		"entity_id": "no event has the entity id", "request_id": "no event has the request id"}
	liked = map[string]string{"event_type": "event types like this text", "campaign": "campaigns like this text"}
)

// Sentence says what does not exist, and is followed by the nearest values if there are any.
func (m Miss) Sentence() string {
	switch {
	case m.Text:
		return liked[m.Field]
	case len(m.Nearest) > 0:
		return missed[m.Field] + " " + m.Value + "; similar"
	}
	return missed[m.Field] + " " + m.Value
}

const (
	nearestShown = 5
	nearestRunes = 100 // longer texts are not compared letter by letter
	unlike       = 10  // how far apart two texts are that are not like each other
)

// NearestTo returns the candidates that are like a text that a person typed: in other capitals,
// beginning with it (a * at its end is left out), or with a few other letters. The nearest are first;
// what is much further away than they are is left out.
func NearestTo(text string, candidates []string) []string {
	wanted := strings.ToLower(WithoutWildcard(text))
	apart := make(map[string]int, len(candidates))
	var near []string
	for _, c := range candidates {
		if apart[c] = lettersApart(wanted, strings.ToLower(c)); apart[c] < unlike {
			near = append(near, c)
		}
	}
	slices.SortFunc(near, func(a, b string) int { return cmp.Or(cmp.Compare(apart[a], apart[b]), cmp.Compare(a, b)) })
	near = slices.Compact(near)
	near = slices.DeleteFunc(near, func(c string) bool { return apart[c] > 2*apart[near[0]] })
	return near[:min(len(near), nearestShown)]
}

// WithoutWildcard is a text without the wildcard at its end.
func WithoutWildcard(text string) string { return strings.TrimRight(text, "*%") }

// lettersApart is how far apart two texts are: 0 for the same, unlike for different ones.
func lettersApart(wanted, other string) int {
	a, b := []rune(wanted), []rune(other)
	most := min(3, max(1, len(a)/3))
	switch {
	case wanted == "":
		return unlike
	case wanted == other:
		return 0
	case max(len(a), len(b)) <= nearestRunes && max(len(a), len(b))-min(len(a), len(b)) <= most:
		if n := editDistance(a, b); n <= most {
			return n
		}
	}
	if strings.HasPrefix(other, wanted) || len(a) >= 3 && strings.Contains(other, wanted) || utf8.RuneCountInString(other) >= 3 && strings.HasPrefix(wanted, other) {
		return most + 1
	}
	return unlike
}

// editDistance is the number of letters to insert, delete or replace (Levenshtein).
func editDistance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
