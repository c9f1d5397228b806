package sqldb

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

// withMigrations is the configuration of a program whose journal has these migrations alone.
func withMigrations(texts map[string]string) Config {
	files := fstest.MapFS{}
	for name, text := range texts {
		for _, kind := range []string{"sqlite", "postgres"} {
			files[kind+"/journal/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	c := config
	c.Migrations = files
	return c
}

// first and second are the migrations of two versions of a program.
var (
	first  = map[string]string{"00003_notes.sql": notes}
	second = map[string]string{"00003_notes.sql": notes, "00004_marks.sql": "create table marks (n integer not null);\ninsert into marks (n) values (1);\n"}
)

// migrateWith opens the journal at url as commands do, and closes it.
func migrateWith(ctx context.Context, url string, c Config) error {
	at, err := ParseURL("journal-db", url, c)
	if err == nil {
		err = at.Admit(ctx, "journal")
	}
	if err != nil {
		return err
	}
	d, err := at.Open(ctx, "journal")
	if err != nil {
		return err
	}
	if err := d.Ready(ctx); err != nil {
		return errors.Join(err, d.ClosePools())
	}
	return d.Close()
}

func mustMigrateWith(t *testing.T, url string, texts map[string]string) {
	must.OK(t, migrateWith(t.Context(), url, withMigrations(texts)))
}

// state is what stands in a database: its tables, and the versions that were applied.
func state(t *testing.T, url string) string {
	db := dbtest.Open(t, url)
	tables := dbtest.Tables(t, db)
	if len(tables) == 0 {
		return ""
	}
	var versions int
	must.OK(t, db.QueryRow("select count(*) from goose_db_version").Scan(&versions))
	return strings.Join(tables, " ") + " " + strings.Repeat("+", versions)
}

const (
	wholeFirst  = "goose_db_version notes +"
	wholeSecond = "goose_db_version marks notes ++"
)

func TestReady_migrationThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	broken := maps.Clone(second)
	broken["00005_broken.sql"] = "create table half_done (n integer not null);\nselect n from nowhere;\n"
	fresh, older := dbtest.Fresh(t).Journal, dbtest.Fresh(t).Journal
	mustMigrateWith(t, older, first)
	for url, want := range map[string]string{fresh: "", older: wholeFirst} {
		err := migrateWith(t.Context(), url, withMigrations(broken))
		must.Hold(t, err != nil && strings.Contains(err.Error(), "00005_broken.sql"), "a migration that fails: %v", err)
		must.Equal(t, state(t, url), want, "what it left")
		mustMigrateWith(t, url, second)
		must.Equal(t, state(t, url), wholeSecond, "what the next program left")
	}
}

func TestReady_byManyAtOnceMigratesOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.Fresh(t).Journal
	for _, c := range []struct {
		texts map[string]string
		want  string
	}{{first, wholeFirst}, {second, wholeSecond}} {
		var wg sync.WaitGroup
		for i := range 6 {
			config := withMigrations(c.texts)
			config.NoMigrate = i%2 == 1 && c.want == wholeFirst // which only creates
			wg.Go(func() { err := migrateWith(t.Context(), url, config); must.Hold(t, err == nil, "%v", err) })
		}
		wg.Wait()
		must.Equal(t, state(t, url), c.want, "the database")
	}
}

func TestAdmit_refusesWhatThisProgramMayNotMigrate(t *testing.T) {
	t.Parallel()
	url := dbtest.Fresh(t).Journal
	mustMigrateWith(t, url, first)
	noMigrate := withMigrations(second)
	noMigrate.NoMigrate = true
	later := withMigrations(map[string]string{"00004_released.sql": notes})
	for name, c := range map[string]struct {
		config Config
		says   string
	}{
		"older, and it may not migrate": {noMigrate, "has version 3 and this program needs 4; run outboxweb migrate"},
		"older than the first release":  {later, "has version 3, from before outboxweb 0.1.0; the revision 9868c124 migrates it: "},
	} {
		err := migrateWith(t.Context(), url, c.config)
		must.Hold(t, errors.Is(err, event.ErrSetup) && strings.Contains(err.Error(), c.says), "%s: %v", name, err)
		must.Equal(t, state(t, url), wholeFirst, name, "what it left")
	}
	mustMigrateWith(t, url, second)
	err := migrateWith(t.Context(), url, withMigrations(first))
	must.Hold(t, errors.Is(err, event.ErrSetup) && strings.Contains(err.Error(), "it belongs to a newer outboxweb"), "newer: %v", err)
}
