package publishing_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// instances lists the instances as seen by a process without a cached list.
func (f *fixture) instances() []outbox.InstanceState {
	f.TB.Helper()
	all, err := f.beside().Instances(f.Ctx)
	if err != nil {
		f.TB.Fatal(err)
	}
	return all
}

func TestInstances_holdPublishers(t *testing.T) {
	t.Parallel()
	f := open(t)
	beat := outbox.InstanceState{ID: "worker-1", Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: storetest.Began, BeatEvery: 2 * time.Second}
	if err := f.Heartbeat(f.Ctx, beat); err != nil {
		t.Fatal(err)
	}
	for i, owner := range []string{"worker-1", "worker-1", "stranger", ""} {
		name := f.newSubscription(outbox.SubscriptionName{Topic: "t", Publisher: fmt.Sprint("p", i)}, every, 0)
		f.heldBy(name, owner, 1)
	}
	all := f.instances()
	i := slices.IndexFunc(all, func(i outbox.InstanceState) bool { return i.ID == "worker-1" })
	if len(all) != 2 || !slices.Equal(all[i].Leases.Publishers, []string{"t/p0", "t/p1"}) || !strings.HasSuffix(all[i].Why(f.Clock.Now()), "; 2 publishers leased") {
		t.Errorf("instances %+v", all)
	}
	f.AppendN("a", 1)
	f.MustClaim(store.Worker{ID: "worker-1"}, 1)
	all = f.instances()
	i = slices.IndexFunc(all, func(i outbox.InstanceState) bool { return i.ID == "worker-1" })
	if why := all[i].Why(f.Clock.Now()); !strings.HasSuffix(why, "; 1 campaign and 2 publishers leased") {
		t.Errorf("it is %q", why)
	}
	f.Clock.Advance(lease)
	for _, i := range f.instances() {
		if len(i.Leases.Publishers) > 0 {
			t.Errorf("%s holds %v after its leases", i.ID, i.Leases.Publishers)
		}
	}
}

func TestPublishers_sayThatTheirProcessWasKilled(t *testing.T) {
	t.Parallel()
	f := open(t)
	if err := f.Heartbeat(f.Ctx, storetest.Killed(t, "killed", storetest.Began)); err != nil {
		t.Fatal(err)
	}
	archive := f.newSubscription(outbox.SubscriptionName{Topic: "t", Publisher: "archive"}, every, 0)
	f.heldBy(archive, "killed", 1)
	f.Exec(`update publisher_progress set events_per_second = 5, next_poll_at = $1, healthy = 1, hanging_since = 1, updated_at = $2`, f.Clock.Now().Add(lease).UnixMicro(), f.Clock.Now().UnixMicro())
	f.Clock.Advance(5 * time.Second)
	list, err := f.progress.Publishers(f.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []outbox.Publisher{list[0], f.publisher(archive)} {
		if p.StateAsRead != outbox.PublisherIsNotHeld || p.State(f.Clock.Now()) != outbox.PublisherIsNotHeld || !strings.Contains(p.WhyAsRead, "killed crashed or was killed: last seen at work 5 s ago") {
			t.Errorf("it is %s: %s", p.StateAsRead, p.WhyAsRead)
		}
		if p.EventsPerSecond != 0 || p.NextPollAt != nil || p.Healthy != nil || p.HangingSince != nil {
			t.Errorf("of a process that is gone: %+v", p)
		}
		if p.Lease == nil {
			t.Error("its lease is not shown")
		}
	}
}
