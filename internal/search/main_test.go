package search_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestPostgres")) }

// fixture is a store and its search.
type fixture struct {
	*storetest.Fixture
	*search.Search
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	tb.Helper()
	return around(storetest.Open(tb, change...))
}

func around(f *storetest.Fixture) *fixture { return &fixture{f, search.New(f.Store)} }

var refused = storetest.Refused
