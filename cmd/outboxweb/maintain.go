package main

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"

	_ "modernc.org/sqlite" // for its version

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/sqldb"
	"github.com/outboxweb/outboxweb/internal/store"
)

// migrateCmd brings both databases to this program's version.
type migrateCmd struct {
	DryRun bool `help:"List the migrations that would be applied, and change nothing."`
	jsonFlag
}

// Run migrates, which opening the store does, and lists the steps.
func (c *migrateCmd) Run(ctx context.Context, a *app) error {
	steps, err := c.steps(ctx, a)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(map[string]any{"migrations": steps})
	}
	if len(steps) == 0 {
		_, err := fmt.Fprintln(a.out, "up to date: both databases are at this program's version")
		return err
	}
	return printTable(a.out, "DATABASE\tVERSION\tNAME\tAPPLIED", steps, func(m sqldb.Migration) []any {
		applied := "no"
		if m.AppliedAt != nil {
			applied = event.Second(*m.AppliedAt)
		}
		return []any{m.Database, m.Version, m.Name, applied}
	})
}

// steps returns the pending steps for a dry run, and otherwise applies all and returns them.
func (c *migrateCmd) steps(ctx context.Context, a *app) ([]sqldb.Migration, error) {
	if c.DryRun {
		return store.Plan(ctx, a.migratingOptions())
	}
	st, err := a.openStore(ctx, a.migratingOptions())
	if err != nil {
		return nil, err
	}
	defer st.Close()
	return st.Migrations(ctx)
}

// backupCmd copies both databases while they are in use.
type backupCmd struct {
	Dir string `arg:"" help:"The directory to write; it must be empty or not exist."`
}

func (c *backupCmd) check() error {
	switch c.Dir {
	case "":
		return usagef("DIR: the directory name is empty")
	case "-":
		return usagef("DIR: a backup is a directory and cannot be written to stdout; name a directory, or ./- for one with that name")
	}
	return nil
}

// Run writes the backup.
func (c *backupCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	bar := a.progress("backup")
	err := st.Maintenance.Backup(ctx, c.Dir, bar.set)
	bar.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "both databases are backed up in %s; restore them with: outboxweb restore %s\n", c.Dir, event.ShellWord(c.Dir))
	return nil
}

type restoreCmd struct {
	Dir string `arg:"" help:"The directory of a backup."`
}

// Run copies the backup to the paths of --journal-db and --projections-db.
func (c *restoreCmd) Run(ctx context.Context, a *app) error {
	if err := maintenance.Restore(ctx, c.Dir, a.migratingOptions(), func(st *store.Store) *maintenance.Maintenance { return engine.Wire(st).Maintenance }); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "restored %s and %s\n", a.JournalDB, a.ProjectionsDB)
	return nil
}

type versionCmd struct{ jsonFlag }

// Run prints the versions of the program, Go and SQLite.
func (c *versionCmd) Run(ctx context.Context, a *app) error {
	sqlite, err := sqliteVersion(ctx)
	if err != nil {
		return err
	}
	versions := map[string]string{"outboxweb": version, "go": runtime.Version(), "sqlite": sqlite}
	return c.print(a, versions, "outboxweb %s\ngo %s\nsqlite %s", version, runtime.Version(), sqlite)
}

func sqliteVersion(ctx context.Context) (text string, err error) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "select sqlite_version()").Scan(&text)
	return text, err
}
