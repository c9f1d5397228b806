package search

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

var askedNow = time.Date(2026, 11, 23, 20, 15, 30, 123_456_789, time.UTC)

func TestParseAsked_takesTheTimeOffASearch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ words, since, until string }{
		"order 17 14:00 14:10": {"order 17", "2026-11-23T14:00:00Z", "2026-11-23T14:10:00Z"},
		"order 17 23:50 00:10": {"order 17", "2026-11-22T23:50:00Z", "2026-11-23T00:10:00Z"},
		"order 17 23:00":       {"order 17", "2026-11-22T23:00:00Z", "2026-11-22T23:01:00Z"},
		"order 17 -2h":         {"order 17", "2026-11-23T18:15:30Z", "2026-11-23T20:15:30Z"},
		"order 17 2026-11-20":  {"order 17", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		"order-17 2026-11-20T14:00:05Z 2026-11-20t15:10:00+01:00": {"order-17", "2026-11-20T14:00:05Z", "2026-11-20T14:10:00Z"},
		"order 17 2026-11-20T14:00:00Z":                           {"order 17", "2026-11-20T14:00:00Z", "2026-11-20T14:01:00Z"},
		"order 17 2026-11-21 2026-11-19":                          {"order 17 2026-11-21 2026-11-19", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		"14:00 order 17":                                          {"14:00 order 17", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		"c-7/12":                                                  {"c-7/12", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
		"":                                                        {"", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"},
	} {
		a := ParseAsked(text, askedNow)
		got := struct{ words, since, until string }{strings.Join(a.Words, " "), a.Since.Format(time.RFC3339), a.Until.Format(time.RFC3339)}
		must.Equal(t, got, want, text, "is")
	}
}

func FuzzParseAsked(f *testing.F) {
	f.Add("order 17 14:00 14:10")
	f.Add("-9223372036854775808ns")
	f.Fuzz(func(t *testing.T, text string) {
		a := ParseAsked(text, askedNow)
		must.Hold(t, !a.Since.After(a.Until), "%q is from %s to %s", text, a.Since, a.Until)
	})
}

func TestExcerpt_showsTheTextThatWasSearchedFor(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 300) + "needle" + strings.Repeat("ö", 300)
	for _, one := range []struct{ text, q, want string }{
		{`{"a":1}`, "", `{"a":1}`},
		{`{"a":1}`, "a", `{"a":1}`},
		{long, "needle", "…" + long[600-40:600-40+120] + "…"},
		{long, "", long[:120] + "…"},
	} {
		must.Equal(t, excerpt(one.text, one.q), one.want, one.q)
	}
}
