package event

import (
	"cmp"
	"strings"
	"time"
)

// Retry is the policy for events that fail. The zero value is the default.
type Retry struct {
	MaxAttempts int           // failures after which a row is dead; 0 means 8
	Base        time.Duration // delay after the first failure; 0 means 1 s
	Max         time.Duration // longest delay; 0 means 5 min
}

// Attempts is the number of failures after which a row is dead.
func (r Retry) Attempts() int { return cmp.Or(max(0, r.MaxAttempts), 8) }

// Delay is the wait after failure n, counted from 1: Base doubled n−1 times, at most Max.
func (r Retry) Delay(n int) time.Duration {
	d, limit := cmp.Or(max(0, r.Base), time.Second), cmp.Or(max(0, r.Max), 5*time.Minute)
	for i := 1; i < n; i++ {
		if d > limit/2 { // doubling would exceed the limit, or overflow
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// Longest is the longest wait after any failure.
func (r Retry) Longest() time.Duration { return r.Delay(r.Attempts()) }

// Fingerprint normalizes an error's text for grouping like failures: numbers, quoted text and long
// hexadecimal or identifier-like words become placeholders. It is at most fingerprintBytes long.
func Fingerprint(message string) string {
	line, _, _ := strings.Cut(message, "\n")
	var b strings.Builder
	for len(line) > 0 && b.Len() < fingerprintBytes {
		c := line[0]
		switch {
		case c == '"' || c == '\'' || c == '`':
			if end := strings.IndexByte(line[1:], c); end >= 0 {
				b.WriteString("…")
				line = line[end+2:]
				continue
			}
			line = line[1:]
		case isWordByte(c):
			n := 1
			for n < len(line) && isWordByte(line[n]) {
				n++
			}
			b.WriteString(foldWord(line[:n]))
			line = line[n:]
		default:
			b.WriteByte(c)
			line = line[1:]
		}
	}
	folded := b.String()
	return strings.ToValidUTF8(folded[:min(len(folded), fingerprintBytes)], "")
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// foldWord replaces numbers by # and words that look like generated ids (letters and digits mixed,
// 8 or more) by …; names such as sha256 stay.
func foldWord(w string) string {
	digits := 0
	for i := range len(w) {
		if w[i] >= '0' && w[i] <= '9' {
			digits++
		}
	}
	switch {
	case digits == len(w):
		return "#"
	case digits > 0 && len(w) >= 8:
		return "…"
	default:
		return w
	}
}
