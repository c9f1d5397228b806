package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/readmodel"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestRequeueDead_leavesAloneWhatWasRequeuedMeanwhile(t *testing.T) {
	t.Parallel()
	f := deadRows(t)
	other := f.beside()
	var many outbox.Requeued
	var won, lost atomic.Int64
	f.AtOnce(f.JournalDB, storetest.EveryCampaign,
		func() {
			var err error
			if many, err = f.RequeueDead(f.Ctx, ana(""), outbox.RequeueFilter{}); err != nil {
				t.Errorf("requeue many: %v", err)
			}
		},
		func() {
			_, err := other.RequeueRow(f.Ctx, ana(""), "d", 1)
			switch {
			case err == nil:
				won.Add(1)
			case errors.Is(err, outbox.ErrConflict):
				lost.Add(1)
			default:
				t.Errorf("requeue one: %v", err)
			}
		})
	if many.Requeued+won.Load() != 4 || won.Load()+lost.Load() != 1 {
		t.Errorf("requeued %+v together and %d singly, want each of the four rows once", many, won.Load())
	}
	f.Sound()
}

func TestClaim_ofManyAtOnceGivesEachCampaignToOne(t *testing.T) {
	t.Parallel()
	f := open(t)
	const campaigns = 60
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
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, c := range claims {
					if owner := owners[c.CampaignID]; owner != "" {
						t.Errorf("%s got %+v, which %s has", w.ID, c, owner)
					}
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
	if len(owners) != campaigns {
		t.Errorf("%d campaigns were claimed, want all %d", len(owners), campaigns)
	}
	for id, owner := range owners {
		if c := f.MustCampaign(id); c.Lease == nil || c.Lease.Owner != owner || c.Lease.Epoch != 1 || c.Counts != (outbox.Counts{Processing: 2}) {
			t.Errorf("campaign is %+v, want %s to hold it", c, owner)
		}
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
	if c := f.ClaimOne(one, 10); c.CampaignID != "b" {
		t.Errorf("claimed %+v, want what nobody holds", c)
	}
	f.NoClaim(two)
	storetest.Run(f.TB, other, `rollback`)
	if claims := f.MustClaim(two, 10); len(claims) != 2 {
		t.Errorf("claimed %+v, want the other two", claims)
	}
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if claims := f.MustClaim(two, 10); len(claims) != 2 {
		t.Errorf("claimed %+v, want both", claims)
	}
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
			var events []outbox.Event
			for _, id := range storetest.Shuffled(ids) {
				events = append(events, storetest.Event(id, "counted"))
			}
			_, err := s.Append(s.Ctx, store.Append{Events: events})
			return err
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
			_, err := s.PauseCampaign(s.Ctx, ana(""), ids[i%len(ids)])
			if err == nil || errors.Is(err, outbox.ErrConflict) {
				_, err = s.ResumeCampaign(s.Ctx, ana(""), ids[i%len(ids)])
			}
			if errors.Is(err, outbox.ErrConflict) {
				err = nil
			}
			return err
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
			var events []outbox.Event
			for _, id := range few(i) {
				events = append(events, storetest.Event(id, "counted"))
			}
			_, err := s.Append(s.Ctx, store.Append{Events: events})
			return err
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
