package publishing_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// Processes change several subscriptions in one transaction. They lock them in the same order, so
// that they cannot deadlock.
func TestPostgresPublishers_areLockedInTheOrderOfTheirNames(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.register(subA, subB)
	a, b := f.claimSubscription("one", subA), f.claimSubscription("one", subB)
	for what, change := range map[string]func() error{
		"renewing": func() error {
			_, err := f.progress.Renew(f.Ctx, []publishing.Beat{{Lease: b}, {Lease: a}}, time.Minute)
			return err
		},
		"registering": func() error {
			return f.progress.Register(f.Ctx, []outbox.PublisherDefinition{definition(subB), definition(subA)})
		},
	} {
		other := storetest.Connect(t, f.Pair.Journal)
		storetest.Run(t, other, `begin`, `select 1 from publisher_progress where publisher = 'a' for update`)
		ended := make(chan error, 1)
		go func() { ended <- change() }()
		f.AwaitLockWaits(1)
		if _, err := other.Exec(f.Ctx, `select 1 from publisher_progress where publisher = 'b' for update nowait`); err != nil {
			t.Errorf("%s has the second pair while it waits for the first: %v", what, err)
		}
		storetest.Run(t, other, `rollback`)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
