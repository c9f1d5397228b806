//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// row is a line of the table.
type row struct {
	name  string
	unit  unit
	shown bool   // for information, without a judgement
	note  string // why there are no figures
	pairs []pair
}

// probe measures one or more rows at a time: a figure for each, in seconds or bytes.
type probe struct {
	rows     []*row
	pairs    int  // per turn
	slices   int  // per pair: so many samples of each side, alternating
	together bool // both sides at the same time
	often    bool // also between others
	measure  func(context.Context, *side) ([]float64, error)
}

func newProbe(measure func(context.Context, *side) ([]float64, error), rows ...*row) *probe {
	return &probe{rows: rows, pairs: 1, slices: 1, measure: measure}
}

// times has the probe make more than one pair a turn, of several slices.
func (p *probe) times(pairs, slices int) *probe {
	p.pairs, p.slices = pairs, slices
	return p
}

// atOnce has the probe measure both sides at the same time.
func (p *probe) atOnce() *probe {
	p.together = true
	return p
}

// suite is probes that need the same preparation.
type suite struct {
	name    string
	prepare func(context.Context, *side) error
	probes  []*probe
}

// suites returns all measurements with a selected row.
func (l *lab) suites() []suite {
	backlogs := []*probe{rebuildProbe(), startProbe(), memoryProbe()}
	for _, b := range shapes {
		backlogs = append(backlogs, drainProbe(b))
	}
	all := []suite{
		{"pages", l.preparePages, pageProbes()},
		{"appends", l.prepareAppends, appendProbes()},
		{"backlogs", l.prepareBacklogs, backlogs},
		{"the binary", nil, []*probe{sizeProbe()}},
	}
	unwanted := func(p *probe) bool {
		return !slices.ContainsFunc(p.rows, func(r *row) bool { return l.wants(r.name) })
	}
	for i := range all {
		all[i].probes = slices.DeleteFunc(all[i].probes, unwanted)
	}
	return all
}

// wanted are the probes of suites.
func wanted(suites []suite) []*probe {
	var all []*probe
	for _, s := range suites {
		all = append(all, s.probes...)
	}
	return all
}

// measure takes turns, then measures the undecided rows alone. It returns the number of turns.
func (l *lab) measure(ctx context.Context, probes []*probe) (int, error) {
	l.progress("warming up")
	for _, p := range probes {
		if err := l.warmUp(ctx, p); err != nil {
			return 0, err
		}
	}
	turns, took := 0, time.Duration(0)
	for ; turns < l.turns && (turns < minTurns || time.Since(l.built)+took < turnsUntil); turns++ {
		l.progress("turn %d of %d", turns+1, l.turns)
		began := time.Now()
		for i, p := range probes {
			if err := l.turn(ctx, p); err != nil {
				return turns, err
			}
			for _, o := range probes {
				if o.often && i%3 == 2 {
					if err := l.pair(ctx, o); err != nil {
						return turns, err
					}
				}
			}
		}
		took = time.Since(began)
	}
	return turns, l.decide(ctx, probes)
}

// decide measures rows again that may be slower, until that is certain, refuted, or time runs out.
func (l *lab) decide(ctx context.Context, probes []*probe) error {
	const extra = 16 // turns at the most
	for range extra {
		for _, p := range probes {
			if !p.undecided() || time.Since(l.built) > extraUntil {
				continue
			}
			l.progress("%s is undecided", p.rows[0].name)
			if err := l.turn(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *probe) undecided() bool {
	return slices.ContainsFunc(p.rows, func(r *row) bool { return !r.shown && verdictOf(r.pairs).undecided() })
}

// warmUp measures each side once without counting it. It records what only the base lacks.
func (l *lab) warmUp(ctx context.Context, p *probe) error {
	for i, s := range l.sides {
		if p.rows[0].note != "" && i == base {
			return nil
		}
		_, err := p.measure(ctx, s)
		if i == base && missing(err) {
			for _, r := range p.rows {
				r.note = "not in BASE"
			}
		} else if err != nil {
			return fmt.Errorf("measure %s of %s: %w", p.rows[0].name, s.rev, err)
		}
	}
	return nil
}

// turn makes the pairs of a turn.
func (l *lab) turn(ctx context.Context, p *probe) error {
	for range p.pairs {
		if err := l.pair(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// pair makes one pair, of a probe's slices of both sides: other load on the machine then affects
// both alike.
func (l *lab) pair(ctx context.Context, p *probe) error {
	if p.rows[0].note != "" {
		return nil
	}
	var sums [2][]float64
	for i := range l.sides {
		sums[i] = make([]float64, len(p.rows))
	}
	for n := range p.slices {
		var figures [2][]float64
		var errs [2]error
		measure := func(i int) { figures[i], errs[i] = p.measure(ctx, l.sides[i]) }
		first := (len(p.rows[0].pairs) + n) % 2 // in turns
		if p.together {
			var other sync.WaitGroup
			other.Go(func() { measure(1 - first) })
			measure(first)
			other.Wait()
		} else {
			measure(first)
			measure(1 - first)
		}
		for i, s := range l.sides {
			if errs[i] != nil {
				return fmt.Errorf("measure %s of %s: %w", p.rows[0].name, s.rev, errs[i])
			}
			for k, v := range figures[i] {
				sums[i][k] += v / float64(p.slices)
			}
		}
	}
	for k, r := range p.rows {
		r.pairs = append(r.pairs, pair{sums[base][k], sums[current][k]})
	}
	return nil
}
