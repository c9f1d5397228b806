package projection

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"outboxweb/internal/outbox"
)

// Projection is a named read model: its tables, and what each event type does
// to them. Its fields must not be changed.
type Projection struct {
	Name             string
	Version          string      // SHA-256 of the file, in hex
	Tables           []string    // in the order of the file
	OnFailure        string      // Block or Quarantine
	MaxAttempts      int         // failures at an event that end its attempts; 0 leaves that to the process
	Source           string      // the file's path, or builtin:NAME
	EventTypes       []string    // as written, wildcards too, each once
	SchemaStatements []Statement // in order; running them again changes nothing

	file      string
	tables    []*table
	sections  []*section
	digests   []*digest
	functions []function // that its schema creates
	calls     []function // that its statements may call
	triggers  bool       // the schema makes the database run code of its own
	covers    bool       // the digests are of all columns
}

// Set is the projections a process works with. It is safe for concurrent use.
type Set struct {
	dialect     string
	files       []file
	projections []*Projection
	// triggers lets no statement run without the event's deadline, since a
	// trigger may do anything behind a plain insert.
	triggers bool

	plans     sync.Map // event type → []*handlerStatement
	planCount atomic.Int64
}

// maxPlans bounds the memory for plans: event types come from outside, and
// with wildcards every one of them has a plan.
const maxPlans = 4096

// Projections lists the set's projections in load order, which is the order
// in which they apply an event.
func (s *Set) Projections() []*Projection { return slices.Clone(s.projections) }

// Warnings are what is sound in the projections' files and will still surprise,
// each a sentence that begins with FILE:LINE.
func (s *Set) Warnings() []string {
	var found []string
	for _, p := range s.projections {
		found = append(found, p.warnings()...)
	}
	return found
}

// Handles reports whether any projection does something on the event type.
// For other types only the watermark advances.
func (s *Set) Handles(eventType string) bool { return len(s.plan(eventType)) > 0 }

// bounded reports whether everything the event type runs is done in a time
// that data cannot stretch, so that it needs no deadline.
func (s *Set) bounded(eventType string) bool {
	return !s.triggers && !slices.ContainsFunc(s.plan(eventType), func(h *handlerStatement) bool { return !h.bounded })
}

// Queries lists every statement that events run, in load order, so that each
// can be prepared before the first event.
func (s *Set) Queries() []Statement {
	var out []Statement
	s.each(func(_ *section, h *handlerStatement) { out = append(out, h.Statement) })
	return out
}

func (s *Set) each(visit func(*section, *handlerStatement)) {
	for _, p := range s.projections {
		for _, sec := range p.sections {
			for _, h := range sec.statements {
				visit(sec, h)
			}
		}
	}
}

// plan is the statements that the event type runs, in load order.
func (s *Set) plan(eventType string) []*handlerStatement {
	if known, ok := s.plans.Load(eventType); ok {
		return known.([]*handlerStatement)
	}
	var steps []*handlerStatement
	s.each(func(sec *section, h *handlerStatement) {
		if sec.matches(eventType) {
			steps = append(steps, h)
		}
	})
	if s.planCount.Load() < maxPlans {
		if _, loaded := s.plans.LoadOrStore(eventType, steps); !loaded {
			s.planCount.Add(1)
		}
	}
	return steps
}

// Tx is the transaction on the projections that an event writes through.
type Tx interface {
	// Exec runs one statement with its $1…$n. query is one of the Set's
	// constant texts, so that an implementation may keep prepared
	// statements by it. args is valid until Exec returns and belongs to
	// the caller.
	Exec(ctx context.Context, query string, args []any) error
}

// ApplyError says which statement of which projection an event failed in.
type ApplyError struct {
	Projection string
	File       string
	Line       int
	EventType  string
	Err        error
}

func (e *ApplyError) Error() string {
	return fmt.Sprintf("projection %s (%s:%d) on %s: %s", e.Projection, filepath.Base(e.File), e.Line, e.EventType, plain(e.Err))
}

func (e *ApplyError) Unwrap() error { return e.Err }

// Panic is what Apply panics with when a projection's statement does.
type Panic struct {
	Projection string
	Value      any
}

func (p Panic) String() string { return fmt.Sprint(p.Value) }

var (
	background = context.Background()
	argsPool   = sync.Pool{New: func() any { return new([]any) }}
)

// Apply runs what every projection does on e, in load order, leaving out the
// projections named in skip, which may be nil. It does nothing for an event
// that is skipped, so that whatever replays the journal passes over the same
// events. The first error ends it and is
// an *ApplyError, except that a ctx already done is ctx.Err(); what was
// written until then is the caller's to roll back. ctx carries the deadline
// of this event.
//
// Only statements that the data could make run for long, such as a recursive
// select, are run under ctx; a plain insert … values, update … where or delete
// … where gets a context that never ends. A context that can be cancelled
// costs the driver a goroutine for each statement, and one that is cancelled
// in the middle costs the whole transaction.
func (s *Set) Apply(ctx context.Context, tx Tx, e *outbox.Event, skip map[string]bool) error {
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
			panic(Panic{at.Name, r})
		}
	}()
	for _, h := range steps {
		at = h.projection
		if len(skip) > 0 && skip[h.projection.Name] {
			continue
		}
		under := ctx
		if h.bounded && !s.triggers {
			under = background
		}
		if err := h.run(under, tx, e, args); err != nil {
			return &ApplyError{h.projection.Name, h.File, h.Line, e.EventType, err}
		}
	}
	return nil
}

// run binds and executes one statement, using args as its scratch space.
func (h *handlerStatement) run(ctx context.Context, tx Tx, e *outbox.Event, args *[]any) error {
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
