package store

import (
	"context"
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// Statement is an SQL text that the store has prepared.
type Statement struct {
	Database string // journal or projections
	Query    string
	Writes   bool // in a writing transaction, possibly with others
}

// Statements lists the statements that the store has prepared so far, each once. It waits for running transactions.
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

// AppendTogether appends like concurrent callers whose appends share one group, and returns each result.
func (s *Store) AppendTogether(appends []Append) ([][]Appended, []error) {
	calls := make([]*appendCall, len(appends))
	for i, a := range appends {
		calls[i] = &appendCall{Append: a, until: time.Now().Add(sqldb.LockWait)}
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

// GroupOrder returns the groups that queued appends with these numbers of events are committed in.
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

// Waiting is the number of callers that wait for projections, Looks the number of watermark
// polls for them, and Watching whether polling is active.
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

// Proxied reports whether the store detected a proxy in front of its servers.
func (s *Store) Proxied() (journal, projections bool) { return s.journal.Proxied, s.readmodel.Proxied }

// LockWaitLimit is how long a call waits for a connection or a lock.
const LockWaitLimit = sqldb.LockWait

// HintPause is the least time between two hints to other processes.
const HintPause = hintPause
