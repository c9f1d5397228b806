package store

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
)

// scratchURL names no file, which is SQLite's word for a private one that is
// gone when it is closed; it is in the directory that the environment variables
// SQLITE_TMPDIR or TMPDIR name. The journal of such a file stays in memory while
// it is small, and is a file itself when it is not.
const scratchURL = "file:?_pragma=cache_size(-16000)&_pragma=temp_store(file)&_pragma=synchronous(off)&_pragma=foreign_keys(1)"

func (c *Scratch) openSQLite(ctx context.Context) (err error) {
	if c.pool, err = sql.Open("sqlite", scratchURL); err == nil {
		c.pool.SetMaxOpenConns(1) // every connection would have a file of its own
		c.conn, err = c.pool.Conn(ctx)
	}
	if err != nil {
		return fmt.Errorf("open scratch database: %w", err)
	}
	c.link = &sqliteLink{conn: c.conn, path: filepath.Join(os.TempDir(), "scratch"), stmts: make(map[string]*sql.Stmt)}
	return nil
}

// trigger is one of a table of SQLite, with the text that creates it.
type trigger struct{ name, text string }

// quietlySQLite is quietly on SQLite: the triggers are dropped for as long as
// fn runs, which nobody else sees.
func (t *tx) quietlySQLite(tables []string, fn func() error) error {
	var triggers []trigger
	for _, table := range tables {
		err := t.each(func(row scanner) error {
			var one trigger
			err := row.Scan(&one.name, &one.text)
			triggers = append(triggers, one)
			return err
		}, `select name, sql from sqlite_master where type = 'trigger' and tbl_name = $1 collate nocase`, table)
		if err != nil {
			return err
		}
	}
	// Such a pragma takes effect when it is compiled, so it must not stay prepared.
	if err := t.define("pragma defer_foreign_keys = on"); err != nil {
		return err
	}
	for _, one := range triggers {
		if err := t.define("drop trigger " + quoteName(one.name)); err != nil {
			return err
		}
	}
	if err := fn(); err != nil {
		return err
	}
	for _, one := range triggers {
		if err := t.define(one.text); err != nil {
			return err
		}
	}
	return nil
}
