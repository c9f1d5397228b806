package engine

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "")) }
