package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Number formats a number for people: 1,234,567.
func Number(n int64) string {
	sign, digits := "", strconv.FormatInt(n, 10)
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Count formats a number with its noun: "1 row", "2,000 rows".
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Bytes writes a size in units of 1,024: "312 bytes", "4.1 KiB", "25 MiB".
func Bytes(n int64) string {
	if n < 1<<10 {
		return Count(n, "byte", "bytes")
	}
	amount := float64(n) / (1 << 10)
	for _, unit := range []string{"KiB", "MiB"} {
		switch {
		case amount < 9.95:
			return strconv.FormatFloat(amount, 'f', 1, 64) + " " + unit
		case amount < 1023.5:
			return Number(int64(amount+0.5)) + " " + unit
		}
		amount /= 1 << 10
	}
	return strconv.FormatFloat(amount, 'f', 1, 64) + " GiB"
}

// Took writes how long something took or lasted, in two units: "41 s", "2 min 41 s", "1 h 5 min", "3 d".
func Took(d time.Duration) string {
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, " d"}, {time.Hour, " h"}, {time.Minute, " min"}, {time.Second, " s"}}
	for i, u := range units[:len(units)-1] {
		if d < u.of {
			continue
		}
		text, next := Number(int64(d/u.of))+u.name, units[i+1]
		if rest := d % u.of / next.of; rest > 0 {
			text += " " + Number(int64(rest)) + next.name
		}
		return text
	}
	return Age(d)
}

// Limit writes a duration that was set, exactly: "500 ms", "90 s", "2 min".
// Age writes one that was measured.
func Limit(d time.Duration) string {
	switch {
	case d%time.Second != 0:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + " ms"
	case d%time.Minute != 0 || d == 0:
		return Number(int64(d/time.Second)) + " s"
	case d%time.Hour != 0:
		return Number(int64(d/time.Minute)) + " min"
	default:
		return Number(int64(d/time.Hour)) + " h"
	}
}

// Sentence returns s with a capital first letter and a final period.
func Sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	if first, _, _ := strings.Cut(s, " "); !strings.ContainsAny(strings.TrimRight(first, ".,:;"), "./:_") { // the name of a file is written as it is
		r, size := utf8.DecodeRuneInString(s)
		s = string(unicode.ToUpper(r)) + s[size:]
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

// Age formats a duration for people: 3 s, 4 min, 2 h, 5 d. Less than a second, or negative, is "0
// s".
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
}

// ShortHash abbreviates a hash, such as a projection's version.
func ShortHash(hash string) string { return hash[:min(len(hash), 12)] }

// Second is a time to the second: "2006-01-02 15:04:05 UTC".
func Second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Minute is a time of this year to the minute: "Jan 2 15:04 UTC".
func Minute(t time.Time) string { return t.UTC().Format("Jan 2 15:04 UTC") }

// Lowered begins a text with a small letter.
func Lowered(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// AtLeast formats a number at which counting may have stopped: "at least 5000".
func AtLeast(n int64, capped bool) string {
	if capped && n > 0 {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}

// Truth is 1 for true and 0 for false, to compare by.
func Truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Cut shortens a text to this many bytes.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
