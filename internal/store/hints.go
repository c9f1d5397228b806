package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"outboxweb/internal/loop"
	"outboxweb/internal/sqldb"
)

// hints tell workers that there is something to do: those of this process at
// once, those of others through PostgreSQL's NOTIFY. A hint may be lost;
// polling finds what it would have told.
type hints struct {
	wake atomic.Pointer[func()]

	begin    sync.Once
	stop     context.CancelFunc
	ctx      context.Context
	due      loop.Signal // others are to be told
	loops    sync.WaitGroup
	listened bool   // once, before the connection was lost
	sender   string // of the hints of this store, so that it does not heed them itself
}

// hintChannel is where hints travel. Their payload is the journal's schema and
// the sender.
const hintChannel = "outboxweb"

// hintPause is the least time between two hints to others: many appends are
// one hint.
const hintPause = 20 * time.Millisecond

// OnWork registers the function that is called, without blocking, after every
// append and act that made a row due: by the caller of this process, and on
// PostgreSQL for those of others as well.
func (s *Store) OnWork(wake func()) {
	s.hints.wake.Store(&wake)
	if s.journal.Notifies() {
		s.startHints()
		s.hints.loops.Go(func() { s.listen(s.hints.ctx) })
	}
}

// WakeUp tells every worker that there is something to do.
func (s *Store) WakeUp() {
	if wake := s.hints.wake.Load(); wake != nil {
		(*wake)()
	}
	s.NotifyOthers()
}

// NotifyOthers hints to the workers of other processes that there is something
// to do.
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

// close tells what is still to be told and ends both loops.
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

// notify sends one hint. Nobody needs to know when it fails.
func (s *Store) notify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.journal.WriteFrom(ctx, sqldb.BeginHint, func(t *Tx) error {
		return t.Each(func(sqldb.Row) error { return nil }, `select pg_notify($1, $2)`, hintChannel, s.journal.Schema+" "+s.hints.sender)
	})
}

// listenPause is how long a listener that lost its connection waits before it
// makes another.
const listenPause = time.Second

// listen heeds the hints of others until ctx ends.
func (s *Store) listen(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		_ = s.receiveHints(ctx)
		pause.Reset(listenPause)
	}
}

// receiveHints wakes the worker for every hint until the connection is lost or ctx
// ends.
func (s *Store) receiveHints(ctx context.Context) error {
	wake := *s.hints.wake.Load()
	listening := func() {
		if s.hints.listened {
			wake() // for what was missed while nobody listened
		}
		s.hints.listened = true
	}
	return s.journal.Listen(ctx, hintChannel, listening, func(payload string) {
		schema, sender, _ := strings.Cut(payload, " ")
		if schema == s.journal.Schema && sender != s.hints.sender {
			wake()
		}
	})
}
