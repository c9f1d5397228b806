package maintenance_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestPruneHistory_deletesWhatIsOlderAndOver(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.AppendN("stuck", 1)
	f.AppendN("a", 1)
	f.Kill("a", "stuck")
	f.MustRequeue("a", 1)
	f.Drain()
	for range 2 { // this closes the previous span
		f.Clock.Advance(time.Hour)
		f.AppendN("a", 1)
		f.Drain()
	}
	before := f.Clock.Now().Add(-time.Minute)
	for range 2 {
		if more, err := f.PruneHistory(f.Ctx, before); more || err != nil {
			t.Fatal(more, err)
		}
	}
	if got := storetest.Texts(t, f.JournalDB, `select campaign_id from attempts`); !slices.Equal(got, []string{"stuck"}) {
		t.Errorf("the attempts of %v are left; want those of the event that is not applied", got)
	}
	if got := f.Spans(); len(got) != 0 {
		t.Errorf("the spans %v are left", got)
	}
	f.WantHistory("a", 1, "appended", "acted requeue by scene")
	f.WantHistory("a", 3, "appended", "applied 3-3 by worker-1")
}

func TestPruneHistory_goesInPortions(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Exec(`
insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint)
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
select 'gone', i, i, 1, 'w', 'v1', 'boom', 'boom' from n`)
	more, err := f.PruneHistory(f.Ctx, f.Clock.Now())
	if n := f.Number(`select count(*) from attempts`); err != nil || !more || n != 1000 {
		t.Errorf("after one portion %d attempts are left and more is %v, %v", n, more, err)
	}
	if more, err = f.PruneHistory(f.Ctx, f.Clock.Now()); err != nil || more || f.Number(`select count(*) from attempts`) != 0 {
		t.Errorf("after another some are left: %v, %v", more, err)
	}
}
