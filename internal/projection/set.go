package projection

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
)

// Projection is a named read model: its tables, and what each event type changes in them. Its
// fields must not be changed.
type Projection struct {
	Name             string
	Version          string      // SHA-256 of the file, in hex
	Tables           []string    // in the order of the file
	OnFailure        string      // Block or Quarantine
	MaxAttempts      int         // failures at an event after which it is not retried; 0 means the process's setting
	Source           string      // the file's path, builtin:NAME, or campaign.SourceGo
	EventTypes       []string    // as written, including wildcards, each once
	SchemaStatements []Statement // in order; running them again changes nothing
	Graph            *Graph      // nil if its tables are none

	file      string
	tables    []*table
	sections  []*section
	digests   []*digest
	functions []function // created by its schema
	calls     []function // that its statements may call
	triggers  bool       // the schema has triggers
	code      *codeState // nil unless its handlers are written in Go
	covers    bool       // the digests cover all columns
}

// Set is the projections that a process works with. It is safe for concurrent use.
type Set struct {
	dialect     string
	files       []file
	projections []*Projection
	// triggers makes every statement run with the event's deadline, since a trigger may do anything
	// behind a plain insert.
	triggers   bool
	code       bool // some projection is written in Go
	statements int  // number of all statements and Go handlers

	plans     sync.Map // event type → []*handlerStatement
	planCount atomic.Int64
}

// maxPlans bounds the memory for plans: event types come from clients, and with wildcards each of
// them has a plan.
const maxPlans = 4096

// Projections lists the set's projections in load order, which is the order
// in which they apply an event.
func (s *Set) Projections() []*Projection { return slices.Clone(s.projections) }

// Infos describes the projections, without their state in a database.
func (s *Set) Infos() []campaign.ProjectionInfo {
	infos := []campaign.ProjectionInfo{}
	for _, p := range s.projections {
		infos = append(infos, campaign.ProjectionInfo{Name: p.Name, Version: p.Version, Tables: p.Tables,
			EventTypes: p.EventTypes, OnFailure: p.OnFailure, MaxAttempts: p.MaxAttempts, Source: p.Source})
	}
	return infos
}

// Warnings lists valid but surprising parts of the projections' files, each a sentence that begins
// with FILE:LINE.
func (s *Set) Warnings() []string {
	var found []string
	for _, p := range s.projections {
		found = append(found, p.warnings()...)
	}
	return found
}

// Handles reports whether any projection handles the event type. For other types only the watermark
// advances.
func (s *Set) Handles(eventType string) bool { return len(s.plan(eventType)) > 0 }

// Following are the names of the projections that handle an event type, in load order.
func (s *Set) Following(eventType string) []string {
	var names []string
	for _, h := range s.plan(eventType) {
		if name := h.projection.Name; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

// bounded reports whether every statement of the event type has a running time that data cannot
// extend, so that it needs no deadline.
func (s *Set) bounded(eventType string) bool {
	return !s.triggers && !slices.ContainsFunc(s.plan(eventType), func(h *handlerStatement) bool { return !h.bounded })
}

// Queries lists every SQL statement that events run, in load order, so that each can be prepared
// before the first event.
func (s *Set) Queries() []Statement {
	return slices.DeleteFunc(s.Statements(), func(st Statement) bool { return st.SQL == "" })
}

// Statements lists every statement that events run, in load order. A Go handler is one, without SQL.
func (s *Set) Statements() []Statement {
	var out []Statement
	for _, p := range s.projections {
		for _, h := range p.handlers() {
			out = append(out, h.Statement)
		}
	}
	return out
}

// Spenders are the set's Statements as what costs time.
func (s *Set) Spenders() (all []campaign.Spender) {
	for _, p := range s.projections {
		for _, h := range p.handlers() {
			at := fmt.Sprintf("%s:%d", filepath.Base(h.File), h.Line)
			all = append(all, campaign.Spender{Projection: p.Name, Version: event.ShortHash(p.Version), Statement: at})
		}
	}
	return all
}

// handlers visits the statements of a projection, with their sections, in order.
func (p *Projection) handlers() iter.Seq2[*section, *handlerStatement] {
	return func(yield func(*section, *handlerStatement) bool) {
		for _, s := range p.sections {
			for _, h := range s.statements {
				if !yield(s, h) {
					return
				}
			}
		}
	}
}

// plan returns the statements that the event type runs, in load order.
func (s *Set) plan(eventType string) []*handlerStatement {
	if known, ok := s.plans.Load(eventType); ok {
		return known.([]*handlerStatement)
	}
	var steps []*handlerStatement
	for _, p := range s.projections {
		for sec, h := range p.handlers() {
			if sec.matches(eventType) {
				steps = append(steps, h)
			}
		}
	}
	if s.planCount.Load() < maxPlans {
		if _, loaded := s.plans.LoadOrStore(eventType, steps); !loaded {
			s.planCount.Add(1)
		}
	}
	return steps
}

// Tx is the transaction on the projections through which an event writes.
type Tx interface {
	// Exec runs one statement with its $1…$n. query is one of the Set's constant texts, so that an
	// implementation may cache prepared statements by it. args is valid until Exec returns and
	// belongs to the caller.
	Exec(ctx context.Context, query string, args []any) error
	// Query runs one select and calls each with the cells of every row: nil, int64, float64 or string.
	// each may keep them. Only Go handlers use it.
	Query(ctx context.Context, query string, args []any, each func(cells []any) error) error
}

// Stepper is a Tx that is told which of the set's Statements makes the calls that follow.
type Stepper interface{ Step(statement int) }

// ApplyError says in which statement of which projection an event failed.
type ApplyError struct {
	Projection string
	File       string
	Line       int
	EventType  string
	Err        error
}

func (e *ApplyError) Error() string {
	text := plain(e.Err)
	if p, ok := errors.AsType[*HandlerPanic](e.Err); ok {
		text = p.Error()
	}
	return fmt.Sprintf("projection %s (%s:%d) on %s: %s", e.Projection, filepath.Base(e.File), e.Line, e.EventType, text)
}

func (e *ApplyError) Unwrap() error { return e.Err }

// PanicError is a panic in a projection's statement, with its stack.
type PanicError struct {
	Seq        int64 // of the event
	Projection string
	value      any
	stack      []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic while applying event %d: %v\n%s", e.Seq, e.value, e.stack)
}

var (
	background = context.Background()
	argsPool   = sync.Pool{New: func() any { return new([]any) }}
)

// Apply runs every projection's statements for e, in load order, except the projections named in
// skip, which may be nil. It does nothing for a skipped event, so that every replay of the journal
// skips the same events. The first error ends it and is an *ApplyError or a *PanicError, except that
// a ctx already done is ctx.Err(); the caller must roll back what was written. ctx carries the
// deadline of this event.
//
// Only statements that the data could make run for long, such as a recursive select, run under ctx;
// a plain insert … values, update … where or delete … where gets a context that never ends. A
// cancellable context costs the driver a goroutine per statement, and cancelling one in the middle
// costs the whole transaction.
func (s *Set) Apply(ctx context.Context, tx Tx, e *event.Event, skip map[string]bool) (err error) {
	steps := s.plan(e.EventType)
	if len(steps) == 0 || e.Skipped != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	args := argsPool.Get().(*[]any)
	var at *Projection
	defer func() {
		clear((*args)[:cap(*args)])
		argsPool.Put(args)
		if r := recover(); r != nil {
			err = &PanicError{e.Seq, at.Name, r, debug.Stack()}
		}
	}()
	stepper, _ := tx.(Stepper)
	for _, h := range steps {
		at = h.projection
		if len(skip) > 0 && skip[h.projection.Name] {
			continue
		}
		under := ctx
		if h.bounded && !s.triggers {
			under = background
		}
		if stepper != nil {
			stepper.Step(h.index)
		}
		if err := h.run(under, s, tx, e, args); err != nil {
			return &ApplyError{h.projection.Name, h.File, h.Line, e.EventType, err}
		}
	}
	return nil
}

// run binds and executes one statement, using args as its scratch space, or calls a Go handler.
func (h *handlerStatement) run(ctx context.Context, s *Set, tx Tx, e *event.Event, args *[]any) error {
	if h.code != nil {
		return h.runCode(ctx, s, tx, e)
	}
	bound := (*args)[:0]
	for i := range h.args {
		v, err := h.args[i].of(e)
		if err != nil {
			return err
		}
		bound = append(bound, v)
	}
	*args = bound
	return tx.Exec(ctx, h.SQL, bound)
}
