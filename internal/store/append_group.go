package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// appendCall is one caller's append during a group commit.
type appendCall struct {
	Append              // its events normalized
	key      *AppendKey // nil without one
	weight   int        // of the events, see weigh
	until    time.Time  // deadline for its turn
	result   []Appended
	repeated bool // the key was used before
	err      error
	done     chan struct{}
	lead     chan struct{} // closed when this caller must commit the next group
}

// appendGroup joins the appends of concurrent callers into one transaction. While one commits,
// the others queue; then the first in the queue commits all of them. A single caller never
// waits for others. A large append gets its own transaction, and all queued small ones run
// before the next large one.
type appendGroup struct {
	mu      sync.Mutex
	waiting []*appendCall
	busy    bool
}

// groupLimit and groupWeight bound how many appends share a commit, so that no caller waits for
// an unbounded transaction.
const (
	groupLimit  = 128
	groupWeight = 1000
)

// weigh estimates how long events take to insert, in units of one small event: 16 KiB of
// document, or two short tags, count one.
func weigh(events []event.Event) int {
	weight := len(events)
	for i := range events {
		e := &events[i]
		weight += (len(e.Payload)+len(e.Metadata))>>14 + len(e.Tags)>>5
	}
	return weight
}

func (c *appendCall) large() bool { return c.weight > groupWeight/2 }

// dequeue removes from the queue the calls to be committed together with the first one.
func (g *appendGroup) dequeue() []*appendCall {
	first := g.waiting[0]
	calls, weight := []*appendCall{first}, first.weight
	rest := make([]*appendCall, 0, len(g.waiting))
	for _, call := range g.waiting[1:] {
		if first.large() || call.large() || len(calls) == groupLimit || weight+call.weight > groupWeight {
			rest = append(rest, call)
			continue
		}
		calls, weight = append(calls, call), weight+call.weight
	}
	g.waiting = rest
	return calls
}

// wakeNext makes the next call in the queue the leader: after a large call a small one, if
// there is any.
func (g *appendGroup) wakeNext(after *appendCall) {
	if len(g.waiting) == 0 {
		g.busy = false
		return
	}
	if small := slices.IndexFunc(g.waiting, func(c *appendCall) bool { return !c.large() }); after.large() && small > 0 {
		next := g.waiting[small]
		g.waiting = slices.Insert(slices.Delete(g.waiting, small, small+1), 0, next)
	}
	close(g.waiting[0].lead)
}

func (g *appendGroup) submit(call *appendCall, commit func([]*appendCall)) {
	g.mu.Lock()
	call.lead = make(chan struct{})
	g.waiting = append(g.waiting, call)
	if g.busy {
		g.mu.Unlock()
		select {
		case <-call.done:
			return
		case <-call.lead:
		}
		g.mu.Lock()
	}
	g.busy = true
	calls := g.dequeue()
	g.mu.Unlock()

	commit(calls)
	for _, c := range calls {
		close(c.done)
	}

	g.mu.Lock()
	g.wakeNext(call)
	g.mu.Unlock()
}

// commitGroup runs the calls in one transaction. Without a refusal they need no savepoints;
// after one, the group is run again with a savepoint per call, so that refused calls undo only
// themselves. The leader's context must not cancel the others, but its waiting time counts: no
// other call has waited longer.
func (s *Store) commitGroup(ctx context.Context, calls []*appendCall) {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), calls[0].until)
	defer cancel()
	err := s.appendGroup(ctx, calls, (*appending).call)
	if errors.Is(err, errBelowHead) || errors.Is(err, sqldb.ErrKeyTaken) {
		if raised, failed := s.journal.RaiseIdentities(ctx); failed != nil {
			err = failed
		} else if raised {
			err = s.appendGroup(ctx, calls, (*appending).call)
		}
	}
	var refusal *event.Refusal
	if errors.As(err, &refusal) && len(calls) > 1 || errors.Is(err, sqldb.ErrKeyTaken) {
		err = s.appendGroup(ctx, calls, (*appending).callApart)
	}
	for _, call := range calls {
		if err != nil && call.err == nil {
			call.result, call.err = nil, err
			if !errors.As(err, &refusal) {
				call.err = fmt.Errorf("append: %w", err)
			}
		}
	}
}

// appendGroup runs each call in one transaction. The campaigns are locked first, in a fixed
// order, so that two groups cannot deadlock, and saved once at the end.
func (s *Store) appendGroup(ctx context.Context, calls []*appendCall, run func(*appending, *appendCall) error) error {
	begin := sqldb.BeginAppend
	if slices.ContainsFunc(calls, func(c *appendCall) bool { return c.Condition != nil }) {
		begin = sqldb.BeginAppendAlone
	}
	var a *appending
	var lineage int64
	err := s.journal.WriteFrom(ctx, begin, func(t *Tx) error {
		a, lineage = &appending{store: s, t: t, now: s.Now()}, s.Lineage()
		if err := a.open(calls); err != nil {
			return err
		}
		for _, call := range calls {
			if err := run(a, call); err != nil {
				return err
			}
		}
		return a.close()
	})
	if err == nil {
		s.lineage.see(lineage, a.now, a.fresh)
	}
	return err
}
