package projection

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// Difference is a row in which live rows and replay differ.
type Difference struct {
	Change RowChange
	Row    string // of the campaign, see Shape.RowOf
}

// MaxDifferences is the maximum number of differences that a comparison stores, or fewer if they
// take up differencesBytes in a table; it counts all of them.
const (
	MaxDifferences   = 1000
	differencesBytes = 8 << 20
)

// valueBytes is the maximum length of a value shown in full.
const valueBytes = 2048

// shown returns a value for display: a long one is truncated, with a digest so that two of them are
// equal only if the values are.
func shown(value json.RawMessage) json.RawMessage {
	if len(value) <= valueBytes {
		return value
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	cut := strings.ToValidUTF8(text[:min(len(text), valueBytes/2)], "")
	return appendString(nil, fmt.Sprintf("%s… (%d bytes, sha256 %x)", cut, len(text), sha256.Sum256(value)))
}

// Compare compares the live rows of one projection and campaign with those of a replay. Both are
// read in key order and not stored, so memory use is constant; the two readers must not be one
// connection. A column that the live table lacks is a difference in every row; a missing table has
// no rows.
//
// The comparison's samples are the first differences of each table. They and the returned
// differences are the same rows, up to MaxDifferences of them.
func (s *Set) Compare(ctx context.Context, live, expected Queryer, campaignID, name string) (Comparison, []Difference, error) {
	p := s.Named(name)
	if p == nil {
		return Comparison{}, nil, event.NotFound("there is no projection %q", name)
	}
	c := Comparison{Samples: []RowChange{}, ReplayedWith: campaign.ReplayedWith{Version: p.Version, RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}}}
	var found []Difference
	for _, t := range p.tables {
		m := &merge{dialect: s.dialect, table: t, counts: &c, campaign: campaignID}
		if err := m.run(ctx, live, expected); err != nil {
			return c, nil, fmt.Errorf("compare table %q of projection %q for campaign %q: %w", t.name, name, campaignID, err)
		}
		share := max(1, MaxSamples/len(p.tables))
		for _, d := range m.found[:min(share, len(m.found))] {
			if len(c.Samples) < MaxSamples {
				c.Samples = append(c.Samples, d.Change)
			}
		}
		found = append(found, m.found[:min(len(m.found), MaxDifferences-len(found))]...)
	}
	return c, found, nil
}

// merge compares one table by reading both sides in key order.
type merge struct {
	dialect  string
	table    *table
	campaign string
	limit    int // of rows to read; 0 for all
	counts   *Comparison
	found    []Difference
	size     int // approximate size of the stored differences, in bytes
}

// side is one of the two readers.
type side struct {
	*scanner // of key expressions, then columns; nil without a table
	keys     int
	columns  []string
	more     bool
}

func (m *merge) run(ctx context.Context, live, expected Queryer) error {
	a, err := m.open(ctx, live)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := m.open(ctx, expected)
	if err != nil {
		return err
	}
	defer b.close()
	for a.more || b.more {
		order := 0
		switch {
		case !a.more:
			order = 1
		case !b.more:
			order = -1
		default:
			order = slices.CompareFunc(a.values[:a.keys], b.values[:b.keys], compareValues)
		}
		switch {
		case order < 0:
			m.counts.Removed++
			m.record(RowRemoved, a, nil)
		case order > 0:
			m.counts.Added++
			m.record(RowAdded, nil, b)
		case !a.same(b):
			m.counts.Changed++
			m.record(RowChanged, a, b)
		}
		if order <= 0 {
			if err := a.next(); err != nil {
				return err
			}
		}
		if order >= 0 {
			if err := b.next(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyColumns returns the columns that identify rows within one campaign: all of them without a
// primary key.
func (t *table) keyColumns() []string {
	if len(t.key) > 0 {
		return t.key
	}
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = c.name
	}
	return names
}

// keyTerm returns a key column as an expression whose order is the same here and in the database.
// The plus keeps the driver from parsing it as a date.
func (t *table) keyTerm(dialect, name string) string {
	switch quoted := quoteName(name); {
	case dialect != "postgres":
		return "+" + quoted
	case t.isInteger(name):
		return quoted
	default:
		return "cast(" + quoted + " as text)"
	}
}

// open starts reading the merge's rows.
func (m *merge) open(ctx context.Context, q Queryer) (*side, error) {
	there, err := m.columnsThere(ctx, q)
	if err != nil || len(there) == 0 {
		return &side{}, err
	}
	var terms, order, names []string
	for _, name := range m.table.keyColumns() {
		if !slices.Contains(there, name) && len(m.table.key) > 0 {
			return nil, event.Conflict("the table has no column %q, which is part of the key in the projection's file; its rows cannot be compared, since the table would have to be rebuilt", name)
		}
		if !slices.Contains(there, name) {
			continue
		}
		term := m.table.keyTerm(m.dialect, name)
		terms, order = append(terms, term), append(order, term+m.collation(name))
	}
	for _, c := range m.table.columns {
		if slices.Contains(there, c.name) {
			names = append(names, c.name)
			terms = append(terms, quoteName(c.name))
		}
	}
	query := fmt.Sprintf("select %s from %s where %s = $1 order by %s",
		strings.Join(terms, ", "), quoteName(m.table.name), quoteName("campaign_id"), strings.Join(order, ", "))
	if m.limit > 0 {
		query += fmt.Sprintf(" limit %d", m.limit)
	}
	rows, err := q.QueryContext(ctx, query, m.campaign)
	if err != nil {
		return nil, err
	}
	cells, err := newScanner(rows)
	if err != nil {
		rows.Close()
		return nil, err
	}
	s := &side{scanner: cells, keys: len(order), columns: names}
	return s, s.next()
}

func (m *merge) collation(name string) string {
	switch {
	case m.dialect != "postgres":
		return " collate binary"
	case m.table.isInteger(name):
		return " nulls first"
	default:
		return ` collate "C" nulls first`
	}
}

// columnsOf lists the columns of a table visible to a reader.
var columnsOf = map[string]string{
	"sqlite": `select name from pragma_table_xinfo($1) where hidden <> 1`,
	"postgres": `
select attname::text
from pg_attribute
where attrelid = to_regclass(quote_ident($1))
  and attnum > 0
  and not attisdropped`,
}

func (m *merge) columnsThere(ctx context.Context, q Queryer) ([]string, error) {
	rows, err := q.QueryContext(ctx, columnsOf[m.dialect], m.table.name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func (s *side) next() error {
	if s.scanner == nil {
		return nil
	}
	if s.more = s.rows.Next(); !s.more {
		return s.rows.Err()
	}
	return s.scan()
}

func (s *side) close() {
	if s.scanner != nil {
		s.rows.Close()
	}
}

// of returns the value of a column as canonical JSON; false if there is no such column.
func (s *side) of(name string) (json.RawMessage, bool) {
	if s == nil {
		return nil, false
	}
	i := slices.Index(s.columns, name)
	if i < 0 {
		return nil, false
	}
	return s.appendCell(nil, s.keys+i), true
}

func (s *side) same(o *side) bool {
	if len(s.columns) != len(o.columns) {
		return false
	}
	for i := range s.columns {
		at := s.keys + i
		if s.columns[i] != o.columns[i] || compareValues(s.values[at], o.values[at]) != 0 && !bytes.Equal(s.appendCell(nil, at), o.appendCell(nil, at)) {
			return false
		}
	}
	return true
}

// record stores a difference between the row of the live side and that of the replay; one of them
// is nil if only the other has the row.
func (m *merge) record(kind string, live, expected *side) {
	if len(m.found) == MaxDifferences || m.size > differencesBytes {
		return
	}
	either := cmp.Or(expected, live)
	d := Difference{Change: RowChange{Table: m.table.name, Kind: kind, Key: []Field{}, Fields: []FieldChange{}}}
	keys := m.table.keyColumns()
	var key []json.RawMessage
	for _, name := range keys {
		value, there := either.of(name)
		if !there {
			continue
		}
		key = append(key, value)
		m.size += len(value)
		if name != "campaign_id" {
			d.Change.Key = append(d.Change.Key, Field{Name: name, Value: shown(value)})
		}
	}
	for _, c := range m.table.columns {
		if slices.Contains(keys, c.name) || c.name == "campaign_id" {
			continue
		}
		was, inLive := live.of(c.name)
		is, inExpected := expected.of(c.name)
		if kind != RowChanged || inLive != inExpected || !bytes.Equal(was, is) {
			change := FieldChange{Name: c.name, Live: shown(was), Expected: shown(is)}
			m.size += len(change.Live) + len(change.Expected)
			d.Change.Fields = append(d.Change.Fields, change)
		}
	}
	d.Row = (&Shape{Table: m.table.name}).RowOf(key)
	m.found = append(m.found, d)
}

// compareValues orders values as both databases order the key terms: NULL, numbers, texts by their
// bytes, blobs.
func compareValues(a, b any) int {
	ra, rb := rank(a), rank(b)
	if ra != rb {
		return cmp.Compare(ra, rb)
	}
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case string:
		return strings.Compare(a, b.(string))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case time.Time:
		return a.Compare(b.(time.Time))
	}
	return cmp.Compare(numeric(a), numeric(b))
}

func rank(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case int64, float64, bool:
		return 1
	case string:
		return 2
	case []byte:
		return 3
	case time.Time:
		return 4
	}
	return 5
}

func numeric(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case bool:
		if v {
			return 1
		}
	}
	return 0
}

// RowMatch says whether a differing row, in a replay up to some seq, equals the live row, and
// whether it equals the row of the whole replay.
type RowMatch struct{ AsLive, AsExpected bool }

// Match compares the row of a difference with a row of a replay, given as the columns of its table;
// nil means that the replay has none. Only the fields that differ count.
func (d *Difference) Match(shape Shape, columns []json.RawMessage) RowMatch {
	if columns == nil {
		return RowMatch{AsLive: d.Change.Kind == RowAdded, AsExpected: d.Change.Kind == RowRemoved}
	}
	m := RowMatch{AsLive: d.Change.Kind != RowAdded, AsExpected: d.Change.Kind != RowRemoved}
	for _, f := range d.Change.Fields {
		is := shown(columns[slices.Index(shape.Columns, f.Name)])
		m.AsLive = m.AsLive && bytes.Equal(is, f.Live)
		m.AsExpected = m.AsExpected && bytes.Equal(is, f.Expected)
	}
	return m
}
