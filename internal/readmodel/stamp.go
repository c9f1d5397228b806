package readmodel

import (
	"time"

	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// stamps are the moments at which the server tells its time between the statements of a batch.
type stamps struct {
	end   int           // length of the queue after the last one; 0 before the first
	last  time.Time     // that the server told
	cost  time.Duration // the shortest time between two without a statement in between: what one takes
	taken time.Duration // by all of them
}

// Stamp gets, when the queued statements have run, how long the server worked on those queued since the last Stamp.
// Between two Stamps at most one statement is timed: its time must not contain the wait for the next journey. It is
// never called for statements that run at once.
func (a *ApplyTx) Stamp(elapsed func(time.Duration)) {
	if !a.gathering {
		return
	}
	first := a.stamps.end == 0
	if first || a.queue.Len() != a.stamps.end {
		a.stamp(elapsed)
	}
	for at := a.queue.Len() % sqldb.Journey; first || at == 0 || at == sqldb.Journey-1; at = a.queue.Len() % sqldb.Journey {
		a.stamp(nil)
		first = false
	}
}

// stamp queues one; elapsed is nil where no statement was queued since the last.
func (a *ApplyTx) stamp(elapsed func(time.Duration)) {
	s := &a.stamps
	a.queue.Each(func(row sqldb.Row) error {
		was := s.last
		if err := row.Scan(&s.last); err != nil || was.IsZero() {
			return err
		}
		took := s.last.Sub(was)
		if elapsed != nil {
			elapsed(max(0, took-s.cost))
		} else if s.cost == 0 || took < s.cost {
			s.cost = took
		}
		s.taken += s.cost
		return nil
	}, `select clock_timestamp()`)
	s.end = a.queue.Len()
}

// Stamped is how long the server worked on the stamps.
func (a *ApplyTx) Stamped() time.Duration { return a.stamps.taken }
