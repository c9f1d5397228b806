package destination_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// open opens the publisher of a subscription with these settings, closed with the test. It is never
// too slow, however slow the machine is: its clock stands still, and its timeout is long unless the
// settings have one.
func open(tb testing.TB, lines ...string) destination.Publisher {
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "timeout:") }) {
		lines = append(slices.Clone(lines), "timeout: 5m")
	}
	publisher := must.Get(subscriptionOf(tb, lines...).Open(destination.Options{Journal: "j1", Version: "1.2.3"})).Or(tb)
	opened := time.Now()
	destination.SetClock(publisher, func() time.Time { return opened })
	destination.ReadAnswersFor(publisher, must.Patience)
	tb.Cleanup(func() { err := publisher.Close(); must.Hold(tb, err == nil, "%v", err) })
	return publisher
}

func openFile(tb testing.TB, path string, lines ...string) destination.Publisher {
	return open(tb, append([]string{"url: file://" + path}, lines...)...)
}

// newFile opens a publisher to a file that is not there yet, for a test that runs beside others.
func newFile(t *testing.T, lines ...string) (path string, p destination.Publisher) {
	t.Parallel()
	path = filepath.Join(t.TempDir(), "events.ndjson")
	return path, openFile(t, path, lines...)
}

// deliver publishes the events of these positions, all of which must arrive.
func deliver(tb testing.TB, p destination.Publisher, first, last int64) {
	publishAll(tb, p, journalEvents(first, last))
}

func publishAll(tb testing.TB, p destination.Publisher, events []*destination.Event) {
	n, err := p.Publish(tb.Context(), events)
	must.Need(tb, err == nil && n == len(events), "delivered %d of %d: %v", n, len(events), err)
}

// refusedInTime opens a publisher for an error that only its timeout causes, and wants an error of
// the destination that contains says. On a slow machine a short timeout ends earlier steps, so it
// grows until the error is this one.
func refusedInTime(tb testing.TB, says string, lines ...string) destination.Publisher {
	for timeout := 200 * time.Millisecond; ; timeout *= 4 {
		p := open(tb, append(slices.Clone(lines), "timeout: "+timeout.String())...)
		n, err := p.Publish(tb.Context(), journalEvents(1, 2))
		if n == 0 && err != nil && destination.Cause(err).Kind == operator.DestinationError && strings.Contains(err.Error(), says) {
			return p
		}
		must.Need(tb, err != nil && timeout <= must.Patience, "with a timeout of %s it delivers %d and says %v, not %q", timeout, n, err, says)
	}
}

// refused publishes the events of these positions and wants so many delivered, and an error of a
// kind that contains a text.
func refused(tb testing.TB, p destination.Publisher, first, last int64, delivered int, kind operator.DeliveryErrorKind, says string) *destination.Error {
	n, err := p.Publish(tb.Context(), journalEvents(first, last))
	must.Need(tb, err != nil, "delivered %d without an error", n)
	blame := destination.Cause(err)
	must.Hold(tb, n == delivered && blame.Kind == kind && strings.Contains(err.Error(), says), "delivered %d instead of %d; blames the %s instead of the %s; says %q, not %q", n, delivered, blame.Kind, kind, err, says)
	return blame
}

// positions are those of the events in a text of one CloudEvent a line.
func positions(tb testing.TB, text []byte) (list []int64) {
	for line := range bytes.Lines(text) {
		var e struct {
			ID   string      `json:"id"`
			Data event.Event `json:"data"`
		}
		err := json.Unmarshal(line, &e)
		must.Need(tb, err == nil && line[len(line)-1] == '\n' && e.ID == fmt.Sprint(e.Data.Position), "%v: %q", err, line)
		list = append(list, e.Data.Position)
	}
	return list
}

func wantLines(tb testing.TB, path string, first, last int64) {
	text := must.Get(os.ReadFile(path)).Or(tb)
	wantRange(tb, positions(tb, text), first, last)
}

func wantRange(tb testing.TB, got []int64, first, last int64) {
	var want []int64
	for position := first; position <= last; position++ {
		want = append(want, position)
	}
	must.Equal(tb, fmt.Sprint(got), fmt.Sprint(want), "instead of", first, "to", last)
}

func TestFile_appendsLines(t *testing.T) {
	path, p := newFile(t)
	_, err := os.Stat(path)
	must.Hold(t, errors.Is(err, os.ErrNotExist), "Open made the file: %v", err)
	deliver(t, p, 1, 3)
	deliver(t, openFile(t, path), 4, 5)
	deliver(t, p, 6, 6)
	wantLines(t, path, 1, 6)
	info, err := os.Stat(path)
	must.Hold(t, err == nil && info.Mode().Perm() == 0o600, "mode %v, %v", info.Mode(), err)
	publishAll(t, p, []*destination.Event{destination.TestEvent("urn:x", "test-1")})
	deliver(t, openFile(t, path), 7, 7) // after a made-up event
	must.OK(t, os.Rename(path, path+".old"))
	deliver(t, p, 8, 9)
	wantLines(t, path, 8, 9)
}

func TestFile_cutsOffWhatACrashLeft(t *testing.T) {
	t.Parallel()
	line := must.Get(journalEvents(3, 3)[0].CloudEvent()).Or(t)
	long := append(bytes.Clone(line[:len(line)-1]), bytes.Repeat([]byte{'x'}, 200_000)...)
	for name, torn := range map[string][]byte{
		"brace": line[:1], "half": line[:len(line)/2], "all but its end": line, "longer than a block": long, "zeros": make([]byte, 5000), "zeros after a part": append(bytes.Clone(line[:9]), 0, 0),
	} {
		for _, before := range []int64{0, 2} {
			if before == 0 && !strings.Contains(string(torn), `"source":"`) {
				continue // it may be foreign: TestFile_leavesForeignFilesAlone
			}
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				path, p := newFile(t)
				if before > 0 {
					deliver(t, p, 1, before)
				}
				f := must.Get(os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)).Or(t)
				must.Get(f.Write(torn)).Or(t)
				must.OK(t, f.Close())
				deliver(t, p, before+1, before+2)
				wantLines(t, path, 1, before+2)
			})
		}
	}
}

// The path of a publisher may be a mistake: an existing file is someone's work.
func TestFile_leavesForeignFilesAlone(t *testing.T) {
	t.Parallel()
	own := must.Get(journalEvents(3, 3)[0].CloudEvent()).Or(t)
	other := must.Get(destination.NewEvent(journalEvents(3, 3)[0].Event, "urn:somebody:else").CloudEvent()).Or(t)
	for name, text := range map[string]string{
		"a line":                       "root:x:0:0:root:/root:/bin/sh\n",
		"JSON lines":                   `{"level":"info","msg":"started"}` + "\n",
		"CloudEvents of others":        `{"specversion":"1.0","id":"7","source":"/x","type":"t","data":{"position":8,"event_type":"t"}}` + "\n",
		"a CloudEvent without data":    `{"specversion":"1.0","id":"7","source":"/x","type":"t"}` + "\n",
		"events, then something else":  string(own) + "\nnotes\n",
		"a blank line at the end":      string(own) + "\n\n",
		"a brace":                      "{",
		"a document":                   `{"specversion":"1.0"}`,
		"zeros":                        strings.Repeat("\x00", 5000),
		"an unfinished foreign line":   "one\n{\"not\": \"ours\"}",
		"half an event after notes":    "notes\n" + string(own[:len(own)/2]),
		"notes after events":           string(own) + "\nnotes",
		"half an event of another one": string(other[:len(other)/2]),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "notes")
			must.OK(t, os.WriteFile(path, []byte(text), 0o600))
			refused(t, openFile(t, path), 4, 5, 0, operator.DestinationError, path+": its last line was not written by outboxweb, so nothing is appended to it; use another path, or move the file away")
			must.Equal(t, string(must.Get(os.ReadFile(path)).Or(t)), text)
		})
	}
}

// Lines written meanwhile by another process of ours are continued, and foreign text after them is
// detected although this publisher has written before.
func TestFile_looksAgainWhenTheFileIsNotAsItLeftIt(t *testing.T) {
	path, p := newFile(t)
	deliver(t, p, 1, 1)
	deliver(t, openFile(t, path), 2, 2)
	deliver(t, p, 3, 3)
	f := must.Get(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)).Or(t)
	defer f.Close()
	must.Get(f.WriteString("notes\n")).Or(t)
	refused(t, p, 4, 5, 0, operator.DestinationError, "its last line was not written by outboxweb")
	n, err := p.Publish(t.Context(), []*destination.Event{destination.TestEvent("urn:x", "test-1")})
	must.Hold(t, n == 0 && err != nil, "a made-up event is delivered: %v", err)
}

func TestFile_followsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, dangling, link := filepath.Join(dir, "target"), filepath.Join(dir, "dangling"), filepath.Join(dir, "link")
	deliver(t, openFile(t, target), 1, 1)
	for path, to := range map[string]string{link: target, dangling: filepath.Join(dir, "none")} {
		must.OK(t, os.Symlink(to, path))
		refused(t, openFile(t, path), 2, 3, 0, operator.DestinationError, path+": it is a symbolic link, which is not followed; use the path of the file itself, or remove the link")
	}
	wantLines(t, target, 1, 1)
	_, err := os.Stat(filepath.Join(dir, "none"))
	must.Hold(t, errors.Is(err, os.ErrNotExist), "the link that led nowhere leads to a file: %v", err)
}

func TestFile_rotatesBySize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		keep int
		want []string // files beside the first one
	}{
		{keep: 2, want: []string{"000003", "000004"}},
		{keep: 0, want: []string{"000001", "000002", "000003", "000004"}},
	} {
		t.Run(fmt.Sprint("keep ", test.keep), func(t *testing.T) {
			path, p := newFile(t, "rotate_bytes: 3000", fmt.Sprint("keep: ", test.keep))
			for first := int64(1); first <= 9; first += 2 {
				deliver(t, p, first, first+1) // some 2000 bytes
			}
			wantLines(t, path, 9, 10)
			entries := must.Get(os.ReadDir(filepath.Dir(path))).Or(t)
			var got []string
			for _, e := range entries {
				if suffix := strings.TrimPrefix(e.Name(), "events.ndjson"); suffix != "" {
					got = append(got, suffix[1:])
				}
			}
			must.Equal(t, fmt.Sprint(got), fmt.Sprint(test.want), "files", "the URL")
			wantLines(t, path+".000003", 5, 6)
			wantLines(t, path+".000004", 7, 8)
		})
	}
}

// A tool that compresses rotated files would overwrite an earlier file of the same number.
func TestFile_givesNoNumberTwice(t *testing.T) {
	path, p := newFile(t, "rotate_bytes: 1", "keep: 1")
	deliver(t, p, 1, 3) // a batch that is too large gets a file of its own
	deliver(t, p, 4, 4)
	must.OK(t, os.Rename(path+".000001", path+".000001.gz"))
	deliver(t, p, 5, 5)
	wantLines(t, path+".000001.gz", 1, 3)
	wantLines(t, path+".000002", 4, 4)
	wantLines(t, path, 5, 5)
}

func TestFile_waitsForTheLock(t *testing.T) {
	path, patient := newFile(t)
	deliver(t, patient, 1, 1)
	f := must.Get(os.Open(path)).Or(t)
	defer f.Close()
	must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_SH)) // which only an exclusive lock waits for
	refused(t, openFile(t, path, "timeout: 200ms"), 2, 3, 0, operator.DestinationError, "another process holds its lock")
	wantLines(t, path, 1, 1)
	done := make(chan error, 1)
	go func() { _, err := patient.Publish(context.Background(), journalEvents(2, 3)); done <- err }()
	must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	must.OK(t, <-done)
	wantLines(t, path, 1, 3)
}

// Another process may rotate the file while this one waits for it.
func TestFile_writesToTheNextFileWhenItWaitedForOneThatWasMoved(t *testing.T) {
	path, p := newFile(t)
	deliver(t, p, 1, 1)
	f := must.Get(os.Open(path)).Or(t)
	defer f.Close()
	must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	done := make(chan error, 1)
	go func() { _, err := p.Publish(context.Background(), journalEvents(2, 3)); done <- err }()
	must.Eventually(t, "the file to be opened again", func() bool { return openedAs(t, path) == 2 })
	must.OK(t, os.Rename(path, path+".000001"))
	must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
	must.OK(t, <-done)
	wantLines(t, path+".000001", 1, 1)
	wantLines(t, path, 2, 3)
}

func openedAs(tb testing.TB, path string) int {
	const dir = "/proc/self/fd"
	entries, n := must.Get(os.ReadDir(dir)).Or(tb), 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && target == path {
			n++
		}
	}
	return n
}

func TestFile_saysWhyItCannotWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	const other = "it is a device, a named pipe or a socket; give the publisher the path of a regular file"
	for _, test := range []struct{ path, says string }{
		{"/dev/full", other},
		{pipe, other},
		{dir, "it is a directory; give the publisher the path of a file in it"},
		{filepath.Join(dir, "none", "events.ndjson"), "open: no such file or directory"},
	} {
		refused(t, openFile(t, test.path), 1, 2, 0, operator.DestinationError, test.path+": "+test.says)
	}
}

// The former holder of a subscription must not write once it knows.
func TestPublish_sendsNothingOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	path := filepath.Join(t.TempDir(), "events.ndjson")
	for _, lines := range [][]string{
		{"url: file://" + path}, {"url: 'log:'"}, {"url: nats://127.0.0.1:1/s"}, {"url: kafka://127.0.0.1:1/t"},
		{"url: https://127.0.0.1:1", "allow_private: true"}, {"url: https://127.0.0.1:1", "format: batch"},
	} {
		n, err := open(t, lines...).Publish(ctx, journalEvents(1, 2))
		must.Hold(t, n == 0 && errors.Is(err, context.Canceled), "%s: %d, %v", lines, n, err)
	}
	text, err := os.ReadFile(path)
	must.Hold(t, len(text) <= 0, "%q was written; %v", text, err)
}

// crampedFile names, for the test in a process of its own, the file to publish to.
const crampedFile = "PUBLISH_TEST_CRAMPED_FILE"

// publishCramped publishes until no more fits into the file, and prints how many events were delivered and the error.
func publishCramped(t *testing.T, path string) {
	signal.Ignore(syscall.SIGXFSZ)
	const most = 10_000
	must.OK(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: most}))
	publisher, delivered := openFile(t, path, "rotate_bytes: 0"), int64(0)
	for {
		n, err := publisher.Publish(t.Context(), journalEvents(delivered+1, delivered+3))
		delivered += int64(n)
		if err != nil {
			fmt.Printf("%d %s %v\n", delivered, destination.Cause(err).Kind, err)
			return
		}
	}
}

func TestFile_keepsWholeLinesWhereThereIsNoRoom(t *testing.T) {
	if path := os.Getenv(crampedFile); path != "" {
		publishCramped(t, path)
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.ndjson")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", t.Name()+"$")
	cmd.Env = append(os.Environ(), crampedFile+"="+path)
	out, err := cmd.CombinedOutput()
	must.Need(t, err == nil, "%v: %s", err, out)
	var delivered int64
	var kind string
	_, err = fmt.Sscan(string(out), &delivered, &kind)
	must.Need(t, err == nil, "%v: %s", err, out)
	must.Hold(t, kind == string(operator.DestinationError) && strings.Contains(string(out), "file too large") && delivered != 0, "said %s", out)
	wantLines(t, path, 1, delivered)
}
