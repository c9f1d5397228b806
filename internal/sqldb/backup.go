package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/outboxweb/outboxweb/internal/event"
)

// MakeBackupDir creates a directory for copies. It may exist if it is empty.
func MakeBackupDir(dir string) error {
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return event.Setup("cannot create the backup directory %s: %v", dir, event.Cause(err))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return event.Setup("cannot read the backup directory %s: %v", dir, event.Cause(err))
	}
	if len(entries) > 0 {
		return event.Setup("the backup directory %s is not empty; name a new one", dir)
	}
	return nil
}

// BackUp writes a consistent copy of the database into a directory. The file gets its name only
// when it is complete.
func (d *DB) BackUp(ctx context.Context, dir string) error {
	path := filepath.Join(dir, d.backupFile())
	if err := d.copyInto(ctx, path+".part"); err != nil {
		_ = os.Remove(path + ".part")
		return err
	}
	return publish(path)
}

// backupFile is the file name of the database's copy. That of a PostgreSQL schema contains the
// schema, the only one that it can be restored to.
func (d *DB) backupFile() string {
	if d.Schema != "" {
		return d.Name + "." + d.Schema + ".dump"
	}
	return d.Name + ".db"
}

func (d *DB) copyInto(ctx context.Context, path string) error {
	if err := makePrivate(path); err != nil {
		return err
	}
	if d.Schema != "" {
		return d.url.tool(ctx, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--schema="+d.Schema, "--file="+path, "--dbname="+d.url.libpq())
	}
	return d.vacuumInto(ctx, path)
}

// makePrivate creates an empty file for SQLite or pg_dump to fill. A file that they create
// themselves would be readable by others while it grows.
func makePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, privateFile)
	if err != nil {
		return err
	}
	return f.Close()
}

// vacuumInto needs a reading connection without query_only, which refuses "vacuum into"
// although that changes nothing here.
func (d *DB) vacuumInto(ctx context.Context, path string) error {
	if err := d.InPlace(); err != nil {
		return err
	}
	conn, err := d.readerPool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "pragma query_only = 0"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "vacuum into $1", path)
	_, restoreErr := conn.ExecContext(context.WithoutCancel(ctx), "pragma query_only = 1")
	return errors.Join(err, restoreErr)
}

// publish syncs path+".part" and renames it to path.
func publish(path string) error {
	f, err := os.OpenFile(path+".part", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".part", path)
	}
	return errors.Join(err, syncDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// find finds the copy that matches the kind of the target database.
func (r *Restoration) find(dir string) error {
	file := filepath.Join(dir, r.name+".db")
	_, err := os.Stat(file)
	dumps, globErr := filepath.Glob(filepath.Join(dir, r.name+".*.dump"))
	switch {
	case globErr != nil:
		return globErr
	case err == nil && r.to.postgres == nil:
		r.from = file
	case len(dumps) > 0 && r.to.postgres != nil:
		r.from = dumps[0]
	case err == nil:
		return event.Setup("the backup of the %s database in %s is of SQLite and cannot become a PostgreSQL database; name a file with --%s, such as sqlite:data/%s.db", r.name, dir, r.flag, r.name)
	case len(dumps) > 0:
		return event.Setup("the backup of the %s database in %s is of PostgreSQL and cannot become a SQLite file; name an empty database with --%s, such as postgres://USER@HOST/DATABASE?search_path=%s", r.name, dir, r.flag, schemaOf(dumps[0]))
	default:
		return event.Setup("%s is not a backup for --%s: it has neither %s.db nor %s.SCHEMA.dump", dir, r.flag, r.name, r.name)
	}
	return nil
}

// examineCopy refuses a copy that this program cannot read.
func examineCopy(ctx context.Context, name, path string, c Config) error {
	pool, err := sql.Open("sqlite", sqliteURL(path)+"&mode=ro&immutable=1")
	if err != nil {
		return err
	}
	defer pool.Close()
	d := &DB{Name: name, place: path, path: path, Dialect: sqliteDialect, config: c, pool: pool}
	have, _, err := d.standing(ctx)
	if err == nil && have == 0 {
		err = event.Setup("%s is not a backup of the %s database: it is empty", path, name)
	}
	return err
}

// Restoration is the restore of one database.
type Restoration struct {
	name, flag, url string
	from            string // the copy
	to              Location
}

// FindBackup finds the copy of a database in a directory and checks that nothing exists at url.
func FindBackup(ctx context.Context, dir, name, url string, c Config) (*Restoration, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, event.Setup("%s is not a backup: %v", dir, event.Cause(err))
	}
	r := &Restoration{name: name, flag: name + "-db", url: url}
	var err error
	if r.to, err = ParseURL(r.flag, r.url, c); err != nil {
		return nil, err
	}
	if err := r.find(dir); err != nil {
		return nil, err
	}
	return r, r.examine(ctx)
}

// examine checks that the copy can be restored to its target.
func (r *Restoration) examine(ctx context.Context) error {
	if r.to.postgres != nil {
		return r.examinePostgres(ctx)
	}
	if err := examineCopy(ctx, r.name, r.from, r.to.config); err != nil {
		return err
	}
	// A log left behind would be replayed into the restored database.
	for _, path := range []string{r.to.path, r.to.path + "-wal", r.to.path + "-shm"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return event.Setup("the %s database's file %s already exists; move it away before restoring", r.name, path)
		}
	}
	return nil
}

// Run restores the copy.
func (r *Restoration) Run(ctx context.Context) error {
	if err := r.install(ctx); err != nil {
		return fmt.Errorf("restore the %s database: %w", r.name, err)
	}
	return nil
}

func (r *Restoration) install(ctx context.Context) error {
	if r.to.postgres == nil {
		return copyFile(r.from, r.to.path)
	}
	d, err := r.to.Open(ctx, r.name) // pg_restore creates neither the database nor the schema
	if err != nil {
		return err
	}
	return errors.Join(d.ClosePools(), r.to.postgres.restore(ctx, r.from))
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), privateDir); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to+".part", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, privateFile)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Close(); err != nil {
		return err
	}
	return publish(to)
}
