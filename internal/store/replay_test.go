package store_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestReplay_waitsForTheWaveUnderWay(t *testing.T) {
	t.Parallel()
	f := open(t, func(o *store.Options) { o.Patience = storetest.Patience })
	f.AppendN("a", 3)
	f.LoseRows("a", "seq = 3")
	c := f.ClaimOne(one, 2)
	replayed := make(chan outbox.Repaired)
	go func() {
		got, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
		must.Hold(t, err == nil, "replay: %v", err)
		replayed <- got
	}()
	f.Works(one, c, 2)
	must.Equal(t, <-replayed, outbox.Repaired{Campaigns: 1, Inserted: 1}, "replayed")
	f.Sound()
}

func TestReplay_clearsADivergenceThatIsMended(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 2)
	f.Drain()
	f.AppendN("a", 2)
	hash := storetest.Texts(t, f.ProjectionsDB, `select applied_hash from projection_watermarks`)[0]
	f.ExecProjections(`update projection_watermarks set applied_hash = 'other'`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Diverged: 1})
	f.ExecProjections(`update projection_watermarks set applied_hash = $1`, hash)
	f.must(f.ReplayCampaign(f.Ctx, ana(""), "a"))
	f.Drain()
	f.Sound()
}

func TestReplay_givesFailedAndDeadRowsNothingAndGapsTheirRows(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.DeadHead()
	f.Exec(`delete from projection_apply_outbox where seq = 3`)
	f.Exec(`update campaigns set pending = 1`)
	got, err := f.ReplayCampaign(f.Ctx, ana(""), "a")
	want := (outbox.Repaired{Campaigns: 1, Inserted: 1})
	must.Hold(t, err == nil && got == want, "replayed %+v, %v, want %+v", got, err, want)
	f.Is("a", "applied 0 of 3, head 1 dead, 2 pending, 1 dead")
	f.Sound()
}

func TestReplay_beforeAFailedRowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 4)
	f.FailsAfter(one, f.ClaimOne(one, 2), 1, "boom")
	// The projections are restored from an earlier state: event 1 must be applied again.
	f.ExecProjections(`update projection_watermarks set applied_seq = 0, applied_hash = ''`)
	f.MustReconcile(outbox.Repaired{Campaigns: 1, Inserted: 1})
	f.Exact("a")
	for _, last := range []int64{1, 4} {
		f.Clock.Advance(time.Minute)
		c := f.ClaimOne(one, 10)
		must.Equal(t, c.Last, last, "claim")
		f.Works(one, c, c.Last)
	}
	f.Sound()
}
