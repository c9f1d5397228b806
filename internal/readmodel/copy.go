package readmodel

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// source calls scan for each row of a query.
type source func(scan func(sqldb.Row) error, query string, args ...any) error

// LoadLive copies the live rows of a campaign into tables of the Scratch, which must hold none
// of it, and returns the watermark and the projections' positions at that moment. It fires no
// triggers.
func (c *Scratch) LoadLive(ctx context.Context, campaign string, tables ...string) (w Watermark, stands map[string]Position, err error) {
	stands = make(map[string]Position)
	err = c.within(sqldb.BeginCopy, func(t *sqldb.Tx) error {
		from := source(t.Each)
		if !t.Dialect().TempTables {
			live, err := c.model.Live(ctx)
			if err != nil {
				return err
			}
			defer live.Close()
			from = func(scan func(sqldb.Row) error, query string, args ...any) error {
				return live.each(ctx, scan, query, args...)
			}
		}
		err := from(func(row sqldb.Row) (err error) {
			w, err = ScanWatermark(row)
			return err
		}, SelectWatermark, campaign)
		if err != nil {
			return err
		}
		if err := from(collectStands(stands), selectStands, campaign); err != nil {
			return err
		}
		return quietly(ctx, t, sqldb.Temporary, tables, func() error {
			for _, table := range tables {
				if err := c.loadTable(ctx, t, from, table, campaign); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err == nil {
		err = c.analyze()
	}
	if err != nil {
		return w, nil, fmt.Errorf("copy the live rows of campaign %q: %w", campaign, err)
	}
	return w, stands, nil
}

// loadTable copies the live rows of a campaign in one table into the transaction.
func (c *Scratch) loadTable(ctx context.Context, t *sqldb.Tx, from source, table, campaign string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	columns, err := c.columnsOf(table)
	if err == nil {
		err = fits(t, from, table, columns)
	}
	if err != nil {
		return err
	}
	if t.Dialect().TempTables {
		rows, err := c.transfer(t, t.Schema(), sqldb.Temporary, table, campaign)
		c.grown += rows
		return err
	}
	order, err := storedOrder(from, table)
	if err == nil {
		_, err = stream(ctx, t, from, table, columns, campaign, order)
	}
	return err
}

// transfer copies the rows of a campaign from a table of one schema to the same table of
// another, and returns their number. It copies them in key order, in which generated numbers
// are drawn again.
func (c *Scratch) transfer(t *sqldb.Tx, from, to, table, campaign string) (int64, error) {
	key, err := c.keyOf(table)
	if err != nil {
		return 0, err
	}
	names := quoteNames(c.columns[table])
	return t.Exec("insert into "+qualified(to, table)+" ("+names+") select "+names+" from "+qualified(from, table)+" where campaign_id = $1 order by "+quoteNames(key), campaign)
}

// storedOrder returns the end of a query of a SQLite table that reads its rows in the order in which
// they are stored: whether an update of several rows of a unique key succeeds depends on the order
// in which it visits them. The plus keeps the index of the campaign in use. Tables without a rowid
// are stored in the order of their key.
func storedOrder(each source, table string) (order string, err error) {
	err = each(func(sqldb.Row) error {
		order = " order by +x._rowid_"
		return nil
	}, `select name from pragma_table_list where schema = 'main' and name = $1 collate nocase and wr = 0`, table)
	return order, err
}

// Limits of one insert into SQLite, in values and rows.
const (
	streamValues = 256
	streamRows   = 32
)

// stream copies the rows of a campaign into the table of the transaction, a few at a time and in
// the order given as the end of the query, and returns their number. ctx is checked between batches.
func stream(ctx context.Context, t *sqldb.Tx, from source, table string, columns []string, campaign, order string) (total int64, err error) {
	// A unary plus yields the stored value instead of the driver's conversion by the declared type.
	query := "select " + strings.Join(prefixed("+x", columns), ", ") + " from " + QuoteName(table) + " as x where campaign_id = $1" + order
	width := len(columns)
	at := max(1, min(streamRows, streamValues/width))
	insert := "insert into " + QuoteName(table) + " (" + quoteNames(columns) + ") values "
	values := make([]any, 0, at*width)
	row := make([]any, width)
	dest := make([]any, width)
	for i := range row {
		dest[i] = &row[i]
	}
	many := insert + tuples(at, width)
	flush := func(query string) error {
		_, err := t.Exec(query, values...)
		clear(values)
		values = values[:0]
		return err
	}
	err = from(func(s sqldb.Row) error {
		if err := s.Scan(dest...); err != nil {
			return err
		}
		values = append(values, row...)
		if total++; len(values) < at*width {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return flush(many)
	}, query, campaign)
	if err == nil && len(values) > 0 {
		err = flush(insert + tuples(len(values)/width, width))
	}
	return total, err
}

// tuples is the parameter list for n rows of a width.
func tuples(n, width int) string {
	var b strings.Builder
	for i := range n * width {
		switch {
		case i == 0:
			b.WriteByte('(')
		case i%width == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "$%d", i+1)
	}
	return b.String() + ")"
}

// catalog is a query about a table, which is $1, of each database.
type catalog struct{ sqlite, postgres string }

// of is the query, and the table as it takes it. SQLite has no schemas.
func (q catalog) of(d *sqldb.Dialect, schema, table string) (query, name string) {
	if d.TempTables {
		return q.postgres, qualified(schema, table)
	}
	return q.sqlite, table
}

// list reads a query of one column.
func (q catalog) list(each source, d *sqldb.Dialect, schema, table string) (all []string, err error) {
	query, name := q.of(d, schema, table)
	err = each(func(row sqldb.Row) error {
		one, err := sqldb.Column[string](row)
		all = append(all, one)
		return err
	}, query, name)
	if err != nil {
		return nil, fmt.Errorf("look at table %q: %w", table, err)
	}
	return all, nil
}

// copiedColumns are the columns of a table that are copied.
var copiedColumns = catalog{
	sqlite: `select name from pragma_table_xinfo($1) where hidden = 0 order by cid`,

	// Columns generated by the server are left out and drawn again.
	postgres: `
select attname
from pg_attribute
where attrelid = to_regclass($1)
  and attnum > 0
  and not attisdropped
  and attgenerated = ''
  and attidentity <> 'a'
order by attnum`,
}

// columnsOf lists the copied columns of a scratch table.
func (c *Scratch) columnsOf(table string) ([]string, error) {
	if known := c.columns[table]; known != nil {
		return known, nil
	}
	columns, err := copiedColumns.list(c.Each, c.model.Dialect, sqldb.Temporary, table)
	if err != nil {
		return nil, err
	}
	for _, p := range c.projections {
		columns = slices.DeleteFunc(columns, func(name string) bool { return slices.Contains(p.Drawn[table], name) })
	}
	c.columns[table] = columns
	return columns, nil
}

// primaryKey are the columns of a table's primary key; only PostgreSQL is asked.
var primaryKey = catalog{postgres: `
select a.attname
from pg_index i
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
where i.indrelid = to_regclass($1)
  and i.indisprimary
order by array_position(cast(i.indkey as smallint[]), a.attnum)`}

// keyOf lists the columns of a scratch table's primary key on PostgreSQL, or the physical row
// position where it has none.
func (c *Scratch) keyOf(table string) ([]string, error) {
	if known := c.keys[table]; known != nil {
		return known, nil
	}
	key, err := primaryKey.list(c.Each, c.model.Dialect, sqldb.Temporary, table)
	if err != nil {
		return nil, err
	}
	if len(key) == 0 {
		key = []string{"ctid"}
	}
	c.keys[table] = key
	return key, nil
}

// fits refuses a live table that lacks a column of the scratch table: an older version of the
// projection created it.
func fits(t *sqldb.Tx, live source, table string, columns []string) error {
	there, err := copiedColumns.list(live, t.Dialect(), t.Schema(), table)
	if err != nil {
		return err
	}
	for _, column := range columns {
		if !slices.ContainsFunc(there, func(name string) bool { return strings.EqualFold(name, column) }) {
			return event.Conflict("table %q of the projections database has no column %q, which the projection's file gives it; add the column, or drop the table and restart, and rebuild", table, column)
		}
	}
	return nil
}
