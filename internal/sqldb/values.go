package sqldb

import (
	"database/sql"
	"strings"
	"time"
)

// textLimit is how much of a text from outside is stored, in bytes.
const textLimit = 64 << 10

// At converts stored microseconds to a time; 0 is the zero time.
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
	return new(At(micros.Int64))
}

// MicrosIfAny is the reverse of AtOrNil.
func MicrosIfAny(t *time.Time) sql.NullInt64 {
	if t == nil {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMicro(), Valid: true}
}

// MicrosOrNull is Micros, and null for the zero time.
func MicrosOrNull(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: Micros(t), Valid: !t.IsZero()}
}

// Micros converts a time to stored microseconds; the zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Truth converts a bool to the integer that both databases store.
func Truth(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// Clip shortens text to at most limit bytes, at a character boundary.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && text[limit]&0xc0 == 0x80 {
		limit--
	}
	return text[:limit]
}

// Storable is a text of any origin in a form that both databases accept, truncated when very
// long.
func Storable(text string) string {
	return Clip(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"), textLimit)
}
