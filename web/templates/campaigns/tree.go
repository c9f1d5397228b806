package campaigns

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// Limits on one fragment of a tree. A document has no limit: it is scanned as text and never
// decoded, so that numbers keep every digit and keys their order, and each byte is read a few times
// at most.
const (
	InlineDocument = 64 << 10 // bytes; a longer document is shown only on request

	treeNodes   = 200     // values in one fragment
	treeMembers = 100     // members of one object or array
	treeOpen    = 60      // values up to which an object or array is expanded at first
	treeDepth   = 12      // levels of one fragment
	treeWalk    = 1 << 20 // bytes up to which an object or array within another's member is scanned
	treeText    = 2000    // characters of a string or number
	treeKey     = 200     // characters of a key
	treePointer = 2000    // bytes of a pointer in a link
)

// errNotJSON is the error of scanning a damaged document.
var errNotJSON = errors.New("the document is not JSON")

// NoPlace is a JSON pointer that does not resolve in a document.
type NoPlace struct{ Pointer string }

func (e *NoPlace) Error() string { return fmt.Sprintf("there is nothing at %q", e.Pointer) }

// node is one value of a document as a fragment shows it.
type node struct {
	Key     string // quoted, as stored; the index in an array; empty at the root
	Kind    byte   // the first byte of the value
	Text    string // of a value without members, as stored
	Rest    int    // how many characters are not shown, of Text and of what is left out
	Pointer string // where the value is
	Total   int    // members
	From    int    // the index of the first member shown
	Members []node
	Open    bool
}

// reachable reports whether the node's pointer fits into a link.
func (n node) reachable() bool { return len(n.Pointer) <= treePointer }

// Shown reports whether any of the node's members are shown, or it has none.
func (n node) Shown() bool { return len(n.Members) > 0 || n.Total == 0 }

// Next is the index of the first member not shown; 0 if the last one is shown.
func (n node) Next() int {
	if next := n.From + len(n.Members); next < n.Total && len(n.Members) > 0 {
		return next
	}
	return 0
}

// Tree is a part of a JSON document, prepared for display.
type Tree struct {
	root node
	from int // above 0 only the members from here on are shown
}

// ReadTree resolves a JSON pointer in a document and returns what a fragment shows of it: the value
// there, or its members from an index on. If an object has a key more than once, `~#2` after the
// key in the pointer means the second. A pointer that does not resolve is a *NoPlace.
func ReadTree(document, pointer string, from int) (Tree, error) {
	w := &walk{text: document}
	at, key, found := w.find(pointer)
	if !found {
		return Tree{}, &NoPlace{pointer}
	}
	root := node{Pointer: pointer}
	root.Key, _ = shownText(key, treeKey)
	left := treeNodes
	if e := w.measure(at); !w.damaged {
		w.fill(&root, at, e, from, 0, &left)
	}
	if w.damaged {
		return Tree{}, errNotJSON
	}
	if from > 0 && from >= root.Total {
		return Tree{}, &NoPlace{pointer + "/" + strconv.Itoa(from)}
	}
	root.Open = true
	return Tree{root, from}, nil
}

// walk scans a JSON text. Positions are byte offsets; that of what is missing from a damaged text is its
// end.
type walk struct {
	text    string
	damaged bool // the text is not JSON
}

// extent is a value's end and size.
type extent struct {
	end     int
	members int // of an object or array
	values  int // of all levels, including itself
}

func (w *walk) damage() (end int) {
	w.damaged = true
	return len(w.text)
}

// at is the byte at a position; 0 at the end.
func (w *walk) at(i int) byte {
	if i < len(w.text) {
		return w.text[i]
	}
	return 0
}

func (w *walk) space(i int) int {
	for w.at(i) == ' ' || w.at(i) == '\n' || w.at(i) == '\t' || w.at(i) == '\r' {
		i++
	}
	return i
}

// stringEnd is the position after a string that begins at i.
func (w *walk) stringEnd(i int) int {
	for {
		quote := strings.IndexByte(w.text[i+1:], '"')
		if quote < 0 {
			return w.damage()
		}
		i += 1 + quote
		escapes := 0
		for w.text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// measure scans a value from its first byte to its last.
func (w *walk) measure(i int) extent {
	switch w.at(i) {
	case '{', '[':
		return w.measureMembers(i)
	case '"':
		return extent{end: w.stringEnd(i), values: 1}
	}
	end := i
	for end < len(w.text) && !strings.ContainsRune(",:{}[]\" \n\t\r", rune(w.text[end])) {
		end++
	}
	if end == i {
		end = w.damage()
	}
	return extent{end: end, values: 1}
}

func (w *walk) measureMembers(i int) extent {
	e, depth := extent{values: 1}, 0
	for i < len(w.text) {
		switch w.text[i] {
		case '"':
			i = w.stringEnd(i)
			continue
		case '{', '[':
			depth++
			if next := w.at(w.space(i + 1)); next != '}' && next != ']' {
				e.count(depth)
			}
		case ',':
			e.count(depth)
		case '}', ']':
			if depth--; depth == 0 {
				e.end = i + 1
				return e
			}
		}
		i++
	}
	e.end = w.damage()
	return e
}

func (e *extent) count(depth int) {
	e.values++
	if depth == 1 {
		e.members++
	}
}

// member is one member of an object or array.
type member struct {
	key string // as stored, with its quotes; empty in an array
	at  int    // where the value begins
	extent
}

// members calls see for each member of the object or array at i, until see returns false or the text is
// damaged.
func (w *walk) members(i int, see func(index int, m member) bool) {
	object := w.text[i] == '{'
	i = w.space(i + 1)
	for index := 0; w.at(i) != '}' && w.at(i) != ']'; index++ {
		var m member
		if object {
			if w.at(i) != '"' {
				w.damage()
				return
			}
			end := w.stringEnd(i)
			m.key = w.text[i:end]
			if i = w.space(end); w.at(i) != ':' {
				w.damage()
				return
			}
			i = w.space(i + 1)
		}
		m.at, m.extent = i, w.measure(i)
		if w.damaged || !see(index, m) {
			return
		}
		if i = w.space(m.end); w.at(i) == ',' {
			i = w.space(i + 1)
		}
	}
}

// find follows a pointer to a value, and returns its start and its key.
func (w *walk) find(pointer string) (at int, key string, found bool) {
	at = w.space(0)
	if pointer == "" {
		return at, "", true
	}
	first, rest, _ := strings.Cut(pointer, "/")
	found = first == ""
	for part := range strings.SplitSeq(rest, "/") {
		if found {
			at, key, found = w.step(at, part)
		}
	}
	return at, key, found
}

// step returns the member of an object or array that one part of a pointer names.
func (w *walk) step(at int, part string) (to int, key string, found bool) {
	array := w.at(at) == '['
	if !array && w.at(at) != '{' {
		return 0, "", false
	}
	name, which := readPart(part)
	w.members(at, func(index int, m member) bool {
		switch {
		case array:
			key = strconv.Itoa(index)
			found = key == part
		case decodeKey(m.key) == name:
			which--
			key, found = m.key, which == 0
		}
		to = m.at
		return !found
	})
	return to, key, found
}

// readPart parses one part of a pointer: a key, and its occurrence among equal keys.
func readPart(part string) (name string, which int) {
	which = 1
	if i := strings.LastIndex(part, "~#"); i >= 0 {
		if n, err := strconv.Atoi(part[i+2:]); err == nil && n > 1 {
			part, which = part[:i], n
		}
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(part), which
}

func writePart(name string, which int) string {
	part := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	if which > 1 {
		part += "~#" + strconv.Itoa(which)
	}
	return part
}

// decodeKey decodes a stored key.
func decodeKey(stored string) string {
	if !strings.Contains(stored, `\`) {
		return strings.Trim(stored, `"`)
	}
	var s string
	if err := json.Unmarshal([]byte(stored), &s); err != nil {
		return stored
	}
	return s
}

// fill shows a value, with as many of its members from an index on as left allows, which it
// decreases.
func (w *walk) fill(n *node, at int, e extent, from, depth int, left *int) {
	n.Kind = w.text[at]
	*left--
	if n.Kind != '{' && n.Kind != '[' {
		n.Text, n.Rest = shownText(w.text[at:e.end], treeText)
		return
	}
	n.Total, n.From = e.members, from
	n.Open = e.values <= treeOpen
	most := min(treeMembers, e.members)
	if depth > 0 && (depth >= treeDepth || *left < most || depth > 1 && e.end-at > treeWalk) {
		return
	}
	var shown []member
	w.members(at, func(index int, m member) bool {
		if index >= from && len(shown) < most {
			shown = append(shown, m)
		}
		return len(shown) < most
	})
	*left -= len(shown)
	w.name(n, at, from, shown)
	for i := range n.Members {
		*left++ // it was counted above, and counts itself
		w.fill(&n.Members[i], shown[i].at, shown[i].extent, 0, depth+1, left)
	}
}

// name makes the nodes of the shown members, each with its key and its pointer.
func (w *walk) name(n *node, at, from int, shown []member) {
	n.Members = make([]node, len(shown))
	which := w.repeats(at, from, shown)
	for i, m := range shown {
		key := strconv.Itoa(from + i)
		part := key
		if n.Kind == '{' {
			key, _ = shownText(m.key, treeKey)
			part = writePart(decodeKey(m.key), which[i])
		}
		n.Members[i].Key, n.Members[i].Pointer = key, n.Pointer+"/"+part
	}
}

// repeats returns for each shown member its occurrence among equal keys, counted from 1.
func (w *walk) repeats(at, from int, shown []member) []int {
	which := make([]int, len(shown))
	if w.text[at] != '{' {
		return which
	}
	seen := make(map[string]int, len(shown))
	for _, m := range shown {
		seen[decodeKey(m.key)] = 0
	}
	if from > 0 {
		w.members(at, func(index int, m member) bool {
			key := decodeKey(m.key)
			if n, wanted := seen[key]; wanted {
				seen[key] = n + 1
			}
			return index < from-1
		})
	}
	for i, m := range shown {
		key := decodeKey(m.key)
		seen[key]++
		which[i] = seen[key]
	}
	return which
}

// shownText returns a stored text for display, and how many of its characters are left out after
// the first most.
func shownText(stored string, most int) (text string, rest int) {
	end := 0
	for n := 0; n < most && end < len(stored); n++ {
		if stored[end] == '\\' && end+1 < len(stored) {
			end++ // an escape is never split
			if stored[end] == 'u' {
				end = min(end+4, len(stored)-1)
			}
		}
		_, size := utf8.DecodeRuneInString(stored[end:])
		end += size
	}
	return ui.Visible(stored[:end]), utf8.RuneCountInString(stored[end:])
}

// Document is one JSON document of an event as a page shows it.
type Document struct {
	CampaignID string `redact:"-"`
	Seq        int64
	Part       event.Part
	Text       string // empty if longer than InlineDocument
	Size       int64  // bytes, as it is stored
	Hidden     bool   // something of the event is hidden
}

// TreeView is a part of a document. Its secrets are already hidden, in the document that the tree
// was read from.
type TreeView struct {
	Document
	Tree
}

// documentOf returns a document of an event whose sizes are known.
func documentOf(e event.Event, sizes event.Sizes, part event.Part) Document {
	return Document{CampaignID: e.CampaignID, Seq: e.Seq, Part: part, Text: string(e.Document(part)), Size: sizes.Of(part), Hidden: len(e.Redacted) > 0}
}

func (d Document) inline() bool { return d.Text != "" && len(d.Text) <= InlineDocument }

func (d Document) title() string { return strings.ToUpper(string(d.Part[:1])) + string(d.Part[1:]) }

// brackets is an object or array whose members are not shown beside it, which inner stands for.
func (n node) brackets(inner string) string {
	if n.Kind == '[' {
		return "[" + inner + "]"
	}
	return "{" + inner + "}"
}

func (n node) members() string {
	if n.Kind == '[' {
		return ui.Count(int64(n.Total), "item", "items")
	}
	return ui.Count(int64(n.Total), "member", "members")
}

func (n node) hue() string {
	switch {
	case n.Kind == '"':
		return "text"
	case n.Kind == '-' || n.Kind >= '0' && n.Kind <= '9':
		return "amount"
	default:
		return "word"
	}
}

// more is the text of the link to the next members: "next 100 of 25,000".
func (n node) more() string {
	rest := min(treeMembers, n.Total-n.Next())
	return "next " + ui.Num(int64(rest)) + " of " + ui.Num(int64(n.Total))
}
