package event

import (
	"strconv"
	"strings"
	"time"
)

// moment is a point in time as a person writes it. span is how much of it the text names: 24 hours of a
// date, a minute of a time of day (today's); 0 for an exact time.
type moment struct {
	at   time.Time
	span time.Duration
}

// past is the moment; of a time of day the last one that is not after now.
func (m moment) past(now time.Time) time.Time {
	if m.span == time.Minute && m.at.After(now) {
		return m.at.AddDate(0, 0, -1)
	}
	return m.at
}

// from is the first time of day that is not before since.
func (m moment) from(since time.Time) time.Time {
	at := since.Truncate(24 * time.Hour).Add(m.at.Sub(m.at.Truncate(24 * time.Hour)))
	if at.Before(since) {
		return at.AddDate(0, 0, 1)
	}
	return at
}

// ParseRange parses a time range in UTC, whose end is exclusive. Its times are RFC 3339, a date, "14:00",
// or relative, such as -2h, -1h30m, -3d or -1w, of whole seconds. A time of day is the last one that is past,
// and at the end of a range the first one from its start. At the end, a date is included as a whole. An empty
// text is the zero time.
func ParseRange(sinceText, untilText string, now time.Time) (since, until time.Time, err error) {
	return parseRange("since", sinceText, "until", untilText, now)
}

// ParseFromTo is ParseRange for fields that are named from and to.
func ParseFromTo(fromText, toText string, now time.Time) (from, to time.Time, err error) {
	return parseRange("from", fromText, "to", toText, now)
}

func parseRange(sinceField, sinceText, untilField, untilText string, now time.Time) (since, until time.Time, err error) {
	start, err := ParseWhen(sinceField, sinceText, now)
	if err != nil {
		return since, until, err
	}
	since = start.past(now)
	end, err := ParseWhen(untilField, untilText, now)
	if err != nil {
		return since, until, err
	}
	switch {
	case end.span == 24*time.Hour:
		until = end.at.Add(end.span)
	case end.span == time.Minute && !since.IsZero():
		until = end.from(since)
	default:
		until = end.past(now)
	}
	return since, until, nil
}

// Absolute reports whether a text means the same time whenever it is read.
func Absolute(text string) bool {
	_, err := ParseSince("", text)
	return err == nil
}

func ParseWhen(field, text string, now time.Time) (moment, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return moment{}, nil
	}
	m, ok := readMoment(text, now.UTC().Truncate(time.Second))
	if !ok {
		return m, Invalid(field, `%s cannot be %q; write a time (UTC) like 2026-11-21T07:30:00Z, a date, "14:00" or "-2h"`, field, text)
	}
	if y := m.at.Year(); y < 1970 || y > 9998 {
		return moment{}, Invalid(field, "%s must be between the years 1970 and 9998", field)
	}
	return m, nil
}

// ParseTime parses a time as RFC 3339 has it, where t and z may be small letters; time.Parse takes more.
func ParseTime(text string) (time.Time, bool) {
	text = strings.ToUpper(text)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return time.Time{}, false
	}
	offset := text[len(text)-len("07:00"):]
	return t, strings.HasSuffix(text, "Z") || offset[:2] < "24" && offset[3:] < "60"
}

func readMoment(text string, now time.Time) (moment, bool) {
	if t, known := ParseTime(text); known {
		return moment{at: t.UTC()}, true
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return moment{at: day, span: 24 * time.Hour}, true
	}
	if clock, err := time.Parse("15:04", text); err == nil {
		return moment{at: now.Truncate(24 * time.Hour).Add(clock.Sub(clock.Truncate(24 * time.Hour))), span: time.Minute}, true
	}
	amount, found := strings.CutPrefix(text, "-")
	if !found || amount == "" {
		return moment{}, false
	}
	if unit := map[byte]int{'d': 1, 'w': 7}[amount[len(amount)-1]]; unit > 0 {
		n, err := strconv.Atoi(amount[:len(amount)-1])
		return moment{at: now.AddDate(0, 0, -n*unit)}, err == nil && n >= 0 && n <= 100_000
	}
	d, err := time.ParseDuration(amount)
	return moment{at: now.Add(-d)}, err == nil && d >= 0
}

// ParseSince parses the start of a time range: RFC 3339, or a date, meaning its first moment in
// UTC. The empty text is the zero time.
func ParseSince(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, known := ParseTime(text)
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		t, known = day, true
	}
	if !known {
		return time.Time{}, Invalid(field, "%s cannot be %q; write a date like 2026-11-21 or a time like 2026-11-21T07:30:00Z", field, text)
	}
	if t = t.UTC(); t.Year() < 1970 || t.Year() > 9998 {
		return time.Time{}, Invalid(field, "%s must be between the years 1970 and 9998", field)
	}
	return t, nil
}

// FormatSince formats a time for ParseSince, as short as possible.
func FormatSince(t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.Equal(t.Truncate(24 * time.Hour)):
		return t.UTC().Format(time.DateOnly)
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// FormatUntil formats the end of a time range, as short as possible.
func FormatUntil(t time.Time) string {
	if !t.IsZero() && t.Equal(t.Truncate(24*time.Hour)) {
		t = t.AddDate(0, 0, -1)
	}
	return FormatSince(t)
}
