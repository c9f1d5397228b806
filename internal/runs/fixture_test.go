package runs_test

import (
	"testing"

	"outboxweb/internal/dbtest"
	"outboxweb/internal/enginetest"
)

// bench is an engine whose worker the test drives.
type bench struct{ *enginetest.Engine }

func open(tb testing.TB, sources []string, options ...enginetest.Option) *bench {
	tb.Helper()
	return &bench{enginetest.Open(tb, sources, options...)}
}

func openPair(tb testing.TB, p dbtest.Pair, sources []string, options ...enginetest.Option) *bench {
	tb.Helper()
	return &bench{enginetest.OpenPair(tb, p, sources, options...)}
}

// Beside is another process on the same databases.
func (b *bench) Beside(tb testing.TB, options ...enginetest.Option) *bench {
	tb.Helper()
	return &bench{b.Engine.Beside(tb, options...)}
}
