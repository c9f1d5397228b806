package outbox

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// QuietTimes are times of the week in which messages are held back, unless they are urgent.
type QuietTimes struct {
	Zone  *time.Location
	times []quietTime
}

// quietTime begins on some days of the week, at a minute of the day, and ends at another one: of
// the next day, if that is not later.
type quietTime struct {
	text     string
	days     [7]bool
	from, to int
}

var weekDays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseQuiet parses times such as "22:00-07:00" and "sat,sun 00:00-24:00" in a time zone. The day
// is the one on which a time begins.
func ParseQuiet(zone string, texts []string) (*QuietTimes, error) {
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, Invalid("time_zone", "the time zone %q is not known; use a name such as Europe/Berlin", zone)
	}
	q := &QuietTimes{Zone: location}
	for _, text := range texts {
		t, ok := parseQuietTime(text)
		if !ok {
			return nil, Invalid("times", "%q is not a time; write it as 22:00-07:00, or with the days on which it begins: mon-fri 22:00-07:00", text)
		}
		q.times = append(q.times, t)
	}
	return q, nil
}

func parseQuietTime(text string) (t quietTime, ok bool) {
	t.text = text
	days, hours, found := strings.Cut(text, " ")
	if !found {
		days, hours = "sun-sat", text
	}
	for part := range strings.SplitSeq(days, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, to := slices.Index(weekDays, first), slices.Index(weekDays, last)
		if from < 0 || to < 0 {
			return t, false
		}
		for day := from; ; day = (day + 1) % 7 {
			t.days[day] = true
			if day == to {
				break
			}
		}
	}
	from, to, found := strings.Cut(strings.TrimSpace(hours), "-")
	var okFrom, okTo bool
	t.from, okFrom = minuteOfDay(from)
	t.to, okTo = minuteOfDay(to)
	return t, found && okFrom && okTo && t.from != t.to && t.from < 24*60
}

func minuteOfDay(text string) (int, bool) {
	hours, minutes, found := strings.Cut(text, ":")
	h, err := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint(minutes, 10, 8)
	if !found || err != nil || err2 != nil || len(minutes) != 2 || m > 59 || h*60+m > 24*60 {
		return 0, false
	}
	return int(h*60 + m), true
}

// Until returns when the quiet time ends in which now lies; the zero time if it lies in none. Times
// that touch count as one.
func (q *QuietTimes) Until(now time.Time) time.Time {
	if q == nil {
		return time.Time{}
	}
	end := now
	for range 14 { // two weeks of days without a pause are always quiet
		next := end
		for _, t := range q.times {
			if e := t.end(end.In(q.Zone)); e.After(next) {
				next = e
			}
		}
		if next.Equal(end) {
			break
		}
		end = next
	}
	if end.Equal(now) {
		return time.Time{}
	}
	return end.UTC()
}

// end returns the end of the time if it lies around a local time, else the zero time.
func (t quietTime) end(local time.Time) time.Time {
	at := func(day, minute int) time.Time {
		return time.Date(local.Year(), local.Month(), local.Day()+day, 0, minute, 0, 0, local.Location())
	}
	for _, day := range []int{-1, 0} {
		start := at(day, t.from)
		last := day
		if t.to <= t.from {
			last++
		}
		end := at(last, t.to)
		if began := at(day, 0).Weekday(); t.days[began] && !local.Before(start) && local.Before(end) {
			return end
		}
	}
	return time.Time{}
}

// String lists the times with their zone.
func (q *QuietTimes) String() string {
	if q == nil {
		return ""
	}
	var texts []string
	for _, t := range q.times {
		texts = append(texts, t.text)
	}
	return fmt.Sprintf("%s (%s)", strings.Join(texts, "; "), q.Zone)
}
