package redact

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// Limits of a list of redacted places: number of entries, and bytes of each.
const (
	mostPaths   = 200
	longestPath = 300
)

// JSON hides secrets in a document and returns the places where it did, such as "user.password"
// or "keys[3].token", in order. Without any, the list is nil and the document unchanged. The
// value of a secret's name is replaced as a whole, whatever its type. All other bytes are kept.
// Input that is not JSON is treated as text.
func (r *Redactor) JSON(raw json.RawMessage) (json.RawMessage, []string) {
	s := string(raw)
	if !r.always && !r.finder.any(s) && !hasHiddenLetters(s) {
		return raw, nil
	}
	w := r.walk(s, 0)
	if !w.whole {
		if text := r.Text(s); text != s {
			return json.RawMessage(text), []string{""}
		}
		return raw, nil
	}
	if len(w.paths) == 0 {
		return raw, nil
	}
	return json.RawMessage(w.text()), w.paths
}

// isDocument reports whether a text may be a JSON object or array.
func isDocument(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return len(s) > 4 && (s[0] == '{' || s[0] == '[')
}

// hasHiddenLetters reports whether a document escapes letters, so that its texts cannot be
// searched in its bytes.
func hasHiddenLetters(s string) bool {
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			return false
		}
		if s[i+1] == 'u' || s[i+1] == '/' {
			return true
		}
		s = s[i+1:]
	}
}

// walker scans a document from its first byte to its last.
type walker struct {
	r      *Redactor
	s      string
	nested int
	pairs  map[int]bool // positions of objects with a member that holds the name of a secret
	out    strings.Builder
	kept   int // s up to here is in out, or was replaced
	frames []frame
	paths  []string
	whole  bool // the document is complete JSON
}

// frame is an object or array around the current position.
type frame struct {
	object bool
	key    string // name of the current member
	index  int
	named  bool // a member holds the name of a secret, and another its value
}

// walk scans the document s. It does not recurse, so any nesting depth is fine.
func (r *Redactor) walk(s string, nested int) *walker {
	w := &walker{r: r, s: s, nested: nested}
	if !json.Valid([]byte(s)) {
		return w
	}
	w.pairs = r.pairs(s)
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '{' || c == '[':
			w.frames = append(w.frames, frame{object: c == '{', named: w.pairs[i]})
			i++
			if c == '{' {
				i = w.name(i)
			}
		case c == '}' || c == ']':
			w.frames = w.frames[:len(w.frames)-1]
			i++
		case c == ',':
			top := &w.frames[len(w.frames)-1]
			top.index++
			i++
			if top.object {
				i = w.name(i)
			}
		case c == '"':
			end := stringEnd(s, i)
			w.string(i, end)
			i = end
		case c == '-' || c >= '0' && c <= '9':
			end := valueEnd(s, i)
			w.number(i, end)
			i = end
		default:
			i++
		}
	}
	w.whole = true
	return w
}

// name reads the name of a member at i, and its value too if that is hidden. It returns the
// position to continue from.
func (w *walker) name(i int) int {
	i = skipSpace(w.s, i)
	if w.s[i] != '"' {
		return i // empty object
	}
	end := stringEnd(w.s, i)
	name := decoded(w.s[i:end])
	top := &w.frames[len(w.frames)-1]
	top.key = w.r.text(name, w.nested+1)
	if top.key != name {
		w.replace(i, end, top.key)
	}
	i = skipSpace(w.s, skipSpace(w.s, end)+1) // past the colon
	if !w.r.HidesName(name) && !(top.named && saysValue[strings.ToLower(name)]) {
		return i
	}
	end = valueEnd(w.s, i)
	w.replace(i, end, Mark)
	return end
}

// Names of the two members in lists such as [{"name": "password", "value": "…"}].
var (
	saysName  = map[string]bool{"name": true, "key": true, "header": true, "field": true}
	saysValue = map[string]bool{"value": true, "values": true}
)

// pairs returns the start positions of the objects in valid JSON that have a member holding the
// name of a secret.
func (r *Redactor) pairs(s string) map[int]bool {
	found := map[int]bool{}
	var open []int // the objects and arrays around i
	for i := 0; i < len(s); {
		switch s[i] {
		case '{', '[':
			open = append(open, i)
			i++
		case '}', ']':
			open = open[:len(open)-1]
			i++
		case '"':
			end := stringEnd(s, i)
			if r.saysSecret(s, i, end) {
				found[open[len(open)-1]] = true
			}
			i = end
		default:
			i++
		}
	}
	return found
}

// saysSecret reports whether the string from i to end is the name of a member that holds the
// name of a secret, such as "name": "password".
func (r *Redactor) saysSecret(s string, i, end int) bool {
	colon := skipSpace(s, end)
	if colon >= len(s) || s[colon] != ':' || !saysName[strings.ToLower(decoded(s[i:end]))] {
		return false
	}
	value := skipSpace(s, colon+1)
	return s[value] == '"' && r.HidesName(decoded(s[value:stringEnd(s, value)]))
}

func (w *walker) string(from, to int) {
	if to-from < triggerLeast+2 && !w.r.always {
		return
	}
	text := decoded(w.s[from:to])
	if shown := w.r.text(text, w.nested+1); shown != text {
		w.replace(from, to, shown)
	}
}

// number hides a number that matches a configured expression.
func (w *walker) number(from, to int) {
	if digits := w.s[from:to]; len(w.r.values) > 0 && w.r.given(digits) != digits {
		w.replace(from, to, Mark)
	}
}

// replace replaces a range of the document by a string.
func (w *walker) replace(from, to int, text string) {
	w.out.WriteString(w.s[w.kept:from])
	w.out.WriteString(encoded(text))
	w.kept = to
	switch {
	case len(w.paths) < mostPaths:
		w.paths = append(w.paths, w.path())
	case len(w.paths) == mostPaths:
		w.paths = append(w.paths, "…")
	}
}

// text is the redacted document.
func (w *walker) text() string { return w.out.String() + w.s[w.kept:] }

// path is the path of the current position.
func (w *walker) path() string {
	var b strings.Builder
	for _, f := range w.frames {
		switch {
		case !f.object:
			b.WriteString("[" + strconv.Itoa(f.index) + "]")
		case b.Len() > 0:
			b.WriteString("." + f.key)
		default:
			b.WriteString(f.key)
		}
		if b.Len() > longestPath {
			return strings.ToValidUTF8(b.String()[:longestPath], "") + "…"
		}
	}
	return b.String()
}

func skipSpace(s string, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

// stringEnd is the position after the string at i in valid JSON.
func stringEnd(s string, i int) int {
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd is the position after the value at i in valid JSON.
func valueEnd(s string, i int) int {
	for depth := 0; i < len(s); {
		switch s[i] {
		case '"':
			i = stringEnd(s, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
			continue
		default:
			for i < len(s) && strings.IndexByte(",]} \t\r\n", s[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// decoded is the value of a string in valid JSON.
func decoded(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		return quoted[1 : len(quoted)-1]
	}
	return s
}

func encoded(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // cannot fail for a string
	return strings.TrimSuffix(b.String(), "\n")
}
