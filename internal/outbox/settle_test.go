package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestSettle_leavesWhatTheWaveDidNotDo(t *testing.T) {
	aside := storetest.Failure("boom")
	aside.SetAside = true
	type given struct {
		events, rows int
		result       outbox.Result
		settled      outbox.Settled
		then, next   string
		meanwhile    int // events appended
	}
	storetest.Each(t, own, map[string]given{
		"all is applied":              {4, 4, outbox.Result{Applied: 4}, outbox.Settled{Applied: 4}, "applied 4 of 4", "", 0},
		"a part is given back":        {5, 4, outbox.Result{Applied: 2}, outbox.Settled{Applied: 2}, "applied 2 of 5, head 3 pending, 3 pending", "a 3-5 under 2", 0},
		"a part, and one fails":       {6, 5, outbox.Result{Applied: 2, Failure: storetest.Failure("boom")}, outbox.Settled{Applied: 2, Failed: 1}, "applied 2 of 6, head 3 failed, 3 pending, 1 failed", "", 0},
		"diverged":                    {2, 2, outbox.Result{Diverged: "of another journal"}, outbox.Settled{}, "applied 0 of 2, head 1 pending, 2 pending, diverged: of another journal", "", 0},
		"a projection that set aside": {1, 1, outbox.Result{Failure: aside}, outbox.Settled{Failed: 1}, "applied 0 of 1, head 1 failed, 1 failed", "", 0},
		"more was appended meanwhile": {2, 2, outbox.Result{Applied: 2}, outbox.Settled{Applied: 2}, "applied 2 of 3, head 3 pending, 1 pending", "a 3-3 under 2", 1},
	}, func(t *testing.T, f *fixture, c given) {
		if c.result.Failure == aside {
			f = f.beside(storetest.MaxAttempts(1))
		}
		f.AppendN("a", c.events)
		c.result.Claim = f.ClaimOne(one, c.rows)
		f.AppendN("a", c.meanwhile)
		if c.result.Applied > 0 {
			f.MustApply(c.result.Claim, c.result.Applied)
		}
		must.Equal(t, f.MustSettle(one, c.result), c.settled, "settled")
		f.Is("a", c.then)
		f.Sound()
		if c.next == "" {
			f.NoClaim(two)
		} else {
			f.Claims(two, 10, c.next)
		}
	})
}

func TestSettle_failedHeadBacksOffAndDiesAtTheEighth(t *testing.T) {
	f := own(t)
	f.AppendN("a", 3)
	for i, delay := range []time.Duration{1, 2, 4, 8, 16, 32, 64} {
		f.Fail("boom at 17", "a")
		r := f.MustRow("a", 1).Row
		must.Need(t, r.Status == event.Failed && r.AttemptCount == i+1 && r.NextAttemptAt == f.Clock.Now().Add(delay*time.Second) && r.LastError == "boom at 17" && r.Fingerprint == "boom at #" && r.BlockedBehind == 2 && r.EnqueuedAt == began, "after failure %d the row is %+v, want it due in %d s", i+1, r, delay)
		f.Is("a", "applied 0 of 3, head 1 failed, 2 pending, 1 failed")
		f.Clock.Advance(delay * time.Second)
	}
	must.Equal(t, f.FailsAfter(one, f.ClaimOne(one, 10), 0, "boom at 18"), outbox.Settled{Failed: 1, Died: 1}, "settled")
	f.RowIs("a", 1, "dead after 8, due in 0s")
	all := f.MustRow("a", 1).Attempts
	must.Hold(t, len(all) == 8 && all[0].Attempt == 8 && all[0].Worker == one.ID && all[0].Build == one.Build && all[7].Attempt == 1, "the history is %+v", all)
	f.Clock.Advance(24 * time.Hour)
	f.NoClaim(one)
	_, due, err := f.UntilDue(f.Ctx, campaign.Scope{})
	must.Hold(t, !due && err == nil, "a dead head is due by itself: %v", err)
	f.Sound()
}

func TestSettle_keepsTheErrorWholeInTheHistoryAndShortOnTheRow(t *testing.T) {
	f := own(t)
	f.AppendN("a", 1)
	long := strings.Repeat("ü", 5000)
	f.Fail(long, "a")
	d := f.MustRow("a", 1)
	got := d.Row.LastError
	must.Hold(t, d.Attempts[0].Error == long && len(got) <= 1024 && strings.HasPrefix(long, got) && len(got)%2 == 0 && got != "",
		"the attempt keeps %d bytes, the row %d, want all and at most 1024 whole characters", len(d.Attempts[0].Error), len(got))
}

func TestSettle_ofALostLeaseChangesNothing(t *testing.T) {
	storetest.Each(t, own, map[string]func(*fixture){
		"taken over": func(f *fixture) { f.ClaimOne(two, 10) },
		"taken over and settled, then claimed again": func(f *fixture) {
			f.Works(two, f.ClaimOne(two, 10), 0)
			f.ClaimOne(one, 2)
		},
		"held by another":   func(f *fixture) { f.Exec(`update campaigns set lease_owner = $1`, two.ID) },
		"ended by a replay": func(f *fixture) { f.must(f.ReplayCampaign(f.Ctx, ana("for a test"), "a")) },
	}, func(t *testing.T, f *fixture, lose func(*fixture)) {
		f.AppendN("a", 4)
		stale := f.ClaimOne(one, 3)
		f.Clock.Advance(lease)
		lose(f)
		f.Unchanged(func() {
			for _, result := range []outbox.Result{{Applied: 3}, {}, {Applied: 1, Failure: storetest.Failure("boom")}, {Diverged: "for a test"}} {
				result.Claim = stale
				must.Equal(t, f.MustSettle(one, result), outbox.Settled{Fenced: 1}, "settled")
			}
		})
		f.Sound()
	})
}

func TestSettle_touchesOnlyRowsMarkedUnderItsEpoch(t *testing.T) {
	f := own(t)
	f.AppendN("a", 5)
	c := f.ClaimOne(one, 5)
	f.Exec(`update projection_apply_outbox set status = 'pending' where seq = 2`)
	f.Exec(`update projection_apply_outbox set claim_epoch = 9 where seq in (1, 4)`)
	must.Equal(t, f.Works(one, c, 3).Applied, 1, "settled")
	left := storetest.Texts(t, f.JournalDB, `select seq || ' ' || status || ' ' || claim_epoch from projection_apply_outbox order by seq`)
	must.Equal(t, left, []string{"1 processing 9", "2 pending 1", "4 processing 9", "5 pending 1"}, "rows")
	f.Exact("a")
}

func TestSettle_fencesOneCampaignWithoutTheOthers(t *testing.T) {
	for name, next := range map[string]outbox.Worker{"taken over": two, "claimed again": one} {
		t.Run(name, func(t *testing.T) {
			f := own(t)
			f.AppendN("a b", 1)
			claims := f.MustClaim(one, 10)
			f.Clock.Advance(lease)
			lost := f.MustClaim(next, 1)[0].CampaignID
			results := []outbox.Result{{Claim: outbox.Claim{CampaignID: "unknown", Epoch: 1, First: 1, Last: 1}}}
			for _, c := range claims {
				results = append(results, outbox.Result{Claim: c, Applied: c.Last})
				if c.CampaignID != lost {
					f.MustApply(c, c.Last)
				}
			}
			must.Equal(t, f.MustSettle(one, results...), outbox.Settled{Applied: 1, Fenced: 2}, "settled")
		})
	}
}

func TestRequeueDead_besideARequeueOfOneTakesEachRowOnce(t *testing.T) {
	f := deadRows(t)
	other := f.beside()
	var many campaign.Requeued
	var one, err error
	f.AtOnce(f.JournalDB, storetest.EveryCampaign,
		func() { many, err = f.RequeueDead(f.Ctx, ana(""), campaign.RequeueFilter{}) },
		func() { one = storetest.No(other.RequeueRow(f.Ctx, ana(""), "d", 1)) })
	must.Hold(t, err == nil && (one != nil || many.Requeued == 3) && (one == nil || many.Requeued == 4 && errors.Is(one, event.ErrConflict)), "requeued %+v together (%v), and one: %v", many, err, one)
	f.Sound()
}

func TestClaim_ofManyAtOnceGivesEachCampaignToOne(t *testing.T) {
	f := own(t)
	const campaigns = 30
	for i := range campaigns {
		f.AppendN(fmt.Sprint("c-", i), 2)
	}
	var mu sync.Mutex
	owners := make(map[string]string)
	var workers sync.WaitGroup
	for i, s := range []*fixture{f, f.beside(), f, f.beside()} {
		w := outbox.Worker{ID: fmt.Sprint("worker-", i)}
		workers.Go(func() {
			for {
				claims, err := s.Claim(s.Ctx, w, outbox.ClaimLimits{Rows: 16, Lease: lease})
				must.Hold(t, err == nil, "claim: %v", err)
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, c := range claims {
					must.Equal(t, owners[c.CampaignID], "", "who has what was claimed by", w.ID)
					owners[c.CampaignID] = w.ID
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	// A claim skips campaigns locked by another claim, so that the last ones may be left for the next time.
	for _, c := range f.MustClaim(one, 1000) {
		owners[c.CampaignID] = one.ID
	}
	must.Equal(t, len(owners), campaigns, "campaigns were claimed")
	for id, owner := range owners {
		f.Is(id, "applied 0 of 2, head 1 processing, 2 processing, held by "+owner+" under 1")
	}
	f.Sound()
}

func TestPostgresClaim_doesNotWaitForWhatAnotherHolds(t *testing.T) {
	f := own(t)
	f.AppendN("a b c", 2)
	other := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(f.TB, other, `begin`, `select 1 from campaigns where campaign_id in ('a', 'c') for update`)
	must.Equal(t, f.ClaimOne(one, 10).CampaignID, "b", "claimed")
	f.NoClaim(two)
	storetest.Run(f.TB, other, `rollback`)
	must.Equal(t, len(f.MustClaim(two, 10)), 2, "claimed")
	f.Sound()
}

func TestPostgresEndLeases_holdsNothingThatComesLaterInTheOrderOfLocks(t *testing.T) {
	f := own(t)
	f.AppendN("a b", 1)
	f.MustClaim(one, 10)
	for _, id := range []string{"b", "a"} { // the order in which they are found
		f.Exec(`update campaigns set crashes = crashes where campaign_id = $1`, id)
	}
	other := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(f.TB, other, `begin`, `select 1 from campaigns where campaign_id = 'a' for update`)
	ended := storetest.Begin(func() error { return f.EndLeases(f.Ctx, one.ID) })
	f.AwaitLockWaits(1)
	storetest.Run(f.TB, other, `select 1 from campaigns where campaign_id = 'b' for update nowait`, `rollback`)
	must.OK(t, <-ended)
	must.Equal(t, len(f.MustClaim(two, 10)), 2, "claimed")
}

func eventsOf(campaigns []string) (events []event.Event) {
	for _, id := range campaigns {
		events = append(events, storetest.Event(id, "counted"))
	}
	return events
}

func TestLocks_areTakenInOneOrderByThoseWhoNeedSeveral(t *testing.T) {
	f := own(t)
	ids := []string{"c", "a", "e", "b", "d"}
	f.AppendN(strings.Join(ids, " "), 1)
	storetest.Everybody(t, []*fixture{f, f.beside()}, size.Of(8, 25, 60), map[string]func(*fixture, int) error{
		"append": func(s *fixture, _ int) error {
			return storetest.No(s.Append(s.Ctx, store.Append{Events: eventsOf(storetest.Shuffled(ids))}))
		},
		"work": func(s *fixture, _ int) error {
			claims, err := s.Claim(s.Ctx, one, outbox.ClaimLimits{Rows: 100, Lease: lease})
			if err != nil {
				return err
			}
			if err := s.Renew(s.Ctx, one, storetest.Shuffled(claims), lease); err != nil && !errors.Is(err, event.ErrLeaseLost) {
				return err
			}
			var results []outbox.Result
			for _, c := range storetest.Shuffled(claims) {
				results = append(results, outbox.Result{Claim: c, Applied: c.First - 1})
			}
			return storetest.No(s.Settle(s.Ctx, one, results))
		},
		"end leases": func(s *fixture, _ int) error { return s.EndLeases(s.Ctx, one.ID) },
		"pause": func(s *fixture, i int) error {
			for _, act := range []func(context.Context, operator.Command, string) (campaign.Campaign, error){s.PauseCampaign, s.ResumeCampaign} {
				if _, err := act(s.Ctx, ana(""), ids[i%len(ids)]); err != nil && !errors.Is(err, event.ErrConflict) {
					return err
				}
			}
			return nil
		},
	})
	f.Sound()
}

func TestLocks_ofWhatIsNewAreTakenInOneOrderToo(t *testing.T) {
	f := own(t)
	few := func(i int) []string {
		return storetest.Shuffled([]string{fmt.Sprint("a-", i), fmt.Sprint("b-", i), fmt.Sprint("c-", i)})
	}
	storetest.Everybody(t, []*fixture{f, f.beside()}, size.Of(8, 20, 40), map[string]func(*fixture, int) error{
		"append": func(s *fixture, i int) error {
			return storetest.No(s.Append(s.Ctx, store.Append{Events: eventsOf(few(i))}))
		},
		"apply": func(s *fixture, i int) error {
			return s.Apply(s.Ctx, func(tx *readmodel.ApplyTx) error { return tx.ReadAhead(few(i)) })
		},
		"register": func(s *fixture, i int) error {
			types := make(map[string]event.Intent)
			for k := range 8 {
				types[fmt.Sprint("t-", k)] = []event.Intent{event.IntentProjection, event.IntentAuditOnly}[i%2]
			}
			return s.RegisterEventTypes(s.Ctx, types)
		},
		"heartbeat": func(s *fixture, i int) error {
			return s.Heartbeat(s.Ctx, campaign.InstanceState{ID: fmt.Sprint("i-", i%3)})
		},
	})
	f.Drain()
}
