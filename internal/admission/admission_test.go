package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
)

func TestRoom_letsFewWaitAndNotForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, gone := NewRoom(2, "full"), make(chan struct{})
		refusedAfter := func(ctx context.Context, wait time.Duration) {
			began := time.Now()
			_, err := m.Enter(ctx, 1)
			must.Hold(t, errors.Is(err, event.ErrBusy) && err.Error() == "full" && time.Since(began) == wait, "%v after %s, want after %s", err, time.Since(began), wait)
		}
		leave := must.Get(m.Enter(t.Context(), 2)).Or(t)
		refusedAfter(t.Context(), RoomWait)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		refusedAfter(ctx, 0)
		m.Queue = 1
		go func() {
			refusedAfter(t.Context(), RoomWait)
			close(gone)
		}()
		synctest.Wait()
		refusedAfter(t.Context(), 0)
		<-gone
		go func() {
			time.Sleep(RoomWait / 2)
			leave()
		}()
		must.Get(m.Enter(t.Context(), 1)).Or(t)
	})
}

func TestPace_isPerIdentityAndForgetsWhoIsIdle(t *testing.T) {
	t.Parallel()
	p, now := NewLimiter(1), time.Now()
	who := func(name string) operator.Identity { return operator.Identity{Name: name, Auth: operator.AuthJWT} }
	exhaust := func(i operator.Identity) (taken int) {
		for p.Allow(i, now) == 0 {
			taken++
		}
		return taken
	}
	token := operator.Identity{Name: "ana", Auth: operator.AuthToken}
	a, b, c := exhaust(who("ana")), exhaust(who("bo")), exhaust(token)
	must.Hold(t, a == 2 && b == 2 && c == 2, "bursts of %d, %d and %d", a, b, c)
	wait := p.Allow(who("ana"), now)
	must.Hold(t, wait > 0 && wait <= time.Second, "ana waits for %s", wait)
	for i := range 3 * maxPaced { // concurrently, so that no entry is idle
		p.Allow(who(fmt.Sprint(i)), now)
		must.Need(t, len(p.known) <= maxPaced, "%d are known", len(p.known))
	}
	must.Hold(t, p.Allow(who("ana"), now) != 0, "others make ana forgotten")
	for i := 0; len(p.known) < maxPaced; i++ {
		p.Allow(who("more"+fmt.Sprint(i)), now)
	}
	now = now.Add(time.Minute)
	p.Allow(who("new"), now)
	must.Equal(t, len(p.known), 1, "are known of whom nothing need be")
}
