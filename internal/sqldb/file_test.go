package sqldb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// site is an open database, at a symbolic link to its file, and an older copy of it.
type site struct{ dir, file, link, older string }

// strayings are the ways in which a database comes to be at another file than the open one.
var strayings = []struct {
	name, says string
	stray      func(site) error
	undo       func(site) error // nil when there is no way back
	left       []string         // the notes of the file that is in place afterwards, nil for none
}{
	{"deleted", "file of the journal database was deleted",
		func(s site) error { return os.Remove(s.file) }, nil, nil},
	{"replaced", "file of the journal database was replaced",
		func(s site) error { return os.Rename(s.older, s.file) }, nil, []string{"older"}},
	{"emptied", "file of the journal database was emptied",
		func(s site) error { return os.Truncate(s.file, 0) }, nil, nil},
	{"log deleted", "log of the journal database was deleted",
		func(s site) error { return os.Remove(s.file + logSuffix) }, nil, []string{"older", "acknowledged", "meanwhile"}},
	{"log replaced", "log of the journal database was replaced",
		func(s site) error { return os.Rename(s.older, s.file+logSuffix) }, nil, []string{"older", "acknowledged", "meanwhile"}},
	{"directory moved", "file of the journal database was deleted or moved away",
		func(s site) error { return os.Rename(s.dir, s.dir+".old") },
		func(s site) error { return os.Rename(s.dir+".old", s.dir) }, []string{"older", "acknowledged", "meanwhile", "afterwards"}},
	{"link retargeted", "file of the journal database was replaced",
		func(s site) error { return errors.Join(os.Remove(s.link), os.Symlink(s.older, s.link)) },
		func(s site) error { return errors.Join(os.Remove(s.link), os.Symlink(s.file, s.link)) }, []string{"older", "acknowledged", "meanwhile", "afterwards"}},
}

func TestSQLiteWrite_ofAFileThatIsNotInPlaceIsRefused(t *testing.T) {
	t.Parallel()
	for _, way := range strayings {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d := must.Get(openAt(t.Context(), "journal", "sqlite:"+s.link)).Or(t)
			must.OK(t, d.note("acknowledged"))
			verifyRefused := func(err error) {
				refusal, ok := errors.AsType[*event.Refusal](err)
				must.Hold(t, ok && errors.Is(err, event.ErrBusy) && strings.Contains(refusal.Detail, way.says), "got error %v, want a refusal that says %q", err, way.says)
			}
			verifyRefused(d.Write(t.Context(), func(w *Tx) error {
				_, err := w.Exec(`insert into notes (text) values ('meanwhile')`)
				return errors.Join(err, way.stray(s))
			}))
			verifyRefused(d.note("nowhere"))
			all := d.Faults()
			must.Hold(t, len(all) == 1 && all[0].Kind == database.FaultReplaced && all[0].Stops && strings.Contains(all[0].Headline(), way.says), "the faults are %+v", all)
			if way.undo != nil {
				must.OK(t, way.undo(s))
				must.OK(t, d.note("afterwards"))
				must.Same(t, d.Faults(), nil, "the faults afterwards")
			}
			must.OK(t, d.Close())
			if way.left != nil {
				verifyNotes(t, s.file, way.left)
			}
		})
	}
}

func newSite(t *testing.T) site {
	top := t.TempDir()
	s := site{dir: filepath.Join(top, "data"), link: filepath.Join(top, "link.db"), older: filepath.Join(top, "older.db")}
	s.file = filepath.Join(s.dir, "journal.db")
	must.OK(t, os.Mkdir(s.dir, privateDir))
	d := must.Get(openAt(t.Context(), "journal", "sqlite:"+s.file)).Or(t)
	must.OK(t, d.note("older"))
	must.OK(t, d.copyInto(t.Context(), s.older))
	must.OK(t, d.Close())
	must.OK(t, os.Symlink(s.file, s.link))
	return s
}

// verifyNotes checks that a database is sound and has just these notes.
func verifyNotes(t *testing.T, file string, want []string) {
	d := must.Get(openAt(t.Context(), "journal", "sqlite:"+file)).Or(t)
	must.Equal(t, must.Get(d.DamagedPages(t.Context())).Or(t), []string{"ok"}, "the pages of the file")
	var notes []string
	must.OK(t, d.Read(t.Context(), func(r *Tx) (err error) {
		notes, err = All(r, Column[string], `select text from notes order by rowid`)
		return err
	}))
	must.Equal(t, notes, want, "the notes")
	must.OK(t, d.Close())
}

func TestSQLiteLog_heldByAReaderIsAFaultAndShrinksAfterIt(t *testing.T) {
	t.Parallel()
	d := open(t)
	must.OK(t, d.note("first"))
	reader := dbtest.Open(t, "sqlite:"+d.path)
	held := must.Get(reader.Begin()).Or(t)
	var n int
	must.OK(t, held.QueryRow(`select count(*) from notes`).Scan(&n))
	for range 9 {
		must.OK(t, d.note(strings.Repeat("x", 8<<20)))
	}
	d.watchLog()
	all := d.Faults()
	must.Hold(t, len(all) == 1 && all[0].Kind == database.FaultWALHeld && !all[0].Stops && d.LogBytes() >= heldLimit, "with a log of %d bytes the faults are %+v", d.LogBytes(), all)
	must.OK(t, held.Rollback())
	d.watchLog()
	must.Same(t, d.Faults(), nil, "the faults afterwards")
	must.OK(t, d.note("into a log that is begun anew"))
	must.Hold(t, d.LogBytes() <= heldLimit/2, "the log has %d bytes, want at most %d", d.LogBytes(), heldLimit/2)
}
