package outbox

import (
	"fmt"
	"strings"
)

// Acts of wide reach, and acts that nothing takes back, are confirmed with a
// typed phrase: the same one on a page, over HTTP and on the command line.

// ConfirmAbove is the number of rows, requeued or released, above which an act
// is confirmed.
const ConfirmAbove = 1000

// Unconfirmed refuses an act until its phrase is given. The text says what the
// act does.
func Unconfirmed(phrase, format string, args ...any) *Refusal {
	return &Refusal{Err: ErrInvalid, Field: "confirm", Confirm: phrase, Detail: fmt.Sprintf(format, args...)}
}

// ReleasePhrase confirms a requeue of one row that releases so many; empty when
// that needs no confirmation.
func ReleasePhrase(released int64) string {
	if released <= ConfirmAbove {
		return ""
	}
	return fmt.Sprintf("release %d rows", released)
}

// Confirms reports whether what was typed confirms that so many rows are
// released. Events keep coming meanwhile, so that it may name a few less.
func Confirms(typed string, released int64) bool {
	if ReleasePhrase(released) == "" {
		return true
	}
	typed = strings.TrimSpace(typed)
	var shown int64
	if _, err := fmt.Sscanf(typed, "release %d rows", &shown); err != nil {
		return false
	}
	return typed == ReleasePhrase(shown) && shown <= released && GrownAlike(shown, released)
}

// GrownAlike reports whether a number of rows that a person was shown may have
// grown to what it is without being another blast radius: by a hundred, or by a
// tenth.
func GrownAlike(shown, is int64) bool { return is <= shown+max(100, shown/10) }

// RequeuePhrase confirms a requeue of many rows, at once or as an operation;
// empty when that needs no confirmation.
func RequeuePhrase(rows, released int64) string {
	if max(rows, released) <= ConfirmAbove {
		return ""
	}
	return fmt.Sprintf("requeue %d rows", rows)
}

// SkipPhrase confirms the skip of an event.
func SkipPhrase(campaign string, seq int64) string { return fmt.Sprintf("skip %s %d", campaign, seq) }

// SkipAnyway confirms that a publisher skips an event although its last error
// blames the destination.
const SkipAnyway = "skip anyway"

// SeekPhrase confirms a seek that skips events; empty when it skips none.
func (s Seek) SeekPhrase() string {
	switch {
	case s.Skips == 0:
		return ""
	case s.Capped:
		return fmt.Sprintf("skip over %d events", s.Skips)
	default:
		return fmt.Sprintf("skip %d events", s.Skips)
	}
}

// ConfirmedBy reports whether what was typed confirms the seek. The pair goes on
// and events keep coming meanwhile, so that the phrase may name a few less than
// are skipped, or more.
func (s Seek) ConfirmedBy(typed string) bool {
	if s.Skips == 0 {
		return true
	}
	shown := Seek{Capped: strings.Contains(typed, " over ")}
	form := "skip %d events"
	if shown.Capped {
		form = "skip over %d events"
	}
	typed = strings.TrimSpace(typed)
	if _, err := fmt.Sscanf(typed, form, &shown.Skips); err != nil || typed != shown.SeekPhrase() {
		return false
	}
	return GrownAlike(shown.Skips, s.Skips) && (shown.Capped || !s.Capped)
}
