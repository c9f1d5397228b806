package destination

import (
	"github.com/outboxweb/outboxweb/internal/outbound"

	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// filePublisher appends events to a file, one CloudEvent per line. The file is opened and locked
// for each batch, so that a former holder of the subscription, or a tool that moved the file away,
// does no harm.
//
// It only appends to a file that contains outboxweb's events: any other file at the path is left
// unchanged.
type filePublisher struct {
	settings fileSettings
	timeout  time.Duration // for the lock
	left     fs.FileInfo   // the file as this publisher last wrote it; nil before its first batch
}

func (p *filePublisher) Publish(ctx context.Context, events []*Event) (int, error) {
	list, badEvent := encoded(events)
	if len(list) == 0 {
		return 0, badEvent
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	lines := append(bytes.Join(list, []byte{'\n'}), '\n')
	if err := p.append(ctx, lines); err != nil {
		return 0, outbound.DestinationError("%s: %w", p.settings.path, pathless(err))
	}
	return len(list), badEvent
}

func (p *filePublisher) Close() error { return nil }

// pathless returns err without the path, which the surrounding sentence already has.
func pathless(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", pathError.Op, pathError.Err)
	}
	return err
}

// append appends lines to the file, all or none, and returns once they are on the disk.
func (p *filePublisher) append(ctx context.Context, lines []byte) error {
	f, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the data is already synced; this also unlocks
	size, err := p.endOfLines(f, lines)
	if err != nil {
		return err
	}
	if limit := p.settings.rotateBytes; limit > 0 && size > 0 && size+int64(len(lines)) > limit {
		if err := p.rotate(); err != nil {
			return err
		}
		_ = f.Close()
		if f, err = p.lock(ctx); err != nil {
			return err
		}
		if size, err = p.endOfLines(f, lines); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := write(f, lines); err != nil {
		// Otherwise a part of the lines would precede their retry.
		return errors.Join(err, f.Truncate(size))
	}
	if p.left, err = f.Stat(); err != nil || size > 0 {
		return err
	}
	return syncDirectory(p.settings.path)
}

func write(f *os.File, lines []byte) error {
	if _, err := f.Write(lines); err != nil {
		return err
	}
	return f.Sync()
}

// lock opens the file, creating it if needed, and waits until no other process writes to it. If it
// was moved away meanwhile, it opens the next file.
func (p *filePublisher) lock(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for {
		f, err := openRegular(p.settings.path)
		if err != nil {
			return nil, err
		}
		if err := waitForLock(ctx, f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		current, err := isAt(f, p.settings.path)
		if current {
			return f, nil
		}
		if closeErr := f.Close(); err != nil || closeErr != nil {
			return nil, errors.Join(err, closeErr)
		}
	}
}

// openRegular opens or creates a regular file. Any other file is not even opened, since opening a
// device may have effects; a link that replaces it at that moment is not followed.
func openRegular(path string) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, notRegular(info.Mode())
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, notRegular(fs.ModeSymlink)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(info.Mode())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func notRegular(mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		return errors.New("it is a symbolic link, which is not followed; use the path of the file itself, or remove the link")
	case mode.IsDir():
		return errors.New("it is a directory; give the publisher the path of a file in it")
	}
	return errors.New("it is a device, a named pipe or a socket; give the publisher the path of a regular file")
}

// isAt reports whether the path still names the file.
func isAt(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// waitForLock polls, because a blocking lock could not be cancelled.
func waitForLock(ctx context.Context, f *os.File) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("another process holds its lock: %w", err)
		}
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// lineStart is the start of each line that this package writes.
const lineStart = `{"specversion":"1.0","id":"`

// longestLine is longer than any line that this package writes, in bytes: an event is appended in a
// request of at most 16 MiB.
const longestLine = 32 << 20

var errForeign = errors.New("its last line was not written by outboxweb, so nothing is appended to it; use another path, or move the file away")

// endOfLines checks that the file is one of outboxweb's, truncates a last line left unfinished by a
// crash, and returns the size of the file. Any other file is errForeign and unchanged. next is the
// data to be written.
func (p *filePublisher) endOfLines(f *os.File, next []byte) (int64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	size := info.Size()
	if p.left != nil && os.SameFile(info, p.left) && size == p.left.Size() {
		return size, nil
	}
	whole, err := lastLine(f, size) // the end of the complete lines
	if err != nil {
		return 0, err
	}
	if whole > 0 {
		start, err := lastLine(f, whole-1)
		if err != nil {
			return 0, err
		}
		if err := foreignUnless(isEvent(f, start, whole)); err != nil {
			return 0, err
		}
	}
	if whole == size {
		return size, nil
	}
	if err := foreignUnless(isUnfinished(f, whole, size, next)); err != nil {
		return 0, err
	}
	return whole, f.Truncate(whole)
}

func foreignUnless(ours bool, err error) error {
	if err == nil && !ours {
		return errForeign
	}
	return err
}

// isEvent reports whether a line of a file, including its line ending, is an event that this
// package wrote: a CloudEvent whose id is the event's position, or a made-up one.
func isEvent(f io.ReaderAt, start, end int64) (bool, error) {
	if end-start > longestLine {
		return false, nil
	}
	line := make([]byte, end-start)
	if _, err := f.ReadAt(line, start); err != nil {
		return false, err
	}
	var e struct {
		ID, Type string
		Data     struct {
			Position  int64
			EventType string `json:"event_type"`
		}
	}
	if !bytes.HasPrefix(line, []byte(lineStart)) || json.Unmarshal(line, &e) != nil || e.Type != e.Data.EventType {
		return false, nil
	}
	return e.Type == TestType || e.Data.Position > 0 && e.ID == strconv.FormatInt(e.Data.Position, 10), nil
}

// isUnfinished reports whether the file's end, from start on, is a line that this package began.
// After complete lines of ours that is any prefix of one, or zeros, which a power failure may leave
// where data was not written. Without complete lines it must have the same source as next.
func isUnfinished(f io.ReaderAt, start, size int64, next []byte) (bool, error) {
	head := make([]byte, min(size-start, 4096))
	if _, err := f.ReadAt(head, start); err != nil {
		return false, err
	}
	if start > 0 {
		text := string(bytes.TrimRight(head, "\x00"))
		return strings.HasPrefix(text, lineStart) || strings.HasPrefix(lineStart, text), nil
	}
	source := sourceOf(head)
	return source != nil && bytes.Equal(source, sourceOf(next)), nil
}

// sourceOf returns the source in an event's line, nil if the text does not begin like one with a
// source.
func sourceOf(text []byte) []byte {
	rest, found := bytes.CutPrefix(text, []byte(lineStart))
	_, rest, told := bytes.Cut(rest, []byte(`","source":"`))
	source, _, ended := bytes.Cut(rest, []byte(`","`))
	if !found || !told || !ended {
		return nil
	}
	return source
}

// lastLine returns where the unfinished last line of a file's first size bytes begins: after the
// last line ending, or at 0.
func lastLine(f io.ReaderAt, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for end := size; end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := f.ReadAt(part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// rotate renames the file to its next free number and removes surplus rotated files.
func (p *filePublisher) rotate() error {
	rotated, last, err := rotatedFiles(p.settings.path)
	if err != nil {
		return err
	}
	next := last + 1
	if err := os.Rename(p.settings.path, rotatedPath(p.settings.path, next)); err != nil {
		return err
	}
	rotated = append(rotated, next)
	for keep := p.settings.keep; keep > 0 && int64(len(rotated)) > keep; rotated = rotated[1:] {
		if err := os.Remove(rotatedPath(p.settings.path, rotated[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncDirectory(p.settings.path)
}

// rotatedFiles returns the numbers of a path's rotated files, oldest first, and the last number
// ever used: a tool may have compressed that file, and would do the same to another of that name.
func rotatedFiles(path string) (numbers []int64, last int64, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, 0, err
	}
	base := filepath.Base(path)
	for _, e := range entries {
		name := e.Name()
		if n := rotationNumber(base, name); n > 0 {
			numbers = append(numbers, n)
		}
		if suffix, found := strings.CutPrefix(name, base+"."); found {
			digits, _, _ := strings.Cut(suffix, ".")
			last = max(last, rotationNumber(base, base+"."+digits))
		}
	}
	slices.Sort(numbers)
	return numbers, last, nil
}

func rotatedPath(path string, number int64) string { return fmt.Sprintf("%s.%06d", path, number) }

// rotationNumber returns the number of a rotated file of path, 0 if name is none.
func rotationNumber(path, name string) int64 {
	suffix, found := strings.CutPrefix(name, path+".")
	number, err := strconv.ParseInt(suffix, 10, 64)
	if !found || err != nil || number < 1 || name != rotatedPath(path, number) {
		return 0
	}
	return number
}

func syncDirectory(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func openFile(p Subscription, _ Options) (Publisher, error) {
	return &filePublisher{settings: p.settings.file, timeout: p.Timeout}, nil
}
