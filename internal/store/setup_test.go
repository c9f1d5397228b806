package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// setup fails unless opening is refused with a message that contains the fragments.
func setup(t *testing.T, o store.Options, fragments ...string) *event.Refusal {
	s, err := store.Open(context.Background(), o)
	if err == nil {
		s.Close()
	}
	r := refused(t, err, event.ErrSetup, fragments...)
	must.Hold(t, !strings.Contains(r.Error(), "SQLITE_") && !strings.HasSuffix(r.Error(), "."), "%q is not a sentence for a person", r.Error())
	return r
}

// unusable is a pair of URLs, and what the refusal to open it says.
type unusable struct {
	journal, projections string
	fragments            []string
}

func refuseToOpen(t *testing.T, pairs map[string]unusable) {
	for name, c := range pairs {
		t.Run(name, func(t *testing.T) {
			setupWithoutSecret(t, store.Options{Journal: c.journal, Projections: c.projections}, c.fragments...)
		})
	}
}

func TestSQLiteOpen_createsFilesForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "and new ?#%25 ü")
	s := must.Get(store.Open(t.Context(), optionsIn(dir))).Or(t)
	defer s.Close()
	for _, name := range []string{"journal.db", "projections.db"} {
		info, err := os.Stat(filepath.Join(dir, name))
		must.Hold(t, err == nil && info.Mode().Perm() == 0o600 && info.Size() != 0, "%s: %+v, %v, want it there, with mode 0600", name, info, err)
	}
	mustBeMigrated(t, s)
}

// mustBeMigrated fails unless a store is ready and says when each migration was applied.
func mustBeMigrated(t *testing.T, s *store.Store) {
	must.Equal(t, len(s.Ready(t.Context())), 0, "not ready")
	migrations, err := s.Migrations(t.Context())
	must.Need(t, err == nil && len(migrations) >= 2, "migrations are %+v, %v", migrations, err)
	for _, m := range migrations {
		must.Hold(t, m.AppliedAt != nil && !m.AppliedAt.IsZero() && m.Name != "" && m.Version != 0, "migration %+v is not applied", m)
	}
}

// What is wrong with the projections is found before the journal is created. Which versions are refused is a matter of sqldb.
func TestOpen_refusesNewerProjectionsBeforeItCreatesTheJournal(t *testing.T) {
	f := own(t)
	f.Close()
	f.ExecProjections(`insert into goose_db_version (version_id, is_applied) values (9999, true)`)
	o := storetest.OptionsFor(f.Pair)
	f.Unchanged(func() { setup(t, o, "the projections database", "version 9999", "newer outboxweb") })
	fresh := dbtest.Fresh(t)
	o.Journal = fresh.Journal
	setup(t, o, "the projections database", "version 9999")
	left, _ := os.ReadDir(fresh.Dir)
	must.Hold(t, len(left) == 0, "a refused start left %v", left)
}

func TestSQLiteOpen_withoutMigratingRefusesWhatIsMissingOrOlder(t *testing.T) {
	t.Parallel()
	noMigrate := func(dir string) store.Options { return asTheyAre(optionsIn(dir)) }
	dir := t.TempDir()
	setup(t, noMigrate(dir), "the journal database", "does not exist", "--journal-db", "outboxweb migrate")
	left, _ := os.ReadDir(dir)
	must.Hold(t, len(left) == 0, "a refused start left %v", left)
	dir = dbtest.New(t).Dir
	s := must.Get(store.Open(t.Context(), noMigrate(dir))).Or(t)
	s.Close()
	must.OK(t, os.Remove(filepath.Join(dir, "projections.db")))
	setup(t, noMigrate(dir), "the projections database", "does not exist")
	must.OK(t, os.WriteFile(filepath.Join(dir, "projections.db"), nil, 0o600))
	setup(t, noMigrate(dir), "the projections database", "is empty", "--projections-db", "outboxweb migrate")
	left, _ = os.ReadDir(dir)
	must.Hold(t, len(left) == 2, "a refused start left %v", left)
}

func TestSQLiteOpen_refusesPathsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.OK(t, os.WriteFile(file, []byte(strings.Repeat("this is no database ", 100)), 0o600))
	must.OK(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(dir, "real.db"), nil, 0o600))
	must.OK(t, os.Symlink(filepath.Join(dir, "real.db"), filepath.Join(dir, "link.db")))
	in := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	there := dbtest.New(t)
	refuseToOpen(t, map[string]unusable{
		"not a database":           {in("file"), in("p1.db"), []string{"the journal database", file, "is not a SQLite database"}},
		"projections no database":  {in("j2.db"), in("file"), []string{"the projections database", "is not a SQLite database"}},
		"under a file":             {in("file/journal.db"), in("p3.db"), []string{"cannot write the journal database", "not a directory"}},
		"a directory":              {in("directory"), in("p4.db"), []string{"cannot write the journal database", "is a directory"}},
		"one file twice":           {in("x.db"), in("x.db"), []string{"--journal-db and --projections-db", "same file"}},
		"one file by two names":    {in("y.db"), in("directory/../y.db"), []string{"same file"}},
		"one file through a link":  {in("real.db"), in("link.db"), []string{"same file"}},
		"exchanged":                {there.Projections, there.Journal, []string{"is not a journal database", "swapped"}},
		"no URL":                   {filepath.Join(dir, "a.db"), in("p5.db"), []string{"--journal-db", "sqlite:PATH"}},
		"no path":                  {"sqlite:", in("p6.db"), []string{"--journal-db", "path"}},
		"in memory":                {in("j7.db"), "sqlite::memory:", []string{"--projections-db", "path"}},
		"PostgreSQL":               {"postgres://ana:secret@localhost:1/x", in("p8.db"), []string{"cannot connect to the journal database postgres://ana@localhost:1/x", "connection refused"}},
		"projections unknown kind": {in("j9.db"), "mysql:x", []string{"--projections-db", "mysql:x", "sqlite:PATH"}},
		// A mistyped path does not become a new directory with an empty journal; data beside the program does.
		"two directories": {in("nosuch/dir/journal.db"), in("p10.db"), []string{"cannot create the journal database " + dir + "/nosuch/dir/journal.db: there is no directory " + dir + "/nosuch; create it, or name another place with --journal-db"}},
		// A directory of the kernel refuses root as well.
		"not writable":             {"sqlite:/proc/self/journal.db", in("p11.db"), []string{"cannot write the journal database"}},
		"a directory not writable": {"sqlite:/proc/self/made/journal.db", in("p12.db"), []string{"cannot create the directory of the journal database"}},
	})
	_, err := os.Stat(filepath.Join(dir, "nosuch"))
	must.Hold(t, errors.Is(err, os.ErrNotExist), "a refused start made a directory: %v", err)
}

func TestClose_letsNobodyBegin(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	must.OK(t, errors.Join(f.Close(), f.Close()))
	for name, err := range map[string]error{
		"append": storetest.No(f.Append(f.Ctx, store.Append{Events: []event.Event{storetest.Event("a", "counted")}})),
		"read":   storetest.No(f.Campaign(f.Ctx, "a")),
		"apply":  f.Apply(f.Ctx, func(*readmodel.ApplyTx) error { return nil }),
	} {
		must.Hold(t, err != nil, "a closed store could %s", name)
	}
}
