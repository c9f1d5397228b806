package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// daysFlag is a long duration: 8760h in Go's notation, or a whole number of days, such as 365d.
type daysFlag time.Duration

// mostDays fits into a time.Duration and can still be subtracted from now.
const mostDays = 100 * 365

// UnmarshalText parses the duration, which must not be negative.
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

// parseSpan parses a duration in Go's notation or in days.
func parseSpan(text string) (time.Duration, error) {
	number, inDays := strings.CutSuffix(text, "d")
	if !inDays {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(number, 10, 16)
	return time.Duration(n) * 24 * time.Hour, err
}

// String formats whole days as days.
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

func (c *serveCmd) checkKept() error {
	switch tooShort := func(d daysFlag) bool { return d != 0 && time.Duration(d) < event.LeastKept }; {
	case tooShort(c.KeepAudit):
		return usagef("--keep-audit must be 24h or more, or 0 to keep audit records forever")
	case tooShort(c.KeepHistory):
		return usagef("--keep-history must be 24h or more, or 0 to keep the history of events forever")
	}
	return nil
}
