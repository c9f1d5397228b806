package outbox

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// moment is a point in time as a person writes it. span is how much of it the text names: a day, a
// minute, a second; 0 for an exact time.
type moment struct {
	at    time.Time
	span  time.Duration
	clock bool // a time of day without a day, today's
}

// past is the moment; of a time of day the last one that is not after now.
func (m moment) past(now time.Time) time.Time {
	if m.clock && m.at.After(now) {
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

// clockForms are the forms of a time of day.
var clockForms = []struct {
	layout string
	span   time.Duration
}{{"15:04", time.Minute}, {"15:04:05", time.Second}}

// ParseRange parses a time range in UTC, whose end is exclusive. Its times are RFC 3339, a date,
// "2026-11-21 14:00", "14:00", "yesterday", "yesterday 14:00", "now", "-2h", "2h ago"; relative ones are
// of whole seconds. A time of day is the last one that is past, and at the end of a range the first one
// from its start. At the end, a date, "today" and "yesterday" are included as a whole. An empty text is
// the zero time.
func ParseRange(sinceText, untilText string, now time.Time) (since, until time.Time, err error) {
	return parseRange("since", sinceText, "until", untilText, now)
}

// ParseFromTo is ParseRange for fields that are named from and to.
func ParseFromTo(fromText, toText string, now time.Time) (from, to time.Time, err error) {
	return parseRange("from", fromText, "to", toText, now)
}

func parseRange(sinceField, sinceText, untilField, untilText string, now time.Time) (since, until time.Time, err error) {
	start, err := parseWhen(sinceField, sinceText, now)
	if err != nil {
		return since, until, err
	}
	since = start.past(now)
	end, err := parseWhen(untilField, untilText, now)
	if err != nil {
		return since, until, err
	}
	switch {
	case end.span == 24*time.Hour:
		until = end.at.Add(end.span)
	case end.clock && !since.IsZero():
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

func parseWhen(field, text string, now time.Time) (moment, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return moment{}, nil
	}
	m, ok := readMoment(text, now.UTC().Truncate(time.Second))
	if !ok {
		return m, Invalid(field, `%s cannot be %q; write a time (UTC) like 2026-11-21T07:30:00Z, 2026-11-21 07:30, a date, "yesterday 14:00", "14:00" or "-2h"`, field, text)
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
	words := strings.Fields(strings.ToLower(text))
	if len(words) == 1 {
		if before, after, found := strings.Cut(words[0], "t"); found {
			if m, ok := readDayTime(before, after, now); ok {
				return m, true
			}
		}
	}
	switch {
	case len(words) == 2 && words[1] == "ago":
		return readAgo("-"+words[0], now)
	case len(words) == 2:
		return readDayTime(words[0], words[1], now)
	case len(words) != 1:
		return moment{}, false
	case words[0] == "now":
		return moment{at: now}, true
	}
	if day, ok := readDay(words[0], now); ok {
		return moment{at: day, span: 24 * time.Hour}, true
	}
	if m, ok := readAgo(words[0], now); ok {
		return m, true
	}
	m, ok := readDayTime("today", words[0], now)
	m.clock = true
	return m, ok
}

// readDay reads today, yesterday or a date as its first moment.
func readDay(word string, now time.Time) (time.Time, bool) {
	today := now.Truncate(24 * time.Hour)
	switch word {
	case "today":
		return today, true
	case "yesterday":
		return today.AddDate(0, 0, -1), true
	}
	day, err := time.Parse(time.DateOnly, word)
	return day, err == nil
}

func readDayTime(day, clock string, now time.Time) (moment, bool) {
	date, ok := readDay(day, now)
	if !ok {
		return moment{}, false
	}
	for _, form := range clockForms {
		if t, err := time.Parse(form.layout, clock); err == nil {
			return moment{at: date.Add(t.Sub(t.Truncate(24 * time.Hour))), span: form.span}, true
		}
	}
	return moment{}, false
}

// readAgo reads a time before now, such as -2h, -1h30m, -3d or -1w.
func readAgo(word string, now time.Time) (moment, bool) {
	amount, found := strings.CutPrefix(word, "-")
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

// Asked is what a reader typed into the search box: words to look for, and a time range if the text
// names one.
type Asked struct {
	Words        []string
	Since, Until time.Time
}

// ParseAsked takes the time range out of a search: "order 17 yesterday 14:00-14:10", "c-7 today",
// "order 17 -2h", "order 17 last hour", "what happened to order 17 between 14:00 and 14:10". Times are
// UTC. A time without an end is one minute; a time of day without a day is the last one that is past.
func ParseAsked(text string, now time.Time) Asked {
	now = now.UTC().Truncate(time.Second)
	var a Asked
	day, span := "", ""
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		word := strings.ToLower(words[i])
		if _, ok := readDay(word, now); ok && day == "" {
			day = word
			continue
		}
		if joined, used := clockRange(words[i:]); used > 0 && span == "" {
			span = joined
			i += used - 1
			continue
		}
		if since, until, used := exactRange(words[i:]); used > 0 && a.Since.IsZero() {
			a.Since, a.Until = since, until
			i += used - 1
			continue
		}
		if m, used, ok := readLast(words[i:], now); ok && a.Since.IsZero() {
			a.Since, a.Until = m.at, now
			i += used - 1
			continue
		}
		a.Words = append(a.Words, words[i])
	}
	switch {
	case day != "":
		a.Since, a.Until = rangeOfDay(day, span, now)
	case span != "":
		a.Since, a.Until = rangeOfDay("today", span, now)
		if a.Since.After(now) {
			a.Since, a.Until = a.Since.AddDate(0, 0, -1), a.Until.AddDate(0, 0, -1)
		}
	}
	if asks := len(question); !a.Since.IsZero() && len(a.Words) > asks && slices.EqualFunc(a.Words[:asks], question, strings.EqualFold) {
		a.Words = a.Words[asks:]
	}
	return a
}

// question may begin a search with a time.
var question = []string{"what", "happened", "to"}

// readLast reads the beginning of a range that ends now, as "-2h", "last 2h" or "last hour", and how many
// words it takes.
func readLast(words []string, now time.Time) (m moment, used int, ok bool) {
	word := strings.ToLower(words[0])
	if used = 1; word == "last" && len(words) > 1 {
		used, word = 2, strings.ToLower(words[1])
		word = "-" + cmp.Or(map[string]string{"hour": "1h", "day": "1d", "week": "1w"}[word], word)
	}
	m, ok = readAgo(word, now)
	return m, used, ok
}

// dashes are written between the ends of a range.
var dashes = strings.NewReplacer("–", "-", "..", "-", "…", "-")

// isTo reports whether a word stands between the ends of a range.
func isTo(word string) bool {
	return dashes.Replace(word) == "-" || slices.Contains([]string{"to", "and", "until", "before"}, word)
}

// isFrom reports whether a word stands before a range.
func isFrom(word string) bool {
	return slices.Contains([]string{"between", "from", "since", "after"}, word)
}

// exactRange reads the RFC 3339 times that words begin with, as alerts and JSON write them: two, or one,
// which is its minute.
func exactRange(words []string) (since, until time.Time, used int) {
	at := func(i int) (time.Time, bool) {
		if i >= len(words) {
			return time.Time{}, false
		}
		word := strings.ToUpper(words[i])
		t, err := ParseSince("", word)
		return t, err == nil && strings.Contains(word, "T") // not a date
	}
	if isFrom(strings.ToLower(words[0])) {
		used++
	}
	since, ok := at(used)
	if !ok {
		return since, until, 0
	}
	if used++; used < len(words) && isTo(strings.ToLower(words[used])) {
		if until, ok = at(used + 1); ok && !until.Before(since) {
			return since, until, used + 2
		}
	}
	if until, ok = at(used); ok && !until.Before(since) {
		return since, until, used + 1
	}
	return since, since.Add(time.Minute), used
}

// clockRange reads the times of day that words begin with, as "14:00-14:10" or "14:00", and how many
// words they take.
func clockRange(words []string) (span string, used int) {
	word := func(i int) string {
		if i < len(words) {
			return strings.ToLower(words[i])
		}
		return ""
	}
	first, last, joined := strings.Cut(dashes.Replace(word(0)), "-")
	switch {
	case isClock(first) && joined && isClock(last):
		return first + "-" + last, 1
	case isClock(word(0)) && isClock(word(1)):
		return word(0) + "-" + word(1), 2
	case isClock(word(0)) && isTo(word(1)) && isClock(word(2)):
		return word(0) + "-" + word(2), 3
	case isFrom(word(0)) && isClock(word(1)) && isTo(word(2)) && isClock(word(3)):
		return word(1) + "-" + word(3), 4
	case (word(0) == "at" || word(0) == "around") && isClock(word(1)):
		return word(1), 2
	case isClock(word(0)):
		return word(0), 1
	}
	return "", 0
}

func isClock(text string) bool {
	_, ok := readDayTime("today", text, time.Time{})
	return ok
}

func rangeOfDay(day, span string, now time.Time) (since, until time.Time) {
	if span == "" {
		start, _ := readDay(day, now)
		return start, start.AddDate(0, 0, 1)
	}
	first, last, ranged := strings.Cut(span, "-")
	from, _ := readDayTime(day, first, now)
	if !ranged {
		return from.at, from.at.Add(from.span)
	}
	to, _ := readDayTime(day, last, now)
	if to.at.Before(from.at) { // past midnight
		to.at = to.at.AddDate(0, 0, 1)
	}
	return from.at, to.at
}
