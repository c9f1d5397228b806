// Package size says how much a heavy test does: a little in a short run (go test -short, make test) and in
// continuous integration (TEST_SIZE=little, make ci), which leaves out nothing, enough to meet every
// kind of thing in a full one (make test-all), and everything in a soak (TEST_SIZE=soak, make soak),
// which runs at night.
package size

import (
	"os"
	"testing"
)

// Soak reports whether this is a soak.
func Soak() bool { return os.Getenv("TEST_SIZE") == "soak" }

// Little reports whether heavy tests do a little.
func Little() bool { return testing.Short() || os.Getenv("TEST_SIZE") == "little" }

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
	case Little():
		return short
	}
	return full
}
