package event

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Unseen reports whether a character has no look of its own: a control, a mark that formats the text
// around it or turns its direction, a space of no width, a line or paragraph separator, or one for
// private use.
func Unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp)
}

// ShellWord writes s as one word of a POSIX shell.
func ShellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@,+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Joiner reports whether a character joins those around it, or keeps them apart, which whole scripts
// and emoji need.
func Joiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// UnseenIn returns the first character of a name that must not be in one: two names that look alike
// must be alike. A joiner may stand between characters beyond ASCII.
func UnseenIn(name string) (r rune, found bool) {
	for i, r := range name {
		if !Unseen(r) {
			continue
		}
		end := i + utf8.RuneLen(r)
		joins := Joiner(r) && i > 0 && name[i-1] >= utf8.RuneSelf && end < len(name) && name[end] >= utf8.RuneSelf
		if !joins {
			return r, true
		}
	}
	return 0, false
}

// checkText validates a short field of an event to append.
func checkText(name, value string) error {
	if err := CheckStored(name, value); err != nil {
		return err
	}
	switch r, found := UnseenIn(value); {
	case found && unicode.IsControl(r):
		return Invalid(name, "%s contains the control character U+%04X", name, r)
	case found:
		return Invalid(name, "%s contains the character U+%04X, which cannot be seen", name, r)
	}
	return nil
}

// CheckStored validates a short field of an event that may be in the journal from before checkText
// became stricter.
func CheckStored(name, value string) error {
	if len(value) > MaxIDLength {
		return Invalid(name, "%s is %d bytes long; the limit is %d", name, len(value), MaxIDLength)
	}
	for i, r := range value {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(value[i:], "\uFFFD"):
			return Invalid(name, "%s is not valid UTF-8", name)
		case r == 0:
			return Invalid(name, "%s contains a NUL character", name)
		case r < 0x20 || r == 0x7f:
			return Invalid(name, "%s contains the control character U+%04X", name, r)
		}
	}
	return nil
}

// hasEscapedNUL reports whether valid JSON has an escaped NUL character; an escaped backslash
// before u0000 does not count.
func hasEscapedNUL(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte(`\u0000`))
		if i < 0 {
			return false
		}
		backslashes := 1
		for j := i - 1; j >= 0 && raw[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 1 {
			return true
		}
		raw = raw[i+1:]
	}
}

// hasHalfCharacter reports whether valid JSON has an escaped surrogate without its pair.
func hasHalfCharacter(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		next := bytes.IndexByte(raw[i:], '\\')
		if next < 0 {
			return false
		}
		if i += next + 1; raw[i] != 'u' {
			continue
		}
		one := escapedUnit(raw[i-1:])
		i += 4
		if !utf16.IsSurrogate(one) {
			continue
		}
		if utf16.DecodeRune(one, escapedUnit(raw[i+1:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escapedUnit returns the code of the \uXXXX at the start of raw; 0 if there is none.
func escapedUnit(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

func halfCharacter(name string) error {
	return Invalid(name, "%s contains half a surrogate pair (a \\ud800 to \\udfff without its other half), which is no character", name)
}

// Joined joins words, with last before the last one.
func Joined(words []string, last string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	end := len(words) - 1
	return strings.Join(words[:end], ", ") + last + words[end]
}

// OrList joins words as alternatives: "a, b or c".
func OrList(words []string) string {
	return Joined(words, " or ")
}
