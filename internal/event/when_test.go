package event

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

var whenNow = time.Date(2026, 11, 23, 20, 15, 30, 123_456_789, time.UTC)

func TestParseRange_understandsWhatPeopleWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{ // as since, as until
		"2026-11-21T07:30:00Z":      {"2026-11-21T07:30:00Z", "2026-11-21T07:30:00Z"},
		"2026-11-21t07:30:00+02:00": {"2026-11-21T05:30:00Z", "2026-11-21T05:30:00Z"},
		" 2026-11-21 ":              {"2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"},
		"14:00":                     {"2026-11-23T14:00:00Z", "2026-11-23T14:00:00Z"},
		"23:00":                     {"2026-11-22T23:00:00Z", "2026-11-22T23:00:00Z"},
		"20:15":                     {"2026-11-23T20:15:00Z", "2026-11-23T20:15:00Z"},
		"-2h":                       {"2026-11-23T18:15:30Z", "2026-11-23T18:15:30Z"},
		"-1h30m":                    {"2026-11-23T18:45:30Z", "2026-11-23T18:45:30Z"},
		"-3d":                       {"2026-11-20T20:15:30Z", "2026-11-20T20:15:30Z"},
		"-1w":                       {"2026-11-16T20:15:30Z", "2026-11-16T20:15:30Z"},
	} {
		since, _, err := ParseRange(text, "", whenNow)
		_, until, untilErr := ParseRange("", text, whenNow)
		got := [2]string{since.Format(time.RFC3339), until.Format(time.RFC3339)}
		must.Hold(t, err == nil && untilErr == nil && got == want, "%q is %v, %v, %v; want %v", text, got, err, untilErr, want)
	}
}

func TestParseRange_endsAfterItsStart(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ since, until, want string }{
		{"14:00", "14:10", "2026-11-23T14:00:00Z 2026-11-23T14:10:00Z"},
		{"23:00", "23:10", "2026-11-22T23:00:00Z 2026-11-22T23:10:00Z"},
		{"23:50", "00:10", "2026-11-22T23:50:00Z 2026-11-23T00:10:00Z"},
		{"20:10", "20:20", "2026-11-23T20:10:00Z 2026-11-23T20:20:00Z"},
		{"2026-11-20", "01:00", "2026-11-20T00:00:00Z 2026-11-20T01:00:00Z"},
		{"-2h", "19:00", "2026-11-23T18:15:30Z 2026-11-23T19:00:00Z"},
		{"14:00", "14:00", "2026-11-23T14:00:00Z 2026-11-23T14:00:00Z"},
	} {
		since, until, err := ParseRange(one.since, one.until, whenNow)
		got := since.Format(time.RFC3339) + " " + until.Format(time.RFC3339)
		must.Hold(t, err == nil && got == one.want, "%q to %q is %s, %v; want %s", one.since, one.until, got, err, one.want)
	}
}

func TestParseRange_refusesTheRest(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"soon", "-", "-x", "--2h", "2h", "25:00", "14:00:05", "2026-11-21 14:00", "2026-13-01", "1969-12-31", "9999-01-01", "-99999999d", "2026-11-21T"} {
		at, _, err := ParseRange(text, "", whenNow)
		must.Hold(t, errors.Is(err, ErrInvalid), "%q is %v, %v; want a refusal", text, at, err)
	}
}
