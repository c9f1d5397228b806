package event

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"testing"
	"time"
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
