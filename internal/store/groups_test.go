package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// sums are the numbers of a group that follow from rows and campaigns.
type sums struct{ dead, failed, retrying, heads, released, campaigns, waiting, score int64 }

// recount adds up what the rows and campaigns say, one by one.
func (f *fixture) recount() map[string]sums {
	f.TB.Helper()
	type row struct {
		campaign, status, fingerprint string
		seq                           int64
	}
	rows := must.Get(f.JournalDB.Query(`select campaign_id, seq, status, fingerprint from projection_apply_outbox where status in ('dead', 'failed', 'processing') and attempt_count > 0 and fingerprint <> ''`)).Or(f.TB)
	defer rows.Close()
	var all []row
	for rows.Next() {
		var r row
		must.OK(f.TB, rows.Scan(&r.campaign, &r.seq, &r.status, &r.fingerprint))
		all = append(all, r)
	}
	must.OK(f.TB, rows.Err())
	by := map[string]sums{}
	for _, r := range all {
		s, c := by[r.fingerprint], f.MustCampaign(r.campaign)
		switch r.status {
		case "dead":
			s.dead++
		case "failed":
			s.failed++
		default:
			s.retrying++
		}
		if c.HeadSeq == r.seq {
			s.campaigns++
			s.waiting += c.LagEvents()
			s.score += outbox.Score(c.LagEvents(), c.Lag(f.Clock.Now()))
			if r.status == "dead" {
				s.heads++
				s.released += c.Counts.Total() - 1
			}
		}
		by[r.fingerprint] = s
	}
	return by
}

func (f *fixture) groups() outbox.ErrorGroups {
	f.TB.Helper()
	all := must.Get(f.beside().ErrorGroups(f.Ctx)).Or(f.TB)
	return all
}

func TestErrorGroups_addUpRandomHistories(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	f := open(t, storetest.MaxAttempts(3))
	for range 25 {
		for range 1 + random.IntN(6) {
			f.AppendN(fmt.Sprintf("c-%02d", random.IntN(30)), 1+random.IntN(4))
		}
		claims := f.MustClaim(one, 1000)
		f.check(seed) // while what failed before is being retried
		for _, c := range claims {
			result := store.Result{Claim: c, Applied: c.First - 1}
			switch random.IntN(3) {
			case 0:
				result.Applied = c.First
			default:
				result.Failure = storetest.Failure([]string{"boom", "no such table", "seat is taken", "too long"}[random.IntN(4)])
			}
			f.MustSettle(one, result)
		}
		if random.IntN(3) == 0 {
			if dead := f.Number(`select count(*) from campaigns where head_status = 'dead'`); dead > 0 {
				id := storetest.Texts(t, f.JournalDB, `select campaign_id from campaigns where head_status = 'dead' order by campaign_id`)[random.IntN(int(dead))]
				f.MustRequeue(id, f.MustCampaign(id).HeadSeq)
			}
		}
		f.Clock.Advance(time.Duration(random.IntN(400)) * time.Second)
		f.check(seed)
	}
}

// check compares the groups with a recount.
func (f *fixture) check(seed uint64) {
	f.TB.Helper()
	all, want := f.groups(), f.recount()
	got := map[string]sums{}
	for _, g := range all.Groups {
		got[g.Fingerprint] = sums{g.Dead, g.Failed, g.Retrying, g.Heads, g.Released, g.Campaigns, g.EventsWaiting, g.Score}
		if int64(len(g.Worst)) != min(g.Campaigns, outbox.CausesNamed) {
			f.TB.Errorf("seed %d: %q names %d of %d campaigns", seed, g.Fingerprint, len(g.Worst), g.Campaigns)
		}
		for _, c := range g.Worst {
			if is := f.MustCampaign(c.CampaignID); is.HeadSeq != c.HeadSeq || is.HeadStatus != c.HeadStatus || is.LagEvents() != c.EventsWaiting || c.EventType != "counted" {
				f.TB.Errorf("seed %d: it says %+v of %+v", seed, c, is)
			}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); diff != "" {
		f.TB.Fatalf("seed %d: groups (-want +got):\n%s", seed, diff)
	}
	if !slices.IsSortedFunc(all.Groups, outbox.CompareGroups) {
		f.TB.Errorf("seed %d: the groups are not in order", seed)
	}
}

// A deploy that breaks many campaigns must not hide the errors of others, nor leave them without a first
// attempt, a build and a version.
func TestErrorGroups_knowEachErrorBesideACommonOne(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	f.Exec(`insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, last_error, fingerprint, enqueued_at, updated_at)
		with recursive n (i) as (select 1 union all select i + 1 from n where i < 12000)
		select 'common-' || i, 1, 'a', 'dead', 1, i, 'common', 'common', 1, 1 from n`)
	f.AppendN("rare", 3)
	f.Fail("rare", "rare")
	f.Exec(`update projection_apply_outbox set status = 'dead', attempt_count = 1, fingerprint = 'behind' where campaign_id = 'rare' and seq = 3`)
	all := f.groups()
	if i := slices.IndexFunc(all.Groups, func(g outbox.ErrorGroup) bool { return g.Fingerprint == "behind" }); i < 1 || all.Groups[i].Dead != 1 || all.Groups[i].Campaigns+all.Groups[i].EventsWaiting > 0 {
		t.Errorf("an error that blocks nothing itself: %+v", all.Groups)
	}
	if len(all.Groups) != 3 || all.Groups[0].Fingerprint != "rare" || all.Groups[0].Attempts != 1 || all.Groups[0].FirstAt == nil || len(all.Groups[0].Tried) != 1 {
		t.Errorf("%+v", all)
	}
	for _, g := range all.Groups {
		if common := g.Fingerprint == "common"; g.Capped != common || common && g.Dead < 9_000 {
			t.Errorf("%s: %d dead rows, a lower bound: %v", g.Fingerprint, g.Dead, g.Capped)
		}
	}
	if all.More || !all.Capped() {
		t.Errorf("more causes: %v, lower bounds: %v", all.More, all.Capped())
	}
}

// An error that rows had which are settled now was not new when the open rows failed.
func TestErrorGroups_knowThatAnErrorHappenedBefore(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(1))
	began := f.Clock.Now()
	f.AppendN("a", 1)
	f.Fail("refused", "a")
	f.MustSkip("a", 1)
	f.PassOver()
	f.Clock.Advance(time.Hour)
	f.AppendN("b", 1)
	f.Fail("refused", "b")
	f.AppendN("c", 1)
	f.Fail("another", "c")
	for _, g := range f.groups().Groups {
		if before := g.EarlierAt != nil; before != (g.Fingerprint == "refused") || before && g.EarlierAt.Sub(began) > time.Minute {
			t.Errorf("%s failed before at %v", g.Fingerprint, g.EarlierAt)
		}
	}
}

func TestSummary_oldestRetryableIsInACampaignThatIsServed(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("theirs", 1)
	f.Clock.Advance(time.Minute)
	f.AppendN("ours-1", 1)
	_, before := f.Ages()
	if before.CampaignID != "theirs" {
		t.Errorf("while no instance runs every campaign counts, got %+v", before)
	}
	must.OK(t, f.Heartbeat(f.Ctx, outbox.InstanceState{ID: "i", StartedAt: f.Clock.Now(), BeatEvery: time.Second, Campaigns: scopeOf(t, "ours-*", "mine")}))
	oldest, retryable := f.Ages()
	if oldest.CampaignID != "theirs" || retryable.CampaignID != "ours-1" || retryable.Seq != 1 {
		t.Errorf("the oldest is %+v, the oldest retryable %+v", oldest, retryable)
	}
	sum, err := f.beside().Summary(f.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	stuck, err := f.StuckWithoutError(f.Ctx, sum.Surroundings(), 10)
	if err != nil || len(stuck) != 1 || stuck[0].CampaignID != "theirs" {
		t.Errorf("stuck are %+v, %v", stuck, err)
	}
}

func TestStuckWithoutError_divergedFirst(t *testing.T) {
	t.Parallel()
	f := open(t, storetest.MaxAttempts(2))
	f.AppendN("dead", 2)
	f.Kill("dead")
	f.AppendN("diverged", 1)
	f.MustSettle(one, store.Result{Claim: f.ClaimOne(one, 2), Diverged: "for a test"})
	f.AppendN("due", 3)
	f.AppendN("elsewhere", 3)
	f.AppendN("paused", 3)
	f.MustPause("paused")
	mine := outbox.Surroundings{Worker: &outbox.WorkerSummary{Running: true, Campaigns: scopeOf(t, "d*")}}
	stuck := must.Get(f.StuckWithoutError(f.Ctx, mine, 10)).Or(t)
	if diff := cmp.Diff([]string{"diverged", "elsewhere"}, ids(stuck)); diff != "" {
		t.Errorf("stuck (-want +got):\n%s", diff)
	}
	if one, err := f.StuckWithoutError(f.Ctx, mine, 1); err != nil || len(one) != 1 {
		t.Errorf("%+v, %v, want one", one, err)
	}
}
