package publishing_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/publishing"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// reconciles starts as a worker does, with only publishers to repair.
func (f *fixture) reconciles() {
	f.TB.Helper()
	if got, err := f.Reconcile(f.Ctx); err != nil || got != (outbox.Repaired{}) {
		f.TB.Fatalf("reconciled %+v, %v, want nothing", got, err)
	}
}

func TestFuture_publishersWaitNoLongerThanTheirSettingsAllow(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(f *fixture){
		"start": func(f *fixture) { f.reconciles() },
		"self-check": func(f *fixture) {
			if _, _, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 1); err != nil {
				f.TB.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("a", 1)
			f.Drain()
			f.register(subA, subB)
			fast := f.beside(func(o *store.Options) { o.Now = func() time.Time { return f.Clock.Now().Add(10 * time.Minute) } })
			failure := publishing.Failure{Kind: outbox.DestinationError, Message: "status 503", Position: 1, RetryAfter: 20 * time.Second}
			for _, s := range []struct {
				f   *fixture
				sub outbox.SubscriptionName
			}{{fast, subA}, {f, subB}} {
				if _, err := s.f.progress.Fail(f.Ctx, s.f.claimSubscription("one", s.sub), failure); err != nil {
					t.Fatal(err)
				}
			}
			far, near := f.state(subA), f.state(subB)
			if !far.RetryAt.Equal(storetest.Began.Add(10*time.Minute + 20*time.Second)) {
				t.Fatalf("the pair of the fast clock is tried at %s", far.RetryAt)
			}
			f.Clock.Advance(5 * time.Second)
			repair(f)
			is := f.publisher(subA)
			if at := is.RetryAt; at == nil || !at.Equal(storetest.Began.Add(25*time.Second)) || !is.LastErrorAt.Equal(storetest.Began.Add(5*time.Second)) || is.ErrorCount != 1 {
				t.Errorf("it is tried at %v, its error is of %v", is.RetryAt, is.LastErrorAt)
			}
			if after := f.state(subA).Actions; after == far.Actions {
				t.Error("whoever holds it is not told")
			}
			if after := f.state(subB); after != near {
				t.Errorf("the pair of this clock is %+v, was %+v", after, near)
			}
			before := f.Modified()
			f.Unchanged(func() { f.reconciles() })
			if after := f.Modified(); after != before {
				t.Errorf("a second reconcile wrote: from\n%sto\n%s", before, after)
			}
		})
	}
}

// A process whose clock was a day ahead has died while it held a subscription.
func TestSelfCheck_shortensLeasesOfPublishers(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.register(subA)
	f.Clock.Advance(24 * time.Hour)
	f.claimSubscription("one", subA)
	f.Clock.Advance(-24 * time.Hour)
	if _, _, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 10); err != nil {
		t.Fatal(err)
	}
	f.Clock.Advance(lease + time.Second)
	f.claimSubscription("two", subA)
}
