package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
)

// session is a slot for one transaction: a connection that is opened on first use, and again
// after it was lost.
type session struct {
	dial func(context.Context) (link, error)
	link link          // nil when not connected
	open *atomic.Int64 // number of sessions of this kind with a connection
}

// sessions is a pool of sessions. Callers are served in order of arrival and get the session
// used last, so that no more connections are open than are needed at a time.
type sessions struct {
	free chan struct{} // one element per idle session: a channel queues fairly, a mutex does not

	open    atomic.Int64 // sessions with a connection
	waiting atomic.Int64 // callers of acquire

	mu   sync.Mutex
	idle []*session
}

func newSessions(n int, dial func(context.Context) (link, error)) *sessions {
	s := &sessions{free: make(chan struct{}, n)}
	for range n {
		s.release(&session{dial: dial, open: &s.open})
	}
	return s
}

// acquire waits for a session until ctx ends or closed is closed.
func (s *sessions) acquire(ctx context.Context, closed <-chan struct{}) (*session, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-s.free:
	case <-closed:
		return nil, sql.ErrConnDone
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", event.ErrBusy, ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	one := s.idle[last]
	s.idle = s.idle[:last]
	return one, nil
}

func (s *sessions) release(one *session) {
	s.mu.Lock()
	s.idle = append(s.idle, one)
	s.mu.Unlock()
	s.free <- struct{}{}
}

// report counts connections. A session in use may not have its connection yet.
func (s *sessions) report() database.Connections {
	inUse, open := cap(s.free)-len(s.free), int(s.open.Load())
	return database.Connections{InUse: inUse, Idle: max(0, open-inUse), Waiting: int(s.waiting.Load()), Limit: cap(s.free)}
}

// close waits for every session and closes its connection.
func (s *sessions) close() {
	for range cap(s.free) {
		<-s.free
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.idle {
		one.drop()
	}
}

// begin starts a transaction. It reconnects when the connection turns out to be lost, until ctx
// ends, which is safe since nothing has happened yet.
func (s *session) begin(ctx context.Context, text string) error {
	for {
		err := s.tryBegin(ctx, text)
		if err == nil || s.link != nil || errors.Is(err, event.ErrSetup) {
			return err
		}
		if !pause(ctx, reconnectWait) {
			return fmt.Errorf("%w: %w", event.ErrBusy, err)
		}
	}
}

// tryBegin sets link to nil when the connection is lost.
func (s *session) tryBegin(ctx context.Context, text string) (err error) {
	if s.link == nil {
		if s.link, err = s.dial(ctx); err != nil {
			s.link = nil
			return err
		}
		s.open.Add(1)
	}
	if err = ctx.Err(); err == nil {
		err = s.link.begin(ctx, text)
	}
	if err == nil {
		return nil
	}
	v := s.link.classify(err)
	if v.lost {
		s.drop()
		return err
	}
	// When ctx ends just as the transaction has begun, the driver reports the context's error
	// although the begin took effect.
	_ = s.link.rollback()
	return verdict{busy: v.busy, full: v.full}.mark(err)
}

// abandon rolls a transaction back, or closes its connection.
func (s *session) abandon(t *Tx) {
	if t.lost {
		s.drop()
		return
	}
	if err := s.link.rollback(); err != nil && s.link.classify(err).lost {
		s.drop()
	}
}

func (s *session) drop() {
	if s.link != nil {
		s.link.close()
		s.link = nil
		s.open.Add(-1)
	}
}
