package sqldb

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"outboxweb/internal/outbox"
)

// room is how much a file must be able to grow for its disk not to be full, in
// bytes.
const room = 64 << 10

// sqliteFull reports whether an error of the database at path means that there is
// no room to write. SQLite has a code of its own for a file system without space
// (ENOSPC). It calls a quota that is used up (EDQUOT), and a file that may not
// grow (EFBIG), an I/O error and keeps the system's word for itself, so that it
// has to be tried.
func sqliteFull(err error, path string) bool {
	switch sqliteCode(err) {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return !canGrow(path)
	}
	return false
}

// canGrow tries whether the database at path can grow, without touching its
// files. An attempt that fails for any other reason says nothing.
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

// diskFull reports whether the system refused to write for want of room.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// fullness is what a process knows of whether a database's disk is full. Moments
// are nanoseconds since 1970. The zero value is ready for use.
type fullness struct {
	at    atomic.Int64 // when a write last found no room; 0 when that is over
	since atomic.Int64 // when the first of them did
	wrote atomic.Int64 // when one that came after found room
}

// remember keeps that a transaction found no room.
func (d *DB) remember(err error) {
	if err == nil || !errors.Is(err, outbox.ErrFull) {
		return
	}
	now := time.Now().UnixNano()
	last := d.fullness.at.Swap(now)
	if last == 0 || d.fullness.wrote.Load() > last && now-last > fullFor.Nanoseconds() {
		d.fullness.since.Store(now)
	}
}

// wrote keeps that a transaction that writes found room, for which there may be
// none for the next one.
func (d *DB) wrote() {
	if d.fullness.at.Load() != 0 {
		d.fullness.wrote.Store(time.Now().UnixNano())
	}
}

// fullFor is how long after a write that found no room the disk counts as full
// where that cannot be tried, or did not come to light when it was.
const fullFor = 30 * time.Second

// Full reports whether there was no room lately, and since when. A disk that has
// room again is forgotten with the next write to a file that can grow, and by and
// by whether or not anything is written.
func (d *DB) Full() (since time.Time, full bool) {
	last := d.fullness.at.Load()
	if last == 0 {
		return time.Time{}, false
	}
	since = time.Unix(0, d.fullness.since.Load()).UTC()
	tried := d.path != "" && canGrow(d.path)
	switch late := time.Since(time.Unix(0, last)) >= fullFor; {
	case d.path != "" && !tried, !late && !(tried && d.fullness.wrote.Load() > last):
		return since, true
	}
	d.fullness.at.CompareAndSwap(last, 0)
	return time.Time{}, false
}
