package publish

import (
	"bytes"
	"context"
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

// filePublisher appends events to a file, one CloudEvent a line. The file is
// opened and locked for each batch, so that a process that holds the pair no
// more, or a tool that moved the file away, is no trouble.
type filePublisher struct {
	settings fileSettings
	timeout  time.Duration // of waiting for the lock
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
		return 0, destinationError("%s: %w", p.settings.path, pathless(err))
	}
	return len(list), badEvent
}

func (p *filePublisher) Close() error { return nil }

// pathless is err without the path that the sentence around it has already.
func pathless(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return fmt.Errorf("%s: %w", pathError.Op, pathError.Err)
	}
	return err
}

// append writes lines behind what the file has, all or none of them, and
// returns once they are on the disk.
func (p *filePublisher) append(ctx context.Context, lines []byte) error {
	f, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // what counts was synced; this also unlocks
	size, err := endOfLines(f)
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
		if size, err = endOfLines(f); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := write(f, lines); err != nil {
		// A part of the lines would stand before the whole of them.
		return errors.Join(err, f.Truncate(size))
	}
	if size == 0 {
		return syncDirectory(p.settings.path)
	}
	return nil
}

func write(f *os.File, lines []byte) error {
	if _, err := f.Write(lines); err != nil {
		return err
	}
	return f.Sync()
}

// lock opens the file, makes it when there is none, and waits until nobody
// else writes to it. Where it was moved away in the meantime it is the next
// file that counts.
func (p *filePublisher) lock(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for {
		if info, err := os.Stat(p.settings.path); err == nil && !info.Mode().IsRegular() {
			return nil, errors.New("it is no regular file")
		}
		f, err := os.OpenFile(p.settings.path, os.O_CREATE|os.O_RDWR|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
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

// isAt reports whether the path still names the file.
func isAt(f *os.File, path string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// waitForLock polls: a lock that blocks could not be given up.
func waitForLock(ctx context.Context, f *os.File) error {
	const pause = 10 * time.Millisecond
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("another process holds its lock: %w", err)
		}
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

// lineStart is how each line begins that this package writes.
const lineStart = `{"specversion":"1.0",`

// endOfLines cuts off a last line that a crash left unfinished, and returns
// the size of the file. A file that ends in anything else is not ours to cut.
func endOfLines(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	size := info.Size()
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil {
		return 0, err
	}
	if last[0] == '\n' {
		return size, nil
	}
	start, err := lastLine(f, size)
	if err != nil {
		return 0, err
	}
	head := make([]byte, min(size-start, int64(len(lineStart))))
	if _, err := f.ReadAt(head, start); err != nil {
		return 0, err
	}
	// After a power failure there may be zeros where data had not arrived.
	if !strings.HasPrefix(lineStart, string(bytes.TrimRight(head, "\x00"))) {
		return 0, errors.New("it ends in a line that is not an event of outboxweb and has no end; give another path, or end the line")
	}
	return start, f.Truncate(start)
}

// lastLine is where the last line of a file begins that has no end.
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

// rotate moves the file to its next free number and removes rotated files that
// are too many.
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

// rotatedFiles are the numbers of the rotated files of a path, oldest first, and
// the last number given away: a tool may have compressed the file that bore it,
// and would do the same to another of that name.
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

// rotationNumber is the number that a rotated file of path bears, 0 when name
// is none.
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
