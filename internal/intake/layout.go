package intake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/intake"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/outbound"
)

const ownTable = intake.Table

// orderField is the key of columns that orders the rows and identifies each.
const orderField = "order"

// fields are the fields of an event that a table may have columns for, in the order in which they are
// read.
var fields = append(event.EnvelopeNames(), "payload", "metadata", "tags", "occurred_at", "expected_seq")

// required are the fields that every event has.
var required = []string{"campaign_id", "event_id", "event_type", "payload"}

// layout names the columns of each field.
type layout map[string][]string

// layouts are those that have a name.
var layouts = map[string]layout{
	"outboxweb": ownLayout(),
	"debezium": {
		"campaign_id": {"aggregateid"}, "event_id": {"id"}, "event_type": {"type"}, "payload": {"payload"},
		"entity_type": {"aggregatetype"}, "entity_id": {"aggregateid"},
	},
}

func ownLayout() layout {
	l := layout{orderField: {"id"}}
	for _, name := range fields {
		l[name] = []string{name}
	}
	return l
}

// layout returns the columns of a definition. Columns replace those of the layout that is named.
func (d Definition) layout(postgres bool) (layout, error) {
	l := layout{}
	name := d.Layout
	if name == "" && len(d.Columns) == 0 {
		name = "outboxweb"
	}
	if name != "" {
		known, ok := layouts[name]
		if !ok {
			return nil, event.Invalid("layout", "there is no layout %q; use %s", outbound.Shorten(name), event.OrList(slices.Sorted(maps.Keys(layouts))))
		}
		l = maps.Clone(known)
	}
	for _, field := range slices.Sorted(maps.Keys(d.Columns)) {
		columns := d.Columns[field]
		if field != orderField && !slices.Contains(fields, field) {
			return nil, event.Invalid("columns", "%q is not a field of an event; use order, %s", outbound.Shorten(field), strings.Join(fields, ", "))
		}
		if len(columns) == 0 || field == orderField && len(columns) > 1 {
			return nil, event.Invalid("columns", "%s needs one column", field)
		}
		for _, column := range columns {
			if err := checkIdentifier("columns", column); err != nil {
				return nil, err
			}
		}
		l[field] = columns
	}
	for _, field := range required {
		if l[field] == nil {
			return nil, event.Invalid("columns", "%s is missing; every event has %s", field, strings.Join(required, ", "))
		}
	}
	if l[orderField] == nil && postgres {
		return nil, event.Invalid("columns", "order is missing: the rows of this table have no order that a database keeps. Name a column that grows with each insert (alter table … add column seq bigint generated always as identity), or order: %s if its values sort by the time they were made (UUIDv7, ULID)", l["event_id"][0])
	}
	if l[orderField] == nil {
		l[orderField] = []string{"rowid"}
	}
	return l, nil
}

func checkTable(table string) error {
	for _, part := range strings.SplitN(table, ".", 2) {
		if err := checkIdentifier("table", part); err != nil {
			return err
		}
	}
	return nil
}

func checkIdentifier(field, name string) error {
	if name == "" || len(name) > 100 || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || c == '"' }) {
		return event.Invalid(field, "%q cannot be the name of a table or column", outbound.Shorten(name))
	}
	return nil
}

func quoted(name string) string { return `"` + name + `"` }

// columnOf is a column of the table, whose alias is t: without it, SQLite would read the name of a
// column that does not exist as a text.
func columnOf(name string) string { return "t." + quoted(name) }

// name is the table's name in statements.
func (s *Source) name() string {
	parts := strings.SplitN(s.Table, ".", 2)
	for i := range parts {
		parts[i] = quoted(parts[i])
	}
	return strings.Join(parts, ".")
}

// textLimit is how many characters of a short field are read: more than an event may have, so that
// longer ones are refused.
const textLimit = event.MaxIDLength + 50

// short is the expression of a short field: its first characters, and empty for null.
func (l layout) short(field string) string {
	columns := l[field]
	if columns == nil {
		return "''"
	}
	all := make([]string, len(columns))
	for i, column := range columns {
		all[i] = "coalesce(cast(" + columnOf(column) + " as text), '')"
	}
	return fmt.Sprintf("substr(%s, 1, %d)", strings.Join(all, " || ':' || "), textLimit)
}

// document is the expressions of a document: its length in bytes, and its first characters.
func (l layout) document(field, bytes string, limit int) string {
	columns := l[field]
	if columns == nil {
		return "0, ''"
	}
	text := "coalesce(cast(" + columnOf(columns[0]) + " as text), '')"
	return fmt.Sprintf("%s, substr(%s, 1, %d)", fmt.Sprintf(bytes, text), text, limit)
}

// plain is the expression of a column that is read by its type, or null.
func (l layout) plain(field string) string {
	if l[field] == nil {
		return "null"
	}
	return columnOf(l[field][0])
}

// order is the column that orders the rows, and key its value as a text.
func (l layout) order() string {
	if l[orderField][0] == "rowid" {
		return "t.rowid"
	}
	return columnOf(l[orderField][0])
}

func (l layout) key() string { return "cast(" + l.order() + " as text)" }

// columns are the expressions that scanRow reads.
func (l layout) columns(bytes string, limit int) string {
	all := []string{l.key()}
	for _, field := range fields {
		switch field {
		case "payload", "metadata", "tags":
			all = append(all, l.document(field, bytes, limit))
		case "occurred_at":
			all = append(all, l.plain(field))
		case "expected_seq":
			all = append(all, "cast("+l.plain(field)+" as text)")
		default:
			all = append(all, l.short(field))
		}
	}
	return strings.Join(all, ",\n  ")
}
