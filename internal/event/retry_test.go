package event_test

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"pgregory.net/rapid"
)

func TestRetry_doublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 8: 128 * time.Second,
		9: 256 * time.Second, 10: 5 * time.Minute, 11: 5 * time.Minute, 1000: 5 * time.Minute, math.MaxInt: 5 * time.Minute,
	} {
		must.Equal(t, (event.Retry{}).Delay(n), want, "after failure", "the delay")
	}
	custom := event.Retry{MaxAttempts: 3, Base: 10 * time.Millisecond, Max: 25 * time.Millisecond}
	for n, want := range []time.Duration{1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 3: 25 * time.Millisecond} {
		must.Hold(t, n <= 0 || custom.Delay(n) == want, "after failure %d the delay is %s, want %s", n, custom.Delay(n), want)
	}
	must.Hold(t, (event.Retry{}).Attempts() == 8 && custom.Attempts() == 3, "dead at %d and %d, want 8 and 3", (event.Retry{}).Attempts(), custom.Attempts())
}

func TestRetry_neverShrinksNorOverflows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.OneOf(rapid.Int64(), rapid.Int64Range(math.MaxInt64-10, math.MaxInt64))
		r := event.Retry{Base: time.Duration(duration.Draw(t, "base")), Max: time.Duration(duration.Draw(t, "max"))}
		n := rapid.IntRange(1, 200).Draw(t, "n")
		a, b := r.Delay(n), r.Delay(n+1)
		must.Need(t, a > 0 && b >= a && (r.Max <= 0 || b <= r.Max), "%+v waits %s after failure %d and %s after the next", r, a, n, b)
	})
}

func TestFingerprint_groupsLikeFailures(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                                       "",
		"boom":                                   "boom",
		"seq 17 of 4000 failed":                  "seq # of # failed",
		`campaign "c-17" is wrong`:               "campaign … is wrong",
		"column 'name' and `title`":              "column … and …",
		"unclosed \"quote 7":                     "unclosed quote #",
		"id 0192ab34cd56 of sha256":              "id … of sha256",
		"first line\nsecond line 7":              "first line",
		"UNIQUE constraint failed: seats (2067)": "UNIQUE constraint failed: seats (#)",
		"größe 5":                                "größe #",
	} {
		must.Equal(t, event.Fingerprint(message), want, message, "becomes")
	}
}

func TestFingerprint_isShortValidText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		message := strings.Repeat(rapid.String().Draw(t, "part"), rapid.IntRange(1, 50).Draw(t, "times"))
		got := event.Fingerprint(message)
		must.Need(t, len(got) <= 200 && utf8.ValidString(got) && !strings.Contains(got, "\n"), "%q becomes %q, %d bytes", message, got, len(got))
	})
	got := event.Fingerprint(strings.Repeat("word", 1000))
	must.Hold(t, len(got) <= 200, "a long word becomes %d bytes", len(got))
}
