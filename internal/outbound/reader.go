package outbound

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Reader walks a part of the configuration file. It keeps the first error; what it reads after that
// is not used.
type Reader struct {
	Getenv func(string) (string, bool)
	Err    error
}

// Entry is a key of a mapping with its value.
type Entry struct {
	Name, Path string // Path is the key's path, such as topics.scenes.match
	Key, Value *yaml.Node
}

// Fail records an error about a node; its sentence begins with the path.
func (r *Reader) Fail(at *yaml.Node, path, format string, args ...any) {
	if r.Err != nil {
		return
	}
	line := 1
	if at != nil && at.Line > 0 {
		line = at.Line
	}
	r.Err = &event.Refusal{Err: event.ErrInvalid, Field: path, Line: line, Detail: path + ": " + fmt.Sprintf(format, args...)}
}

// Check records err, if there is one, about an entry's key.
func (r *Reader) Check(e Entry, err error) {
	if err != nil {
		r.Fail(e.Key, e.Path, "%v", err)
	}
}

// Entries returns a mapping's entries in order; none if it is absent.
func (r *Reader) Entries(node *yaml.Node, path string) []Entry {
	if r.Err != nil || node == nil || node.ShortTag() == "!!null" {
		return nil
	}
	if !r.Is(node, path, yaml.MappingNode, "must be a mapping of keys to values") {
		return nil
	}
	var list []Entry
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !r.Is(key, path, yaml.ScalarNode, "a key must be a string") {
			return nil
		}
		if key.ShortTag() != "!!str" {
			r.Fail(key, path, "the key %s must be a string; put it in quotes", Shorten(key.Value))
			return nil
		}
		if line, twice := seen[key.Value]; twice {
			r.Fail(key, path, "%q appears twice; the first is in line %d", Shorten(key.Value), line)
			return nil
		}
		seen[key.Value] = key.Line
		list = append(list, Entry{Name: key.Value, Path: path + "." + Shorten(key.Value), Key: key, Value: value})
	}
	return list
}

// Fields returns the entries by name, and refuses unknown ones.
func (r *Reader) Fields(node *yaml.Node, path string, known ...string) map[string]Entry {
	fields := map[string]Entry{}
	for _, e := range r.Entries(node, path) {
		if !slices.Contains(known, e.Name) {
			r.Fail(e.Key, path, "unknown key %q; use %s", Shorten(e.Name), strings.Join(known, ", "))
		}
		fields[e.Name] = e
	}
	return fields
}

// Is reports whether a node is of a kind, and records an error otherwise. YAML references are
// refused: their target is on another line.
func (r *Reader) Is(node *yaml.Node, path string, kind yaml.Kind, must string) bool {
	switch {
	case r.Err != nil:
	case node.Kind == yaml.AliasNode || node.ShortTag() == "!!merge":
		r.Fail(node, path, "YAML references (*name and <<) are not supported; write the value out")
	case node.Kind != kind:
		r.Fail(node, path, "%s", must)
	}
	return r.Err == nil
}

// Text returns the text of an entry; empty if absent.
func (r *Reader) Text(e Entry) string {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.ScalarNode, "must be a string") {
		return ""
	}
	switch {
	case e.Value.ShortTag() != "!!str":
		r.Fail(e.Value, e.Path, "must be a string; put it in quotes")
	case e.Value.Value == "":
		r.Fail(e.Value, e.Path, "must not be empty")
	}
	return e.Value.Value
}

// Texts returns the texts of a list; nil if absent.
func (r *Reader) Texts(e Entry, example string) []string {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.SequenceNode, "must be a list, such as "+example) {
		return nil
	}
	if len(e.Value.Content) == 0 {
		r.Fail(e.Value, e.Path, "the list is empty; add an item or remove the key")
	}
	var list []string
	for _, item := range e.Value.Content {
		list = append(list, r.Text(Entry{Path: e.Path, Value: item}))
	}
	return list
}

// Number returns a whole number within bounds; standard if absent.
func (r *Reader) Number(e Entry, standard, least, most int64) int64 {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.ScalarNode, "must be a whole number") {
		return standard
	}
	var n int64
	if e.Value.ShortTag() != "!!int" || e.Value.Decode(&n) != nil {
		r.Fail(e.Value, e.Path, "must be a whole number from %d to %d", least, most)
	} else if n < least || n > most {
		r.Fail(e.Value, e.Path, "must be from %d to %d, not %d", least, most, n)
	}
	return n
}

// Decimal returns a number within bounds; standard if absent.
func (r *Reader) Decimal(e Entry, standard, least, most float64) float64 {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.ScalarNode, "must be a number") {
		return standard
	}
	var n float64
	if tag := e.Value.ShortTag(); tag != "!!float" && tag != "!!int" || e.Value.Decode(&n) != nil || !(n >= least && n <= most) {
		r.Fail(e.Value, e.Path, "must be a number from %v to %v", least, most)
	}
	return n
}

// Pause returns a duration of at least LeastPause; standard if absent.
func (r *Reader) Pause(e Entry, standard, longest time.Duration) time.Duration {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.ScalarNode, "must be a duration such as 10s") {
		return standard
	}
	d, err := time.ParseDuration(e.Value.Value)
	if err != nil {
		r.Fail(e.Value, e.Path, "must be a duration with its unit, such as 500ms, 10s or 5m")
	} else if d < LeastPause || d > longest {
		r.Fail(e.Value, e.Path, "must be from %v to %v, not %v", LeastPause, longest, d)
	}
	return d
}

// Flag returns true or false; false if absent.
func (r *Reader) Flag(e Entry) bool {
	if e.Value == nil || !r.Is(e.Value, e.Path, yaml.ScalarNode, "must be true or false") {
		return false
	}
	var b bool
	if e.Value.ShortTag() != "!!bool" || e.Value.Decode(&b) != nil {
		r.Fail(e.Value, e.Path, "must be true or false")
	}
	return b
}

// Choice returns one of the words, the first one if absent.
func (r *Reader) Choice(e Entry, words ...string) string {
	if e.Value == nil {
		return words[0]
	}
	word := r.Text(e)
	if r.Err == nil && !slices.Contains(words, word) {
		r.Fail(e.Value, e.Path, "must be %s", strings.Join(words, " or "))
	}
	return word
}

// Shorten truncates a text of the file for an error.
func Shorten(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// LeastPause is the least duration that a configuration may name.
const LeastPause = 10 * time.Millisecond

// variable is ${NAME}; $${ is a literal ${.
var variable = regexp.MustCompile(`\$?\$\{([^}]*)(\}?)`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Verbatim inserts values of variables unchanged.
func Verbatim(_ int, value string) string { return value }

// Expand returns the text of an entry with its variables replaced by put, which gets the offset of
// each. The value of a variable appears in no error.
func (r *Reader) Expand(e Entry, put func(at int, value string) string) string {
	text := r.Text(e)
	var out strings.Builder
	end := 0
	for _, m := range variable.FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[end:m[0]])
		end = m[1]
		whole, name, closed := text[m[0]:m[1]], text[m[2]:m[3]], m[4] < m[5]
		if strings.HasPrefix(whole, "$$") {
			out.WriteString(whole[1:])
			continue
		}
		if !closed || !variableName.MatchString(name) {
			r.Fail(e.Value, e.Path, "${ begins the name of a variable, which has only letters, digits and underscores and ends with }; write $${ for ${ itself")
			return ""
		}
		value, set := r.Getenv(name)
		if !set {
			r.Fail(e.Value, e.Path, "the variable %s is not set, nor %s_FILE for a file with its value", name, name)
			return ""
		}
		out.WriteString(put(m[0], value))
	}
	return out.String() + text[end:]
}
