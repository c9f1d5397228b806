package destination

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"outboxweb/internal/outbox"
)

// reader walks the configuration. It keeps the first error; what it reads after that is not used.
type reader struct {
	getenv func(string) (string, bool)
	err    error
	files  []Subscription // file destinations, for sameFile
}

// entry is a key of a mapping with its value.
type entry struct {
	name, path string // path is the key's path, such as topics.scenes.match
	key, value *yaml.Node
}

// fail records an error about a node; its sentence begins with the path.
func (r *reader) fail(at *yaml.Node, path, format string, args ...any) {
	if r.err != nil {
		return
	}
	line := 1
	if at != nil && at.Line > 0 {
		line = at.Line
	}
	r.err = &outbox.Refusal{Err: outbox.ErrInvalid, Field: path, Line: line, Detail: path + ": " + fmt.Sprintf(format, args...)}
}

func (r *reader) check(e entry, err error) {
	if err != nil {
		r.fail(e.key, e.path, "%v", err)
	}
}

// entries returns a mapping's entries in order; none if it is absent.
func (r *reader) entries(node *yaml.Node, path string) []entry {
	if r.err != nil || node == nil || node.ShortTag() == "!!null" {
		return nil
	}
	if !r.is(node, path, yaml.MappingNode, "must be a mapping of keys to values") {
		return nil
	}
	var list []entry
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !r.is(key, path, yaml.ScalarNode, "a key must be a string") {
			return nil
		}
		if key.ShortTag() != "!!str" {
			r.fail(key, path, "the key %s must be a string; put it in quotes", shorten(key.Value))
			return nil
		}
		if line, twice := seen[key.Value]; twice {
			r.fail(key, path, "%q appears twice; the first is in line %d", shorten(key.Value), line)
			return nil
		}
		seen[key.Value] = key.Line
		list = append(list, entry{name: key.Value, path: path + "." + shorten(key.Value), key: key, value: value})
	}
	return list
}

// fields returns the entries by name, and refuses unknown ones.
func (r *reader) fields(node *yaml.Node, path string, known ...string) map[string]entry {
	fields := map[string]entry{}
	for _, e := range r.entries(node, path) {
		if !slices.Contains(known, e.name) {
			r.fail(e.key, path, "unknown key %q; use %s", shorten(e.name), strings.Join(known, ", "))
		}
		fields[e.name] = e
	}
	return fields
}

// is reports whether a node is of a kind, and records an error otherwise. YAML references are
// refused: their target is on another line.
func (r *reader) is(node *yaml.Node, path string, kind yaml.Kind, must string) bool {
	switch {
	case r.err != nil:
	case node.Kind == yaml.AliasNode || node.ShortTag() == "!!merge":
		r.fail(node, path, "YAML references (*name and <<) are not supported; write the value out")
	case node.Kind != kind:
		r.fail(node, path, "%s", must)
	}
	return r.err == nil
}

// text returns the text of an entry; empty if absent.
func (r *reader) text(e entry) string {
	if e.value == nil || !r.is(e.value, e.path, yaml.ScalarNode, "must be a string") {
		return ""
	}
	switch {
	case e.value.ShortTag() != "!!str":
		r.fail(e.value, e.path, "must be a string; put it in quotes")
	case e.value.Value == "":
		r.fail(e.value, e.path, "must not be empty")
	}
	return e.value.Value
}

func (r *reader) texts(e entry) []string {
	if e.value == nil || !r.is(e.value, e.path, yaml.SequenceNode, "must be a list, such as [scene.*, session.started]") {
		return nil
	}
	if len(e.value.Content) == 0 {
		r.fail(e.value, e.path, "the list is empty, which no event could match; add an item or remove the key")
	}
	var list []string
	for _, item := range e.value.Content {
		list = append(list, r.text(entry{path: e.path, value: item}))
	}
	return list
}

func (r *reader) number(e entry, standard, least, most int64) int64 {
	if e.value == nil || !r.is(e.value, e.path, yaml.ScalarNode, "must be a whole number") {
		return standard
	}
	var n int64
	if e.value.ShortTag() != "!!int" || e.value.Decode(&n) != nil {
		r.fail(e.value, e.path, "must be a whole number from %d to %d", least, most)
	} else if n < least || n > most {
		r.fail(e.value, e.path, "must be from %d to %d, not %d", least, most, n)
	}
	return n
}

func (r *reader) pause(e entry, standard, longest time.Duration) time.Duration {
	if e.value == nil || !r.is(e.value, e.path, yaml.ScalarNode, "must be a duration such as 10s") {
		return standard
	}
	d, err := time.ParseDuration(e.value.Value)
	if err != nil {
		r.fail(e.value, e.path, "must be a duration with its unit, such as 500ms, 10s or 5m")
	} else if d < leastPause || d > longest {
		r.fail(e.value, e.path, "must be from %v to %v, not %v", leastPause, longest, d)
	}
	return d
}

func (r *reader) flag(e entry) bool {
	if e.value == nil || !r.is(e.value, e.path, yaml.ScalarNode, "must be true or false") {
		return false
	}
	var b bool
	if e.value.ShortTag() != "!!bool" || e.value.Decode(&b) != nil {
		r.fail(e.value, e.path, "must be true or false")
	}
	return b
}

// choice returns one of the words, the first one if absent.
func (r *reader) choice(e entry, words ...string) string {
	if e.value == nil {
		return words[0]
	}
	word := r.text(e)
	if r.err == nil && !slices.Contains(words, word) {
		r.fail(e.value, e.path, "must be %s", strings.Join(words, " or "))
	}
	return word
}

// shorten truncates a text of the file for an error.
func shorten(text string) string {
	const most = 100
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// variable is ${NAME}; $${ is a literal ${.
var variable = regexp.MustCompile(`\$?\$\{([^}]*)(\}?)`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// verbatim inserts values of variables unchanged.
func verbatim(_ int, value string) string { return value }

// expand returns the text of an entry with its variables replaced by put, which gets the offset of
// each. The value of a variable appears in no error.
func (r *reader) expand(e entry, put func(at int, value string) string) string {
	text := r.text(e)
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
			r.fail(e.value, e.path, "${ begins the name of a variable, which has only letters, digits and underscores and ends with }; write $${ for ${ itself")
			return ""
		}
		value, set := r.getenv(name)
		if !set {
			r.fail(e.value, e.path, "the variable %s is not set", name)
			return ""
		}
		out.WriteString(put(m[0], value))
	}
	return out.String() + text[end:]
}
