package timetravel

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// longBudget is how many bytes of long values an answer reads; the rest are marked as long.
const longBudget = 1 << 20

// reading is one consistent read of a log.
type reading struct {
	ctx        context.Context
	log        *changeLog
	tx         *sql.Tx
	statements []projection.Statement
	base       int64 // rows are kept from after this event on
	seq        int64 // as of this event
	budget     int   // bytes of long values that may still be read
}

// read runs fn as of an event.
func (l *changeLog) read(ctx context.Context, statements []projection.Statement, seq int64, fn func(*reading) error) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("read row changes: %w", err)
	}
	defer tx.Rollback()
	base, last, _ := l.span()
	if seq < base || seq > last {
		return event.NotFound("the rows are kept as of events %d to %d, not as of event %d", base, last, seq)
	}
	return fn(&reading{ctx: ctx, log: l, tx: tx, statements: statements, base: base, seq: seq, budget: longBudget})
}

// stored is a row's version as read from the log.
type stored struct {
	id    int64
	tab   int
	name  string
	key   []json.RawMessage
	seq   int64
	cells []cell
}

// The rows of a table as of an event, with those that the event removed.
const selectRows = `
select k.id, k.tab, k.name, k.key, v.seq, v.cells
from row_keys k
join versions v on v.row = k.id and v.seq = (select max(w.seq) from versions w where w.row = k.id and w.seq <= $3)
where k.tab = $1
  and k.sort > $2
  and k.born <= $3
  and (k.gone is null or k.gone >= $3)
  and (v.cells is not null or v.seq = $3)
order by k.sort
limit $4`

const selectVersions = `
select k.id, k.tab, k.name, k.key, v.seq, v.cells
from versions v
join row_keys k on k.id = v.row`

const selectChanged = selectVersions + `
where v.seq = $1
order by k.tab, k.sort
limit $2`

const selectRow = selectVersions + `
where k.name = $1
  and v.seq <= $2
order by v.seq desc
limit 1`

func (r *reading) rows(query string, args ...any) ([]stored, error) {
	rows, err := r.tx.QueryContext(r.ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read row changes: %w", err)
	}
	defer rows.Close()
	var all []stored
	for rows.Next() {
		var s stored
		var key, cells []byte
		if err := rows.Scan(&s.id, &s.tab, &s.name, &key, &s.seq, &cells); err != nil {
			return nil, fmt.Errorf("read row changes: %w", err)
		}
		if err := json.Unmarshal(key, &s.key); err != nil {
			return nil, fmt.Errorf("read the key of a kept row: %w", err)
		}
		if cells != nil {
			if s.cells, err = decodeCells(cells); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// table reads rows of a table after the key of one of them.
func (r *reading) table(tab int, after []byte, limit int) (ModelTable, error) {
	t := emptyTable(r.log.tables[tab], SourceReplay)
	found, err := r.rows(selectRows, tab, after, r.seq, limit+1)
	if err != nil {
		return t, err
	}
	if t.More = len(found) > limit; t.More {
		found = found[:limit]
		t.Next = found[limit-1].name
	}
	return t, r.fill(&t, found)
}

// isCell reports whether a column is among the cells of a row, beside its key.
func isCell(shape projection.Shape, name string) bool {
	return name != "campaign_id" && (shape.Keyless || !slices.Contains(shape.Key, name))
}

// emptyTable is a table without its rows.
func emptyTable(shape projection.Shape, source string) ModelTable {
	columns := slices.DeleteFunc(slices.Clone(shape.Columns), func(name string) bool { return name == "campaign_id" })
	return ModelTable{Projection: shape.Projection, Name: shape.Table, Columns: columns, Source: source, Rows: []ModelRow{}}
}

func (r *reading) fill(t *ModelTable, found []stored) error {
	for _, s := range found {
		row, err := r.show(s)
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, row)
	}
	return nil
}

// changes reads the rows that the event changed, by table, at most limit.
func (r *reading) changes(limit int) ([]ModelTable, error) {
	found, err := r.rows(selectChanged, r.seq, limit+1)
	if err != nil {
		return nil, err
	}
	more := len(found) > limit
	found = found[:min(limit, len(found))]
	tables := []ModelTable{}
	for len(found) > 0 {
		n := slices.IndexFunc(found, func(s stored) bool { return s.tab != found[0].tab })
		if n < 0 {
			n = len(found)
		}
		t := emptyTable(r.log.tables[found[0].tab], SourceReplay)
		t.More = more && n == len(found)
		if err := r.fill(&t, found[:n]); err != nil {
			return nil, err
		}
		tables, found = append(tables, t), found[n:]
	}
	return tables, nil
}

// version reads the version of a row as of an event.
func (r *reading) version(name string, seq int64) (stored, error) {
	found, err := r.rows(selectRow, name, seq)
	if err == nil && len(found) == 0 {
		err = event.NotFound("this campaign has no such row as of event %d", seq)
	}
	if err != nil {
		return stored{}, err
	}
	return found[0], nil
}

// before reads the cells of a row before the event that made a version.
func (r *reading) before(s stored) ([]cell, error) {
	found, err := r.rows(selectRow, s.name, s.seq-1)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0].cells, nil
}

// change tells what the event did to a row, nothing if it did not change it, with the row's cells after
// the event and before it. Of a removed row both are those before.
func (r *reading) change(s stored) (kind string, now, was []cell, err error) {
	if s.seq != r.seq || s.seq <= r.base {
		return "", s.cells, nil, nil
	}
	was, err = r.before(s)
	switch {
	case err != nil:
		return "", nil, nil, err
	case s.cells == nil:
		return projection.RowRemoved, was, was, nil
	case was == nil:
		return projection.RowAdded, s.cells, nil, nil
	}
	return projection.RowChanged, s.cells, was, nil
}

// show makes what readers see of a row, beside the one before the event.
func (r *reading) show(s stored) (row ModelRow, err error) {
	shape := r.log.tables[s.tab]
	row = ModelRow{Row: s.name, Key: keyFields(shape, s.key), Cells: []ModelCell{}}
	if row.Previous, row.Following, err = r.around(s.id); err != nil {
		return row, err
	}
	kind, now, was, err := r.change(s)
	if err != nil {
		return row, err
	}
	row.Kind = kind
	for i, name := range shape.Columns {
		if i >= len(now) || !isCell(shape, name) {
			continue
		}
		c := r.cell(name, &now[i])
		if row.Kind == projection.RowChanged && !now[i].same(&was[i]) {
			b := r.cell(name, &was[i])
			c.Changed, c.Before, c.Long = true, b.Value, c.Long || b.Long
		}
		row.Cells = append(row.Cells, c)
	}
	return row, nil
}

// keyFields is a key without the campaign; of a table without a key there is none.
func keyFields(shape projection.Shape, key []json.RawMessage) []projection.Field {
	fields := []projection.Field{}
	for i, name := range shape.Key {
		if name != "campaign_id" && !shape.Keyless {
			fields = append(fields, projection.Field{Name: name, Value: key[i]})
		}
	}
	return fields
}

// around returns the events of the last change of a row before this one, and of the next.
func (r *reading) around(id int64) (previous, following int64, err error) {
	err = r.tx.QueryRowContext(r.ctx, `
select
  coalesce((select max(seq) from versions where row = $1 and seq < $2 and seq > $3), 0),
  coalesce((select min(seq) from versions where row = $1 and seq > $2), 0)`, id, r.seq, r.base).Scan(&previous, &following)
	if err != nil {
		err = fmt.Errorf("read row changes: %w", err)
	}
	return previous, following, err
}

// cell makes what readers see of a cell.
func (r *reading) cell(name string, c *cell) ModelCell {
	shown := ModelCell{Name: name, Value: c.value, SetSeq: c.seq}
	if c.seq > 0 && c.step >= 0 {
		st := r.statements[c.step]
		shown.Statement = fmt.Sprintf("%s:%d", filepath.Base(st.File), st.Line)
	}
	if c.long > 0 {
		shown.Value, shown.Long = r.long(c.long)
	}
	return shown
}

// long reads a long value, if the budget allows it.
func (r *reading) long(id int64) (value json.RawMessage, tooLong bool) {
	err := r.tx.QueryRowContext(r.ctx, `select value from long_values where id = $1 and length(value) <= $2`, id, r.budget).Scan((*[]byte)(&value))
	if err != nil {
		return nil, true
	}
	r.budget -= len(value)
	return value, false
}

// mostEarlier is how many earlier values a cell's history shows.
const mostEarlier = 20

// history reads a cell with its earlier values: each was set by the event that its row's version
// names.
func (r *reading) history(name, column string) (h ModelHistory, err error) {
	s, err := r.version(name, r.seq)
	if err != nil {
		return h, err
	}
	shape := r.log.tables[s.tab]
	i := slices.Index(shape.Columns, column)
	if i < 0 {
		return h, event.NotFound("table %q has no column %q", shape.Table, column)
	}
	h = ModelHistory{Seq: r.seq, Projection: shape.Projection, Table: shape.Table, Row: name, Key: keyFields(shape, s.key), Gone: s.cells == nil, Earlier: []ModelCell{}}
	if h.Gone {
		if s.cells, err = r.before(s); err != nil || s.cells == nil {
			return h, err
		}
	}
	r.budget = 64 * longBudget
	h.Cell = r.cell(column, &s.cells[i])
	if c := s.cells[i]; c.seq > 0 && c.step >= 0 {
		h.SQL = r.statements[c.step].Text()
	}
	r.budget = longBudget
	for seq := s.cells[i].seq; seq > r.base && len(h.Earlier) < mostEarlier; {
		was, err := r.before(stored{name: name, seq: seq})
		if err != nil || was == nil {
			return h, err
		}
		h.Earlier = append(h.Earlier, r.cell(column, &was[i]))
		seq = was[i].seq
	}
	return h, nil
}

// sortOf returns the place of a row in its table.
func (r *reading) sortOf(table int, name string) ([]byte, error) {
	if name == "" {
		return []byte{}, nil
	}
	var sort []byte
	err := r.tx.QueryRowContext(r.ctx, `select sort from row_keys where name = $1 and tab = $2`, name, table).Scan(&sort)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, event.Invalid("after", "there is no such row; begin with the first page")
	}
	return sort, err
}
