package sqldb

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
)

// scanWindow is how many rows one step of a filtered list scans, and scanWindows how many steps
// a page takes before it returns what it has.
const (
	scanWindow  = 1000
	scanWindows = 5
)

// Reader is a transaction that lists are read in.
type Reader interface {
	Each(scan func(Row) error, query string, args ...any) error
	One(dest []any, query string, args ...any) (bool, error)
}

// Apart reads the different values of columns that an index begins with, none of them empty, in order and at
// most limit. The query selects the first values after $1, $2, …; each costs one step in the index, however
// many rows have it.
func Apart(t Reader, columns, limit int, query string) (all [][]string, err error) {
	after := make([]string, columns)
	for found := true; err == nil && len(all) < limit; {
		next, dest, args := make([]string, columns), make([]any, columns), make([]any, columns)
		for i := range next {
			dest[i], args[i] = &next[i], after[i]
		}
		if found, err = t.One(dest, query, args...); !found {
			break
		}
		all, after = append(all, next), next
	}
	return all, err
}

// List walks through items in the order of a unique key. Both directions use the same query
// written both ways. It never skips by counting, so that items added or removed meanwhile move
// no other item to another page.
type List[T any] struct {
	Name  string // of the order and its direction; part of a cursor
	Query Ways   // none where Rest has all
	Args  []any  // after the key and before the limit
	Low   []any  // a key below all others, with the same types
	High  []any  // a key above all others
	Scan  func(Row) (T, error)
	Key   func(T) []any
	Match func(T) bool // nil when the query selects exactly the wanted items
	Down  bool         // the list begins at the high end
	Rest  []Rest       // the items that the query does not read, since no index has them
	// Windows is how many steps a page takes before it returns what it has, and Time how long; 0 means
	// the default, and no limit.
	Windows int
	Time    time.Duration
}

// Rest are items of a list whose key is a number and a text: those that have a number, or a higher one, and a text
// between two. They come after all that other queries read.
type Rest struct {
	Query    Ways
	At       int64
	From, To string
}

// Newest is a list by a growing id, the newest first.
func Newest[T any](name string, query Ways, scan func(Row) (T, error), id func(T) int64, args ...any) *List[T] {
	return &List[T]{
		Name: name, Query: query, Args: args, Scan: scan, Down: true, Low: []any{int64(0)}, High: []any{int64(FarFuture)},
		Key: func(item T) []any { return []any{id(item)} },
	}
}

// Ways is a query in both directions. Its parameters are the key to start after, further
// arguments, and a limit.
type Ways struct {
	Up, Down string
	// Edge reads the key of the last item that the query looked at, if it selects among so many at a time, and
	// nothing if there were fewer. It has the parameters of the query. The key is a number and a text.
	Edge *Ways
}

// BothWays makes the two queries from one text, in which {>} and {>=} are the comparison with
// the key and {desc} follows each column of the order.
func BothWays(text string) Ways {
	return Ways{
		Up:   strings.NewReplacer("{>}", ">", "{>=}", ">=", "{desc}", "").Replace(text),
		Down: strings.NewReplacer("{>}", "<", "{>=}", "<=", "{desc}", " desc").Replace(text),
	}
}

// way is the query in one direction.
func (w *Ways) way(down bool) string {
	if down {
		return w.Down
	}
	return w.Up
}

// BeyondTexts is above every campaign id.
var BeyondTexts = strings.Repeat("\U0010FFFF", event.MaxIDLength/4+1)

const (
	FarPast   = -1 << 62
	FarFuture = 1 << 62
)

// Place is where a page begins: after the key, or before it if back is set. Without a key it is
// the start of the list, or its end if back is set.
type Place struct {
	Back bool
	Key  []any
}

// Ending is the reason why reading a page ended.
type Ending int

const (
	AtEnd  Ending = iota // nothing is left
	Full                 // there is more than fits on the page
	Enough               // the scan limit of a page was reached
)

// Stretch is the items read for a page, in the order of reading.
type Stretch[T any] struct {
	Items  []T
	Looked []any // key of the last scanned item; nil if there was none
	Ending Ending
}

// Read reads from a place until limit items match or the scan limit is reached.
func (l *List[T]) Read(t Reader, from Place, limit int) (Stretch[T], error) {
	s := Stretch[T]{Items: []T{}}
	down, walks := from.Back != l.Down, l.walks(from)
	began := time.Now()
	for left := cmp.Or(l.Windows, scanWindows); left > 0; left-- {
		w := &walks[0]
		window := scanWindow
		if l.Match == nil {
			window = limit + 1
		}
		args := slices.Concat(w.key, l.Args, []any{window})
		count, err := l.window(t, &s, w.way(down), args, limit)
		if err != nil || s.Ending == Full {
			return s, err
		}
		more := count == window
		if !more && w.Edge != nil {
			if more, err = l.edge(t, &s, w.Edge.way(down), args); err != nil {
				return s, err
			}
		}
		if more {
			w.key = s.Looked
		} else if walks = walks[1:]; len(walks) == 0 {
			return s, nil
		} else {
			left++
		}
		if l.Time > 0 && time.Since(began) > l.Time {
			break
		}
	}
	s.Looked, s.Ending = walks[0].key, Enough
	return s, nil
}

// edge reads the key of the last item that a step looked at, and reports whether there may be more.
func (l *List[T]) edge(t Reader, s *Stretch[T], query string, args []any) (more bool, err error) {
	var number int64
	var text string
	if more, err = t.One([]any{&number, &text}, query, args...); more {
		s.Looked = []any{number, text}
	}
	return more, err
}

// window reads one step and returns how many items it scanned.
func (l *List[T]) window(t Reader, s *Stretch[T], query string, args []any, limit int) (count int, err error) {
	err = t.Each(func(rows Row) error {
		item, err := l.Scan(rows)
		if err != nil {
			return err
		}
		count++
		matches := l.Match == nil || l.Match(item)
		if matches && len(s.Items) == limit {
			s.Ending = Full
			return ErrEnough
		}
		s.Looked = l.Key(item)
		if matches {
			s.Items = append(s.Items, item)
		}
		return nil
	}, query, args...)
	return count, err
}

// walk is one query of a list, and the key that it begins after.
type walk struct {
	Ways
	key []any
}

// walks are the queries that read a list from a place on.
func (l *List[T]) walks(from Place) (all []walk) {
	down, at := from.Back != l.Down, 0
	begin := func(low, high []any) []any {
		if down {
			return high
		}
		return low
	}
	if high := l.High; l.Query.Up != "" {
		if len(l.Rest) > 0 {
			high = append([]any{l.Rest[0].At - 1}, high[1:]...)
		}
		all = append(all, walk{l.Query, begin(l.Low, high)})
	}
	for i, rest := range l.Rest {
		last := l.High[0]
		if i+1 < len(l.Rest) {
			last = l.Rest[i+1].At - 1
		}
		if from.Key != nil && from.Key[0].(int64) >= rest.At {
			at = len(all)
		}
		all = append(all, walk{rest.Query, begin([]any{rest.At, rest.From}, []any{last, rest.To})})
	}
	if from.Key != nil {
		all[at].key = from.Key
	} else if down {
		at = len(all) - 1
	}
	if down {
		all = all[:at+1]
		slices.Reverse(all)
		return all
	}
	return all[at:]
}

// Page reads the page at a cursor, with the asked number of items; see At and PageLimit. Its
// cursors continue from its first and last item. A page without items continues from the last
// scanned key, or from the other end of the list when nothing is left on this side.
func (l *List[T]) Page(t Reader, cursor string, asked int) (event.Page[T], error) {
	from, err := l.At(cursor)
	if err != nil {
		return event.Page[T]{}, err
	}
	s, err := l.Read(t, from, PageLimit(asked, event.MaxPage))
	if err != nil {
		return event.Page[T]{}, err
	}
	return l.PageOf(from, s), nil
}

// PageOf is the page with the items that were read from a place.
func (l *List[T]) PageOf(from Place, s Stretch[T]) event.Page[T] {
	page := event.Page[T]{Items: s.Items, Partial: s.Ending == Enough}
	var ahead, behind *string
	if s.Ending != AtEnd {
		ahead = l.cursor(Place{Back: from.Back, Key: s.Looked})
	}
	if from.Key != nil || from.Back {
		turn := Place{Back: !from.Back}
		if len(s.Items) > 0 {
			turn.Key = l.Key(s.Items[0])
		} else if s.Ending == Enough {
			turn.Key = s.Looked
		}
		behind = l.cursor(turn)
	}
	page.NextCursor, page.PrevCursor = ahead, behind
	if from.Back {
		page.NextCursor, page.PrevCursor = behind, ahead
		slices.Reverse(page.Items)
	}
	return page
}

// Among is Page of items in memory, all of them in the order of the list, whose key is one text. It
// changes their order.
func (l *List[T]) Among(all []T, cursor string, asked int) (event.Page[T], error) {
	from, err := l.At(cursor)
	if err != nil {
		return event.Page[T]{}, err
	}
	total, key := int64(len(all)), func(item T) string { return l.Key(item)[0].(string) }
	if from.Back {
		slices.Reverse(all)
	}
	if from.Key != nil {
		at := from.Key[0].(string)
		all = slices.DeleteFunc(all, func(item T) bool { return key(item) == at || (key(item) < at) != from.Back })
	}
	s := Stretch[T]{Items: all}
	if limit := PageLimit(asked, event.MaxPage); len(all) > limit {
		s = Stretch[T]{Items: all[:limit], Looked: l.Key(all[limit-1]), Ending: Full}
	}
	page := l.PageOf(from, s)
	page.Total = &total
	return page, nil
}

// cursor encodes a place as an opaque text.
func (l *List[T]) cursor(at Place) *string {
	texts := []string{map[bool]string{false: ">", true: "<"}[at.Back] + l.Name}
	for _, part := range at.Key {
		texts = append(texts, fmt.Sprint(part))
	}
	return new(base64.RawURLEncoding.EncodeToString([]byte(strings.Join(texts, "\x00"))))
}

// At decodes a cursor; the empty one is the start of the list. A cursor of another list is
// event.ErrInvalid.
func (l *List[T]) At(cursor string) (Place, error) {
	if cursor == "" {
		return Place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(raw), "\x00")
	back := parts[0] == "<"+l.Name
	if err != nil || !utf8.Valid(raw) || !back && parts[0] != ">"+l.Name {
		return Place{}, invalidCursor()
	}
	if parts = parts[1:]; len(parts) == 0 {
		return Place{Back: back}, nil
	}
	if len(parts) != len(l.Low) {
		return Place{}, invalidCursor()
	}
	key := make([]any, len(parts))
	for i, part := range parts {
		if _, text := l.Low[i].(string); text {
			key[i] = part
		} else if key[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return Place{}, invalidCursor()
		}
	}
	return Place{Back: back, Key: key}, nil
}

func invalidCursor() error {
	return event.Invalid("cursor", "this cursor is not valid for this list and order; start again without it")
}

func readBounded[T any](ctx context.Context, d *DB, l *List[T], from Place) (Stretch[T], error) {
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	return Reading(ctx, d, "", func(t *Tx) (Stretch[T], error) { return l.Read(t, from, exportPage) })
}

// Towards is the part of a list's name that says at which end it begins.
func Towards(down bool) string {
	if down {
		return "-"
	}
	return "+"
}

// Page size and scan limit when all of a list is read.
const (
	exportPage = 500
	exportTime = 30 * time.Second
)

// InPages reads a whole list, page by page. A page with an error is the last.
func InPages[T any](ctx context.Context, d *DB, l *List[T], cursor string) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		from, err := l.At(cursor)
		for err == nil {
			var s Stretch[T]
			s, err = readBounded(ctx, d, l, from)
			if err == nil && (!yield(s.Items, nil) || s.Ending == AtEnd) {
				return
			}
			from = Place{Back: from.Back, Key: s.Looked}
		}
		yield(nil, err)
	}
}

const (
	// CountMost is where counting ends: "1,000+" is precise enough for a reader.
	CountMost = 1000
	// CountWindow is how many items are scanned to count the matching ones, since a substring
	// search costs some microseconds per item.
	CountWindow = 2000
)

// Exactly sets the page's exact total. The count may be a moment older than the page.
func Exactly[T any](page *event.Page[T], total int64) {
	total = max(total, int64(len(page.Items)))
	page.Total = &total
}

// Told sets the total of a page that begins the list and either shows all of it or reached the
// scan limit. It reports whether it did.
func Told[T any](page *event.Page[T]) bool {
	if page.PrevCursor != nil || page.NextCursor != nil && !page.Partial {
		return false
	}
	page.TotalCapped = page.Partial
	Exactly(page, 0)
	return true
}

// PageLimit is the number of items on a page: asked, at most most, and 50 by default.
func PageLimit(asked, most int) int {
	if asked <= 0 {
		return min(event.DefaultPage, most)
	}
	return min(asked, most)
}
