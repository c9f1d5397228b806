package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// crampedDir makes this program, started again by a test, run on databases whose files may not
// grow beyond crampedSize bytes.
const (
	crampedDir  = "STORE_TEST_CRAMPED"
	crampedSize = 1 << 20
)

// appendCramped appends until the disk is full, and prints the error.
func appendCramped(dir string) int {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := store.Open(context.Background(), storetest.OptionsFor(dbtest.Files(dir)))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer s.Close()
	var before syscall.Rlimit
	err = syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: crampedSize, Max: before.Max})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	began := time.Now()
	for stored := 0; ; stored++ {
		e := storetest.Event("a", "counted")
		e.Payload = []byte(`{"text":"` + strings.Repeat("x", 50_000) + `"}`)
		if _, err := s.Append(context.Background(), store.Append{Events: []outbox.Event{e}}); err != nil {
			fmt.Printf("stored %d, full %v, ready %q, error %v\n", stored, errors.Is(err, outbox.ErrFull), s.Ready(context.Background()), err)
			tellFull(s, began)
			// Free space is detected by the first write.
			err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)
			tellFull(s, began)
			if err == nil {
				_, err = s.Append(context.Background(), store.Append{Events: []outbox.Event{storetest.Event("b", "counted")}})
			}
			tellFull(s, began)
			fmt.Printf("ready %q, %v\n", s.Ready(context.Background()), err)
			return 0
		}
	}
}

// tellFull prints which disks are full according to the summary, and whether that began after
// began.
func tellFull(s *store.Store, began time.Time) {
	s.ForgetSummary()
	sum, err := s.Summary(context.Background())
	fmt.Printf("disks %v:", err)
	for _, d := range sum.Faults {
		fmt.Printf(" %s %v", d.Database, !d.Since.Before(began.Truncate(time.Microsecond)) && !d.Since.After(time.Now()))
	}
	fmt.Println()
}

func TestSQLiteAppend_isFullWhereNoFileMayGrow(t *testing.T) {
	t.Parallel()
	dir := dbtest.New(t).Dir
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crampedDir+"="+dir)
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "%v: %s", err, out)
	var stored int64
	_, err = fmt.Sscanf(string(out), "stored %d,", &stored)
	must.Hold(t, err == nil && stored != 0 && strings.Contains(string(out), `full true, ready ["the disk of the journal database is full"]`) && strings.Contains(string(out), "\ndisks <nil>: journal true\ndisks <nil>: journal true\ndisks <nil>:\nready [], <nil>\n"), "said %s", out)
	f := openPair(t, dbtest.Files(dir), storetest.NewClock())
	f.Is("b", "applied 0 of 1, head 1 pending, 1 pending")
	must.Equal(t, f.MustCampaign("a").HighWaterSeq, stored, "the events of the journal")
	f.Sound()
	f.AppendN("a", 1)
}
