package projection

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Code is a projection whose handlers are Go functions. It is held to the rules of one written as a
// file: it owns the tables that it lists, its rows are a function of the campaign's events, and
// another Version means that a rebuild may make other rows.
type Code struct {
	Name        string
	Version     string
	Tables      []string
	Schema      string // statements as in the schema section of a file; more sections may follow
	OnFailure   string // Block or Quarantine; empty means Block
	MaxAttempts int    // 0 means the process's setting
	// On has the handlers by event type, as written in a file: a type, prefix.* or *. Of several that
	// match, each is called, in the order of their types.
	On map[string]Handler
	// Functions are, by event type, the functions that errors name the place of, where they are not the
	// handlers themselves.
	Functions map[string]any
}

// Handler changes the projection's tables for an event. It must not keep tx or e. Its error fails
// the event, as does an error of tx that it ignores, a panic, and running beyond the deadline of ctx.
type Handler func(ctx context.Context, tx *CodeTx, e *event.Event) error

// codePrefix begins the names and sources of projections written in Go.
const codePrefix = "go:"

// Empty is a set without projections for a dialect.
func Empty(dialect string) *Set { return &Set{dialect: dialect} }

// With returns the set with more projections, written in Go. Errors are *event.Refusal with
// event.ErrSetup that name the projection.
func (s *Set) With(code ...Code) (*Set, error) {
	files := slices.Clone(s.files)
	for i := range code {
		f, err := code[i].file()
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return build(s.dialect, files)
}

// file returns the projection as a file with headers and schema, and the handlers beside it.
func (c *Code) file() (file, error) {
	fail := func(format string, args ...any) (file, error) {
		return file{}, event.Setup("projection %q: "+format, append([]any{c.Name}, args...)...)
	}
	switch {
	case !namePattern.MatchString(c.Name):
		return file{}, event.Setup("%q cannot name a projection; use lower-case letters, digits, _ and -, beginning with a letter", c.Name)
	case c.Version == "" || strings.TrimSpace(c.Version) != c.Version || len(c.Version) > 64:
		return fail("Version is %q; give its handlers a version of up to 64 characters, and another one whenever they make other rows", c.Version)
	case len(c.Tables) == 0:
		return fail("Tables is empty; list every table that it owns")
	case c.MaxAttempts < 0 || c.MaxAttempts > mostAttempts:
		return fail("MaxAttempts is a whole number from 1 to %d, or 0 for the default, not %d", mostAttempts, c.MaxAttempts)
	case len(c.On) == 0:
		return fail("On is empty; name the event types that it handles")
	}
	for eventType, handler := range c.On {
		if !eventTypePattern.MatchString(eventType) {
			return fail("%q is not an event type; write a full type, * for all types, or prefix.* for all types with that prefix", eventType)
		}
		if handler == nil {
			return fail("the handler of %s is nil", eventType)
		}
	}
	headers := []string{"-- projection: " + c.Name, "-- tables: " + strings.Join(c.Tables, ", "), "-- on-failure: " + cmp.Or(c.OnFailure, Block)}
	if c.MaxAttempts != 0 {
		headers = append(headers, fmt.Sprintf("-- max-attempts: %d", c.MaxAttempts))
	}
	return file{name: codePrefix + c.Name, content: strings.Join(append(headers, "-- schema", c.Schema), "\n"), above: len(headers) + 1, code: c}, nil
}

// attach gives a parsed projection its handlers.
func (c *Code) attach(p *Projection) error {
	p.Version, p.code = c.Version, &codeState{}
	for _, t := range p.tables {
		for _, column := range t.columns {
			if column.drawn && !column.integer || column.drawn && !slices.Contains(t.key, column.name) {
				return event.Setup("projection %q: column %q of table %q is numbered by the database, so replaying the same events makes different rows; use a value of the event, such as its seq", c.Name, column.name, t.name)
			}
		}
	}
	for _, eventType := range slices.Sorted(maps.Keys(c.On)) {
		function, wrapped := c.Functions[eventType]
		if !wrapped {
			function = c.On[eventType]
		}
		name, line := placeOf(function)
		p.EventTypes = append(p.EventTypes, eventType)
		p.sections = append(p.sections, &section{types: []string{eventType}, statements: []*handlerStatement{
			{Statement: Statement{File: name, Line: line}, projection: p, code: c.On[eventType]}}})
	}
	return nil
}

// placeOf returns the source file of a function and its first line.
func placeOf(function any) (string, int) {
	f := runtime.FuncForPC(reflect.ValueOf(function).Pointer())
	if f == nil {
		return "unknown", 1
	}
	name, line := f.FileLine(f.Entry())
	return filepath.Base(name), line
}

// HasCode reports whether any of the projections is written in Go.
func (s *Set) HasCode() bool { return s.code }

// RunsCode reports whether a projection written in Go handles the event type: its statements can
// only be sent one by one, since the next ones may depend on their results.
func (s *Set) RunsCode(eventType string) bool {
	return s.code && slices.ContainsFunc(s.plan(eventType), func(h *handlerStatement) bool { return h.code != nil })
}

// codeState is what the calls of a projection's handlers share.
type codeState struct {
	checked sync.Map // SQL text → checkedText
	texts   atomic.Int64
	hung    atomic.Int64 // calls that have not returned after their deadline
	hanging atomic.Value // string: the handler of the last of them
}

// Limits of projections written in Go.
const (
	mostTexts = 1000   // different SQL texts of a projection
	mostHung  = 16     // calls that have not returned after their deadline
	mostRows  = 10_000 // of a query
)

// NotCalledError is an event that was not tried, since too many earlier calls hang.
type NotCalledError struct {
	hung int64
	last string
}

func (e *NotCalledError) Error() string {
	return fmt.Sprintf(event.NotCalled+"%d earlier calls of this projection's functions have not returned, the last of them for %s; restart the process once that is fixed", e.hung, e.last)
}

// runCode calls a Go handler and waits for it, or for the event's deadline: a call that does not
// return by then can change nothing any more.
func (h *handlerStatement) runCode(ctx context.Context, s *Set, tx Tx, e *event.Event) error {
	state := h.projection.code
	if n := state.hung.Load(); n >= mostHung {
		last, _ := state.hanging.Load().(string)
		return &NotCalledError{hung: n, last: last}
	}
	t := &CodeTx{set: s, tx: tx, projection: h.projection, deadline: ctx}
	done := make(chan error, 1)
	go func() { done <- h.call(ctx, t, e) }()
	select {
	case err := <-done:
		return t.close(err)
	case <-ctx.Done():
	}
	state.hanging.Store(e.EventType + " at " + h.String())
	state.hung.Add(1)
	go func() {
		<-done
		state.hung.Add(-1)
	}()
	return t.close(ctx.Err())
}

// HandlerPanic is a panic of a Go handler. Its text is one line and then the stack.
type HandlerPanic struct {
	Value any
	Place string // the file and line of the host's code that panicked, such as orders.go:31; empty if unknown
	Stack []byte
}

// panicked begins the text of a HandlerPanic.
const panicked = "panic: "

func (e *HandlerPanic) Error() string {
	text := panicked + strings.Join(strings.Fields(fmt.Sprint(e.Value)), " ")
	if e.Place != "" {
		text += " at " + e.Place
	}
	return text + "\n" + string(e.Stack)
}

// panicPlace returns the file and line of the host's code that panicked: the innermost frame that is
// neither of the runtime nor of this module. A deferred function must call it.
func panicPlace() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !ours.MatchString(f.Function) {
			return filepath.Base(f.File) + ":" + strconv.Itoa(f.Line)
		}
		if !more {
			return ""
		}
	}
}

// ours finds the functions between a host's handler and the engine.
var ours = regexp.MustCompile(`^github\.com/outboxweb/outboxweb(/internal/projection)?\.`)

// call calls the handler. A panic becomes an error with its stack.
func (h *handlerStatement) call(ctx context.Context, t *CodeTx, e *event.Event) (err error) {
	returned := false
	defer func() {
		if r := recover(); r != nil {
			err = &HandlerPanic{Value: r, Place: panicPlace(), Stack: debug.Stack()}
		} else if !returned {
			err = errors.New("the handler ended its goroutine")
		}
	}()
	err = h.code(ctx, t, e)
	returned = true
	return err
}

// CodeTx is the transaction in which a Go handler changes its projection's tables. It is valid until
// the handler returns. Its first error is sticky: no statement runs after it, and the event fails.
type CodeTx struct {
	set        *Set
	projection *Projection
	deadline   context.Context

	mu     sync.Mutex
	tx     Tx
	err    error
	closed bool
}

var errClosed = errors.New("the transaction of this event has ended; a handler must not use it after it has returned")

// close ends the transaction's use, after the statement in progress, and returns why the event fails.
func (t *CodeTx) close(returned error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return cmp.Or(t.err, returned)
}

// Exec runs one insert, update or delete on the projection's own tables, with values for $1…$n. The
// statement names campaign_id, since a projection changes rows of the event's campaign only.
func (t *CodeTx) Exec(ctx context.Context, query string, args ...any) error {
	return t.run(ctx, query, args, true, func(ctx context.Context, args []any) error {
		return t.tx.Exec(ctx, query, args)
	})
}

// Query runs one select on the projection's own tables, with values for $1…$n, and returns its rows,
// of which there may be up to 10,000.
func (t *CodeTx) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	var rows Rows
	err := t.run(ctx, query, args, false, func(ctx context.Context, args []any) error {
		return t.tx.Query(ctx, query, args, func(cells []any) error {
			if len(rows.cells) == mostRows {
				return fmt.Errorf("the query has more than %d rows", mostRows)
			}
			rows.cells = append(rows.cells, cells)
			return nil
		})
	})
	return &rows, err
}

func (t *CodeTx) run(ctx context.Context, query string, args []any, changes bool, run func(context.Context, []any) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return errClosed
	case t.err != nil:
		return t.err
	}
	t.err = func() error {
		if err := cmp.Or(ctx.Err(), t.deadline.Err()); err != nil {
			return err
		}
		text := t.projection.code.check(t.set, t.projection, query, changes)
		if text.refused != nil {
			return text.refused
		}
		values, err := plainValues(args)
		if err != nil {
			return err
		}
		under := t.deadline
		if text.bounded && !t.set.triggers {
			under = background
		}
		return run(under, values)
	}()
	return t.err
}

// checkedText is what is known of an SQL text.
type checkedText struct {
	refused error // why the projection may not run it; nil if it may
	bounded bool
}

// check returns whether a handler may run an SQL text; texts are read once.
func (c *codeState) check(s *Set, p *Projection, query string, changes bool) checkedText {
	if known, ok := c.checked.Load(query); ok {
		return known.(checkedText)
	}
	if c.texts.Add(1) > mostTexts {
		return checkedText{refused: fmt.Errorf("the handlers run more than %d different SQL texts; write values as $1 and pass them as arguments", mostTexts)}
	}
	tokens, err := s.checkText(p, query, changes)
	text := checkedText{refused: err, bounded: err == nil && changes && bounded(tokens)}
	c.checked.Store(query, text)
	return text
}

// checkText checks an SQL text of a Go handler as the statements of a file are.
func (s *Set) checkText(p *Projection, query string, changes bool) ([]token, error) {
	tokens, err := (&lexer{src: query, line: 1, body: true}).all()
	var at *lineError
	if errors.As(err, &at) {
		return nil, errors.New(at.detail)
	}
	if err != nil {
		return nil, err
	}
	if len(split(tokens)) != 1 {
		return nil, fmt.Errorf("a handler runs one statement at a time: %s", clip(query))
	}
	if err := (&parser{src: query}).refuseRollback(tokens); errors.As(err, &at) {
		return nil, errors.New(at.detail)
	}
	if changes {
		err = p.checkChange(tokens, query)
	} else {
		err = checkSelect(tokens, query)
	}
	if err != nil {
		return nil, err
	}
	for _, other := range s.projections {
		i := slices.IndexFunc(tokens, func(t token) bool { return other != p && t.name() != "" && slices.Contains(other.Tables, t.name()) })
		if i >= 0 {
			return nil, fmt.Errorf("table %q belongs to projection %q; a projection written in Go reads and changes its own tables only: %s", tokens[i].name(), other.Name, clip(query))
		}
	}
	return tokens, nil
}

func (p *Projection) checkChange(tokens []token, query string) error {
	if !tokens[0].oneOf("insert", "update", "delete", "replace", "with") {
		return fmt.Errorf("Exec runs insert, update and delete; this statement begins with %s: %s", tokens[0].text, clip(query))
	}
	changed := targets(tokens)
	if len(changed) == 0 {
		return fmt.Errorf("this statement changes nothing; use Query to read: %s", clip(query))
	}
	for _, t := range changed {
		if !slices.Contains(p.Tables, t.name()) {
			return fmt.Errorf("this statement changes table %q, which Tables does not list; a projection changes its own tables only: %s", t.name(), clip(query))
		}
	}
	if !slices.ContainsFunc(tokens, func(t token) bool { return t.name() == "campaign_id" }) {
		return fmt.Errorf("this statement does not name campaign_id, so it could reach rows of other campaigns: %s", clip(query))
	}
	return nil
}

func checkSelect(tokens []token, query string) error {
	if !tokens[0].oneOf("select", "with") || len(targets(tokens)) > 0 {
		return fmt.Errorf("Query runs a select; use Exec to change rows: %s", clip(query))
	}
	return nil
}

// clip shortens an SQL text for an error.
func clip(query string) string {
	const most = 200
	text := strings.Join(strings.Fields(query), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// plainValues turns arguments into what a binding of a file can be: nil, int64, float64 or text. A
// bool is 1 or 0, and a time the microseconds since 1970, as in files.
func plainValues(args []any) ([]any, error) {
	plain := make([]any, len(args))
	for i, arg := range args {
		if raw, ok := arg.(json.RawMessage); ok {
			arg = []byte(raw)
		}
		v, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		switch v := v.(type) {
		case bool:
			plain[i] = int64(0)
			if v {
				plain[i] = int64(1)
			}
		case time.Time:
			plain[i] = v.UnixMicro()
		case []byte:
			plain[i] = string(v)
			if v == nil {
				plain[i] = nil
			}
		default:
			plain[i] = v
		}
	}
	return plain, nil
}
