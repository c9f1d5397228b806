package store

import (
	"context"
	"slices"
)

// Statements lists the SQL texts that the store has prepared so far, each once,
// by the name of their database. The caller must be the only one to use the store.
func (s *Store) Statements() map[string][]string {
	all := make(map[string][]string)
	for _, d := range []*database{s.journal, s.projections} {
		for _, sessions := range []chan *session{d.writers, d.readers} {
			for range cap(sessions) {
				held := <-sessions
				for query := range held.stmts {
					if !slices.Contains(all[d.name], query) {
						all[d.name] = append(all[d.name], query)
					}
				}
				sessions <- held
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
		calls[i] = &appendCall{events: a.Events, expected: a.ExpectedSeq}
		for j := range a.Events {
			if err := a.Events[j].Normalize(s.options.MaxPayload); err != nil {
				panic(err)
			}
		}
	}
	s.commitGroup(background, calls)
	results, errs := make([][]Appended, len(calls)), make([]error, len(calls))
	for i, call := range calls {
		results[i], errs[i] = call.result, call.err
	}
	return results, errs
}

// BeginSlowly begins a transaction on the projections database with a statement
// that has begun it and is still running when ctx ends.
func (s *Store) BeginSlowly(ctx context.Context) error {
	const slow = `begin immediate; with recursive n(i) as (values (1) union all select i + 1 from n) select count(*) from n`
	return s.projections.within(ctx, s.projections.writers, slow, func(*tx) error { return nil })
}
