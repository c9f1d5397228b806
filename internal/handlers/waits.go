package handlers

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Limits on requests that wait for the projections at a time.
const (
	waitsAtATime = 2000
	waitsOfOne   = 500 // of one identity
)

// waits counts the requests that wait for the projections. It is safe for
// concurrent use; the zero value is ready.
type waits struct {
	mu    sync.Mutex
	total int
	of    map[paced]int
}

// acquire lets a request wait, until leave is called. Over the limit it is refused: with errRate
// for the sender's own limit, and otherwise with outbox.ErrBusy.
func (w *waits) acquire(r *http.Request) (leave func(), err error) {
	who := paced{me(r).Auth, me(r).Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.of[who] >= waitsOfOne:
		return nil, &outbox.Refusal{Err: errRate, RetryAfter: time.Second, Detail: fmt.Sprintf(
			"%d requests by %s are waiting for projections, the limit per identity; nothing was done. Try again in a moment, or do not wait", waitsOfOne, who.name)}
	case w.total >= waitsAtATime:
		return nil, &outbox.Refusal{Err: outbox.ErrBusy, Detail: fmt.Sprintf(
			"%d requests are waiting for projections, the limit of this server; nothing was done. Try again in a moment, or do not wait", waitsAtATime)}
	}
	if w.of == nil {
		w.of = map[paced]int{}
	}
	w.of[who]++
	w.total++
	return func() { w.release(who) }, nil
}

func (w *waits) release(who paced) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.of[who]--; w.of[who] == 0 {
		delete(w.of, who)
	}
}
