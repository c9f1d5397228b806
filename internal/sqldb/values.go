package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
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

// scanner is a destination for a column in a form that it is stored in.
type scanner[T any] func(T) error

// Scan implements sql.Scanner.
func (s scanner[T]) Scan(value any) error {
	var column sql.Null[T]
	if err := column.Scan(value); err != nil {
		return err
	}
	return s(column.V)
}

// ScanTime is a destination for stored microseconds; null is the zero time.
func ScanTime(into *time.Time) sql.Scanner {
	return scanner[int64](func(micros int64) error {
		*into = At(micros)
		return nil
	})
}

// ScanTimeOrNil is ScanTime, and nil for null.
func ScanTimeOrNil(into **time.Time) sql.Scanner {
	return scanner[sql.NullInt64](func(micros sql.NullInt64) error {
		*into = AtOrNil(micros)
		return nil
	})
}

// ScanTruth is a destination for what Truth stores.
func ScanTruth(into *bool) sql.Scanner {
	return scanner[int64](func(is int64) error {
		*into = is != 0
		return nil
	})
}

// ScanJSON is a destination for what JSON stores; it leaves into, a pointer, as it is for an empty text.
func ScanJSON(into any) sql.Scanner {
	return scanner[string](func(text string) error {
		if text == "" {
			return nil
		}
		return json.Unmarshal([]byte(text), into)
	})
}

// JSON is a value as a text column stores it.
func JSON(value any) driver.Valuer { return jsonColumn{value} }

type jsonColumn struct{ value any }

// Value implements driver.Valuer.
func (j jsonColumn) Value() (driver.Value, error) {
	text, err := json.Marshal(j.value)
	return string(text), err
}
