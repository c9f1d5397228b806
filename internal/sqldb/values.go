package sqldb

import (
	"database/sql"
	"strings"
	"time"
)

// textLimit is how much of a text is stored that others write, in bytes.
const textLimit = 64 << 10

// At turns stored microseconds into a time; 0 is the zero time.
func At(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// AtOrNil is At, and nil for null.
func AtOrNil(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	t := At(micros.Int64)
	return &t
}

// Micros is a time as it is stored; 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Truth is a condition as both databases store it.
func Truth(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Clip shortens text to at most limit bytes, at a character's end.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && text[limit]&0xc0 == 0x80 {
		limit--
	}
	return text[:limit]
}

// Storable is a text of any origin as both databases take it, cut off where it is
// very long.
func Storable(text string) string {
	return Clip(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"), textLimit)
}
