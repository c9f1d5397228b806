package sqldb

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Filter is how the fields of a request F select items T, in SQL and in memory alike. One that is not set
// selects all.
type Filter[F, T any] []filterField[F, T]

type filterField[F, T any] struct {
	reflect.StructField
	name string // in requests
	Condition[F, T]
}

// Condition is how one field selects. Match is nil where statements alone select by it.
type Condition[F, T any] struct {
	SQL   string // in which ? is the field's value; a time is in microseconds, a truth 0 or 1
	Match func(*F, *T) bool
}

// FilterOf is the filter by the fields of F with the tag column, such as "status" or "attempt_count >=": a column
// to compare with, which is T's name for it in JSON too. Fields that need more have conditions of their own, by
// their names in requests.
func FilterOf[F, T any](own map[string]Condition[F, T]) (f Filter[F, T]) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[F]()) {
		condition, found := own[nameInJSON(field)]
		if column := field.Tag.Get("column"); column != "" {
			condition, found = compared[F, T](field.Index, column), true
		}
		if found {
			f = append(f, filterField[F, T]{field, nameInJSON(field), condition})
		}
	}
	return f
}

func nameInJSON(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// compared compares a field of F with a column.
func compared[F, T any](at []int, column string) Condition[F, T] {
	column, how, found := strings.Cut(column, " ")
	if !found {
		how = "="
	}
	all := reflect.VisibleFields(reflect.TypeFor[T]())
	of := all[slices.IndexFunc(all, func(f reflect.StructField) bool { return nameInJSON(f) == column })].Index
	return Condition[F, T]{SQL: column + " " + how + " ?", Match: func(f *F, item *T) bool {
		have, want := parameter(reflect.ValueOf(item).Elem().FieldByIndex(of)), parameter(reflect.ValueOf(f).Elem().FieldByIndex(at))
		switch how {
		case ">=":
			return have.(int64) >= want.(int64)
		case "<":
			return have.(int64) < want.(int64)
		}
		return have == want
	}}
}

// parameter is a value in a statement; of one that is not set it is "", 0 or, where 0 is a value, -1.
func parameter(v reflect.Value) any {
	switch value := v.Interface().(type) {
	case time.Time:
		return Micros(value)
	case *bool:
		if value == nil {
			return int64(-1)
		}
		return Truth(*value)
	}
	if v.CanInt() {
		return v.Int()
	}
	return v.String()
}

// SQL is the condition for the items that the filter selects. Its parameters are Args, numbered after so many
// of the statement's own.
func (f Filter[F, T]) SQL(own int) string {
	var all []string
	for i, field := range f {
		n := fmt.Sprintf("$%d", own+i+1)
		unset := n + " = ''"
		if none, number := parameter(reflect.Zero(field.Type)).(int64); number {
			unset = fmt.Sprintf("cast(%s as bigint) = %d", n, none)
		}
		all = append(all, "("+unset+" or "+strings.ReplaceAll(field.Condition.SQL, "?", n)+")")
	}
	return strings.Join(all, "\n  and ")
}

// After is the parameter after those of SQL.
func (f Filter[F, T]) After(own int) string { return fmt.Sprintf("$%d", own+len(f)+1) }

// Args are the parameters of SQL, as if those fields were not set by which the statement selects already.
func (f Filter[F, T]) Args(want F, selected ...string) (args []any) {
	for _, field := range f {
		v := reflect.ValueOf(want).FieldByIndex(field.Index)
		if slices.Contains(selected, field.name) {
			v = reflect.Zero(field.Type)
		}
		args = append(args, parameter(v))
	}
	return args
}

// Match is the predicate of a list whose query selects by some of the fields already; nil if no other is set.
func (f Filter[F, T]) Match(want F, selected ...string) func(T) bool {
	set := slices.DeleteFunc(slices.Clone(f), func(field filterField[F, T]) bool {
		return slices.Contains(selected, field.name) || reflect.ValueOf(want).FieldByIndex(field.Index).IsZero()
	})
	if len(set) == 0 {
		return nil
	}
	return func(item T) bool {
		return !slices.ContainsFunc(set, func(field filterField[F, T]) bool { return !field.Match(&want, &item) })
	}
}

// Asks reports whether a field is set, other than some.
func (f Filter[F, T]) Asks(want F, except ...string) bool { return f.Match(want, except...) != nil }

// Count is the query of Total. Its end reads items with so many parameters, of which the first is a limit; the
// condition is about the items within it, and both databases leave out the columns that it does not need.
func (f Filter[F, T]) Count(end string, own int) string {
	return "\nselect count(*), coalesce(sum(case when " + f.SQL(own) + "\n  then 1 else 0 end), 0)\nfrom (\n  select *\n  from " + end + "\n) as counted"
}

// Total sets the total of a page. The query is a Count, with its parameters after the limit, and selects by
// some of the fields.
func (f Filter[F, T]) Total(t Reader, page *event.Page[T], query string, own []any, want F, selected ...string) error {
	var looked, matched int64
	args := slices.Concat([]any{CountWindow + 1}, own, f.Args(want, selected...))
	if _, err := t.One([]any{&looked, &matched}, query, args...); err != nil {
		return err
	}
	page.TotalCapped = looked > CountWindow || matched > CountMost
	Exactly(page, min(matched, CountMost))
	return nil
}
