package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestRequeueDead_besideARequeueOfOneTakesEachRowOnce(t *testing.T) {
	t.Parallel()
	f := deadRows(t)
	other := f.beside()
	var many outbox.Requeued
	var one, err error
	f.AtOnce(f.JournalDB, storetest.EveryCampaign,
		func() { many, err = f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}) },
		func() { one = storetest.No(other.RequeueRow(f.Ctx, ana(""), "d", 1)) })
	must.Hold(t, err == nil && (one != nil || many.Requeued == 3) && (one == nil || many.Requeued == 4 && errors.Is(one, outbox.ErrConflict)), "requeued %+v together (%v), and one: %v", many, err, one)
	f.Sound()
}

func TestClaim_ofManyAtOnceGivesEachCampaignToOne(t *testing.T) {
	t.Parallel()
	f := open(t)
	const campaigns = 30
	var events []outbox.Event
	for i := range campaigns {
		events = append(events, storetest.Event(fmt.Sprintf("c-%02d", i), "counted"), storetest.Event(fmt.Sprintf("c-%02d", i), "counted"))
	}
	f.MustAppend(events...)
	var mu sync.Mutex
	owners := make(map[string]string)
	var workers sync.WaitGroup
	for i := range 4 {
		s := f
		if i%2 == 1 {
			s = f.beside()
		}
		w := store.Worker{ID: fmt.Sprint("worker-", i)}
		workers.Go(func() {
			for {
				claims, err := s.Claim(s.Ctx, w, store.ClaimLimits{Rows: 16, Lease: lease})
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
	// A claim skips campaigns locked by another claim, so that the last ones may be left for the
	// next time.
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
	t.Parallel()
	f := open(t)
	for _, id := range []string{"a", "b", "c"} {
		f.AppendN(id, 2)
	}
	other := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(f.TB, other, `begin`, `select 1 from campaigns where campaign_id in ('a', 'c') for update`)
	must.Equal(t, f.ClaimOne(one, 10).CampaignID, "b", "claimed")
	f.NoClaim(two)
	storetest.Run(f.TB, other, `rollback`)
	must.Equal(t, len(f.MustClaim(two, 10)), 2, "claimed")
	f.Sound()
}

func TestPostgresEndLeases_holdsNothingThatComesLaterInTheOrderOfLocks(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.AppendN("b", 1)
	f.MustClaim(one, 10)
	for _, id := range []string{"b", "a"} { // the order in which they are found
		f.Exec(`update campaigns set crashes = crashes where campaign_id = $1`, id)
	}
	other := storetest.Connect(f.TB, f.Pair.Journal)
	storetest.Run(f.TB, other, `begin`, `select 1 from campaigns where campaign_id = 'a' for update`)
	ended := make(chan error)
	go func() { ended <- f.EndLeases(f.Ctx, one.ID) }()
	f.AwaitLockWaits(1)
	storetest.Run(f.TB, other, `select 1 from campaigns where campaign_id = 'b' for update nowait`, `rollback`)
	must.OK(t, <-ended)
	must.Equal(t, len(f.MustClaim(two, 10)), 2, "claimed")
}

// eventsOf is an event for each campaign.
func eventsOf(campaigns []string) (events []outbox.Event) {
	for _, id := range campaigns {
		events = append(events, storetest.Event(id, "counted"))
	}
	return events
}

func TestLocks_areTakenInOneOrderByThoseWhoNeedSeveral(t *testing.T) {
	t.Parallel()
	f := open(t)
	ids := []string{"c", "a", "e", "b", "d"}
	for _, id := range ids {
		f.AppendN(id, 1)
	}
	storetest.Everybody(t, []*fixture{f, f.beside()}, size.Of(8, 25, 60), map[string]func(*fixture, int) error{
		"append": func(s *fixture, _ int) error {
			return storetest.No(s.Append(s.Ctx, store.Append{Events: eventsOf(storetest.Shuffled(ids))}))
		},
		"work": func(s *fixture, _ int) error {
			claims, err := s.Claim(s.Ctx, one, store.ClaimLimits{Rows: 100, Lease: lease})
			if err != nil {
				return err
			}
			if err := s.Renew(s.Ctx, one, storetest.Shuffled(claims), lease); err != nil && !errors.Is(err, outbox.ErrLeaseLost) {
				return err
			}
			var results []store.Result
			for _, c := range storetest.Shuffled(claims) {
				results = append(results, store.Result{Claim: c, Applied: c.First - 1})
			}
			_, err = s.Settle(s.Ctx, one, results)
			return err
		},
		"end leases": func(s *fixture, _ int) error { return s.EndLeases(s.Ctx, one.ID) },
		"pause": func(s *fixture, i int) error {
			for _, act := range []func(context.Context, outbox.Command, string) (outbox.Campaign, error){s.PauseCampaign, s.ResumeCampaign} {
				if _, err := act(s.Ctx, ana(""), ids[i%len(ids)]); err != nil && !errors.Is(err, outbox.ErrConflict) {
					return err
				}
			}
			return nil
		},
	})
	f.Sound()
}

func TestLocks_ofWhatIsNewAreTakenInOneOrderToo(t *testing.T) {
	t.Parallel()
	f := open(t)
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
			types := make(map[string]outbox.Intent)
			for k := range 8 {
				types[fmt.Sprint("t-", k)] = []outbox.Intent{outbox.IntentProjection, outbox.IntentAuditOnly}[i%2]
			}
			return s.RegisterEventTypes(s.Ctx, types)
		},
		"heartbeat": func(s *fixture, i int) error {
			return s.Heartbeat(s.Ctx, outbox.InstanceState{ID: fmt.Sprint("i-", i%3)})
		},
	})
	f.Drain()
}
