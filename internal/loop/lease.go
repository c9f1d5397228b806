package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// busyPause is the least time before an action is retried after the database was busy.
const busyPause = 50 * time.Millisecond

// endPatience is how long a process that ends tries to record it, and to release its leases.
const endPatience = 5 * time.Second

// AtEnd is UntilFree for what a process does last, for a few seconds.
func AtEnd(act func() error) error {
	over, end := context.WithCancel(context.Background())
	end()
	return UntilFree(over, endPatience, act)
}

// UntilFree repeats an action while the database is busy or unreachable, for as long as a lease
// lasts once ctx has ended.
func UntilFree(ctx context.Context, lease time.Duration, act func() error) error {
	var deadline time.Time
	pause := time.NewTicker(busyPause)
	defer pause.Stop()
	for ; ; <-pause.C {
		err := act()
		if err == nil || !errors.Is(err, event.ErrBusy) {
			return err
		}
		if ctx.Err() != nil {
			if deadline.IsZero() {
				deadline = time.Now().Add(lease)
			}
			if time.Now().After(deadline) {
				return err
			}
		}
	}
}

// Keep renews leases every third of their duration, until stopped.
func Keep(lease time.Duration, log *slog.Logger, renew func() error) (stop func()) {
	done := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if err := renew(); err != nil {
				log.Warn("leases could not be renewed", "error", err)
			}
		}
	})
	return func() {
		close(done)
		renewing.Wait()
	}
}
