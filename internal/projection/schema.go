package projection

import (
	"fmt"
	"slices"
	"strings"
)

// table is the content of a create table statement, as far as digests need it.
type table struct {
	name    string
	line    int
	columns []column
	key     []string // the primary key's columns, in key order
	// unique are the columns of each key, also of the primary one. A key over an expression has none, or
	// only some, and names that are no columns.
	unique [][]string
}

type column struct {
	name    string
	text    bool // declared as text, so that PostgreSQL would order it by locale
	integer bool // declared as a whole number
	// drawn is a number that the database generates if none is given.
	drawn bool
}

func (t *table) isInteger(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name && c.integer })
}

func (t *table) isText(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name && c.text })
}

// isText reports whether a type is one of texts.
func isText(kind token) bool { return kind.oneOf("text", "varchar", "character", "char") }

func (t *table) hasAll(names []string) bool {
	for _, name := range names {
		if !slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name }) {
			return false
		}
	}
	return true
}

func (r *parser) addSchema(statements [][]token) error {
	for _, tokens := range statements {
		st, err := r.compile(tokens, "nothing")
		if err != nil {
			return err
		}
		object, err := r.checkSchema(tokens)
		if err != nil {
			return err
		}
		r.noteCalls(tokens)
		if !r.active {
			continue
		}
		st.SQL = ifNotExists(r.dialect, object, st.SQL)
		r.p.SchemaStatements = append(r.p.SchemaStatements, st)
		r.p.triggers = r.p.triggers || object == "trigger" || object == "function"
	}
	return nil
}

// checkSchema checks a schema statement and records the tables it creates. It returns the kind of
// object: table, index, trigger or function.
func (r *parser) checkSchema(tokens []token) (string, error) {
	first := tokens[0]
	if !first.is("create") {
		return "", faultf(first.line, "a schema creates tables, indexes and triggers; this statement begins with %s", first.text)
	}
	i := 1
	for next(tokens, i).oneOf("unique", "or", "replace") {
		i++
	}
	object := strings.ToLower(next(tokens, i).text)
	switch object {
	case "table":
		t, err := readTable(tokens, i+1)
		if err != nil || !r.active {
			return object, err
		}
		return object, r.remember(t)
	case "index":
		at, err := r.checkOn(tokens)
		if t := r.table(next(tokens, at).name()); t != nil && r.active && next(tokens, 1).is("unique") {
			t.unique = append(t.unique, listed(tokens, at+1))
		}
		return object, err
	case "trigger":
		if _, err := r.checkOn(tokens); err != nil {
			return object, err
		}
		return object, r.checkTrigger(tokens)
	case "function":
		return object, r.checkFunction(tokens)
	}
	return "", faultf(first.line, "a schema creates tables, indexes and triggers, not %s", object)
}

func (r *parser) remember(t *table) error {
	switch {
	case r.table(t.name) != nil:
		return faultf(t.line, "table %q is created twice, here and in line %d", t.name, r.table(t.name).line)
	case !slices.Contains(r.p.Tables, t.name):
		return faultf(t.line, "table %q is created but not listed in %s", t.name, r.tables())
	case !slices.ContainsFunc(t.columns, func(c column) bool { return c.name == "campaign_id" }):
		return faultf(t.line, "table %q has no column campaign_id; every table needs it, so that one campaign can be cleared and rebuilt alone", t.name)
	}
	r.created = append(r.created, t)
	return nil
}

// checkOn checks that an index or trigger is on a table of the projection, and returns where it is
// named.
func (r *parser) checkOn(tokens []token) (at int, err error) {
	on := slices.IndexFunc(tokens, func(t token) bool { return t.is("on") })
	name := next(tokens, on+1)
	switch {
	case on < 0:
		return 0, faultf(tokens[0].line, "this statement does not say which table it is on")
	case !slices.Contains(r.p.Tables, name.name()):
		return 0, faultf(name.line, "this is on %q, which %s does not list", name.text, r.tables())
	}
	return on + 1, nil
}

// readTable parses create table from its name on.
func readTable(tokens []token, i int) (*table, error) {
	if next(tokens, i).is("if") {
		i += 3 // if not exists
	}
	name := next(tokens, i)
	if name.name() == "" {
		return nil, faultf(tokens[0].line, "create table needs a name")
	}
	t := &table{name: name.name(), line: name.line}
	if open := next(tokens, i+1); open.text != "(" {
		return nil, faultf(name.line, "create table %s must be followed by its columns in parentheses", name.text)
	}
	all, end := items(tokens, i+2)
	if end == len(tokens) {
		return nil, faultf(name.line, "the parenthesis after create table %s is never closed", name.text)
	}
	for _, item := range all {
		t.readItem(tokens[item[0]:item[1]])
	}
	return t, nil
}

// readItem parses one column or constraint.
func (t *table) readItem(item []token) {
	if next(item, 0).is("constraint") {
		item = item[min(2, len(item)):]
	}
	name, primary := next(item, 0).name(), false
	if next(item, 0).oneOf("primary", "unique", "check", "foreign", "exclude") {
		name = "" // a constraint of the table
	}
	for i, k := range outside(item) {
		if !k.oneOf("unique", "exclude") && !(k.is("primary") && next(item, i+1).is("key")) {
			continue
		}
		key := []string{name}
		if name == "" {
			key = listed(item, i+slices.IndexFunc(item[i:], func(t token) bool { return t.text == "(" }))
		}
		t.unique = append(t.unique, key)
		if k.is("primary") {
			t.key, primary = append(t.key, key...), true
		}
	}
	if name == "" {
		return
	}
	kind := next(item, 1)
	t.columns = append(t.columns, column{name: name, text: isText(kind),
		integer: kind.oneOf("integer", "int", "bigint", "smallint", "int2", "int4", "int8", "serial", "bigserial"),
		drawn: kind.oneOf("serial", "bigserial", "smallserial") || primary && kind.is("integer") ||
			slices.ContainsFunc(item, func(t token) bool { return t.oneOf("identity", "autoincrement") })})
}

// listed returns the names in the parentheses that open at index i, and an empty one for whatever
// else is there.
func listed(tokens []token, i int) (names []string) {
	if next(tokens, i).text != "(" {
		return nil
	}
	for _, t := range tokens[i+1:] {
		switch {
		case t.text == ")":
			return names
		case t.text != "," && !t.oneOf("asc", "desc"):
			names = append(names, t.name())
		}
	}
	return names
}

// ifNotExists makes a create statement repeatable.
func ifNotExists(dialect, object, sql string) string {
	if object == "function" || object == "trigger" && dialect != "sqlite" {
		return sql
	}
	at := strings.Index(strings.ToLower(sql), object) + len(object)
	if strings.HasPrefix(strings.ToLower(strings.TrimSpace(sql[at:])), "if ") {
		return sql
	}
	return sql[:at] + " if not exists" + sql[at:]
}

// Drawn lists, by table, the columns whose numbers the database generates because no handler sets
// them. A rebuild lets them be generated again.
func (p *Projection) Drawn() map[string][]string {
	drawn := make(map[string][]string)
	for _, t := range p.tables {
		for _, c := range t.columns {
			if c.drawn && !p.gives(t.name, c.name) {
				drawn[t.name] = append(drawn[t.name], c.name)
			}
		}
	}
	return drawn
}

// warnings lists what rebuilds cannot preserve of the projection's tables although its digest
// covers it.
func (p *Projection) warnings() []string {
	if !p.covers {
		return nil
	}
	var found []string
	drawn := p.Drawn()
	for _, t := range p.tables {
		for _, column := range drawn[t.name] {
			found = append(found, fmt.Sprintf("%s:%d: column %q of table %q is numbered by the database, so replaying the same events makes different rows; use a value of the event, such as :seq, or leave it out of a -- digest",
				p.file, t.line, column, t.name))
		}
	}
	return found
}

// gives reports whether a handler that changes the table sets the column.
func (p *Projection) gives(table, column string) bool {
	for _, h := range p.handlers() {
		if h.names(table) && h.names(column) {
			return true
		}
	}
	return p.code != nil
}
