package storetest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/store"
)

// Main runs the tests of a package on both databases, and fails when they leave a
// goroutine behind; see dbtest.Main. differs matches those on which PostgreSQL does
// something in its own way.
func Main(m *testing.M, differs string) int {
	code := dbtest.Main(m, differs, Prepare)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// Prepare migrates the pair that every test gets a copy of.
func Prepare(p dbtest.Pair) error {
	s, err := store.Open(context.Background(), OptionsFor(p))
	if err != nil {
		return err
	}
	return s.Close()
}
