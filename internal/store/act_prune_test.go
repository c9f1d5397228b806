package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// manyActs leaves n records, one a minute.
func (f *fixture) manyActs(n int) {
	f.TB.Helper()
	f.Exec(fmt.Sprintf(`
insert into operator_acts (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
with recursive n(i) as (select 0 union all select i + 1 from n where i < %d)
select %d + i * cast(60000000 as bigint), 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null' from n`, n-1, f.Clock.Now().UnixMicro()))
}

func (f *fixture) pruneActs(before time.Time) (portions int) {
	f.TB.Helper()
	for {
		more, err := f.PruneActs(f.Ctx, before)
		if err != nil {
			f.TB.Fatal(err)
		}
		if !more {
			return portions
		}
		portions++
	}
}

func (f *fixture) removedBefore() time.Time {
	f.TB.Helper()
	before, err := f.ActsRemovedBefore(f.Ctx)
	if err != nil {
		f.TB.Fatal(err)
	}
	return before
}

func TestPruneActs_deletesInPortionsWhatIsOlder(t *testing.T) {
	t.Parallel()
	f := open(t)
	start := f.Clock.Now()
	f.manyActs(12_000)
	if more, err := f.PruneActs(f.Ctx, start.Add(11_000*time.Minute)); err != nil || !more {
		t.Fatalf("more: %v, %v", more, err)
	}
	if n := f.Number(`select count(*) from operator_acts`); n != 7000 {
		t.Errorf("after one portion there are %d records, want 7000", n)
	}
	if n := f.pruneActs(start.Add(11_000 * time.Minute)); n != 1 {
		t.Errorf("it took %d more full portions, want one", n)
	}
	if n := f.Number(`select count(*) from operator_acts`); n != 1000 {
		t.Errorf("%d records are kept, want 1000", n)
	}
	if oldest := f.Number(`select min(at) from operator_acts`); oldest != start.Add(11_000*time.Minute).UnixMicro() {
		t.Errorf("the oldest that is kept is of %s", time.UnixMicro(oldest))
	}
	if got := f.removedBefore(); !got.Equal(start.Add(11_000 * time.Minute)) {
		t.Errorf("records are gone from before %s", got)
	}
}

func TestPruneActs_neverGoesBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	start := f.Clock.Now()
	f.manyActs(10)
	f.pruneActs(start.Add(5 * time.Minute))
	f.Unchanged(func() { f.pruneActs(start.Add(3 * time.Minute)) })
	if got := f.removedBefore(); !got.Equal(start.Add(5 * time.Minute)) {
		t.Errorf("records are gone from before %s", got)
	}
	// One of another process, whose clock was behind, is deleted; the time stays.
	f.Exec(fmt.Sprintf(`insert into operator_acts (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result)
values (%d, 'ana', 'cli', '', 'pause', 'a', 0, 'null', 'null', '', '', '', 'null')`, start.UnixMicro()))
	f.pruneActs(start.Add(3 * time.Minute))
	if got, n := f.removedBefore(), f.Number(`select count(*) from operator_acts`); n != 5 || !got.Equal(start.Add(5*time.Minute)) {
		t.Errorf("%d records are kept, from before %s they are gone", n, got)
	}
}

func TestPruneActs_writesNothingWhereNothingIsOld(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.Unchanged(func() { f.pruneActs(f.Clock.Now()) })
	f.manyActs(3)
	f.Unchanged(func() { f.pruneActs(f.Clock.Now()) })
	if got := f.removedBefore(); !got.IsZero() {
		t.Errorf("records are gone from before %s", got)
	}
	g := f.beside(func(o *store.Options) { o.ReadOnly = true })
	_, err := g.PruneActs(f.Ctx, f.Clock.Now().Add(time.Hour))
	refused(t, err, outbox.ErrReadOnly)
}

func TestAuditRecords_areNeitherChangedNorDeletedWhileTheyAreKept(t *testing.T) {
	t.Parallel()
	f := open(t)
	start := f.Clock.Now()
	f.manyActs(10)
	f.pruneActs(start.Add(5 * time.Minute))
	f.Unchanged(func() {
		for _, change := range []string{`update operator_acts set actor = 'nobody'`, `update operator_acts set outcome = 'done', refusal = ''`,
			`delete from operator_acts`, `delete from operator_acts where id = (select max(id) from operator_acts)`} {
			if _, err := f.JournalDB.Exec(change); err == nil {
				t.Errorf("the database does: %s", change)
			}
		}
	})
	f.Sound()
}

func TestActs_countAndListAsAFilterMatches(t *testing.T) {
	t.Parallel()
	f := open(t)
	for i := range 60 {
		o := ana("")
		o.By.Name, o.By.Auth = []string{"ana", "ben"}[i%2], []outbox.Auth{outbox.AuthJWT, outbox.AuthToken, outbox.AuthOS}[i%3]
		o.By.Role, o.RequestID = []outbox.Role{outbox.RoleOperator, outbox.RoleAdmin}[i/2%2], fmt.Sprint("r-", i%7)
		r := outbox.RefusedAct{Action: []outbox.Action{outbox.ActPause, outbox.ActSkip}[i/3%2], CampaignID: []string{"", "a", "b"}[i/4%3], Seq: int64(i % 3), Refusal: "no"}
		if r.CampaignID == "" {
			r.Target = []outbox.Target{"", outbox.RunTarget(7), outbox.ProjectionTarget("p")}[i%3]
		}
		if _, err := f.RecordRefusal(f.Ctx, o, r); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(time.Minute)
	}
	f.AppendN("a", 1)
	for _, act := range []func(outbox.Order) error{
		func(o outbox.Order) error { _, err := f.PauseCampaign(f.Ctx, o, "a"); return err },
		func(o outbox.Order) error { _, err := f.ResumeCampaign(f.Ctx, o, "a"); return err },
	} {
		if err := act(anaAs(outbox.RoleAdmin, "")); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.Acts(f.Ctx, outbox.ActFilter{Limit: 200})
	if err != nil || len(all.Items) != 62 {
		t.Fatalf("%d acts, %v", len(all.Items), err)
	}
	rapid.Check(t, func(t *rapid.T) {
		maybe := func(name string, set func(outbox.Act)) {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				set(rapid.SampledFrom(all.Items).Draw(t, name+" of"))
			}
		}
		filter := outbox.ActFilter{Limit: rapid.SampledFrom([]int{1, 7, 200}).Draw(t, "limit"), Reverse: rapid.Bool().Draw(t, "reverse")}
		maybe("actor", func(a outbox.Act) { filter.Actor = a.Actor })
		maybe("action", func(a outbox.Act) { filter.Action = a.Action })
		maybe("campaign", func(a outbox.Act) { filter.CampaignID = a.CampaignID })
		maybe("seq", func(a outbox.Act) { filter.Seq = a.Seq })
		maybe("target", func(a outbox.Act) { filter.Target = a.Target })
		maybe("outcome", func(a outbox.Act) { filter.Outcome = a.Outcome })
		maybe("auth", func(a outbox.Act) { filter.Auth = a.Auth })
		maybe("role", func(a outbox.Act) { filter.Role = a.Role })
		maybe("request", func(a outbox.Act) { filter.RequestID = a.RequestID })
		maybe("since", func(a outbox.Act) { filter.Since = a.At })
		maybe("until", func(a outbox.Act) { filter.Until = a.At })
		var want []int64
		for _, a := range all.Items {
			if filter.Matches(a) {
				want = append(want, a.ID)
			}
		}
		if filter.Reverse {
			slices.Reverse(want)
		}
		var got []int64
		for {
			page, err := f.Acts(f.Ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Items {
				got = append(got, a.ID)
			}
			if page.Total == nil || *page.Total != int64(len(want)) || page.TotalCapped {
				t.Fatalf("%+v: %v match, want %d", filter, page.Total, len(want))
			}
			if page.NextCursor == nil {
				break
			}
			filter.Cursor = *page.NextCursor
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%+v: got %v, want %v", filter, got, want)
		}
	})
}
