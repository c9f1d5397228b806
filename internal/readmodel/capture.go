package readmodel

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// CapturedTable is a table whose changes a Scratch captures.
type CapturedTable struct {
	Name         string
	Columns, Key []string
}

// What happened to a captured row.
const (
	CapturedInsert = 1
	CapturedUpdate = 2
	CapturedDelete = 3
)

// Capture begins to record every change of the tables' rows, whatever makes it: a statement, a
// trigger or a foreign key. Clear and LoadLive are not recorded. Nor is, on SQLite, the removal of a
// row that "or replace" makes room with, if a projection has triggers: it fires triggers only where
// they may fire each other, which would change what the projection's do.
func (c *Scratch) Capture(tables []CapturedTable) error {
	return c.within(sqldb.BeginPlain, func(t *sqldb.Tx) error {
		setUp := capturePostgres(tables)
		if !t.Dialect().TempTables {
			if err := fireOnReplace(t); err != nil {
				return err
			}
			times, err := timesOf(t, tables)
			if err != nil {
				return err
			}
			setUp = captureSQLite(tables, times)
		}
		for i, statement := range setUp {
			if err := t.Define(statement); err != nil {
				return fmt.Errorf("capture changes, statement %d: %w", i+1, err)
			}
		}
		return nil
	})
}

// fireOnReplace makes SQLite fire triggers for the rows that "or replace" removes, unless the tables
// have triggers already.
func fireOnReplace(t *sqldb.Tx) error {
	var own int64
	if _, err := t.One([]any{&own}, `select count(*) from sqlite_master where type = 'trigger'`); err != nil || own > 0 {
		return err
	}
	return t.Define("pragma recursive_triggers = on")
}

// MarkAt names what makes the changes that follow, within Replay.
func (c *Scratch) MarkAt(ctx context.Context, mark string) error {
	query := `update projection_capture set mark = $1`
	if c.model.Dialect.TempTables {
		query = `select set_config('outboxweb.mark', $1, false)`
	}
	return c.Exec(ctx, query, []any{mark})
}

// Captured reads the changes of table i of those given to Capture, in order: the mark, what
// happened, the former key of a changed or removed row, and the columns of an added or changed one.
func (c *Scratch) Captured(ctx context.Context, i int, t CapturedTable) (*sql.Rows, error) {
	names := append([]string{"mark", "kind"}, numbered("k", len(t.Key))...)
	names = append(names, numbered("c", len(t.Columns))...)
	return c.QueryContext(ctx, "select "+strings.Join(names, ", ")+" from "+captureTable(i)+" order by id")
}

// ForgetCaptured removes the changes recorded so far of table i.
func (c *Scratch) ForgetCaptured(i int) error {
	if c.model.Dialect.TempTables {
		return c.Define("truncate " + captureTable(i))
	}
	return c.within(sqldb.BeginPlain, func(t *sqldb.Tx) error {
		_, err := t.Exec("delete from " + captureTable(i))
		return err
	})
}

func captureTable(i int) string { return "projection_capture_" + strconv.Itoa(i) }

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i)
	}
	return names
}

// prefixed quotes columns of a table or of the row variable old or new.
func prefixed(row string, columns []string) []string {
	terms := make([]string, len(columns))
	for i, name := range columns {
		terms[i] = row + "." + QuoteName(name)
	}
	return terms
}

// timesOf returns the types of the columns whose texts the SQLite driver reads as times, by table and
// column: a captured text must be read in the same way.
func timesOf(t *sqldb.Tx, tables []CapturedTable) (map[[2]string]string, error) {
	times := make(map[[2]string]string)
	for _, table := range tables {
		err := t.Each(func(row sqldb.Row) error {
			var name, kind string
			err := row.Scan(&name, &kind)
			times[[2]string{table.Name, name}] = " " + kind
			return err
		}, `select name, type from pragma_table_xinfo($1) where upper(type) in ('DATE', 'DATETIME', 'TIMESTAMP')`, table.Name)
		if err != nil {
			return nil, fmt.Errorf("read the types of table %q: %w", table.Name, err)
		}
	}
	return times, nil
}

// captureSQLite returns the statements that capture on SQLite. The other columns have no type, so that
// values keep theirs.
func captureSQLite(tables []CapturedTable, times map[[2]string]string) []string {
	out := []string{`create table projection_capture (mark text not null)`, `insert into projection_capture (mark) values ('')`}
	for i, t := range tables {
		log, keys, columns := captureTable(i), numbered("k", len(t.Key)), numbered("c", len(t.Columns))
		typed := append(slices.Clone(keys), columns...)
		for j, name := range append(slices.Clone(t.Key), t.Columns...) {
			typed[j] += times[[2]string{t.Name, name}]
		}
		out = append(out, "create table "+log+" (id integer primary key, mark, kind, "+strings.Join(typed, ", ")+")")
		for _, on := range []struct {
			event    string
			kind     int
			old, new bool
		}{{"insert", CapturedInsert, false, true}, {"update", CapturedUpdate, true, true}, {"delete", CapturedDelete, true, false}} {
			into, from := []string{"mark", "kind"}, []string{"mark", strconv.Itoa(on.kind)}
			if on.old {
				into, from = append(into, numbered("k", len(t.Key))...), append(from, prefixed("old", t.Key)...)
			}
			if on.new {
				into, from = append(into, columns...), append(from, prefixed("new", t.Columns)...)
			}
			out = append(out, fmt.Sprintf("create trigger %s_%s after %s on %s begin insert into %s (%s) select %s from projection_capture; end",
				log, on.event, on.event, QuoteName(t.Name), log, strings.Join(into, ", "), strings.Join(from, ", ")))
		}
	}
	return out
}

// capturePostgres returns the statements that capture on PostgreSQL.
func capturePostgres(tables []CapturedTable) []string {
	out := []string{`create temporary sequence projection_capture_ids`}
	for i, t := range tables {
		log, keys, columns := captureTable(i), numbered("k", len(t.Key)), numbered("c", len(t.Columns))
		terms := []string{"cast(0 as bigint) as id", "cast('' as text) as mark", "cast(0 as bigint) as kind"}
		for j, term := range prefixed("x", t.Key) {
			terms = append(terms, term+" as "+keys[j])
		}
		for j, term := range prefixed("x", t.Columns) {
			terms = append(terms, term+" as "+columns[j])
		}
		row := func(kind int, more ...string) string {
			return fmt.Sprintf("values (nextval('pg_temp.projection_capture_ids'), current_setting('outboxweb.mark'), %d, %s)", kind, strings.Join(more, ", "))
		}
		into := func(columns ...[]string) string {
			names := []string{"id", "mark", "kind"}
			for _, more := range columns {
				names = append(names, more...)
			}
			return "insert into pg_temp." + log + " (" + strings.Join(names, ", ") + ") "
		}
		out = append(out,
			"create temporary table "+log+" as select "+strings.Join(terms, ", ")+" from pg_temp."+QuoteName(t.Name)+" as x with no data",
			"create function pg_temp."+log+"() returns trigger language plpgsql as $capture$ begin if tg_op = 'INSERT' then "+
				into(columns)+row(CapturedInsert, prefixed("new", t.Columns)...)+"; elsif tg_op = 'UPDATE' then "+
				into(keys, columns)+row(CapturedUpdate, append(prefixed("old", t.Key), prefixed("new", t.Columns)...)...)+"; else "+
				into(keys)+row(CapturedDelete, prefixed("old", t.Key)...)+"; end if; return null; end $capture$",
			"create trigger "+log+" after insert or update or delete on pg_temp."+QuoteName(t.Name)+" for each row execute function pg_temp."+log+"()")
	}
	return append(out, `select set_config('outboxweb.mark', '', false)`)
}
