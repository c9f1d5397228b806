package store

import (
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"outboxweb/internal/outbox"
	"outboxweb/internal/sqldb"
)

// scanWindow is how many rows one step of a filtered list looks at, and
// scanWindows how many steps a page takes before it answers with what it has.
const (
	scanWindow  = 1000
	scanWindows = 5
)

// list is one way to walk through items in the order of a unique key. It is
// walked in both directions by the same query written both ways; nothing is
// ever skipped by counting, so that what is added or removed meanwhile moves
// no other item to another page.
type list[T any] struct {
	name  string // of the order and its direction; a cursor carries it
	query ways
	args  []any // after the key and before the limit
	low   []any // a key below all others; its types are those of the key
	high  []any // a key above all others
	scan  func(sqldb.Row) (T, error)
	key   func(T) []any
	match func(T) bool // nil when the query selects exactly what is wanted
	down  bool         // the list begins at the high end
}

// ways is a query in both directions. It takes the key to start after, further
// arguments, and a limit.
type ways struct{ up, down string }

// bothWays makes the two queries of one text, in which {>} and {>=} stand for
// the comparison with the key and {desc} follows each column of the order.
func bothWays(text string) ways {
	return ways{
		up:   strings.NewReplacer("{>}", ">", "{>=}", ">=", "{desc}", "").Replace(text),
		down: strings.NewReplacer("{>}", "<", "{>=}", "<=", "{desc}", " desc").Replace(text),
	}
}

// beyondTexts is above every campaign id.
var beyondTexts = strings.Repeat("\U0010FFFF", outbox.MaxIDLength/4+1)

const (
	farPast   = -1 << 62
	farFuture = 1 << 62
)

// place is where a page begins: after the key, or with back before it. Without
// a key it is the start of the list, or with back its end.
type place struct {
	back bool
	key  []any
}

// ending says why the reading of a page ended.
type ending int

const (
	atEnd  ending = iota // nothing is left
	full                 // there is more than the page holds
	enough               // as much was looked through as one page may
)

// stretch is what was read for a page, in the order of reading.
type stretch[T any] struct {
	items  []T
	looked []any // the key of the last item looked at; nil if there was none
	ending ending
}

// read reads from a place on until limit items match, or until enough was
// looked through.
func (l *list[T]) read(t *Tx, from place, limit int) (stretch[T], error) {
	s := stretch[T]{items: []T{}}
	query, key := l.direction(from)
	for range scanWindows {
		window := scanWindow
		if l.match == nil {
			window = limit + 1
		}
		count, err := l.window(t, &s, query, append(slices.Clone(key), append(slices.Clone(l.args), window)...), limit)
		if err != nil || s.ending == full {
			return s, err
		}
		if count < window {
			return s, nil
		}
		key = s.looked
	}
	s.ending = enough
	return s, nil
}

// window reads one step and returns how many items it looked at.
func (l *list[T]) window(t *Tx, s *stretch[T], query string, args []any, limit int) (count int, err error) {
	err = t.Each(func(rows sqldb.Row) error {
		item, err := l.scan(rows)
		if err != nil {
			return err
		}
		count++
		matches := l.match == nil || l.match(item)
		if matches && len(s.items) == limit {
			s.ending = full
			return sqldb.ErrEnough
		}
		s.looked = l.key(item)
		if matches {
			s.items = append(s.items, item)
		}
		return nil
	}, query, args...)
	return count, err
}

func (l *list[T]) direction(from place) (query string, key []any) {
	query, key = l.query.up, l.low
	if from.back != l.down {
		query, key = l.query.down, l.high
	}
	if from.key != nil {
		key = from.key
	}
	return query, key
}

// page reads the page at a place. Its cursors lead on from its first and last
// item; where it has none, from what was looked through, or from the other end
// of the list when nothing is left on this side.
func (l *list[T]) page(t *Tx, from place, limit int) (outbox.Page[T], error) {
	s, err := l.read(t, from, limit)
	if err != nil {
		return outbox.Page[T]{}, err
	}
	page := outbox.Page[T]{Items: s.items, Partial: s.ending == enough}
	var ahead, behind *string
	if s.ending != atEnd {
		ahead = l.cursor(place{back: from.back, key: s.looked})
	}
	if from.key != nil || from.back {
		turn := place{back: !from.back}
		if len(s.items) > 0 {
			turn.key = l.key(s.items[0])
		} else if s.ending == enough {
			turn.key = s.looked
		}
		behind = l.cursor(turn)
	}
	page.NextCursor, page.PrevCursor = ahead, behind
	if from.back {
		page.NextCursor, page.PrevCursor = behind, ahead
		slices.Reverse(page.Items)
	}
	return page, nil
}

// cursor packs a place into an opaque text.
func (l *list[T]) cursor(at place) *string {
	texts := []string{map[bool]string{false: ">", true: "<"}[at.back] + l.name}
	for _, part := range at.key {
		texts = append(texts, fmt.Sprint(part))
	}
	cursor := base64.RawURLEncoding.EncodeToString([]byte(strings.Join(texts, "\x00")))
	return &cursor
}

// at unpacks a cursor; the empty one is the start of the list. One that this
// list did not give is outbox.ErrInvalid.
func (l *list[T]) at(cursor string) (place, error) {
	if cursor == "" {
		return place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	parts := strings.Split(string(raw), "\x00")
	back := parts[0] == "<"+l.name
	if err != nil || !utf8.Valid(raw) || !back && parts[0] != ">"+l.name {
		return place{}, invalidCursor()
	}
	if parts = parts[1:]; len(parts) == 0 {
		return place{back: back}, nil
	}
	if len(parts) != len(l.low) {
		return place{}, invalidCursor()
	}
	key := make([]any, len(parts))
	for i, part := range parts {
		if _, text := l.low[i].(string); text {
			key[i] = part
		} else if key[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return place{}, invalidCursor()
		}
	}
	return place{back: back, key: key}, nil
}

func invalidCursor() error {
	return outbox.Invalid("cursor", "this cursor is not one of ours, or belongs to another order of the list; start again without it")
}

func readBounded[T any](ctx context.Context, d *Database, l *list[T], from place) (s stretch[T], err error) {
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	err = d.Read(ctx, func(t *Tx) (err error) {
		s, err = l.read(t, from, exportPage)
		return err
	})
	return s, err
}

// towards is the part of a list's name that tells at which end it begins.
func towards(down bool) string {
	if down {
		return "-"
	}
	return "+"
}

// When all of a list is wanted, so many items are read at a time, in at most so
// much of it.
const (
	exportPage = 500
	exportTime = 30 * time.Second
)

// inPages reads a whole list, page by page. A page with an error is the last.
func inPages[T any](ctx context.Context, d *Database, l *list[T], cursor string) iter.Seq2[[]T, error] {
	return func(yield func([]T, error) bool) {
		from, err := l.at(cursor)
		for err == nil {
			var s stretch[T]
			s, err = readBounded(ctx, d, l, from)
			if err == nil && (!yield(s.items, nil) || s.ending == atEnd) {
				return
			}
			from = place{back: from.back, key: s.looked}
		}
		yield(nil, err)
	}
}

const (
	// countMost is where counting ends: "1,000+" tells a person enough.
	countMost = 1000
	// countWindow is how many items are looked at to count those that match:
	// taking a text apart to look for a part of it costs some microseconds.
	countWindow = 2000
)

// countInto notes how many items match in all. The query says how many were
// looked at, of countWindow + 1, and how many of these match.
func countInto[T any](t *Tx, page *outbox.Page[T], query string, args ...any) error {
	var looked, matched int64
	if _, err := t.One([]any{&looked, &matched}, query, args...); err != nil {
		return err
	}
	page.TotalCapped = looked > countWindow || matched > countMost
	exactly(page, min(matched, countMost))
	return nil
}

// exactly notes how many items match in all. What counted them may be a moment
// older than the page.
func exactly[T any](page *outbox.Page[T], total int64) {
	total = max(total, int64(len(page.Items)))
	page.Total = &total
}

// told notes the total of a page that begins the list and either shows all
// there is, or is what much looking came to. It reports whether it did.
func told[T any](page *outbox.Page[T]) bool {
	if page.PrevCursor != nil || page.NextCursor != nil && !page.Partial {
		return false
	}
	page.TotalCapped = page.Partial
	exactly(page, 0)
	return true
}
