package projection

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
)

// Text is the statement as the file has it, on one line and without comments.
func (s Statement) Text() string {
	return joined(s.tokens, func(i int) string { return s.tokens[i].text })
}

// Shape is a table of a projection as its file declares it.
type Shape struct {
	Projection string
	Table      string
	Columns    []string // in the order of the file
	Key        []string // the primary key in key order; every column for a table without one
	Keyless    bool     // the table has no primary key, so that rows may be equal
}

// Shapes lists the tables of all projections, in load order.
func (s *Set) Shapes() []Shape {
	var all []Shape
	for _, p := range s.projections {
		for _, t := range p.tables {
			shape := Shape{Projection: p.Name, Table: t.name, Key: slices.Clone(t.keyColumns()), Keyless: len(t.key) == 0}
			for _, c := range t.columns {
				shape.Columns = append(shape.Columns, c.name)
			}
			all = append(all, shape)
		}
	}
	return all
}

// KeyOf picks the key of a row's columns.
func (s *Shape) KeyOf(columns []json.RawMessage) []json.RawMessage {
	key := make([]json.RawMessage, len(s.Key))
	for i, name := range s.Key {
		key[i] = columns[slices.Index(s.Columns, name)]
	}
	return key
}

// RowOf is the Row of a Difference in the row with a key.
func (s *Shape) RowOf(key []json.RawMessage) string {
	row := []byte(s.Table)
	for _, value := range key {
		row = append(append(row, 0), value...)
	}
	return string(row)
}

// EachRow calls visit with the cells of every row as canonical JSON, as comparisons show them. The
// slice is reused.
func EachRow(rows *sql.Rows, visit func(cells []json.RawMessage) error) error {
	s, err := newScanner(rows)
	if err != nil {
		return err
	}
	cells := make([]json.RawMessage, len(s.values))
	for rows.Next() {
		if err := s.scan(); err != nil {
			return err
		}
		for i := range cells {
			cells[i] = s.appendCell(nil, i)
		}
		if err := visit(cells); err != nil {
			return err
		}
	}
	return rows.Err()
}

// TableRows is the first rows of a table.
type TableRows struct {
	Shape
	Rows [][]json.RawMessage // by Columns; null where the table lacks a column
	More bool
}

// FirstRows reads the first rows of a campaign in every table, in the order of their keys.
func (s *Set) FirstRows(ctx context.Context, q Queryer, campaignID string, limit int) ([]TableRows, error) {
	var all []TableRows
	shapes := s.Shapes()
	for _, p := range s.projections {
		for _, t := range p.tables {
			rows := TableRows{Shape: shapes[len(all)]}
			m := &merge{dialect: s.dialect, table: t, campaign: campaignID, limit: limit + 1}
			if err := rows.read(ctx, m, q, limit); err != nil {
				return nil, fmt.Errorf("read table %q of projection %q for campaign %q: %w", t.name, p.Name, campaignID, err)
			}
			all = append(all, rows)
		}
	}
	return all, nil
}

func (r *TableRows) read(ctx context.Context, m *merge, q Queryer, limit int) error {
	from, err := m.open(ctx, q)
	if err != nil {
		return err
	}
	defer from.close()
	for ; from.more; err = from.next() {
		if r.More = len(r.Rows) == limit; r.More {
			return nil
		}
		row := make([]json.RawMessage, len(r.Columns))
		for i, name := range r.Columns {
			if value, there := from.of(name); there {
				row[i] = value
			} else {
				row[i] = json.RawMessage("null")
			}
		}
		r.Rows = append(r.Rows, row)
	}
	return err
}
