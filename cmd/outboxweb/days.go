package main

import (
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
	given := string(text)
	if number, days := strings.CutSuffix(given, "d"); days {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n > mostDays {
			return fmt.Errorf("%q is not a number of days up to %d, such as 365d", given, mostDays)
		}
		*d = daysFlag(n) * daysFlag(24*time.Hour)
		return nil
	}
	span, err := time.ParseDuration(given)
	if err != nil || span < 0 || span > mostDays*24*time.Hour {
		return fmt.Errorf("%q is not a span of time, such as 36h or 365d", given)
	}
	*d = daysFlag(span)
	return nil
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
