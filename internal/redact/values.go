package redact

import "strings"

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
	{"obw_", prefixed(16, isURLByte)},
	{"bearer", matchBearer},
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

// matchBearer matches what follows the word, and leaves the word.
func matchBearer(m *matching, at, n int) (int, int, bool) {
	from := at + n
	for from < len(m.s) && from < at+n+8 && m.s[from] == ' ' {
		from++
	}
	if m.after(at, isAlnum) || from == at+n {
		return 0, 0, false
	}
	end := m.run(from, isTokenByte)
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
		if stop := strings.IndexAny(rest, " \t\r\n\"'<>\\"); stop >= 0 {
			rest = rest[:stop]
		}
		if next := strings.Index(rest, "://"); next >= 0 {
			rest = rest[:next]
		}
		end = strings.LastIndexByte(rest, '@')
	}
	return at + n + colon + 1, at + n + end, end > colon+1
}

// A name in a text is at most so long to each side of the word that gave it away.
const nameReach = 64

// matchAssignment matches the value in password=…, "token": "…" and the like.
func matchAssignment(m *matching, at, n int) (int, int, bool) {
	begin, end := at, at+n
	for begin > max(0, at-nameReach) && isURLByte(m.s[begin-1]) {
		begin--
	}
	for end < min(len(m.s), at+n+nameReach) && isURLByte(m.s[end]) {
		end++
	}
	name := m.s[begin:end]
	if !m.r.HidesName(name) {
		return 0, 0, false
	}
	sign, from := m.sign(end)
	if sign == 0 || from >= len(m.s) {
		return 0, 0, false
	}
	switch last := lastWord(name); {
	case last == "authorization" || last == "cookie":
		to := from
		if isQuote(m.s[from]) {
			break
		}
		for to < len(m.s) && m.s[to] != '\n' && m.s[to] != '\r' && !isQuote(m.s[to]) {
			to++
		}
		return from, to, to > from
	case sign == ':' && isSpace(m.s[from-1]) && !isQuote(m.s[from]) && m.s[from] != '\\' && !passwordLike[last]:
		_, to := m.value(from)
		return from, to, to > from && looksRandom(m.s[from:to])
	}
	from, to := m.value(from)
	return from, to, to > from
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

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }

// sign finds what makes an assignment behind a name that ends at i, an equals
// sign or a colon, and where the value begins. A sign of 0 is none.
func (m *matching) sign(i int) (sign byte, from int) {
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
	to = i
	for to < len(m.s) && !isSpace(m.s[to]) && strings.IndexByte(`,;&)}]<>"'`+"`", m.s[to]) < 0 {
		to++
	}
	return i, to
}

// quoted is the end of a text in quotes, which may themselves be escaped.
func (m *matching) quoted(i int, quote byte, escaped bool) int {
	for ; i < len(m.s); i++ {
		switch {
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
