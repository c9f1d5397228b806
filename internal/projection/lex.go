package projection

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	word      kind = iota // keyword or plain identifier
	quoted                // "identifier" or `identifier`
	text                  // 'string', e'string' or $tag$string$tag$
	number                //
	binding               // :name, :payload.a.b, with a trailing ! when required
	punct                 // one byte, or ::
	directive             // a header or section line of the file format
)

// token is one piece of SQL, or a directive. Comments and blanks are not tokens.
type token struct {
	kind       kind
	text       string // as written
	line       int    // from 1
	start, end int    // bytes in the file
}

// is reports whether the token is the given lower-case keyword.
func (t token) is(keyword string) bool {
	return t.kind == word && strings.EqualFold(t.text, keyword)
}

// oneOf reports whether the token is one of the lower-case keywords.
func (t token) oneOf(keywords ...string) bool { return slices.ContainsFunc(keywords, t.is) }

// name is the token's identifier, case-folded as databases do it, or empty if it is none.
func (t token) name() string {
	switch t.kind {
	case word:
		return strings.ToLower(t.text)
	case quoted:
		q := t.text[:1]
		return strings.ReplaceAll(t.text[1:len(t.text)-1], q+q, q)
	}
	return ""
}

// lineError is a fault in a file at a line.
type lineError struct {
	line   int
	detail string
}

func (e *lineError) Error() string { return fmt.Sprintf("%d: %s", e.line, e.detail) }

func faultf(line int, format string, args ...any) error {
	return &lineError{line, fmt.Sprintf(format, args...)}
}

var (
	// directiveLine is a comment line that starts with a lower-case word and a colon.
	directiveLine = regexp.MustCompile(`^--[ \t]*[a-z][a-z-]*:([^/]|$)`)
	schemaLine    = regexp.MustCompile(`^--[ \t]*schema[ \t]*:?[ \t]*(@[A-Za-z]*)?[ \t]*(--.*)?$`)
	// digestHead leaves the rest of its line to be parsed as SQL.
	digestHead = regexp.MustCompile(`^--[ \t]*digest\b[^:(]*(\([^)]*\)[^:]*)?:`)
	// proseLine is a comment that only looks like a directive.
	proseLine = regexp.MustCompile(`^--[ \t]*(note|see|example|why|warning):`)
	// indented and noColon are lines that were surely meant as directives; as comments they would
	// add statements to the preceding section.
	indented = regexp.MustCompile(`^--[ \t]*(projection|tables|on-failure|max-attempts|on|digest[^:]*):`)
	noColon  = regexp.MustCompile(`^--[ \t]*(on[ \t]+([\w.*]+\.[\w*]+|"[^"]+")([ \t]*,[ \t]*([\w.*]+|"[^"]+"))*[ \t]*(@\w+)?|digest[ \t]+(select|with)\b.*)$`)
)

// lexer cuts a file into tokens.
type lexer struct {
	src    string
	body   bool // of a function, or a statement of a Go handler: without directives and bindings, and with its own parameters
	pos    int
	line   int
	tokens []token
}

func (l *lexer) all() ([]token, error) {
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

func (l *lexer) next() error {
	c := l.src[l.pos]
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		l.skip(l.pos + 1)
		return nil
	case strings.HasPrefix(l.src[l.pos:], "--"):
		return l.comment()
	case strings.HasPrefix(l.src[l.pos:], "/*"):
		return l.until("*/", 2, "this comment is never closed; end it with */")
	case c == '\'':
		return l.quotedBy('\'', text, "this string is never closed; end it with a single quote")
	case c == '"' || c == '`':
		return l.quotedBy(c, quoted, "this quoted name is never closed")
	case c == '$':
		return l.dollar()
	case c == ':':
		return l.colon()
	case isDigit(c):
		l.add(number, l.scan(l.pos, func(c byte) bool { return isNameByte(c) || c == '.' }))
		return nil
	case isNameStart(c):
		return l.word()
	}
	_, size := utf8.DecodeRuneInString(l.src[l.pos:])
	l.add(punct, l.pos+size)
	return nil
}

// skip advances to end, counting lines.
func (l *lexer) skip(end int) {
	l.line += strings.Count(l.src[l.pos:end], "\n")
	l.pos = end
}

func (l *lexer) add(k kind, end int) {
	l.tokens = append(l.tokens, token{kind: k, text: l.src[l.pos:end], line: l.line, start: l.pos, end: end})
	l.skip(end)
}

func (l *lexer) scan(from int, in func(byte) bool) int {
	for from < len(l.src) && in(l.src[from]) {
		from++
	}
	return from
}

// comment skips a -- comment, or keeps it as a directive if it starts a line and has the form of
// one.
func (l *lexer) comment() error {
	rest, _, _ := strings.Cut(l.src[l.pos:], "\n")
	rest = strings.TrimRight(rest, " \t\r")
	before := l.src[strings.LastIndexByte(l.src[:l.pos], '\n')+1 : l.pos]
	switch {
	case l.body:
		l.skip(l.pos + len(rest))
	case before != "" && strings.TrimSpace(before) == "" && indented.MatchString(rest):
		return faultf(l.line, "a header or section begins at the start of its line, not after spaces")
	case before != "":
		l.skip(l.pos + len(rest))
	case digestHead.MatchString(rest):
		l.add(directive, l.pos+len(digestHead.FindString(rest)))
	case schemaLine.MatchString(rest), directiveLine.MatchString(rest) && !proseLine.MatchString(rest):
		l.add(directive, l.pos+len(rest))
	case noColon.MatchString(rest):
		return faultf(l.line, "a colon is missing: sections are written as -- on: TYPE and -- digest: select …")
	default:
		l.skip(l.pos + len(rest))
	}
	return nil
}

func (l *lexer) until(end string, from int, fault string) error {
	i := strings.Index(l.src[l.pos+from:], end)
	if i < 0 {
		return faultf(l.line, "%s", fault)
	}
	l.skip(l.pos + from + i + len(end))
	return nil
}

// quotedBy reads up to the closing quote; a doubled quote is a literal quote.
func (l *lexer) quotedBy(q byte, k kind, fault string) error {
	for i := l.pos + 1; i < len(l.src); i++ {
		if l.src[i] != q {
			continue
		}
		if i+1 < len(l.src) && l.src[i+1] == q {
			i++
			continue
		}
		l.add(k, i+1)
		return nil
	}
	return faultf(l.line, "%s", fault)
}

// word reads a name or keyword, and PostgreSQL's e'…' strings, in which a
// backslash escapes.
func (l *lexer) word() error {
	end := l.scan(l.pos, isNameByte)
	if end == l.pos+1 && l.src[l.pos]|0x20 == 'e' && end < len(l.src) && l.src[end] == '\'' {
		for i := end + 1; i < len(l.src); i++ {
			switch l.src[i] {
			case '\\':
				i++
			case '\'':
				l.add(text, i+1)
				return nil
			}
		}
		return faultf(l.line, "this string is never closed; end it with a single quote")
	}
	l.add(word, end)
	return nil
}

// dollar reads a $tag$…$tag$ string.
func (l *lexer) dollar() error {
	end := l.scan(l.pos+1, isNameByte)
	if end < len(l.src) && l.src[end] == '$' && (end == l.pos+1 || !isDigit(l.src[l.pos+1])) {
		tag := l.src[l.pos : end+1]
		i := strings.Index(l.src[end+1:], tag)
		if i < 0 {
			return faultf(l.line, "this string is never closed; end it with %s", tag)
		}
		l.add(text, end+1+i+len(tag))
		return nil
	}
	if end == l.pos+1 {
		l.add(punct, end)
		return nil
	}
	if l.body {
		l.add(number, end)
		return nil
	}
	return faultf(l.line, "%s is a numbered parameter; name the value instead, such as :campaign_id or :payload.name", l.src[l.pos:end])
}

// colon reads a binding, or the :: of a cast.
func (l *lexer) colon() error {
	rest := l.src[l.pos:]
	if strings.HasPrefix(rest, "::") {
		l.add(punct, l.pos+2)
		return nil
	}
	if l.body || len(rest) < 2 || !isNameStart(rest[1]) {
		l.add(punct, l.pos+1)
		return nil
	}
	end := l.scan(l.pos+1, isNameByte)
	for end+1 < len(l.src) && l.src[end] == '.' {
		switch {
		case isNameByte(l.src[end+1]):
			end = l.scan(end+1, isNameByte)
		case l.src[end+1] == '"':
			i := strings.IndexAny(l.src[end+2:], "\"\n")
			if i <= 0 || l.src[end+2+i] == '\n' {
				return faultf(l.line, "the quoted part of %s is empty or never closed", l.src[l.pos:end])
			}
			end += 2 + i + 1
		default:
			return faultf(l.line, "%s. ends with a dot; a path continues with a name", l.src[l.pos:end])
		}
	}
	if end < len(l.src) && l.src[end] == '!' && !strings.HasPrefix(l.src[end:], "!=") {
		end++
	}
	l.add(binding, end)
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isNameStart(c byte) bool {
	return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf
}
func isNameByte(c byte) bool { return isNameStart(c) || isDigit(c) }
