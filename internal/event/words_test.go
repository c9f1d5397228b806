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
