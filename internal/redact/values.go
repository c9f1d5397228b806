package redact

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// builtinTriggers are the forms of secrets that are known.
var builtinTriggers = []trigger{
	{"eyj", matchJWT},
	{"-----begin ", matchPEM},
	{"akia", matchAWS}, {"asia", matchAWS},
	{"ghp_", prefixed(16, isWordByte)}, {"gho_", prefixed(16, isWordByte)}, {"ghs_", prefixed(16, isWordByte)}, {"ghu_", prefixed(16, isWordByte)},
	{"ghr_", prefixed(16, isWordByte)}, {"github_pat_", prefixed(16, isWordByte)},
	{"glpat-", prefixed(16, isURLByte)},
	{"xoxa-", prefixed(10, isURLByte)}, {"xoxb-", prefixed(10, isURLByte)}, {"xoxp-", prefixed(10, isURLByte)}, {"xoxr-", prefixed(10, isURLByte)},
	{"xoxs-", prefixed(10, isURLByte)}, {"xoxe-", prefixed(10, isURLByte)},
	{"sk_live_", prefixed(8, isWordByte)}, {"rk_live_", prefixed(8, isWordByte)}, {"sk_test_", prefixed(8, isWordByte)}, {"rk_test_", prefixed(8, isWordByte)},
	{"whsec_", prefixed(16, isTokenByte)},
	{"sk-", matchSK},
	{"aiza", matchGoogle},
	{"npm_", prefixed(20, isAlnum)},
	{"xapp-", prefixed(10, isURLByte)}, {"glptt-", prefixed(16, isURLByte)}, {"pypi-", prefixed(30, isURLByte)},
	{"hvs.", prefixed(20, isURLByte)}, {"dop_v1_", prefixed(20, isAlnum)}, {"ya29.", prefixed(20, isURLByte)}, {"shpat_", prefixed(16, isAlnum)},
	{"sg.", matchSendGrid},
	{"obw_", prefixed(16, isURLByte)},
	{"bearer", matchBearer}, {"basic", matchBasic},
	{"://", matchURL},
}

// matching is a text while it is looked through. Every matcher looks at a byte a
// bounded number of times, so that the whole stays linear.
type matching struct {
	r   *Redactor
	s   string
	jwt int // no JSON Web Token begins before it
}

// run is the end of the run of bytes of a kind from i on.
func (m *matching) run(i int, is func(byte) bool) int {
	for i < len(m.s) && is(m.s[i]) {
		i++
	}
	return i
}

// after reports whether the byte before at is of a kind.
func (m *matching) after(at int, is func(byte) bool) bool { return at > 0 && is(m.s[at-1]) }

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
func isUpperAlnum(c byte) bool { return c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
func isWordByte(c byte) bool   { return isAlnum(c) || c == '_' }
func isURLByte(c byte) bool    { return isWordByte(c) || c == '-' }
func isTokenByte(c byte) bool  { return isURLByte(c) || strings.IndexByte("._~+/=", c) >= 0 }
func isSpace(c byte) bool      { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// prefixed matches a well-known prefix, written as it is, with at least so many
// bytes of a kind behind it.
func prefixed(least int, is func(byte) bool) func(*matching, int, int) (int, int, bool) {
	return func(m *matching, at, n int) (int, int, bool) {
		if m.after(at, isAlnum) || strings.ToLower(m.s[at:at+n]) != m.s[at:at+n] {
			return 0, 0, false
		}
		end := m.run(at+n, is)
		return at, end, end-at-n >= least
	}
}

// matchJWT matches a JSON Web Token: a header that begins with {" in base64url,
// and two more parts or four, of which the signature may be empty.
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

// matchPEM matches a block with a private key, whole, or up to the end of a text
// that does not end it.
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

func matchAWS(m *matching, at, n int) (int, int, bool) {
	if m.after(at, isAlnum) {
		return 0, 0, false
	}
	end := at
	for end < min(len(m.s), at+n+17) && isUpperAlnum(m.s[end]) {
		end++
	}
	return at, end, end == at+n+16
}

// matchSK matches keys such as sk-proj-…, and not a name with sk- in it.
func matchSK(m *matching, at, n int) (int, int, bool) {
	if m.after(at, isURLByte) || m.s[at:at+2] != "sk" {
		return 0, 0, false
	}
	end := m.run(at+n, isURLByte)
	return at, end, end-at-n >= 20 && strings.ContainsAny(m.s[at:end], "0123456789")
}

func matchGoogle(m *matching, at, n int) (int, int, bool) {
	if m.after(at, isAlnum) || m.s[at:at+n] != "AIza" {
		return 0, 0, false
	}
	end := m.run(at+n, isURLByte)
	return at, end, end-at-n >= 30
}

// plainWords are what follows the word bearer in sentences.
var plainWords = map[string]bool{
	"token": true, "tokens": true, "auth": true, "authentication": true, "authorization": true, "realm": true, "scheme": true, "header": true,
	"credential": true, "credentials": true, "and": true, "the": true, "must": true, "was": true, "has": true, "for": true, "not": true,
}

// credentials is the extent of what follows the name of a scheme of HTTP.
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

// matchBasic matches a name and its password behind the word, in base64.
func matchBasic(m *matching, at, n int) (int, int, bool) {
	const longest = 1000
	from, end, ok := m.credentials(at, n)
	if !ok || end-from < 4 || end-from > longest {
		return 0, 0, false
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(m.s[from:end], ".="))
	return from, end, err == nil && bytes.IndexByte(text, ':') >= 0 && utf8.Valid(text)
}

// matchSendGrid matches SG., an id and the key.
func matchSendGrid(m *matching, at, n int) (int, int, bool) {
	if m.after(at, isAlnum) || m.s[at:at+n] != "SG." {
		return 0, 0, false
	}
	dot := m.run(at+n, isURLByte)
	if dot-at-n < 16 || dot == len(m.s) || m.s[dot] != '.' {
		return 0, 0, false
	}
	end := m.run(dot+1, isURLByte)
	return at, end, end-dot > 16
}

// matchBearer matches what follows the word, and leaves the word.
func matchBearer(m *matching, at, n int) (int, int, bool) {
	from, end, ok := m.credentials(at, n)
	if !ok {
		return 0, 0, false
	}
	return from, end, end-from >= 3 && !plainWords[strings.ToLower(strings.Trim(m.s[from:min(end, from+40)], "=.:"))]
}

// matchURL matches the password of an address, which may hold a slash that should
// have been escaped.
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

// A name in a text is at most so long to each side of the word that gave it away.
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

// nameAround is the extent of the name that a word stands in.
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

// random reports whether the value at i, as far as it is looked at, is hardly a
// word.
func (m *matching) random(i int) bool {
	const enough = 200
	start := matching{s: m.s[i:min(len(m.s), i+enough)]}
	from, to := start.value(0)
	return looksRandom(start.s[from:to])
}

// brackets is the position after the brackets behind a name that ends at i, as
// in user[password], password[] and user[password][0], also percent-encoded.
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

// unsigned matches the value of a name without a sign behind it: that of an
// element of XML, and of a flag in a command line.
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

// element is the extent of the text of an element of XML that begins behind the
// name that ends at i, or behind its attributes.
func (m *matching) element(i int) (from, to int, ok bool) {
	const cdata = "<![CDATA["
	end := strings.IndexAny(m.s[i:], "<>")
	if end < 0 || m.s[i+end] == '<' {
		return 0, 0, false
	}
	if attributes := m.s[i : i+end]; strings.HasSuffix(attributes, "/") && strings.Count(attributes, `"`)%2 == 0 {
		return 0, 0, false // an element without a text
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

// opensElement reports whether the name at begin opens an element, maybe behind
// the prefix of a namespace.
func (m *matching) opensElement(begin int) bool {
	if begin > 0 && m.s[begin-1] == ':' {
		for begin--; begin > 0 && isURLByte(m.s[begin-1]); begin-- {
		}
	}
	return begin > 0 && m.s[begin-1] == '<'
}

// escape reads a byte that is percent-encoded at i, once or again and again.
// next is 0 where there is none.
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

// endsValue reports whether a byte ends a value that has no quotes.
func endsValue(c byte) bool { return isSpace(c) || isQuote(c) || strings.IndexByte(",;&)}]<>", c) >= 0 }

// escaped is the end of the value of an assignment that is percent-encoded.
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

// passwordLike are names that no sentence has before a colon for another reason.
var passwordLike = map[string]bool{"password": true, "passwd": true, "passphrase": true, "pwd": true, "passcode": true}

func lastWord(name string) string {
	words := wordsOf(name)
	return words[len(words)-1]
}

// looksRandom reports whether a text is hardly a word: it has digits, or both
// small letters and capitals after its first.
func looksRandom(s string) bool {
	return strings.ContainsAny(s, "0123456789") || len(s) > 1 && strings.ToLower(s[1:]) != s[1:] && strings.ToUpper(s) != s
}

const quotes = "\"'`"

func isQuote(c byte) bool { return strings.IndexByte(quotes, c) >= 0 }

// sign finds what makes an assignment behind a name that ends at i, an equals
// sign or a colon, or '%' for one of them percent-encoded, and where the value
// begins. A sign of 0 is none.
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

// value is the extent of the value of an assignment that begins at i, within its
// quotes where it has some.
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

// quoted is the end of a text in quotes, which may themselves be escaped.
func (m *matching) quoted(i int, quote byte, escaped bool) int {
	for ; i < len(m.s); i++ {
		switch {
		case quote == '\'' && strings.HasPrefix(m.s[i:], "''"): // one of its own, as SQL writes it
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
