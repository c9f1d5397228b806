package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func (f *fixture) wentBack() []outbox.AuditEntry {
	page := must.Get(f.AuditLog(f.Ctx, outbox.AuditFilter{Action: outbox.ActionJournalWentBack})).Or(f.TB)
	return page.Items
}

// reconnect loses all connections and makes new ones.
func (f *fixture) reconnect() {
	f.Terminate()
	f.must(f.Position(f.Ctx))
	f.must(f.EventsFrom(f.Ctx, 0, 100))
}

func TestPostgresLineage_aLostConnectionAloneChangesNothing(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 1)
	f.reconnect()
	if f.Lineage() != 0 || len(f.wentBack()) > 0 || len(f.Journal().Faults()) > 0 {
		t.Errorf("after a lost connection the lineage is %d, with %v and %v", f.Lineage(), f.wentBack(), f.Journal().Faults())
	}
	f.Works(one, c, 1)
}

// An event may be gone although a later one that was appended at the same time is not. Nothing of
// before counts any more then, and nothing of before can be taken for what follows.
func TestPostgresLineage_voidsWhatIsRememberedOfAJournalThatWentBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 3)
	c := f.ClaimOne(one, 10)
	f.AppendN("b", 1)
	f.Clock.Advance(time.Second)
	waited := f.waits(t.Context(), "b", 1)
	storetest.Eventually(t, "the caller waits", func() bool { return f.Waiting() == 1 })
	f.Tamper(`delete from events where position = 3`)
	f.Exec(`alter sequence events_position_seq restart with 3`)
	f.reconnect()
	err := <-waited
	must.Hold(t, errors.Is(err, outbox.ErrNotYet), "the caller that waited got %v, want ErrNotYet", err)
	entries, faults := f.wentBack(), f.Journal().Faults()
	if f.Lineage() != 1 || len(entries) != 1 || len(faults) != 1 || faults[0].Kind != outbox.FaultWentBack {
		t.Fatalf("the lineage is %d, with the audit records %v and the faults %v, want one of each", f.Lineage(), entries, faults)
	}
	must.Equal(t, must.Get(f.Settle(f.Ctx, one, []store.Result{{Claim: c, Applied: 3}})).Or(t).Fenced, 1, "a claim of before is settled as")
	again, err := f.Claim(f.Ctx, one, store.ClaimLimits{Rows: 10, Lease: lease})
	must.Hold(t, err == nil && len(again) == 2 && again[0].Epoch > c.Epoch, "claimed %+v, %v after epoch %d", again, err, c.Epoch)
	if next := f.AppendN("new", 1); next[0].Position <= 4 {
		t.Errorf("a new event has position %d, which an event of before may have had", next[0].Position)
	}
	f.reconnect()
	if f.Lineage() != 1 || len(f.wentBack()) != 1 {
		t.Errorf("after another lost connection the lineage is %d", f.Lineage())
	}
}

// Another process raises no epoch a second time.
func TestPostgresLineage_sparesTheLeasesOfProcessesThatNoticedFirst(t *testing.T) {
	t.Parallel()
	f := open(t)
	other := f.beside()
	f.AppendN("a", 3)
	must.Get(other.EventsFrom(f.Ctx, 0, 100)).Or(t)
	f.Clock.Advance(time.Second)
	f.Tamper(`delete from events where position = 3`)
	f.reconnect()
	c := f.ClaimOne(one, 1)
	f.Clock.Advance(time.Second)
	must.Get(other.Position(f.Ctx)).Or(t)
	if other.Lineage() != 1 || len(f.wentBack()) != 2 {
		t.Errorf("the other process is at lineage %d, with %d records, want one of each process", other.Lineage(), len(f.wentBack()))
	}
	f.Works(one, c, 1)
}
