package event

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

func TestAmounts_asTheyAreWritten(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 bytes", 1: "1 byte", 1023: "1,023 bytes", 1 << 10: "1.0 KiB", 4200: "4.1 KiB", 64 << 10: "64 KiB",
		1<<20 - 1: "1.0 MiB", 25_000_000: "24 MiB", 3 << 30: "3.0 GiB",
	} {
		must.Equal(t, Bytes(n), want, n)
	}
	for n, want := range map[int64]string{0: "0 rows", 1: "1 row", 2: "2 rows", 12345: "12,345 rows", -1234: "-1,234 rows"} {
		must.Equal(t, Count(n, "row", "rows"), want, n)
	}
	for d, want := range map[time.Duration]string{
		0: "0 s", 500 * time.Millisecond: "500 ms", 1500 * time.Millisecond: "1500 ms", 2 * time.Second: "2 s",
		90 * time.Second: "90 s", 2 * time.Minute: "2 min", 36 * time.Hour: "36 h",
	} {
		must.Equal(t, Limit(d), want, d)
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 41 * time.Second: "41 s", time.Minute: "1 min", 161 * time.Second: "2 min 41 s", time.Hour + 59*time.Second: "1 h",
		65*time.Minute + time.Second: "1 h 5 min", 76 * time.Hour: "3 d 4 h",
	} {
		must.Equal(t, Took(d), want, d)
	}
}

func TestSentence_leavesNamesOfFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing has changed": "Nothing has changed.", "proj/seats.sql:8: no such column": "proj/seats.sql:8: no such column.", "seats.sql is empty": "seats.sql is empty.",
		"wait: it runs": "Wait: it runs.", "": "",
	} {
		must.Equal(t, Sentence(text), want, text, "becomes")
	}
}

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
