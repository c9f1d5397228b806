package sqldb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// examinePostgres checks that the URL names the schema of the dump, and that the schema is
// empty if it exists.
func (r *Restoration) examinePostgres(ctx context.Context) error {
	named, dumped := r.to.postgres.schema, schemaOf(r.from)
	d, err := r.to.peek(ctx, r.name)
	_, absent := errors.AsType[*missingError](err)
	switch {
	case err == nil:
		defer d.pool.Close()
		named = d.Schema
	case !absent:
		return err
	}
	if named != dumped && !(named == "" && dumped == "public") {
		return event.Setup("the backup of the %s database is of the schema %s; restore it into the same schema with --%s, such as %s", r.name, dumped, r.flag, withSearchPath(r.url, dumped))
	}
	if absent {
		return nil
	}
	var tables int
	if err := d.peek(ctx, &tables, `select count(*) from pg_tables where schemaname = current_schema()`); err != nil {
		return fmt.Errorf("look into the schema %s: %w", d.Schema, err)
	}
	if tables > 0 {
		return event.Setup("the schema %s of the %s database %s has tables already; drop it, or name another database, before restoring", d.Schema, r.name, d.place)
	}
	return nil
}

// schemaOf is the schema of a dump, from its file name.
func schemaOf(dump string) string { return strings.Split(filepath.Base(dump), ".")[1] }

// restore runs pg_restore on a dump, in one transaction.
func (u *postgresURL) restore(ctx context.Context, from string) error {
	return u.tool(ctx, "pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction", "--schema="+schemaOf(from), "--dbname="+u.libpq(), from)
}

// tool runs a PostgreSQL program on the database. The password is in its environment, since any
// user can read a command line.
func (u *postgresURL) tool(ctx context.Context, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return event.Setup("%s is needed to back up and restore PostgreSQL and was not found; install PostgreSQL's client programs", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(cmd.Environ(), "PGPASSWORD="+u.config.Password)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Run(); err != nil {
		text := complaintOf(name, complaint.String())
		switch {
		case strings.Contains(text, "permission denied"):
			return event.Setup("%s: %s; "+anotherUser, name, text)
		case text != "":
			err = errors.New(text)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// complaintOf is the error output of a PostgreSQL program, on one line and without the
// statements that it ran.
func complaintOf(name, text string) string {
	var said []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "Query was:") || strings.Contains(line, "Command was:") {
			break
		}
		for _, mark := range []string{name + ": ", "error: ", "detail: "} {
			line = strings.TrimPrefix(line, mark)
		}
		if line = strings.TrimSpace(line); line != "" {
			said = append(said, line)
		}
	}
	return strings.Join(said, "; ")
}

// libpq is the URL for PostgreSQL's own programs: without the password and without parameters
// that only this program's driver supports.
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
