package templates

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"outboxweb/internal/outbox"
)

func explainedName(f outbox.ExplainedFailure) string {
	if f.Projection == "" {
		return "Why it fails"
	}
	return "Why it fails in projection " + f.Projection
}

// comparedColumn is a column of a failed statement: what the event gives it, and what the row that
// has the key already holds.
type comparedColumn struct {
	Name             string
	Binding          string // empty if the event gives it nothing
	Value, Existing  json.RawMessage
	Refused, Missing bool
}

// comparedColumns lists the columns of a failed statement, those that were refused first.
func comparedColumns(f outbox.ExplainedFailure) []comparedColumn {
	var all []comparedColumn
	for _, v := range f.Statement.Values {
		for _, name := range namesOf(v) {
			c := comparedColumn{Name: name, Binding: v.Name, Value: v.Value, Missing: v.Missing}
			c.Refused = v.Missing || keyed(f, name)
			all = append(all, c)
		}
	}
	if f.Existing != nil {
		for _, field := range f.Existing.Fields {
			i := slices.IndexFunc(all, func(c comparedColumn) bool { return c.Name == field.Name })
			if i < 0 {
				i, all = len(all), append(all, comparedColumn{Name: field.Name, Refused: keyed(f, field.Name)})
			}
			all[i].Existing = field.Value
		}
	}
	slices.SortStableFunc(all, func(a, b comparedColumn) int { return rank(b) - rank(a) })
	return all
}

func rank(c comparedColumn) int {
	if c.Refused {
		return 1
	}
	return 0
}

// namesOf are the columns that a value goes to; a dash if that is not known.
func namesOf(v outbox.BoundValue) []string {
	if len(v.Columns) == 0 {
		return []string{"–"}
	}
	return v.Columns
}

// keyed reports whether a column belongs to the constraint that refused the values.
func keyed(f outbox.ExplainedFailure, column string) bool {
	return f.Constraint != nil && slices.Contains(f.Constraint.Columns, column)
}

// blamed reports whether a line of the statement binds a value that was refused.
func blamed(f outbox.ExplainedFailure, l outbox.SourceLine) bool {
	return l.Failed && slices.ContainsFunc(f.Statement.Values, func(v outbox.BoundValue) bool {
		return (v.Refused || v.Missing) && slices.ContainsFunc(strings.FieldsFunc(l.Text, notOfBinding), func(word string) bool { return strings.TrimSuffix(word, "!") == v.Name })
	})
}

// notOfBinding reports whether a character cannot be part of a binding.
func notOfBinding(r rune) bool { return strings.ContainsRune(" \t(),;", r) }

func sourceClass(f outbox.ExplainedFailure, l outbox.SourceLine) string {
	switch {
	case blamed(f, l):
		return "failed blamed"
	case l.Failed:
		return "failed"
	}
	return ""
}

// sourceMark is the margin of a line of a file: whether it failed, and its number.
func sourceMark(f outbox.ExplainedFailure, l outbox.SourceLine) string {
	mark := "  "
	switch {
	case blamed(f, l):
		mark = "✕ "
	case l.Failed:
		mark = "▸ "
	}
	return mark + strconv.Itoa(l.Number)
}
