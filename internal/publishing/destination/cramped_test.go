package destination_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

// crampedFile tells this program, started again by a test, which file to publish to while no file
// may grow beyond crampedSize bytes.
const (
	crampedFile = "PUBLISH_TEST_CRAMPED_FILE"
	crampedSize = 10_000
)

// publishCramped publishes until the file is full, and prints how many events were delivered and
// the error.
func publishCramped(path string) int {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: crampedSize, Max: crampedSize}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		return 1
	}
	subs, _, err := destination.Config{Topics: crampedTopics(path), Getenv: os.LookupEnv}.Parse()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	publisher, err := subs[0].Open(destination.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	delivered := int64(0)
	for {
		n, err := publisher.Publish(context.Background(), journalEvents(delivered+1, delivered+3))
		delivered += int64(n)
		if err != nil {
			fmt.Printf("%d %s %v\n", delivered, destination.Cause(err).Kind, err)
			return 0
		}
	}
}

func TestFile_keepsWholeLinesWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.ndjson")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crampedFile+"="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var delivered int64
	var kind string
	if _, err := fmt.Sscan(string(out), &delivered, &kind); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if kind != string(outbox.DestinationError) || !strings.Contains(string(out), "file too large") || delivered == 0 {
		t.Errorf("said %s", out)
	}
	wantLines(t, path, 1, delivered)
}
