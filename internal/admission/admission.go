// Package admission limits what is in progress at a time, in all and for each identity, and how often an
// identity acts.
package admission

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// Room has a number of places. Who finds too few free waits for a while, less than the database's
// timeout, and is then refused with event.ErrBusy. It is safe for concurrent use.
type Room struct {
	places  *semaphore.Weighted
	Wait    time.Duration // 0 refuses at once
	Queue   int64         // how many may wait; further ones are refused at once
	waiting atomic.Int64
	full    string // what the refused are told
}

// RoomWait is how long a request waits for a place.
const RoomWait = 2 * time.Second

// NewRoom returns a room whose refused are told that it is full.
func NewRoom(places int64, full string) *Room {
	return &Room{places: semaphore.NewWeighted(places), Wait: RoomWait, Queue: math.MaxInt64, full: full}
}

// BusyRoom returns a room for expensive requests; others is what those in it are doing.
func BusyRoom(places int64, others string) *Room {
	return NewRoom(places, "too many others are "+others+"; try again in a moment")
}

// Enter takes n places; call leave once to give them back.
func (m *Room) Enter(ctx context.Context, n int64) (leave func(), err error) {
	return m.EnterWithin(ctx, n, m.Wait)
}

// EnterWithin is Enter with a wait of its own.
func (m *Room) EnterWithin(ctx context.Context, n int64, wait time.Duration) (leave func(), err error) {
	if !m.places.TryAcquire(n) {
		defer m.waiting.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if m.waiting.Add(1) > m.Queue || m.places.Acquire(ctx, n) != nil {
			return nil, &event.Refusal{Err: event.ErrBusy, Detail: m.full}
		}
	}
	return func() { m.places.Release(n) }, nil
}

// Within calls f in a room.
func Within[T any](ctx context.Context, m *Room, f func() (T, error)) (result T, err error) {
	leave, err := m.Enter(ctx, 1)
	if err != nil {
		return result, err
	}
	defer leave()
	return f()
}

// Shares counts what is in progress for each key, up to a limit each. It is safe for concurrent use.
type Shares[K comparable] struct {
	limit int
	mu    sync.Mutex
	of    map[K]int
}

// NewShares counts up to a limit for each key.
func NewShares[K comparable](limit int) *Shares[K] { return &Shares[K]{limit: limit, of: map[K]int{}} }

// Enter counts one more for a key until leave is called, unless that is over the limit.
func (c *Shares[K]) Enter(key K) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[key] >= c.limit {
		return nil, false
	}
	c.of[key]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[key]--; c.of[key] == 0 {
			delete(c.of, key)
		}
	}, true
}

// maxPaced is how many identities are tracked at a time.
const maxPaced = 10_000

// Limiter limits the rate of actions per identity. It is safe for concurrent use. The zero
// value has no limit.
type Limiter struct {
	limit rate.Limit // actions per second
	Burst int

	mu    sync.Mutex
	known map[Caller]*rate.Limiter
}

// Caller is an identity as a key.
type Caller struct {
	auth operator.Auth
	name string
}

// CallerOf returns the key of an identity.
func CallerOf(who operator.Identity) Caller { return Caller{who.Auth, who.Name} }

// NewLimiter returns a limiter of so many actions per second, with bursts of twice as many.
func NewLimiter(perSecond float64) *Limiter {
	return &Limiter{limit: rate.Limit(perSecond), Burst: max(1, int(2*perSecond)), known: map[Caller]*rate.Limiter{}}
}

// Allow counts an action of an identity. If it is over the limit, wait is the time to wait.
func (p *Limiter) Allow(who operator.Identity, now time.Time) (wait time.Duration) {
	if p.limit == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := CallerOf(who)
	l := p.known[key]
	if l == nil {
		p.evict(now)
		l = rate.NewLimiter(p.limit, p.Burst)
		p.known[key] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - l.TokensAt(now)) / float64(p.limit) * float64(time.Second))
}

// evict drops identities once there are many: those whose burst has recovered but for one action,
// or else the one closest to that.
func (p *Limiter) evict(now time.Time) {
	if len(p.known) < maxPaced {
		return
	}
	var calmest Caller
	most := math.Inf(-1)
	for who, l := range p.known {
		tokens := l.TokensAt(now)
		if tokens >= float64(max(1, p.Burst-1)) {
			delete(p.known, who)
		}
		if tokens > most {
			calmest, most = who, tokens
		}
	}
	delete(p.known, calmest)
}
