package sqldb

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxweb/outboxweb/internal/event"
)

// room is how much a file must be able to grow, in bytes, for its disk not to count as full.
const room = 64 << 10

// sqliteFull reports whether an error of the database at path means that the disk is full.
// SQLite has a code for a file system without space (ENOSPC). It reports an exceeded quota
// (EDQUOT) and a file size limit (EFBIG) as an I/O error without the errno, so growing has to
// be tried.
func sqliteFull(err error, path string) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return !canGrow(path)
	}
	return false
}

// canGrow tries whether the database at path can grow, without touching its files. It returns
// true when the attempt fails for any other reason.
func canGrow(path string) bool {
	var limit syscall.Rlimit
	limited := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil
	for _, suffix := range []string{"", "-wal", "-journal"} {
		info, err := os.Stat(path + suffix)
		if err == nil && limited && uint64(info.Size())+room > uint64(limit.Cur) && uint64(limit.Cur) < 1<<62 {
			return false
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".outboxweb-room-*")
	if err == nil {
		_, err = f.Write(make([]byte, room))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return !diskFull(err)
}

// diskFull reports whether the system refused a write for lack of space.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// fullness is whether a database's disk is full, as seen by this process. Times are nanoseconds
// since 1970. The zero value is ready for use.
type fullness struct {
	at    atomic.Int64 // last write that failed for lack of space; 0 when that is over
	since atomic.Int64 // the first such write
	wrote atomic.Int64 // first successful write since
}

// remember records a transaction that failed for lack of space, or for a malformed page.
func (d *DB) remember(err error) {
	d.suspect(err)
	if err == nil || !errors.Is(err, event.ErrFull) {
		return
	}
	now := time.Now().UnixNano()
	last := d.fullness.at.Swap(now)
	if last == 0 || d.fullness.wrote.Load() > last && now-last > fullFor.Nanoseconds() {
		d.fullness.since.Store(now)
	}
}

// wrote records a successful write; the next one may still fail.
func (d *DB) wrote() {
	if d.fullness.at.Load() != 0 {
		d.fullness.wrote.Store(time.Now().UnixNano())
	}
}

// fullFor is how long the disk counts as full after a write failed for lack of space, where
// growing cannot be tried or the attempt succeeds.
const fullFor = 30 * time.Second

// Full reports whether the disk was full lately, and since when. That ends with the next write
// to a file that can grow, and after some time even without a write.
func (d *DB) Full() (since time.Time, full bool) {
	last := d.fullness.at.Load()
	if last == 0 {
		return time.Time{}, false
	}
	since = time.Unix(0, d.fullness.since.Load()).UTC()
	tried := d.path != "" && canGrow(d.path)
	late := time.Since(time.Unix(0, last)) >= fullFor
	if d.path != "" && !tried || !late && !(tried && d.fullness.wrote.Load() > last) {
		return since, true
	}
	d.fullness.at.CompareAndSwap(last, 0)
	return time.Time{}, false
}
