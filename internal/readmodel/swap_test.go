package readmodel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// live describes tally's live rows of a campaign.
func live(f *fixture, campaign string) string {
	return strings.Join(storetest.Texts(f.TB, f.ProjectionsDB, `
select concat_ws(' ', 'seen', t.seen, 'twice', t.twice, 'events', (select count(*) from tally_events e where e.campaign_id = t.campaign_id),
  (select min(cast(at as text)) from tally_events e where e.campaign_id = t.campaign_id), (select max(body) from tally_events e where e.campaign_id = t.campaign_id))
from tally t
where t.campaign_id = $1`, campaign), "; ")
}

func mustShow(f *fixture, campaign, want string) {
	must.Equal(f.TB, live(f, campaign), want, campaign, "shows")
}

func showing(events int, body string) string {
	return fmt.Sprintf("seen %d twice %d events %d 2026-11-21 07:00:00 %s", events, 2*events, events, body)
}

// standsOf reads the watermark and the cursors of a campaign.
func standsOf(f *fixture, campaign string) (readmodel.Watermark, map[string]readmodel.Position) {
	live := must.Get(f.Live(f.Ctx)).Or(f.TB)
	defer live.Close()
	w, _, err := live.Watermark(f.Ctx, campaign)
	must.OK(f.TB, err)
	stands := must.Get(live.Positions(f.Ctx, campaign)).Or(f.TB)
	return w, stands
}

// rebuilt is a store with campaigns of five applied events whose live rows have a body, for a test that runs beside others.
func rebuilt(t *testing.T, body string, campaigns ...string) (*fixture, *readmodel.Scratch, []outbox.RunClaim) {
	return rebuild(withTally(t), body, campaigns...)
}

func rebuild(f *fixture, body string, campaigns ...string) (*fixture, *readmodel.Scratch, []outbox.RunClaim) {
	for _, id := range campaigns {
		f.AppendN(id, 5)
	}
	f.Drain()
	c, claims := f.OpenTally(), f.ClaimedForRun(campaigns...)
	for _, claim := range claims {
		f.ReplayTally(c, claim.CampaignID, 1, 5, body)
		f.MustSwap(c, storetest.PlanFor(claim))
	}
	must.OK(f.TB, c.Clear(f.Ctx, ""))
	return f, c, claims
}

func TestSwap_replacesRowsInTheNextGeneration(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a", "b")
	mustShow(f, "a", showing(5, "old"))
	_, stands := standsOf(f, "a")
	must.Hold(t, stands["tally"] == (readmodel.Position{AppliedSeq: 5, Generation: 2, State: campaign.CursorLive}), "after the first rebuild the cursors are %+v", stands)
	f.ReplayTally(c, "a", 1, 4, "new")
	f.ReplayTally(c, "b", 1, 6, "new")
	done := f.MustSwap(c, storetest.PlanFor(claims[1]), storetest.PlanFor(claims[0]))
	must.Hold(t, done[0].CampaignID == "b" && *done[0].Rows["tally"] == (campaign.RowsReplaced{Before: 6, After: 7}) && done[1].CampaignID == "a" && *done[1].Rows["tally"] == (campaign.RowsReplaced{Before: 6, After: 5}), "swapped %+v", done)
	mustShow(f, "a", showing(4, "new"))
	mustShow(f, "b", showing(6, "new"))
	w, stands := standsOf(f, "a")
	must.Hold(t, stands["tally"].Generation == 3 && w.AppliedSeq == 5 && w.SetAside == 0, "after the second rebuild the watermark is %+v, the cursors %+v", w, stands)
	f.ReleaseFromRun(claims...)
	// The triggers fire again when events are applied.
	f.ExecProjections(`insert into tally_events (campaign_id, seq, body) values ('a', 99, 'x')`)
	got := live(f, "a")
	must.Hold(t, strings.HasPrefix(got, "seen 5 twice 10 events 5"), "afterwards the trigger leaves %q", got)
	f.Sound()
}

func TestSwap_isRefusedWhereSomethingStandsElsewhere(t *testing.T) {
	t.Parallel()
	stand := func(s readmodel.Position) func(*fixture, *readmodel.Swap) {
		return func(_ *fixture, p *readmodel.Swap) { p.Projections[0].Expect = &s }
	}
	for name, c := range map[string]struct {
		change func(*fixture, *readmodel.Swap)
		want   error
	}{
		"fence raised": {func(f *fixture, p *readmodel.Swap) {
			f.ExecProjections(`update projection_watermarks set fence_epoch = fence_epoch + 1 where campaign_id = 'a'`)
		}, event.ErrLeaseLost},
		"claimed and not fenced": {func(_ *fixture, p *readmodel.Swap) { p.Epoch++ }, event.ErrLeaseLost},
		"watermark moved":        {func(f *fixture, p *readmodel.Swap) { f.SetWatermark("a", 6, p.Epoch) }, event.ErrConflict},
		"watermark moved back":   {func(f *fixture, p *readmodel.Swap) { p.AppliedSeq = 6 }, event.ErrConflict},
		"another event there":    {func(f *fixture, p *readmodel.Swap) { p.AppliedHash = "other" }, event.ErrConflict},
		"another generation":     {stand(readmodel.Position{AppliedSeq: 5, Generation: 1, State: campaign.CursorLive}), event.ErrConflict},
		"set aside meanwhile":    {stand(readmodel.Position{AppliedSeq: 5, Generation: 2, State: campaign.CursorQuarantined}), event.ErrConflict},
		"live and not level":     {func(_ *fixture, p *readmodel.Swap) { p.Projections[0].Seq = 4 }, event.ErrConflict},
		"a key that exists twice": {func(f *fixture, p *readmodel.Swap) {
			f.ExecProjections(`create unique index once on tally_events (campaign_id, body)`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, claims := rebuilt(t, "old", "a", "b")
			f.ExecProjections(`delete from tally_events where seq > 1`)
			f.ReplayTally(s, "a", 1, 3, "new")
			f.ReplayTally(s, "b", 1, 1, "new")
			bad, good := storetest.PlanFor(claims[0]), storetest.PlanFor(claims[1])
			bad.Projections[0].Expect = &readmodel.Position{AppliedSeq: 99, Generation: 2, State: campaign.CursorLive}
			c.change(f, &bad)
			f.ExecProjections(`delete from tally_events where campaign_id = 'b'`)
			before := live(f, "a")
			_, stands := standsOf(f, "a")
			done, err := s.Swap(f.Ctx, []readmodel.Swap{bad, good})
			must.Need(t, err == nil && len(done) == 2 && done[1].Err == nil && done[0].Err != nil && (c.want == nil || errors.Is(done[0].Err, c.want)), "swapped %+v, %v", done, err)
			must.Hold(t, done[0].Rows == nil, "what was refused is counted: %+v", done[0])
			mustShow(f, "a", before)
			mustShow(f, "b", showing(1, "new"))
			_, now := standsOf(f, "a")
			must.Hold(t, now["tally"] == stands["tally"], "the cursors are %+v, after %+v", now, stands)
		})
	}
}

// expiring is a context that ends after this many calls of Err.
type expiring struct {
	context.Context
	left atomic.Int64
}

func (e *expiring) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

func TestSwap_thatIsCutShortChangesNothing(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a", "b")
	f.ReplayTally(c, "a", 1, 200, "new")
	f.ReplayTally(c, "b", 1, 200, "new")
	cut := 0
	for n := int64(0); ; n++ {
		ctx := &expiring{Context: f.Ctx}
		ctx.left.Store(n)
		_, err := c.Swap(ctx, []readmodel.Swap{storetest.PlanFor(claims[0]), storetest.PlanFor(claims[1])})
		if err == nil {
			break
		}
		cut++
		must.Need(t, errors.Is(err, context.Canceled), "%v", err)
		mustShow(f, "a", showing(5, "old"))
		mustShow(f, "b", showing(5, "old"))
	}
	must.Hold(t, cut >= 3, "the swap was cut short at %d places only", cut)
	mustShow(f, "a", showing(200, "new"))
}

// Concurrent readers see the old rows or the new ones.
func TestSwap_readersNeverSeeLess(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a")
	var small, large, other atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			live, err := f.Live(f.Ctx)
			if err != nil {
				t.Error(err)
				return
			}
			var seen, events int64
			rows, err := live.QueryContext(f.Ctx, `select max(seen), (select count(*) from tally_events) from tally`)
			if err == nil && rows.Next() {
				err = rows.Scan(&seen, &events)
			}
			if err != nil {
				t.Error(err)
				return
			}
			rows.Close()
			live.Close()
			switch {
			case seen != events:
				other.Add(1)
			case seen == 400:
				small.Add(1)
			case seen == 600:
				large.Add(1)
			}
		}
	}()
	deadline := time.Now().Add(time.Minute)
	for i := 0; small.Load() < 5 || large.Load() < 5; i++ {
		must.Need(t, !time.Now().After(deadline), "the reader saw %d and %d", small.Load(), large.Load())
		must.OK(t, c.Clear(f.Ctx, "a"))
		f.ReplayTally(c, "a", 1, 400+200*int64(i%2), "x")
		f.MustSwap(c, storetest.PlanFor(claims[0]))
	}
	close(stop)
	<-done
	must.Equal(t, other.Load(), 0, "times the reader saw half a swap")
}

func TestSwap_bringsADivergedCampaignInLine(t *testing.T) {
	f := withTally(t)
	f.AppendN("a", 5)
	f.SetWatermark("a", 3, 1)
	must.Get(f.ReconcileCampaign(f.Ctx, "a")).Or(t)
	must.Need(t, f.MustCampaign("a").Diverged != "", "the campaign is not diverged")
	e := must.Get(f.Event(f.Ctx, "a", 4)).Or(t)
	f.ExecProjections(`insert into watermark_skips (campaign_id, seq, skip_id, at) values ('a', 2, 77, 1)`)
	c, claims := f.OpenTally(), f.ClaimedForRun("a")
	f.ReplayTally(c, "a", 1, 4, "new")
	plan := storetest.PlanFor(claims[0])
	plan.Projections[0].Seq, plan.Watermark = 4, &readmodel.NewWatermark{Seq: 4, Hash: e.ChainHash}
	f.MustSwap(c, plan)
	w, stands := standsOf(f, "a")
	must.Hold(t, w.AppliedSeq == 4 && w.AppliedHash == e.ChainHash && stands["tally"].State == campaign.CursorLive, "the watermark is %+v, the cursors %+v", w, stands)
	must.Equal(t, must.Get(f.WaitApplied(f.Ctx, "a", 4)).Or(t), 4, "applied")
	f.ReleaseFromRun(claims...)
	f.Is("a", "applied 4 of 5, head 5 pending, 1 pending")
	f.Sound()
	f.Drain()
	f.Sound()
}

func TestSwap_passesOverWhatIsSkipped(t *testing.T) {
	f := withTally(t)
	f.AppendN("a", 3)
	f.Kill("a")
	f.MustSkip("a", 1)
	f.MustPause("a")
	skips := must.Get(f.Skips(f.Ctx, event.SkipFilter{CampaignID: "a"})).Or(t)
	f.SetWatermark("a", 1, 50)
	if _, err := f.ReconcileCampaign(f.Ctx, "a"); err != nil || f.MustCampaign("a").Diverged == "" {
		t.Fatal("the campaign is not diverged", err)
	}
	e := must.Get(f.Event(f.Ctx, "a", 2)).Or(t)
	c, claims := f.OpenTally(), f.ClaimedForRun("a")
	f.ReplayTally(c, "a", 2, 2, "new")
	plan := storetest.PlanFor(claims[0])
	plan.Projections[0].Seq = 2
	plan.Watermark = &readmodel.NewWatermark{Seq: 2, Hash: e.ChainHash, Passed: map[int64]int64{1: skips.Items[0].ID}}
	f.MustSwap(c, plan)
	f.ReleaseFromRun(claims...)
	f.Is("a", "applied 2 of 3, head 3 pending, 1 pending, 1 skipped, paused by scene")
	f.Sound()
}

func TestSwap_settlesFailures(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a")
	e := must.Get(f.Event(f.Ctx, "a", 3)).Or(t)
	err := f.Apply(f.Ctx, func(tx *readmodel.ApplyTx) error {
		for range 8 {
			must.OK(t, tx.Failed("tally", &e, *storetest.Failure("boom")))
		}
		return tx.Quarantine("tally", &e)
	})
	must.OK(t, err)
	f.ExecProjections(`update projection_cursors set paused_by = 'ana', paused_at = 7, reason = 'why'`)
	plan := storetest.PlanFor(claims[0])
	plan.Projections[0].Expect = &readmodel.Position{AppliedSeq: 2, Generation: 2, State: campaign.CursorQuarantined}
	plan.Projections[0].Seq, plan.Projections[0].State = 3, campaign.CursorQuarantined
	plan.Projections[0].Failure = &readmodel.SwapFailure{Failure: *storetest.Failure("bang"), EventType: "counted", Attempts: 1}
	failures := func() string {
		return strings.Join(append(storetest.Texts(t, f.ProjectionsDB, `select concat_ws(' ', seq, message, attempts, status, coalesce(resolved_at, 0) > 0) from failures order by id`),
			storetest.Texts(t, f.ProjectionsDB, `select concat_ws(' ', set_aside, open_failures) from projection_watermarks where campaign_id = 'a'`)...), "; ")
	}
	yes := map[bool]string{false: "1", true: "t"}[dbtest.Postgres()]
	no := map[bool]string{false: "0", true: "f"}[dbtest.Postgres()]
	f.ReplayTally(c, "a", 1, 3, "new")
	f.MustSwap(c, plan)
	mustShow(f, "a", showing(3, "new"))
	must.Equal(t, failures(), "3 boom 8 resolved "+yes+"; 4 bang 1 open "+no+"; 1 1", "failures")
	plan.Projections[0].Expect = &readmodel.Position{AppliedSeq: 3, Generation: 3, State: campaign.CursorQuarantined}
	f.MustSwap(c, plan)
	must.Equal(t, failures(), "3 boom 8 resolved "+yes+"; 4 bang 2 open "+no+"; 1 1", "after another try failures")
	f.MustSwap(c, storetest.PlanFor(claims[0]))
	must.Equal(t, failures(), "3 boom 8 resolved "+yes+"; 4 bang 2 resolved "+yes+"; 0 0", "failures")
	by := storetest.Texts(t, f.ProjectionsDB, `select paused_by || reason || coalesce(paused_at, 0) from projection_cursors`)
	must.Hold(t, by[0] == "0", "the cursor says %q of a pause that is over", by)
}

func TestLoadLive_copiesACampaignAsItIs(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a", "b")
	w, stands, err := c.LoadLive(f.Ctx, "a", "tally", "tally_events")
	must.Hold(t, err == nil && w.AppliedSeq == 5 && w.FenceEpoch == claims[0].Epoch && stands["tally"].Generation == 2, "loaded at %+v, %+v, %v", w, stands, err)
	mustHold(f, c, "a", "seen 5, twice 10, events 5")
	mustHold(f, c, "b", "")
	f.ReplayTally(c, "a", 6, 7, "new")
	mustHold(f, c, "a", "seen 7, twice 14, events 7")
	mustShow(f, "a", showing(5, "old"))
}

func TestSQLiteSwap_tablesMayReferToEachOther(t *testing.T) {
	f := own(t)
	p := readmodel.Projection{Name: "ring", Version: "v1", Tables: []string{"first", "second"}, Schema: []string{
		`create table first (campaign_id text primary key references second (campaign_id) deferrable initially deferred)`,
		`create table second (campaign_id text primary key references first (campaign_id))`}}
	must.OK(t, f.Install(f.Ctx, []readmodel.Projection{p}))
	f.AppendN("a", 1)
	f.Drain()
	c := must.Get(f.OpenScratch(f.Ctx, []readmodel.Projection{p})).Or(t)
	defer c.Close()
	expected := func() {
		must.Get(c.Replay(f.Ctx, 1, func(int) error {
			return errors.Join(c.Exec(f.Ctx, `insert into first values ($1)`, []any{"a"}), c.Exec(f.Ctx, `insert into second values ($1)`, []any{"a"}))
		})).Or(t)
	}
	expected()
	claims := f.ClaimedForRun("a")
	plan := readmodel.Swap{CampaignID: "a", Epoch: claims[0].Epoch, AppliedSeq: 1, AppliedHash: claims[0].Watermark.AppliedHash}
	for _, tables := range [][]string{{"first", "second"}, {"second", "first"}} {
		plan.Projections = []readmodel.SwapProjection{{Name: "ring", Tables: tables, Seq: 1, State: campaign.CursorLive}}
		f.MustSwap(c, plan)
		must.OK(t, c.Clear(f.Ctx, "a", tables...))
		_, _, err := c.LoadLive(f.Ctx, "a", tables...)
		must.Need(t, err == nil, "%v", err)
	}
}

func TestSwap_refusesTablesOfAnOlderVersion(t *testing.T) {
	f, _, claims := rebuilt(t, "old", "a")
	p := storetest.Tally()
	p.Schema[0] = strings.Replace(p.Schema[0], "seen bigint", "since bigint, seen bigint", 1)
	c := must.Get(f.OpenScratch(f.Ctx, []readmodel.Projection{p})).Or(t)
	defer c.Close()
	f.ReplayTally(c, "a", 1, 2, "new")
	refused(t, storetest.No(c.Swap(f.Ctx, []readmodel.Swap{storetest.PlanFor(claims[0])})), event.ErrConflict, "tally", `"since"`)
	mustShow(f, "a", showing(5, "old"))
}

func TestLive_isOneStateAndThereAreFour(t *testing.T) {
	f, c, claims := rebuilt(t, "old", "a")
	ctx, cancel := context.WithTimeout(f.Ctx, must.Patience)
	defer cancel()
	var all []*readmodel.Live
	for range 4 {
		live := must.Get(f.Live(ctx)).Or(t)
		defer live.Close()
		all = append(all, live)
	}
	f.ReplayTally(c, "a", 1, 2, "new")
	f.MustSwap(c, storetest.PlanFor(claims[0]))
	f.SetWatermark("a", 9, claims[0].Epoch)
	for _, live := range all {
		w, known, err := live.Watermark(ctx, "a")
		must.Hold(t, err == nil && known && w.AppliedSeq == 5, "the watermark is %+v, %v", w, err)
		must.Equal(t, must.Get(live.Positions(ctx, "a")).Or(t)["tally"].Generation, 2, "the cursors")
		_, known, err = live.Watermark(ctx, "nobody")
		must.Hold(t, !known && err == nil, "a watermark of nobody: %v", err)
	}
}

// The rows of one campaign need more memory than swapping may take.
func TestSwap_ofALargeCampaignKeepsMemoryBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("fewer rows than these would fit into the bound; go test without -short makes them")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // .ci/test lets garbage lie for longer
	f := enginetest.OpenRooms(t)
	f.InstallTally()
	_, c, claims := rebuild(f, "old", "a")
	rows := map[bool]int64{false: 64_000, true: 20_000}[dbtest.Postgres()]
	f.ReplayTally(c, "a", 1, rows, strings.Repeat("x", 800))
	before := resident(t)
	most := make(chan int64)
	stop := make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		peak := int64(0)
		for {
			select {
			case <-stop:
				most <- peak
				return
			case <-tick.C:
				peak = max(peak, residentNow())
			}
		}
	}()
	began := time.Now()
	f.MustSwap(c, storetest.PlanFor(claims[0]))
	t.Logf("note: swapped %d rows in %s", rows, time.Since(began))
	close(stop)
	if grown := <-most - before; grown > 40<<20 {
		t.Errorf("swapping %d rows of 800 bytes took %d bytes more memory", rows, grown)
	} else {
		t.Logf("note: %d bytes more memory at most", grown)
	}
	_, stands := standsOf(f, "a")
	must.Hold(t, stands["tally"].Generation == 3, "the cursors are %+v", stands)
}
