package store

import (
	"context"
	"time"

	"outboxweb/internal/sqldb"
)

// Statement is an SQL text that the store has prepared.
type Statement struct {
	Database string // journal or projections
	Query    string
	Writes   bool // in a writing transaction, perhaps among others
}

// Statements lists what the store has prepared so far, each text once. It waits
// for transactions in progress.
func (s *Store) Statements() []Statement {
	var all []Statement
	for _, d := range s.both() {
		known := make(map[string]bool)
		writing, reading := d.Prepared()
		for i, queries := range [][]string{writing, reading} {
			for _, query := range queries {
				if !known[query] {
					all = append(all, Statement{d.Name, query, i == 0})
				}
				known[query] = true
			}
		}
	}
	return all
}

// AppendTogether appends as concurrent callers do whose appends have met in
// one group, and returns each one's result.
func (s *Store) AppendTogether(appends []Append) ([][]Appended, []error) {
	calls := make([]*appendCall, len(appends))
	for i, a := range appends {
		calls[i] = &appendCall{events: a.Events, expected: a.ExpectedSeq, condition: a.Condition, until: time.Now().Add(sqldb.LockWait)}
		for j := range a.Events {
			if err := a.Events[j].Normalize(s.options.MaxPayload); err != nil {
				panic(err)
			}
		}
	}
	s.commitGroup(context.Background(), calls)
	results, errs := make([][]Appended, len(calls)), make([]error, len(calls))
	for i, call := range calls {
		results[i], errs[i] = call.result, call.err
	}
	return results, errs
}

// GroupOrder tells in which groups appends of so many events are committed that
// wait together while another one is.
func GroupOrder(events ...int) (groups [][]int) {
	g := &appendGroup{busy: true}
	for _, n := range events {
		g.waiting = append(g.waiting, &appendCall{weight: n, lead: make(chan struct{})})
	}
	for len(g.waiting) > 0 {
		var group []int
		calls := g.dequeue()
		for _, call := range calls {
			group = append(group, call.weight)
		}
		groups = append(groups, group)
		g.wakeNext(calls[0])
	}
	return groups
}

// Waiting is how many callers wait for projections, Looks how often the
// watermarks were looked at for them, and Watching whether that goes on.
func (s *Store) Waiting() (n int) {
	s.applied.mu.Lock()
	defer s.applied.mu.Unlock()
	for _, w := range s.applied.waiting {
		n += len(w)
	}
	return n
}

func (s *Store) Looks() int64 { return s.applied.looks.Load() }

func (s *Store) Watching() bool {
	s.applied.mu.Lock()
	defer s.applied.mu.Unlock()
	return s.applied.watching
}

// BeginAppendText is how an append begins its transaction.
func (s *Store) BeginAppendText() string { return s.journal.BeginText(sqldb.BeginAppend) }

// Proxied reports whether the store found a proxy before its servers.
func (s *Store) Proxied() (journal, projections bool) {
	return s.journal.Proxied, s.readmodel.Proxied
}

// LockWaitLimit is how long a call waits for a connection or a lock.
const LockWaitLimit = sqldb.LockWait

// HeldWait is how long an action waits for a campaign that is being worked on.
const HeldWait = heldWait

// HintPause is the least time between two hints to other processes.
const HintPause = hintPause

// ForgetSummary makes the next Summary a new one.
func (s *Store) ForgetSummary() { s.summary.Forget() }
