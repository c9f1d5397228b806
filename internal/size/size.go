// Package size says how much a heavy test does: a little in a short run (go test -short, make test), enough to
// meet every kind of thing in a full one (make ci), and everything in a soak (OUTBOXWEB_TEST_SIZE=soak, make
// soak), which runs at night.
package size

import (
	"os"
	"testing"
)

// Soak reports whether this is a soak.
func Soak() bool { return os.Getenv("OUTBOXWEB_TEST_SIZE") == "soak" }

// Full leaves a test to full runs; why says what a short one has in its place.
func Full(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("only without -short: " + why)
	}
}

// Of returns the one of the three that is for this run.
func Of[T any](short, full, soak T) T {
	switch {
	case Soak():
		return soak
	case testing.Short():
		return short
	}
	return full
}
