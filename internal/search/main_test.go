package search_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/search"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "")) }

// fixture is a store and its search, of a test that runs beside others.
type fixture struct {
	*storetest.Fixture
	*search.Search
}

func open(t *testing.T, change ...func(*store.Options)) *fixture {
	t.Parallel()
	f := storetest.Open(t, change...)
	return &fixture{f, search.New(f.Store, nil)}
}

var refused = storetest.Refused
