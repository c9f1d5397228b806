package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"

	"outboxweb/internal/outbox"
)

// dumpInto has pg_dump write a copy of the database's schema.
func (d *database) dumpInto(ctx context.Context, path string) error {
	return d.url.tool(ctx, "pg_dump", "--format=custom", "--no-owner", "--no-privileges", "--schema="+d.schema, "--file="+path, "--dbname="+d.url.libpq())
}

// examinePostgres finds the dump of the schema that the URL names and makes
// sure that the schema is empty.
func (r *restoration) examinePostgres(ctx context.Context, dir string, o Options) error {
	d, err := r.to.open(ctx, r.name, o)
	if err != nil {
		return err
	}
	defer d.closePools()
	dumps, err := filepath.Glob(filepath.Join(dir, r.name+".*.dump"))
	if err != nil || len(dumps) == 0 {
		return outbox.Setup("%s is no backup for --%s: it has no %s", dir, r.flag, d.backupFile())
	}
	if r.from = dumps[0]; filepath.Base(r.from) != d.backupFile() {
		schema := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(r.from), r.name+"."), ".dump")
		return outbox.Setup("the backup of the %s database is of the schema %s and fits no other; name it in --%s, such as %s", r.name, schema, r.flag, withSearchPath(r.url, schema))
	}
	var tables int
	if err := d.peek(ctx, &tables, `select count(*) from pg_tables where schemaname = current_schema()`); err != nil {
		return fmt.Errorf("look into the schema %s: %w", d.schema, err)
	}
	if tables > 0 {
		return outbox.Setup("the schema %s of the %s database %s has tables already; drop it, or name another database, before restoring", d.schema, r.name, d.place)
	}
	return nil
}

// restore has pg_restore read a dump back, all of it or nothing.
func (u *postgresURL) restore(ctx context.Context, from string) error {
	schema := strings.Split(filepath.Base(from), ".")[1]
	return u.tool(ctx, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--schema="+schema, "--dbname="+u.libpq(), from)
}

// tool runs a program of PostgreSQL's on the database. The password travels in
// its environment: everybody can read a command line.
func (u *postgresURL) tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return outbox.Setup("%s is needed to back up and restore PostgreSQL and was not found; install PostgreSQL's client programs", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cmd.Environ(), "PGPASSWORD="+u.config.Password)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(complaint.String()); text != "" {
			err = errors.New(text)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// libpq is the URL as PostgreSQL's own programs take it: without the password,
// and without what only this program's driver knows.
func (u *postgresURL) libpq() string {
	parsed, err := url.Parse(u.place)
	if err != nil {
		return u.place
	}
	query := parsed.Query()
	for _, name := range []string{"search_path", "default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity"} {
		query.Del(name)
	}
	parsed.RawQuery = query.Encode()
	return parsed.String()
}
