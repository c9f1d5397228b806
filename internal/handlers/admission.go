package handlers

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// room has a number of places. Who finds too few free waits for a while, less than the database's
// timeout, and is then refused with outbox.ErrBusy. It is safe for concurrent use.
type room struct {
	places  *semaphore.Weighted
	wait    time.Duration // 0 refuses at once
	queue   int64         // how many may wait; further ones are refused at once
	waiting atomic.Int64
	full    string // what the refused are told
}

// roomWait is how long a request waits for a place.
const roomWait = 2 * time.Second

func newRoom(places int64, full string) *room {
	return &room{places: semaphore.NewWeighted(places), wait: roomWait, queue: math.MaxInt64, full: full}
}

// busyRoom returns a room for expensive requests; others is what those in it are doing.
func busyRoom(places int64, others string) *room {
	return newRoom(places, "too many others are "+others+"; try again in a moment")
}

// enter takes n places; call leave once to give them back.
func (m *room) enter(ctx context.Context, n int64) (leave func(), err error) {
	return m.enterWithin(ctx, n, m.wait)
}

// enterWithin is enter with a wait of its own.
func (m *room) enterWithin(ctx context.Context, n int64, wait time.Duration) (leave func(), err error) {
	if !m.places.TryAcquire(n) {
		defer m.waiting.Add(-1)
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		if m.waiting.Add(1) > m.queue || m.places.Acquire(ctx, n) != nil {
			return nil, &outbox.Refusal{Err: outbox.ErrBusy, Detail: m.full}
		}
	}
	return func() { m.places.Release(n) }, nil
}

// within calls f in a room.
func within[T any](ctx context.Context, m *room, f func() (T, error)) (result T, err error) {
	leave, err := m.enter(ctx, 1)
	if err != nil {
		return result, err
	}
	defer leave()
	return f()
}

// shares counts what is in progress for each key, up to a limit each. It is safe for concurrent use.
type shares[K comparable] struct {
	limit int
	mu    sync.Mutex
	of    map[K]int
}

func newShares[K comparable](limit int) *shares[K] { return &shares[K]{limit: limit, of: map[K]int{}} }

// enter counts one more for a key until leave is called, unless that is over the limit.
func (c *shares[K]) enter(key K) (leave func(), ok bool) {
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

// rateLimiter limits the rate of actions per identity. It is safe for concurrent use. The zero
// value has no limit.
type rateLimiter struct {
	limit rate.Limit // actions per second
	burst int

	mu    sync.Mutex
	known map[caller]*rate.Limiter
}

// caller is an identity as a key.
type caller struct {
	auth outbox.Auth
	name string
}

func callerOf(who outbox.Identity) caller { return caller{who.Auth, who.Name} }

// newRateLimiter returns a limiter of so many actions per second, with bursts of twice as many.
func newRateLimiter(perSecond float64) *rateLimiter {
	return &rateLimiter{limit: rate.Limit(perSecond), burst: max(1, int(2*perSecond)), known: map[caller]*rate.Limiter{}}
}

// allow counts an action of an identity. If it is over the limit, wait is the time to wait.
func (p *rateLimiter) allow(who outbox.Identity, now time.Time) (wait time.Duration) {
	if p.limit == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := callerOf(who)
	l := p.known[key]
	if l == nil {
		p.evict(now)
		l = rate.NewLimiter(p.limit, p.burst)
		p.known[key] = l
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - l.TokensAt(now)) / float64(p.limit) * float64(time.Second))
}

// evict drops identities once there are many: those whose burst has recovered but for one action,
// or else the one closest to that.
func (p *rateLimiter) evict(now time.Time) {
	if len(p.known) < maxPaced {
		return
	}
	var calmest caller
	most := math.Inf(-1)
	for who, l := range p.known {
		tokens := l.TokensAt(now)
		if tokens >= float64(max(1, p.burst-1)) {
			delete(p.known, who)
		}
		if tokens > most {
			calmest, most = who, tokens
		}
	}
	delete(p.known, calmest)
}
