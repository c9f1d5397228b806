package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// refusals are how the databases word which constraint refuses a row. Its table, its columns, as
// SQLite lists them, its rule and the name of its index or rule are named groups.
var refusals = []struct {
	kind  string
	words *regexp.Regexp
}{
	{ConstraintUnique, regexp.MustCompile(`UNIQUE constraint failed: (?P<table>\w+)\.(?P<columns>\w+(?:, \w+\.\w+)*)`)},
	{ConstraintUnique, regexp.MustCompile(`UNIQUE constraint failed: index '(?P<rule>[^']*)'`)},
	{ConstraintNotNull, regexp.MustCompile(`NOT NULL constraint failed: (?P<table>\w+)\.(?P<columns>\w+)`)},
	{ConstraintNotNull, regexp.MustCompile(`null value in column "(?P<columns>[^"]+)" of relation "(?P<table>[^"]+)"`)},
	{ConstraintCheck, regexp.MustCompile(`(?s)CHECK constraint failed: (?P<rule>.*?)(?: \(\d+\))?$`)},
	{ConstraintUnique, regexp.MustCompile(`duplicate key value violates unique constraint "(?P<name>[^"]+)"`)},
	{ConstraintCheck, regexp.MustCompile(`relation "(?P<table>[^"]+)" violates check constraint "(?P<name>[^"]+)"`)},
	// Either the row refers to one that is missing, or the rows of another table refer to it.
	{ConstraintForeign, regexp.MustCompile(`on table "[^"]+" violates foreign key constraint "(?P<name>[^"]+)" on table "(?P<table>[^"]+)"`)},
	{ConstraintForeign, regexp.MustCompile(`on table "(?P<table>[^"]+)" violates foreign key constraint "(?P<name>[^"]+)"`)},
	{ConstraintForeign, sqliteForeign},
}

var (
	sqliteForeign = regexp.MustCompile(`FOREIGN KEY constraint failed`)
	sqliteType    = regexp.MustCompile(`cannot store (\w+) value in (\w+) column (\w+\.\w+)`)

	wrongType     = regexp.MustCompile(`invalid input syntax for type ([\w ]+): |value .* is out of range for type ([\w ]+)|is of type .* but expression is of type|datatype mismatch|out of range`)
	missingValue  = regexp.MustCompile(`^(\S+) is required, and `)
	missingObject = regexp.MustCompile(`no such (?:table|column|function)|has no column named|does not exist`)
	tooLong       = regexp.MustCompile(`deadline exceeded|was cut off|canceling statement|interrupted`)
)

// refused is what is known of an error that no rule of reasonOf covers.
const refused = "The database refused the statement."

// reasonOf says in a sentence what a database refused; constraints have their own.
func reasonOf(cause string) string {
	if m := missingValue.FindStringSubmatch(cause); m != nil {
		return "The statement requires " + m[1] + ", and the event does not have it."
	}
	if m := sqliteType.FindStringSubmatch(cause); m != nil {
		return fmt.Sprintf("Column %s holds %s, and the value is %s.", m[3], m[2], m[1])
	}
	switch {
	case sqliteForeign.MatchString(cause):
		return "A foreign key refuses it: a row that it refers to is missing, or others refer to the row that it removes."
	case wrongType.MatchString(cause):
		return "A value does not have the type that its column needs."
	case missingObject.MatchString(cause):
		return "The statement names a table, column or function that the database does not have."
	case tooLong.MatchString(cause):
		return "It ran for longer than one event may take."
	}
	return refused
}

// constrain finds the constraint that refused the values and, for a key, the row that has it.
func (x *explaining) constrain(ctx context.Context, live Queryer) {
	c, index := x.named()
	if c == nil {
		return
	}
	if live != nil {
		x.lookUp(ctx, live, c, index)
	}
	x.f.Constraint, x.f.Reason = c, constraintReason(*c)
	values := x.f.Statement.Values
	for i, v := range values {
		values[i].Refused = c.Table == x.table().name && slices.ContainsFunc(v.Columns, func(name string) bool { return slices.Contains(c.Columns, name) })
	}
	absent := func(v BoundValue) bool { return v.Refused && string(v.Value) == "null" }
	if c.Kind == ConstraintNotNull { // of an expression's values, only those without one can be why
		for i, v := range values {
			values[i].Refused = absent(v)
		}
	}
	if c.Kind == ConstraintUnique && live != nil && x.existing(ctx, live, *c) {
		x.f.Reason = "A row with this key (" + strings.Join(c.Columns, ", ") + ") was in " + c.Table + " when the statement ran, and no live row has it: an earlier statement of the event may have made it, or it was removed since."
	}
}

// constraintReason says in a sentence what a constraint refuses.
func constraintReason(c Constraint) string {
	columns := strings.Join(c.Columns, ", ")
	switch c.Kind {
	case ConstraintUnique:
		if columns == "" {
			return "A row with this key exists already in " + c.Table + "."
		}
		return "A row with this key (" + columns + ") exists already in " + c.Table + "."
	case ConstraintNotNull:
		return "Column " + columns + " of " + c.Table + " must have a value, and gets none."
	case ConstraintCheck:
		if columns == "" {
			return "A check of table " + c.Table + " refuses the values."
		}
		return "A check of table " + c.Table + " refuses the value of " + columns + "."
	}
	if columns == "" {
		return "A foreign key of " + c.Table + " refuses it: a row that it refers to is missing, or others refer to the row that it removes."
	}
	return "The row that " + columns + " of " + c.Table + " refers to is missing, or others refer to the row that it removes."
}

// named is the constraint that the cause names, with the name of its index or rule; nil for none.
func (x *explaining) named() (*Constraint, string) {
	for _, refusal := range refusals {
		m := refusal.words.FindStringSubmatch(x.cause)
		if m == nil {
			continue
		}
		part := func(group string) string {
			if i := refusal.words.SubexpIndex(group); i >= 0 {
				return m[i]
			}
			return ""
		}
		own, _ := x.h.target()
		c := &Constraint{Kind: refusal.kind, Table: cmp.Or(part("table"), own), Columns: []string{}, Definition: part("rule")}
		switch columns := part("columns"); {
		case columns != "":
			c.Columns = strings.Split(strings.ReplaceAll(columns, c.Table+".", ""), ", ")
		case c.Kind == ConstraintCheck:
			c.Columns = x.checked(c.Definition)
		}
		return c, part("name")
	}
	return nil, ""
}

// checked lists the table's columns that a check names: SQLite says the expression, or the
// constraint's name, whose expression is in the file.
func (x *explaining) checked(rule string) []string {
	columns := []string{}
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(rule, -1) {
		known := slices.ContainsFunc(x.table().columns, func(c column) bool { return c.name == strings.ToLower(word) })
		if known && !slices.Contains(columns, strings.ToLower(word)) {
			columns = append(columns, strings.ToLower(word))
		}
	}
	return columns
}

const (
	postgresIndexColumns = `
select t.relname::text, a.attname::text, pg_get_indexdef(i.indexrelid)
from pg_index i
join pg_class t on t.oid = i.indrelid
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey::int2[])
where i.indexrelid = to_regclass(quote_ident($1))
  and i.indrelid <> 0
order by array_position(i.indkey::int2[], a.attnum)`

	postgresRuleColumns = `
select t.relname::text, a.attname::text, pg_get_constraintdef(c.oid)
from pg_constraint c
join pg_class t on t.oid = c.conrelid
join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any(c.conkey)
where c.conrelid = to_regclass(quote_ident($2))
  and c.conname = $1
order by array_position(c.conkey, a.attnum)`

	sqliteForeignKeys = `
select "table", "from", 'references ' || "table" || coalesce('(' || "to" || ')', '')
from pragma_foreign_key_list($1)
order by id, seq`
)

// lookUp completes a constraint by what the database says about it. What cannot be read stays
// empty.
func (x *explaining) lookUp(ctx context.Context, live Queryer, c *Constraint, name string) {
	query, args := "", []any{name}
	switch {
	case name != "" && c.Kind == ConstraintUnique:
		query = postgresIndexColumns
	case name != "":
		query, args = postgresRuleColumns, []any{name, c.Table}
	case c.Kind == ConstraintForeign:
		query, args = sqliteForeignKeys, []any{c.Table}
	default:
		return
	}
	rows, err := live.QueryContext(ctx, query, args...)
	if err != nil {
		return
	}
	defer rows.Close()
	table, columns, definitions := c.Table, []string{}, []string{}
	for rows.Next() {
		var of, column, definition string
		if rows.Scan(&of, &column, &definition) != nil {
			return
		}
		columns = append(columns, column)
		if query != sqliteForeignKeys {
			table = of
		}
		if !slices.Contains(definitions, definition) {
			definitions = append(definitions, definition)
		}
	}
	if rows.Err() == nil {
		c.Table, c.Columns, c.Definition = table, columns, strings.Join(definitions, ", ")
	}
}

// existing reads the live row that has the key already. It reports whether there is certainly none.
func (x *explaining) existing(ctx context.Context, live Queryer, c Constraint) (none bool) {
	if len(c.Columns) == 0 || c.Table != x.table().name {
		return false
	}
	none = true
	writes := x.h.writes(x.table())
	tuples := 1
	for _, w := range writes {
		tuples = max(tuples, w.tuple+1)
	}
	for tuple := range tuples {
		where, args, ok := x.condition(writes, tuple, c.Columns)
		if !ok {
			none = false
			continue
		}
		row, err := x.read(ctx, live, where, args)
		if err != nil {
			return false // in a transaction that may be aborted
		}
		if row != nil {
			x.f.Existing = row
			return false
		}
	}
	return none
}

// condition selects the rows that have the values which a statement writes to the columns.
func (x *explaining) condition(writes []write, tuple int, columns []string) (where string, args []any, ok bool) {
	var terms []string
	for _, name := range columns {
		i := slices.IndexFunc(writes, func(w write) bool { return w.column == name && w.tuple == tuple })
		if i < 0 {
			return "", nil, false
		}
		sql, used, ok := x.h.expression(x.set.dialect, writes[i], len(args))
		if !ok {
			return "", nil, false
		}
		for _, n := range used {
			if x.failed[n] != nil {
				return "", nil, false
			}
			args = append(args, x.bound[n])
		}
		terms = append(terms, quoteName(name)+" = ("+sql+")")
	}
	return strings.Join(terms, " and "), args, true
}

// read reads the first live row of the statement's table that meets a condition; nil if there is
// none.
func (x *explaining) read(ctx context.Context, live Queryer, where string, args []any) (*ExistingRow, error) {
	t := x.table()
	there, err := (&merge{dialect: x.set.dialect, table: t}).columnsThere(ctx, live)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	row := &ExistingRow{Table: t.name, Fields: []Field{}, More: max(0, len(there)-maxColumns)}
	there = there[:min(len(there), maxColumns)]
	names := make([]string, len(there))
	for i, name := range there {
		names[i] = quoteName(name)
	}
	rows, err := live.QueryContext(ctx, fmt.Sprintf("select %s from %s where %s limit 1", strings.Join(names, ", "), quoteName(t.name), where), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cells, err := newScanner(rows)
	if err != nil || !rows.Next() {
		return nil, err
	}
	if err := cells.scan(); err != nil {
		return nil, err
	}
	secret := x.secretColumns(t)
	for i, name := range there {
		value := cells.appendCell(nil, i)
		if secret[name] || secret[""] && name != "campaign_id" || x.isSecret(value) {
			value = event.HiddenJSON
		}
		row.Fields = append(row.Fields, Field{Name: name, Value: shown(value)})
	}
	return row, nil
}

// isSecret reports whether a live value is one of those that are hidden in the event.
func (x *explaining) isSecret(value json.RawMessage) bool {
	for i, hidden := range x.hidden {
		if hidden && x.bound[i] != nil && string(appendValue(nil, x.bound[i])) == string(value) {
			return true
		}
	}
	return false
}

// secretColumns are the columns of a table to which the projection writes values that are hidden in
// events. The empty name means all: a statement writes one, and its form does not say where.
func (x *explaining) secretColumns(t *table) map[string]bool {
	secret := map[string]bool{}
	for _, h := range x.h.projection.handlers() {
		if target, _ := h.target(); target == t.name {
			x.addSecret(secret, h, t)
		}
	}
	return secret
}

func (x *explaining) addSecret(secret map[string]bool, h *handlerStatement, t *table) {
	writes := h.writes(t)
	for i := range h.args {
		if !x.hides(&h.args[i]) {
			continue
		}
		mapped := false
		for _, w := range writes {
			if slices.Contains(h.within(w), i) {
				mapped = true
				secret[w.column] = true
			}
		}
		secret[""] = secret[""] || !mapped
	}
}
