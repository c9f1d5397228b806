package storetest

import (
	"database/sql"
	"testing"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/maintenance"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
)

// MustReconcile fails unless a reconcile makes the wanted repairs.
func (f *Fixture) MustReconcile(want outbox.Repaired) {
	f.TB.Helper()
	got, err := f.Reconcile(f.Ctx)
	must.Need(f.TB, err == nil && got == want, "reconciled %+v, %v, want %+v", got, err, want)
}

// MustBeReconciled fails unless another reconcile finds nothing and writes nothing.
func (f *Fixture) MustBeReconciled() {
	f.TB.Helper()
	f.untouched(func() { f.MustReconcile(outbox.Repaired{}) })
}

// untouched fails when act changes or writes anything.
func (f *Fixture) untouched(act func()) {
	f.TB.Helper()
	before := f.Modified()
	f.Unchanged(act)
	must.Equal(f.TB, f.Modified(), before, "a repair of what is right")
}

// MustFindGaps reads the existing gaps.
func (f *Fixture) MustFindGaps() []outbox.Gap {
	f.TB.Helper()
	return must.Get(f.Gaps(f.Ctx)).Or(f.TB)
}

// LoseRows deletes rows without the store and recounts the campaign's row, as if the rows had
// never been written.
func (f *Fixture) LoseRows(campaign, where string) {
	f.TB.Helper()
	f.Exec(`delete from projection_apply_outbox where campaign_id = $1 and `+where, campaign)
	f.Exec(`update campaigns set
  pending = (select count(*) from projection_apply_outbox o where o.campaign_id = $1 and status = 'pending'),
  (head_seq, head_status, head_next_attempt_at, oldest_enqueued_at, due_at) =
    (select seq, status, next_attempt_at, enqueued_at, next_attempt_at from projection_apply_outbox o where o.campaign_id = $1 order by seq limit 1)
where campaign_id = $1`, campaign)
}

// Tamper changes events, with the triggers that forbid it disabled.
func (f *Fixture) Tamper(query string, args ...any) {
	f.TB.Helper()
	AllowTampering(f.TB, f.JournalDB, dbtest.Postgres())
	f.Exec(query, args...)
}

// AllowTampering drops the triggers that keep the journal as it is.
func AllowTampering(tb testing.TB, journal *sql.DB, postgres bool) {
	tb.Helper()
	of := ""
	if postgres {
		of = ` on events`
	}
	for _, trigger := range []string{"events_refuse_update", "events_refuse_delete"} {
		must.Get(journal.Exec(`drop trigger if exists ` + trigger + of)).Or(tb)
	}
}

// SelfCheckAll runs a self-check over all campaigns once and returns what it found.
func (f *Fixture) SelfCheckAll() (found []store.Found) {
	f.TB.Helper()
	for at := (maintenance.Round{}); ; {
		next, more, err := f.SelfCheck(f.Ctx, at, 2)
		if err != nil {
			f.TB.Fatal(err)
		}
		found = append(found, more...)
		if at = next; at.Campaign == "" {
			return found
		}
	}
}

// SelfCheckIsCalm fails when another self-check changes or writes anything.
func (f *Fixture) SelfCheckIsCalm() {
	f.TB.Helper()
	f.untouched(func() {
		found := f.SelfCheckAll()
		must.Hold(f.TB, len(found) <= 0, "another check found %+v", found)
	})
}

// SelfCheckOne fails unless one step of the self-check finds just one campaign.
func (f *Fixture) SelfCheckOne(id string) store.Found {
	f.TB.Helper()
	_, found, err := f.SelfCheck(f.Ctx, maintenance.Round{}, 1)
	must.Need(f.TB, err == nil && len(found) == 1 && found[0].CampaignID == id, "the self-check found %+v, %v, want %s", found, err, id)
	return found[0]
}
