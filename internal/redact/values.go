package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// builtinTriggers are the known formats of secrets.
var builtinTriggers = []trigger{
	{"eyj", matchJWT},
	{"-----begin ", matchPEM},
	pattern("AKIA", `[A-Z0-9]{16}`, `[^A-Z0-9]|$`), pattern("ASIA", `[A-Z0-9]{16}`, `[^A-Z0-9]|$`),
	prefix("ghp_", 16, isWordByte), prefix("gho_", 16, isWordByte), prefix("ghs_", 16, isWordByte), prefix("ghu_", 16, isWordByte),
	prefix("ghr_", 16, isWordByte), prefix("github_pat_", 16, isWordByte),
	prefix("glpat-", 16, isURLByte),
	prefix("xoxa-", 10, isURLByte), prefix("xoxb-", 10, isURLByte), prefix("xoxp-", 10, isURLByte), prefix("xoxr-", 10, isURLByte),
	prefix("xoxs-", 10, isURLByte), prefix("xoxe-", 10, isURLByte),
	prefix("sk_live_", 8, isWordByte), prefix("rk_live_", 8, isWordByte), prefix("sk_test_", 8, isWordByte), prefix("rk_test_", 8, isWordByte),
	prefix("whsec_", 16, isTokenByte),
	{"sk-", matchSK},
	prefix("AIza", 30, isURLByte),
	prefix("npm_", 20, isAlnum),
	prefix("xapp-", 10, isURLByte), prefix("glptt-", 16, isURLByte), prefix("pypi-", 30, isURLByte),
	prefix("hvs.", 20, isURLByte), prefix("dop_v1_", 20, isAlnum), prefix("ya29.", 20, isURLByte), prefix("shpat_", 16, isAlnum),
	pattern("SG.", `[\w-]{16,}\.[\w-]{16,}`, ``),
	prefix("obw_", 16, isURLByte),
	{"bearer", matchBearer}, {"basic", matchBasic},
	{"://", matchURL},
}

// matching is the search of a text. Every matcher reads a byte a bounded number of times, so
// that the search is linear.
type matching struct {
	r   *Redactor
	s   string
	jwt int // no JSON Web Token begins before this position
}

// run is the end of the run of bytes of a class from i on.
func (m *matching) run(i int, is func(byte) bool) int {
	for i < len(m.s) && is(m.s[i]) {
		i++
	}
	return i
}

// after reports whether the byte before at is of a class.
func (m *matching) after(at int, is func(byte) bool) bool { return at > 0 && is(m.s[at-1]) }

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
func isWordByte(c byte) bool  { return isAlnum(c) || c == '_' }
func isURLByte(c byte) bool   { return isWordByte(c) || c == '-' }
func isTokenByte(c byte) bool { return isURLByte(c) || strings.IndexByte("._~+/=", c) >= 0 }
func isSpace(c byte) bool     { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// prefix is the trigger of a well-known prefix, matched as it is written, that at least this many bytes
// of a class follow.
func prefix(text string, least int, is func(byte) bool) trigger {
	return trigger{strings.ToLower(text), func(m *matching, at, n int) (int, int, bool) {
		if m.after(at, isAlnum) || m.s[at:at+n] != text {
			return 0, 0, false
		}
		end := m.run(at+n, is)
		return at, end, end-at-n >= least
	}}
}

// pattern is the trigger of a well-known prefix, matched as it is written, that an expression follows, and
// behind this another one that is not hidden.
func pattern(text, expression, behind string) trigger {
	re := regexp.MustCompile(`^(` + expression + `)(?:` + behind + `)`)
	return trigger{strings.ToLower(text), func(m *matching, at, n int) (int, int, bool) {
		if m.after(at, isAlnum) || m.s[at:at+n] != text {
			return 0, 0, false
		}
		found := re.FindStringSubmatchIndex(m.s[at+n:])
		if found == nil {
			return 0, 0, false
		}
		return at, at + n + found[3], true
	}}
}

// matchJWT matches a JSON Web Token: a header that begins with {" in base64url, and two or four
// more parts, of which the signature may be empty.
func matchJWT(m *matching, at, _ int) (int, int, bool) {
	if at < m.jwt || m.s[at:at+3] != "eyJ" {
		return 0, 0, false
	}
	header := m.run(at, isURLByte)
	end := header
	for dots := 0; end < len(m.s) && m.s[end] == '.' && dots < 4; dots++ {
		next := m.run(end+1, isURLByte)
		if dots == 0 && next < end+3 {
			break
		}
		if end = next; dots > 0 {
			header = 0
		}
	}
	m.jwt = end
	return at, end, header == 0 && end-at >= 16
}

// matchPEM matches a block with a private key, up to its end or the end of the text.
func matchPEM(m *matching, at, n int) (int, int, bool) {
	const longest = 80
	label, _, closed := strings.Cut(m.s[at+n:min(len(m.s), at+n+longest)], "-----")
	if !closed || !strings.Contains(strings.ToUpper(label), "PRIVATE KEY") {
		return 0, 0, false
	}
	end := strings.Index(m.s[at+n:], "-----END ")
	if end < 0 {
		return at, len(m.s), true
	}
	end += at + n + len("-----END ")
	if dashes := strings.Index(m.s[end:min(len(m.s), end+longest)], "-----"); dashes >= 0 {
		return at, end + dashes + len("-----"), true
	}
	return at, len(m.s), true
}

// matchSK matches keys such as sk-proj-…, but not a name that contains sk-.
func matchSK(m *matching, at, n int) (int, int, bool) {
	if m.after(at, isURLByte) || m.s[at:at+2] != "sk" {
		return 0, 0, false
	}
	end := m.run(at+n, isURLByte)
	return at, end, end-at-n >= 20 && strings.ContainsAny(m.s[at:end], "0123456789")
}

// plainWords may follow the word bearer in a sentence.
var plainWords = map[string]bool{
	"token": true, "tokens": true, "auth": true, "authentication": true, "authorization": true, "realm": true, "scheme": true, "header": true,
	"credential": true, "credentials": true, "and": true, "the": true, "must": true, "was": true, "has": true, "for": true, "not": true,
}

// credentials is the range after the name of an HTTP scheme.
func (m *matching) credentials(at, n int) (from, end int, ok bool) {
	from = at + n
	for from < len(m.s) && from < at+n+8 && isSpace(m.s[from]) {
		from++
	}
	if m.after(at, isAlnum) || from == at+n {
		return 0, 0, false
	}
	return from, m.run(from, isTokenByte), true
}

// matchBasic matches the base64 user and password after the word.
func matchBasic(m *matching, at, n int) (int, int, bool) {
	const longest = 1000
	from, end, ok := m.credentials(at, n)
	if !ok || end-from < 4 || end-from > longest {
		return 0, 0, false
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(m.s[from:end], ".="))
	return from, end, err == nil && bytes.IndexByte(text, ':') >= 0 && utf8.Valid(text)
}

// matchBearer matches the token after the word, without the word.
func matchBearer(m *matching, at, n int) (int, int, bool) {
	from, end, ok := m.credentials(at, n)
	if !ok {
		return 0, 0, false
	}
	return from, end, end-from >= 3 && !plainWords[strings.ToLower(strings.Trim(m.s[from:min(end, from+40)], "=.:"))]
}

// matchURL matches the password of a URL, which may contain an unescaped slash.
func matchURL(m *matching, at, n int) (int, int, bool) {
	const longest = 1000
	rest := m.s[at+n : min(len(m.s), at+n+longest)]
	authority := rest
	if end := strings.IndexAny(rest, "/?# \t\r\n\"'<>\\"); end >= 0 {
		authority = rest[:end]
	}
	colon := strings.IndexByte(authority, ':')
	if colon < 0 {
		return 0, 0, false
	}
	end := strings.LastIndexByte(authority, '@')
	if end < 0 && !isNumber(authority[colon+1:]) {
		rest, _, _ = strings.Cut(rest, "://")
		if stop := strings.IndexAny(rest, " \t\r\n\"'<>\\"); stop >= 0 {
			rest = rest[:stop]
		}
		end = strings.LastIndexByte(rest, '@')
	}
	return at + n + colon + 1, at + n + end, end > colon+1
}

// nameReach is the maximum length of a name in a text on each side of its trigger.
const nameReach = 64

// matchAssignment matches the value in password=…, "token": "…" and the like.
func matchAssignment(m *matching, at, n int) (int, int, bool) {
	begin, end := m.nameAround(at, at+n)
	name := m.s[begin:end]
	sign, from := m.sign(m.brackets(end))
	if sign == 0 {
		return m.unsigned(begin, end)
	}
	if from >= len(m.s) || !m.r.HidesName(name) {
		return 0, 0, false
	}
	switch last := lastWord(name); {
	case sign == '%':
		to := m.escaped(from)
		return from, to, to > from
	case (last == "authorization" || last == "cookie") && !isQuote(m.s[from]):
		ends := "\n\r"
		if begin > 0 && isQuote(m.s[begin-1]) {
			ends += quotes
		}
		to := m.run(from, func(c byte) bool { return strings.IndexByte(ends, c) < 0 })
		return from, to, to > from
	case sign == ':' && isSpace(m.s[from-1]) && !isQuote(m.s[from]) && m.s[from] != '\\' && !passwordLike[last]:
		if !m.random(from) {
			return 0, 0, false
		}
	}
	from, to := m.value(from)
	return from, to, to > from
}

// nameAround is the range of the name that contains a word.
func (m *matching) nameAround(from, to int) (begin, end int) {
	begin, end = from, to
	for begin > max(0, from-nameReach) && isURLByte(m.s[begin-1]) {
		begin--
	}
	if begin > 0 && m.s[begin-1] == '%' {
		if _, next := m.escape(begin - 1); next > 0 && next <= from {
			begin = next
		}
	}
	for end < min(len(m.s), to+nameReach) && isURLByte(m.s[end]) {
		end++
	}
	return begin, end
}

// random reports whether the beginning of the value at i is unlikely to be a word.
func (m *matching) random(i int) bool {
	const enough = 200
	start := matching{s: m.s[i:min(len(m.s), i+enough)]}
	from, to := start.value(0)
	return looksRandom(start.s[from:to])
}

// brackets is the position after the brackets that follow a name ending at i, as in
// user[password], password[] and user[password][0], also percent-encoded.
func (m *matching) brackets(i int) int {
	limit := min(len(m.s), i+nameReach)
	for at := i; at < limit; {
		c, next := m.s[at], at+1
		if c == '%' {
			if c, next = m.escape(at); next == 0 {
				return i
			}
		}
		switch {
		case c == ']':
			i = next
		case c != '[' && c != '\\' && !isQuote(c) && !isURLByte(c):
			return i
		}
		at = next
	}
	return i
}

// unsigned matches the value of a name without an equals sign or colon: an XML element's text,
// or a command-line flag's value.
func (m *matching) unsigned(begin, end int) (from, to int, ok bool) {
	if end+1 >= len(m.s) || m.s[end] != '>' && !isSpace(m.s[end]) {
		return 0, 0, false
	}
	switch name := m.s[begin:end]; {
	case m.opensElement(begin) && m.r.HidesName(name):
		return m.element(end)
	case m.s[end] == ' ' && strings.HasPrefix(name, "--") && m.s[end+1] != '-' && m.s[end+1] != ' ' && m.r.HidesName(name):
		from, to = m.value(end + 1)
		return from, to, to > from
	}
	return 0, 0, false
}

// element is the range of the text of an XML element whose name, or last attribute, ends at i.
func (m *matching) element(i int) (from, to int, ok bool) {
	const cdata = "<![CDATA["
	end := strings.IndexAny(m.s[i:], "<>")
	if end < 0 || m.s[i+end] == '<' {
		return 0, 0, false
	}
	if attributes := m.s[i : i+end]; strings.HasSuffix(attributes, "/") && strings.Count(attributes, `"`)%2 == 0 {
		return 0, 0, false // an element without text
	}
	from, sign := i+end+1, "<"
	if start := skipSpace(m.s, from); strings.HasPrefix(m.s[start:], cdata) {
		from, sign = start+len(cdata), "]]>"
	}
	to = len(m.s)
	if length := strings.Index(m.s[from:], sign); length >= 0 {
		to = from + length
	}
	return from, to, to > from
}

// opensElement reports whether the name at begin opens an element, possibly after a namespace
// prefix.
func (m *matching) opensElement(begin int) bool {
	if begin > 0 && m.s[begin-1] == ':' {
		for begin--; begin > 0 && isURLByte(m.s[begin-1]); begin-- {
		}
	}
	return begin > 0 && m.s[begin-1] == '<'
}

// escape decodes a percent-encoded byte at i, encoded once or several times. next is 0 when
// there is none.
func (m *matching) escape(i int) (c byte, next int) {
	if i >= len(m.s) || m.s[i] != '%' {
		return 0, 0
	}
	for i++; strings.HasPrefix(m.s[i:], "25"); i += 2 {
	}
	if i+2 > len(m.s) {
		return 0, 0
	}
	n, err := strconv.ParseUint(m.s[i:i+2], 16, 8)
	if err != nil {
		return 0, 0
	}
	return byte(n), i + 2
}

// endsValue reports whether a byte ends an unquoted value.
func endsValue(c byte) bool { return isSpace(c) || isQuote(c) || strings.IndexByte(",;&)}]<>", c) >= 0 }

// escaped is the end of the percent-encoded value of an assignment.
func (m *matching) escaped(i int) int {
	if strings.HasPrefix(m.s[i:], Mark) {
		return i + len(Mark)
	}
	for i < len(m.s) && !endsValue(m.s[i]) {
		if c, _ := m.escape(i); c == '&' || isQuote(c) {
			break
		}
		i++
	}
	return i
}

// passwordLike are names that a sentence has before a colon only to give a password.
var passwordLike = map[string]bool{"password": true, "passwd": true, "passphrase": true, "pwd": true, "passcode": true}

func lastWord(name string) string {
	words := wordsOf(name)
	return words[len(words)-1]
}

// looksRandom reports whether a text is unlikely to be a word: it has digits, or both lower and
// upper case after its first character.
func looksRandom(s string) bool {
	return strings.ContainsAny(s, "0123456789") || len(s) > 1 && strings.ToLower(s[1:]) != s[1:] && strings.ToUpper(s) != s
}

const quotes = "\"'`"

func isQuote(c byte) bool { return strings.IndexByte(quotes, c) >= 0 }

// sign finds the assignment after a name that ends at i, an equals sign or a colon, or '%' for
// a percent-encoded one, and where the value begins. 0 means none.
func (m *matching) sign(i int) (sign byte, from int) {
	if i < len(m.s) && m.s[i] == '%' {
		return m.escapedSign(i)
	}
	i = m.spaces(i)
	for i < len(m.s) && m.s[i] == '\\' {
		i++
	}
	if i < len(m.s) && isQuote(m.s[i]) {
		i = m.spaces(i + 1)
	}
	if i >= len(m.s) || m.s[i] != '=' && m.s[i] != ':' {
		return 0, 0
	}
	sign = m.s[i]
	if i++; i < len(m.s) && (m.s[i] == '=' || m.s[i] == '>') {
		i++
	}
	return sign, m.spaces(i)
}

func (m *matching) escapedSign(i int) (sign byte, from int) {
	c, next := m.escape(i)
	if isQuote(c) {
		c, next = m.escape(next)
	}
	if c != '=' && c != ':' {
		return 0, 0
	}
	for from = next; ; from = next {
		if c, next = m.escape(from); c != ' ' && !isQuote(c) {
			return '%', from
		}
	}
}

// spaces skips a few spaces.
func (m *matching) spaces(i int) int {
	for end := min(len(m.s), i+16); i < end && (m.s[i] == ' ' || m.s[i] == '\t'); i++ {
	}
	return i
}

// value is the range of the value of an assignment at i, inside its quotes if it has any.
func (m *matching) value(i int) (from, to int) {
	for from = i; from < len(m.s) && m.s[from] == '\\'; {
		from++
	}
	switch {
	case from < len(m.s) && isQuote(m.s[from]):
		return from + 1, m.quoted(from+1, m.s[from], from > i)
	case i < len(m.s) && (m.s[i] == '{' || m.s[i] == '['):
		return i, m.bracketed(i)
	}
	return i, m.run(i, func(c byte) bool { return !endsValue(c) })
}

// quoted is the end of a quoted text, whose quotes may themselves be escaped.
func (m *matching) quoted(i int, quote byte, escaped bool) int {
	for ; i < len(m.s); i++ {
		switch {
		case quote == '\'' && strings.HasPrefix(m.s[i:], "''"): // a quote inside the text, as SQL escapes it
			i++
		case m.s[i] == quote:
			return i
		case m.s[i] == '\\' && escaped && i+1 < len(m.s) && m.s[i+1] == quote:
			return i
		case m.s[i] == '\\':
			i++
		}
	}
	return len(m.s)
}

// bracketed is the end of an object or array, or of the text.
func (m *matching) bracketed(i int) int {
	for depth := 0; i < len(m.s); i++ {
		switch m.s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			i = m.quoted(i+1, '"', false)
		}
	}
	return len(m.s)
}
