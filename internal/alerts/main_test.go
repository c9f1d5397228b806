package alerts_test

import (
	"os"
	"testing"

	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childReceiver); url != "" {
		os.Exit(sendAndDie(url))
	}
	os.Exit(storetest.Main(m, "^TestPostgres"))
}
