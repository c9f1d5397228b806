package event_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestRefusal_isItsKindAndItsSentence(t *testing.T) {
	t.Parallel()
	for kind, r := range map[error]*event.Refusal{
		event.ErrInvalid:  event.Invalid("limit", "limit is %d", 7),
		event.ErrConflict: event.Conflict("limit is %d", 7),
		event.ErrNotFound: event.NotFound("limit is %d", 7),
		event.ErrSetup:    event.Setup("limit is %d", 7),
	} {
		err := fmt.Errorf("outer: %w", r)
		var got *event.Refusal
		must.Hold(t, errors.Is(err, kind) && errors.As(err, &got) && got.Error() == "limit is 7", "%v: %v", kind, err)
	}
	r := event.Invalid("limit", "wrong")
	r.Line = 12
	must.Hold(t, r.Error() == "line 12: wrong" && r.Field == "limit", "with a line it is %q about %q", r.Error(), r.Field)
}

func TestAge_isWrittenTheWayPeopleReadIt(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0 s", 0: "0 s", 999 * time.Millisecond: "0 s", time.Second: "1 s", 59 * time.Second: "59 s", time.Minute: "1 min",
		time.Hour - 1: "59 min", time.Hour: "1 h", 48*time.Hour - 1: "47 h", 48 * time.Hour: "2 d", 1000 * time.Hour: "41 d",
	} {
		must.Equal(t, event.Age(d), want, d, "is")
	}
}

// FuzzMoment parses any text as the start and as the end of a time range. A parsed time is formatted so that it parses to the same again.
func FuzzMoment(f *testing.F) {
	for _, text := range []string{"", "2026-11-21", "2026-11-21T07:30:00Z", "2026-11-21T07:30:00.123456789+14:00", "1970-01-01", "9998-12-31T23:59:60Z", "0000-00-00", "2026-02-30", "2026-11-21 07:30", "١٩٧٠-٠١-٠١"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		since, err := event.ParseSince("since", text)
		var refusal *event.Refusal
		must.Need(t, err == nil || errors.As(err, &refusal) && refusal.Field == "since" && refusal.Detail != "", "%q is refused with %v", text, err)
		_, until, untilErr := event.ParseRange("", text, time.Date(2026, 11, 21, 7, 30, 0, 0, time.UTC))
		must.Need(t, untilErr == nil || errors.As(untilErr, &refusal) && refusal.Field == "until" && err != nil, "%q is refused as an end with %v, and as a start with %v", text, untilErr, err)
		if err != nil {
			return
		}
		again, err := event.ParseSince("since", event.FormatSince(since))
		must.Hold(t, err == nil && again.Equal(since), "%q is %s, written as %q, which is %s, %v", text, since, event.FormatSince(since), again, err)
		must.Hold(t, (text == "" || until.Sub(since) == 0 || until.Sub(since) == 24*time.Hour) && since.Location() == time.UTC, "%q is from %s until %s", text, since, until)
	})
}
