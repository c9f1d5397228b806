package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// daysFlag is a span of time that may be long: 8760h as Go writes it, or a
// whole number of days, such as 365d.
type daysFlag time.Duration

// mostDays is what a time.Duration can hold with room to subtract it from now.
const mostDays = 100 * 365

// UnmarshalText reads the span; it is never negative.
func (d *daysFlag) UnmarshalText(text []byte) error {
	span, err := parseSpan(string(text))
	switch wrong := err != nil || span < 0 || span > mostDays*24*time.Hour; {
	case wrong && bytes.HasSuffix(text, []byte("d")):
		return fmt.Errorf("%q is not a number of days up to %d, such as 365d", text, mostDays)
	case wrong:
		return fmt.Errorf("%q is not a duration, such as 36h or 365d", text)
	}
	*d = daysFlag(span)
	return nil
}

// parseSpan reads a span of time as Go writes it, or in days.
func parseSpan(text string) (time.Duration, error) {
	number, inDays := strings.CutSuffix(text, "d")
	if !inDays {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	return time.Duration(n) * 24 * time.Hour, err
}

// String writes whole days as days.
func (d daysFlag) String() string {
	span, day := time.Duration(d), 24*time.Hour
	switch {
	case span == 0:
		return "0"
	case span%day == 0:
		return strconv.FormatInt(int64(span/day), 10) + "d"
	}
	return span.String()
}
