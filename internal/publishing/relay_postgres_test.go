package publishing_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/publishing/destination"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// The reply to a save may be lost although the save succeeded. The subscription continues at once
// from its stored position, and nothing is delivered again.
func TestPostgresRelay_goesOnWhenItNeverLearnsThatAPositionIsSaved(t *testing.T) {
	t.Parallel()
	s, p := dbtest.Server().Severer(t), dbtest.New(t)
	p.Journal, p.Projections = s.Through(p.Journal), s.Through(p.Projections)
	f := on(storetest.OpenBoth(t, p, storetest.NewClock(), live))
	f.appendAll(notes("c-1", 30)...)
	var once sync.Once
	r := receivers{"one": {answer: func(_ context.Context, events []*destination.Event) (int, error) {
		once.Do(s.Arm)
		return len(events), nil
	}}}
	sub := subscriptionOf("everything", "one", everyEvent)
	sub.BatchSize = 10
	c := r.config(f, "one", sub)
	c.PollInterval, c.Lease = time.Hour, time.Hour
	deliver(t, f, c)
	f.mustStandAt(t, sub.SubscriptionName, 30)
	if n := s.Severed(); n != 1 {
		t.Errorf("%d commits were left without an answer, want 1", n)
	}
	if got := r["one"].got(); !slices.Equal(got, upTo(30)) {
		t.Errorf("it got %v", got)
	}
}
