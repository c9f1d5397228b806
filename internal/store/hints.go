package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxweb/outboxweb/internal/loop"
	"github.com/outboxweb/outboxweb/internal/sqldb"
)

// hints wake workers when there is work: those of this process at once, those of others through
// PostgreSQL's NOTIFY. A hint may be lost; polling finds the work then.
type hints struct {
	wake atomic.Pointer[func()]

	begin    sync.Once
	stop     context.CancelFunc
	ctx      context.Context
	due      loop.Signal // a hint to other processes is due
	loops    sync.WaitGroup
	listened bool   // was connected once, before the connection was lost
	sender   string // id of this store in its hints, so that it ignores its own
}

// hintChannel is the NOTIFY channel. The payload is the journal's schema and the sender.
const hintChannel = "outboxweb"

// hintPause is the least time between two hints to other processes: many appends become one
// hint.
const hintPause = 20 * time.Millisecond

// OnWork registers a function that is called, without blocking, after every append and action
// that made a row due, in this process and, on PostgreSQL, in others.
func (s *Store) OnWork(wake func()) {
	s.hints.wake.Store(&wake)
	if s.journal.Notifies() {
		s.startHints()
		listening := loop.Loop{Step: s.receiveHints, Interval: func(context.Context) time.Duration { return listenPause }}
		s.hints.loops.Go(func() { listening.Run(s.hints.ctx) })
	}
}

// WakeUp wakes every worker.
func (s *Store) WakeUp() {
	if wake := s.hints.wake.Load(); wake != nil {
		(*wake)()
	}
	s.NotifyOthers()
}

// NotifyOthers wakes the workers of other processes.
func (s *Store) NotifyOthers() {
	if s.journal.Dialect.OneWriter {
		return
	}
	s.startHints()
	s.hints.due.Raise()
}

func (s *Store) startHints() {
	h := &s.hints
	h.begin.Do(func() {
		h.ctx, h.stop = context.WithCancel(context.Background())
		h.due = loop.NewSignal(1)
		h.sender = uuid.NewString()
		h.loops.Go(func() { s.sendHints(h.ctx) })
	})
}

// close sends a pending hint and ends both loops.
func (h *hints) close() {
	h.begin.Do(func() {})
	if h.stop != nil {
		h.stop()
	}
	h.loops.Wait()
}

// sendHints sends hints until ctx ends.
func (s *Store) sendHints(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-s.hints.due:
			s.notify(ctx)
		case <-ctx.Done():
			select {
			case <-s.hints.due:
				s.notify(ctx)
			default:
			}
			return
		}
		pause.Reset(hintPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// notify sends one hint. Errors are ignored, since polling finds the work.
func (s *Store) notify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.journal.WriteFrom(ctx, sqldb.BeginHint, func(t *Tx) error {
		return t.Each(func(sqldb.Row) error { return nil }, `select pg_notify($1, $2)`, hintChannel, s.journal.Schema+" "+s.hints.sender)
	})
}

// listenPause is how long a listener waits to reconnect after it lost its connection.
const listenPause = time.Second

// receiveHints wakes the worker for every hint of another process until the connection is lost, which
// is no fault, or ctx ends.
func (s *Store) receiveHints(ctx context.Context) (more bool, err error) {
	wake := *s.hints.wake.Load()
	listening := func() {
		if s.hints.listened {
			wake() // for hints missed while not listening
		}
		s.hints.listened = true
	}
	_ = s.journal.Listen(ctx, hintChannel, listening, func(payload string) {
		schema, sender, _ := strings.Cut(payload, " ")
		if schema == s.journal.Schema && sender != s.hints.sender {
			wake()
		}
	})
	return false, nil
}
