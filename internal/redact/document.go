package redact

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// A list of redacted places names at most so many, each in so many bytes.
const (
	mostPaths   = 200
	longestPath = 300
)

// JSON hides secrets in a document and names the places where it did, such as
// "user.password" or "keys[3].token", in their order; it is nil when nothing was
// hidden, and the document is then the one that was given. What stands under the
// name of a secret is replaced whole, whatever its type. Everything else keeps its
// bytes. A document that is not JSON is taken for a text.
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

// hasHiddenLetters reports whether a document spells letters as escapes, so that
// what it says cannot be found in its bytes.
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

// walker goes over a document from its first byte to its last.
type walker struct {
	r      *Redactor
	s      string
	nested int
	pairs  map[int]bool // where objects begin that say the name of a secret
	out    strings.Builder
	kept   int // what of s is in out, or was replaced
	frames []frame
	paths  []string
	whole  bool // the document is JSON, to its end
}

// frame is an object or array that the walk is in.
type frame struct {
	object bool
	key    string // of the member that the walk is at
	index  int
	named  bool // a member says the name of a secret, whose value is another
}

// walk reads the document s. It has no recursion, so that no nesting is too deep.
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

// name reads the name of a member, from before it on, and its value too where
// that is hidden. It returns where to go on.
func (w *walker) name(i int) int {
	i = skipSpace(w.s, i)
	if w.s[i] != '"' {
		return i // an object without members
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

// Members of lists such as [{"name": "password", "value": "…"}].
var (
	saysName  = map[string]bool{"name": true, "key": true, "header": true, "field": true}
	saysValue = map[string]bool{"value": true, "values": true}
)

// pairs are the positions at which the objects of valid JSON begin that have a
// member that says the name of a secret.
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

// saysSecret reports whether the string from i to end is the name of a member
// that says the name of a secret, such as "name": "password".
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

// number hides a number that a configured expression matches.
func (w *walker) number(from, to int) {
	if digits := w.s[from:to]; len(w.r.values) > 0 && w.r.given(digits) != digits {
		w.replace(from, to, Mark)
	}
}

// replace writes another string for a stretch of the document.
func (w *walker) replace(from, to int, text string) {
	w.out.WriteString(w.s[w.kept:from])
	w.out.WriteString(encoded(text))
	w.kept = to
	switch path := w.path(); {
	case len(w.paths) < mostPaths:
		w.paths = append(w.paths, path)
	case len(w.paths) == mostPaths:
		w.paths = append(w.paths, "…")
	}
}

// text is the document with what was hidden.
func (w *walker) text() string {
	if w.kept == 0 {
		return w.s
	}
	return w.out.String() + w.s[w.kept:]
}

// path is where the walk is.
func (w *walker) path() string {
	if len(w.paths) >= mostPaths {
		return ""
	}
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

// stringEnd is the position after the string of valid JSON that begins at i.
func stringEnd(s string, i int) int {
	for i++; s[i] != '"'; i++ {
		if s[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd is the position after the value of valid JSON that begins at i.
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

// decoded is what a string of valid JSON says.
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
	if err := enc.Encode(text); err != nil { // no string fails
		return `"` + Mark + `"`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
