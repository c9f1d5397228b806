package store

import (
	"errors"
	"os"
	"path/filepath"
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
		return !roomFor(path)
	}
	return false
}

// roomFor tries whether the database at path can grow, without touching its
// files. An attempt that fails for any other reason says nothing.
func roomFor(path string) bool {
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
	return !noRoom(err)
}

// noRoom reports whether the system refused to write for want of room.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// remember keeps that a transaction found no room.
func (d *database) remember(err error) {
	if err != nil && errors.Is(err, outbox.ErrFull) {
		d.fullAt.Store(time.Now().UnixNano())
	}
}

// fullFor is how long after a write that found no room the disk counts as full
// where that cannot be tried, or did not come to light when it was.
const fullFor = 30 * time.Second

// full reports whether there was no room lately. A disk that has room again is
// forgotten by and by, whether or not anything is written.
func (d *database) full() bool {
	last := d.fullAt.Load()
	if last == 0 {
		return false
	}
	if time.Since(time.Unix(0, last)) < fullFor || d.path != "" && !roomFor(d.path) {
		return true
	}
	d.fullAt.CompareAndSwap(last, 0)
	return false
}
