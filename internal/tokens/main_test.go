package tokens_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/tokens"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestPostgres")) }

// fixture is a store and its tokens.
type fixture struct {
	*storetest.Fixture
	*tokens.Tokens
}

func open(tb testing.TB, change ...func(*store.Options)) *fixture {
	return around(storetest.Open(tb, change...))
}

func around(f *storetest.Fixture) *fixture { return &fixture{f, tokens.New(f.Store)} }

var (
	ana     = storetest.Ana
	refused = storetest.Refused
)
