package sqldb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
)

const (
	logSuffix   = "-wal" // of SQLite's log, beside the file
	indexSuffix = "-shm" // of the log's index
)

// openFile is a SQLite file as it was when it was opened. When its path names another file or none,
// SQLite goes on writing to the open one, which is gone with the process.
type openFile struct {
	path, real string // as it was named, and without symbolic links, as SQLite opens it
	main, log  os.FileInfo
	suspect    atomic.Bool // a page was found to be malformed, see examine

	mu    sync.Mutex
	left  atomic.Bool // something is out of place, and leave has brought in the log
	aside string      // where leave moved the log to
}

// keepFile remembers the files that are open. A connection must be.
func (d *DB) keepFile() error {
	real, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return err
	}
	f := &openFile{path: d.path, real: real}
	if f.main, err = os.Stat(real); err == nil {
		f.log, err = os.Stat(real + logSuffix)
	}
	d.file = f
	return err
}

// strayed says how the files in place differ from the open ones; empty when they do not, or when that
// cannot be told.
func (f *openFile) strayed() (what, how string) {
	if how := differs(f.path, f.main); how != "" {
		return "file", how
	}
	return "log", differs(f.real+logSuffix, f.log)
}

// differs says what happened to an open file, when something did.
func differs(path string, open os.FileInfo) string {
	now, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "was deleted or moved away"
	case err != nil:
		return ""
	case !os.SameFile(now, open):
		return "was replaced"
	case now.Size() == 0 && open.Size() > 0:
		return "was emptied"
	}
	return ""
}

// InPlace returns an event.ErrBusy when the open file is not the one that the database's path names.
// Then nothing may be written, no connection opened, and no success reported: it would be gone with
// this process.
func (d *DB) InPlace() error {
	return d.refuseAstray("so nothing is accepted: it would be lost; the runbook explains the way out, under “The file of a database was replaced”")
}

// keptInPlace is InPlace after a commit, which the open file has.
func (d *DB) keptInPlace() error {
	return d.refuseAstray("so that this may or may not be kept; send it again once the file is back in place, with the same event_id or Idempotency-Key: what was kept is then not done twice")
}

func (d *DB) refuseAstray(so string) error {
	f := d.file
	if f == nil {
		return nil
	}
	what, how := f.strayed()
	f.mu.Lock()
	defer f.mu.Unlock()
	if how == "" && f.aside == "" {
		if f.left.Swap(false) {
			d.ClearFault(database.FaultReplaced)
		}
		return nil
	}
	d.leave()
	if how == "" {
		what, how = "file", "was away"
	}
	fact := fmt.Sprintf("%s of the %s database %s while it is in use", what, d.Name, how)
	aside := ""
	if f.aside != "" {
		aside = " Its log was moved to " + f.aside + ", so that SQLite does not replay it into another file."
	}
	d.SetFault(database.FaultReplaced, fmt.Sprintf("The %s: %s is not what is open here. Appends and actions are refused and nothing is applied, since it would be gone with this process.%s Before you stop this process, save the open file, as the runbook explains.", fact, f.path, aside))
	return &event.Refusal{Err: event.ErrBusy, Detail: "the " + fact + ", " + so}
}

// leave makes the files safe that are no longer in place: what was committed is brought from the log
// into the open file, and a log that is left beside another file is moved aside, since SQLite would
// replay it into that one.
func (d *DB) leave() {
	f := d.file
	now, err := os.Stat(f.real)
	ours := err == nil && os.SameFile(now, f.main)
	whole := ours && now.Size() > 0
	if !f.left.Swap(true) && (whole || !ours) { // an emptied file may be about to be filled with a backup
		_, _ = d.checkpoint()
	}
	log, err := os.Stat(f.real + logSuffix)
	if whole || err != nil || !os.SameFile(log, f.log) {
		return
	}
	aside := f.real + time.Now().UTC().Format(".20060102T150405.000")
	for _, suffix := range []string{indexSuffix, logSuffix} {
		if os.Rename(f.real+suffix, aside+suffix) == nil {
			f.aside = aside + logSuffix
		}
	}
}

const (
	watchInterval = time.Second
	// logLimit is the size to which SQLite cuts its log once nobody reads it any more.
	logLimit = 32 << 20
	// logFrames is after how many pages the log is brought into the file. Pages that are written again
	// meanwhile are brought there once, and rows of many campaigns share pages.
	logFrames = 8000
	// heldLimit is how much of the log a reader may hold back.
	heldLimit = 64 << 20
	frameSize = 24 + 4096 // of a page in the log
)

// watch looks after the file until the database is closed.
func (d *DB) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-d.closed:
			return
		case <-tick.C:
			if d.InPlace() == nil {
				d.watchLog()
			}
		}
	}
}

// watchLog notices a reader that keeps the log from being reused. SQLite brings the log into the file
// after commits, up to what the oldest reader may read.
func (d *DB) watchLog() {
	var held int64
	if d.LogBytes() > heldLimit {
		var err error
		if held, err = d.checkpoint(); err != nil {
			return // the same as before, as far as is known
		}
	}
	if held <= heldLimit {
		d.ClearFault(database.FaultWALHeld)
		return
	}
	d.SetFault(database.FaultWALHeld, fmt.Sprintf("A reader holds the log of the %s database: %d MB of %s%s cannot be reused, since a read that began earlier has not ended. The log grows until it does, and shrinks by itself afterwards. The runbook says how to find and end it.",
		d.Name, held>>20, d.path, logSuffix))
}

// LogBytes is the size of a SQLite database's log; 0 on PostgreSQL.
func (d *DB) LogBytes() int64 {
	if d.file == nil {
		return 0
	}
	log, err := os.Stat(d.file.real + logSuffix)
	if err != nil {
		return 0
	}
	return log.Size()
}

// checkpoint brings the log into the file as far as readers allow, and returns how many bytes of it
// they hold back. It does nothing before the first write.
func (d *DB) checkpoint() (held int64, err error) {
	ctx, cancel := context.WithTimeout(background, LockWait)
	defer cancel()
	s, err := d.writers.acquire(ctx, d.closed)
	if err != nil {
		return 0, err
	}
	defer d.writers.release(s)
	if s.link == nil {
		return 0, nil
	}
	var busy, frames, done int64
	err = s.link.each(background, func(row Row) error { return row.Scan(&busy, &frames, &done) }, `pragma wal_checkpoint(passive)`, nil)
	return (frames - done) * frameSize, err
}

// suspect notes that a page was found to be malformed.
func (d *DB) suspect(err error) {
	if code := sqliteCode(err); d.file != nil && (code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB) {
		d.file.suspect.Store(true)
	}
}

// malformedRoots counts the tables and indexes whose first page is none.
const malformedRoots = `
select count(*)
from sqlite_master m
join sqlite_dbpage p on p.pgno = m.rootpage
where m.rootpage > 0
  and substr(p.data, 1, 1) not in (x'02', x'05', x'0a', x'0d')`

// examine tells whether the file is malformed as a whole once a page of it was found to be: its
// schema, or the first page of a table. Other pages concern some campaigns only.
func (d *DB) examine() {
	if d.file == nil || !d.file.suspect.Load() {
		return
	}
	var roots int64
	err := d.Read(background, func(t *Tx) error {
		_, err := t.One([]any{&roots}, malformedRoots)
		return err
	})
	code := sqliteCode(err)
	switch {
	case roots > 0, code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		d.SetFault(database.FaultDamaged, fmt.Sprintf("The file of the %s database is malformed: the beginning of a table of %s, or the list of them, cannot be read. What needs it fails, for every campaign. Restore the last backup, as the runbook explains.", d.Name, d.path))
	case err == nil:
		d.file.suspect.Store(false)
		d.ClearFault(database.FaultDamaged)
	}
}
