// Package redact hides what looks like a secret in texts and JSON documents, before they leave
// the server.
//
// A secret is detected in two ways. One is its name: a member of a JSON object, the key of an
// assignment in a text such as password=…, or the attribute of a log record. See keys.go for
// how names are compared. The other is its format, such as that of a JSON Web Token or of a
// well-known kind of key; see values.go. A secret is replaced by Mark, and nothing else is
// changed: a document keeps its bytes, numbers their digits, members their order.
//
// Shown does so in whole values before output. A field that identifies something has the struct
// tag `redact:"-"` and is never hidden.
//
// Redaction reduces the risk of secrets in a journal; it does not guarantee that there are
// none: a secret with an unsuspicious name and an unknown format is not hidden.
package redact

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Mark replaces what was hidden.
const Mark = event.Hidden

// Config is what to hide in addition to the built-in rules.
type Config struct {
	// Keys are names of secrets, as words: "api key" matches apiKey, API_KEY, api-key and apikey,
	// also as the last words of a longer name.
	Keys []string
	// Values are regular expressions (RE2) of secrets, applied to all texts.
	Values []string
	// HidePayloads hides events' payloads, metadata and tags altogether, and the values of rows in
	// comparisons.
	HidePayloads bool
}

// Redactor hides secrets. It is immutable and safe for concurrent use.
type Redactor struct {
	keys   names
	finder *finder
	// always is true when a rule may match without a trigger of the finder: every document is then
	// read completely.
	always bool
	values []*regexp.Regexp
	hide   bool
}

// New creates a Redactor. An invalid pattern is an *event.Refusal of kind event.ErrInvalid
// whose field is redact-key or redact-value.
func New(c Config) (*Redactor, error) {
	r := &Redactor{keys: names{}, hide: c.HidePayloads, always: len(c.Values) > 0}
	triggers := slices.Clone(builtinTriggers)
	for _, key := range append(slices.Clone(builtinKeys), c.Keys...) {
		words := wordsOf(key)
		if len(words) == 0 || len(words) > maxWords {
			return nil, event.Invalid("redact-key", "%q is not a key name: it needs one to %d words of letters or digits, such as api key", key, maxWords)
		}
		if r.keys.add(words); !r.keys.match(key) {
			return nil, event.Invalid("redact-key", "%q can never match: only the last %d bytes of a key name count; use a shorter one", key, maxName)
		}
		longest := slices.MaxFunc(words, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		if len(longest) < triggerLeast || !isASCII(longest) {
			r.always = true
			continue
		}
		triggers = append(triggers, trigger{longest, matchAssignment})
	}
	for _, pattern := range c.Values {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return nil, event.Invalid("redact-value", "%q is not a regular expression: %s", pattern, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		if re.MatchString("") {
			return nil, event.Invalid("redact-value", "%q matches the empty string, and so everything; write a narrower pattern", pattern)
		}
		r.values = append(r.values, re)
	}
	r.finder = newFinder(triggers)
	return r, nil
}

// Builtin is the Redactor with only the built-in rules.
var Builtin = sync.OnceValue(func() *Redactor {
	r, err := New(Config{})
	if err != nil { // a mistake in the patterns of this package
		panic(err)
	}
	return r
})

// HidesPayloads reports whether events' documents are hidden altogether.
func (r *Redactor) HidesPayloads() bool { return r.hide }

// HidesName reports whether the value of a name is hidden, whatever it is.
func (r *Redactor) HidesName(name string) bool { return r.keys.match(name) }

// mostNested is how many levels of JSON within texts within JSON are read. Suspicious texts
// nested deeper are hidden completely.
const mostNested = 4

// Text hides secrets in a text. A JSON document is treated as such.
func (r *Redactor) Text(s string) string { return r.text(s, 0) }

func (r *Redactor) text(s string, nested int) string {
	document := isDocument(s)
	if !r.always && !r.finder.any(s) && !(document && hasHiddenLetters(s)) {
		return s
	}
	if document {
		if nested > mostNested {
			return Mark
		}
		if w := r.walk(s, nested); w.whole {
			return w.text()
		}
	}
	return r.given(r.builtin(s))
}

// builtin hides secrets of a known format.
func (r *Redactor) builtin(s string) string {
	var b strings.Builder
	var m matching
	m.r, m.s = r, s
	kept, i := 0, 0
	for {
		at, found := r.finder.next(s, i)
		if found == nil {
			break
		}
		i = at + 1
		for _, t := range found {
			from, to, ok := t.match(&m, at, len(t.text))
			if !ok || from < kept {
				continue
			}
			b.WriteString(s[kept:from])
			b.WriteString(Mark)
			kept, i = to, to
			break
		}
	}
	return b.String() + s[kept:]
}

// given hides the matches of the configured expressions. Text that is already hidden stays
// unchanged.
func (r *Redactor) given(s string) string {
	for _, re := range r.values {
		if !strings.Contains(s, Mark) {
			s = re.ReplaceAllLiteralString(s, Mark)
			continue
		}
		parts := strings.Split(s, Mark)
		for i, part := range parts {
			parts[i] = re.ReplaceAllLiteralString(part, Mark)
		}
		s = strings.Join(parts, Mark)
	}
	return s
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 0x7e }) < 0
}
