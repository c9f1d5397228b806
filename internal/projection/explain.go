package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Limits of an explanation.
const (
	linesBefore, linesAfter = 3, 2 // around the statement
	maxLines                = 60   // of statement and context
	maxColumns              = 30   // of the row that exists
)

// Explain says which statement failed with an error that was recorded for an event, with what
// values, and why, as far as the loaded file, the event and the live rows say it. live may be nil:
// no row is read then. It always returns an explanation; what is not known is empty in it.
func (s *Set) Explain(ctx context.Context, live Queryer, e *event.Event, recorded string, hide Hider) ExplainedFailure {
	f := ExplainedFailure{Error: recorded}
	at, ok := readError(recorded, e.EventType)
	if !ok {
		f.Unexplained = "The error names no statement of a projection."
		return f
	}
	cause, _, _ := strings.Cut(at.cause, "\n") // the stack of a panic follows
	f.Projection, f.Reason = at.projection, reasonOf(cause)
	p := s.Named(at.projection)
	if p == nil {
		f.Unexplained = "Projection " + at.projection + " is not loaded."
		return f
	}
	f.LoadedVersion = p.Version
	h := s.failed(at, e.EventType)
	if h == nil {
		f.Unexplained = "No statement of the loaded file begins at line " + strconv.Itoa(at.line) + " and runs for this event type."
		return f
	}
	if h.code != nil {
		switch {
		case strings.HasPrefix(cause, panicked):
			f.Reason = "The function panicked."
		case strings.HasPrefix(cause, event.NotCalled):
			f.Reason = "The function was not called, since earlier calls have not returned."
		case strings.HasPrefix(recorded, event.CutOff):
			f.Reason = "The function did not return in time."
		case f.Reason == refused: // nothing says that it was the database
			f.Reason = "The function returned an error."
		}
		f.Unexplained = "The projection is written in Go: its handler of " + e.EventType + " begins at " + h.String() + "."
		return f
	}
	x := explaining{set: s, h: h, event: e, hide: hide, shown: hide.Event(*e), cause: at.cause, f: &f}
	x.bind()
	f.Statement = &FailedStatement{File: filepath.Base(h.File), Line: h.Line, Lines: s.source(h.Statement), Values: x.values()}
	x.constrain(ctx, live)
	x.hideInError()
	return f
}

// place is where an event failed, as ApplyError words it.
type place struct {
	projection string
	line       int
	cause      string
}

// readError reads an ApplyError back from a recorded text.
func readError(recorded, eventType string) (place, bool) {
	m := regexp.MustCompile(`(?s)projection ([a-z][a-z0-9_-]{0,62}) \([^\n]+?:(\d+)\) on ` + regexp.QuoteMeta(eventType) + `: (.*)`).FindStringSubmatch(recorded)
	if m == nil {
		return place{}, false
	}
	line, err := strconv.Atoi(m[2])
	return place{projection: m[1], line: line, cause: m[3]}, err == nil
}

// failed finds the statement that begins at the line and runs for the event type. Of several in
// one line it is the only one that changes a table that the cause names.
func (s *Set) failed(at place, eventType string) *handlerStatement {
	var found []*handlerStatement
	for _, h := range s.plan(eventType) {
		if h.projection.Name == at.projection && h.Line == at.line {
			found = append(found, h)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(h *handlerStatement) bool {
			table, _ := h.target()
			return !strings.Contains(at.cause, table)
		})
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// source lists the lines of a statement and some around it.
func (s *Set) source(st Statement) []SourceLine {
	i := slices.IndexFunc(s.files, func(f file) bool { return f.name == st.File })
	if i < 0 {
		return []SourceLine{}
	}
	lines := strings.Split(strings.TrimSuffix(s.files[i].content, "\n"), "\n")
	end := st.tokens[len(st.tokens)-1]
	last := end.line + strings.Count(end.text, "\n")
	first := max(1, st.Line-linesBefore)
	all := []SourceLine{}
	for n := first; n <= min(len(lines), last+linesAfter, first+maxLines-1); n++ {
		all = append(all, SourceLine{Number: n, Text: strings.TrimRight(lines[n-1], "\r"), Failed: n >= st.Line && n <= last})
	}
	return all
}

// explaining is an explanation of a statement in progress.
type explaining struct {
	set   *Set
	h     *handlerStatement
	event *event.Event
	shown event.Event // as readers may see it
	hide  Hider
	cause string
	f     *ExplainedFailure

	bound  []any   // by argument
	failed []error // why an argument cannot be bound
	hidden []bool
}

// bind binds the event's values as applying it does.
func (x *explaining) bind() {
	for i := range x.h.args {
		v, err := x.h.args[i].of(x.event)
		x.bound, x.failed = append(x.bound, v), append(x.failed, err)
		x.hidden = append(x.hidden, x.hides(&x.h.args[i]))
	}
}

// hides reports whether readers may not see what the event has for a binding.
func (x *explaining) hides(v *value) bool {
	if v.from.document != nil && v.from.document(&x.shown) == nil && v.from.document(x.event) != nil {
		return true
	}
	if v.from.document != nil && v.path == "" {
		return false // what is hidden in a whole document is hidden in its text
	}
	for part := range strings.SplitSeq(v.name, ".") {
		if v.from.document != nil && x.hide.Name(strings.Trim(part, `"`)) {
			return true
		}
	}
	stored, _ := v.of(x.event)
	shown, _ := v.of(&x.shown)
	return stored != shown
}

func (x *explaining) values() []BoundValue {
	all := []BoundValue{}
	columns, computed := x.columns()
	for i := range x.h.args {
		b := BoundValue{Name: ":" + x.h.args[i].name, Columns: columns[i], Computed: computed[i], Missing: x.failed[i] != nil && x.bound[i] == nil}
		b.Value = x.valueOf(i)
		all = append(all, b)
	}
	return all
}

// valueOf is an argument as readers may see it.
func (x *explaining) valueOf(i int) json.RawMessage {
	if x.hidden[i] {
		return event.HiddenJSON
	}
	v, _ := x.h.args[i].of(&x.shown) // whole documents differ from the stored ones where something is hidden
	return shown(appendValue(nil, v))
}

// columns lists the columns to which each argument is written, or compared with, and of which of them it
// is only an input.
func (x *explaining) columns() (all, computed [][]string) {
	all, computed = make([][]string, len(x.h.args)), make([][]string, len(x.h.args))
	for i := range all {
		all[i], computed[i] = []string{}, []string{}
	}
	for _, w := range x.h.writes(x.table()) {
		for _, n := range x.h.within(w) {
			if slices.Contains(all[n], w.column) {
				continue
			}
			all[n] = append(all[n], w.column)
			if w.to-w.from > 1 {
				computed[n] = append(computed[n], w.column)
			}
		}
	}
	return all, computed
}

// table is the table that the statement changes.
func (x *explaining) table() *table {
	name, _ := x.h.target()
	return x.h.projection.table(name)
}

// table returns the projection's table of a name; an empty one if it has none.
func (p *Projection) table(name string) *table {
	return cmp.Or(find(p.tables, func(t *table) bool { return t.name == name }), &table{name: name})
}

// quotedOnly is the length of a hidden text up to which it is hidden in an error only where it is
// quoted, since it may be part of any word.
const quotedOnly = 3

// hideInError hides the values that are hidden, where the database says them.
func (x *explaining) hideInError() {
	for i, hidden := range x.hidden {
		text := fmt.Sprint(x.bound[i])
		switch {
		case !hidden || x.bound[i] == nil || text == "":
		case len(text) <= quotedOnly:
			x.f.Error = strings.ReplaceAll(x.f.Error, `"`+text+`"`, `"`+event.Hidden+`"`)
		default:
			x.f.Error = strings.ReplaceAll(x.f.Error, text, event.Hidden)
		}
	}
}
