package store_test

import (
	"strings"
	"testing"
	"time"

	"outboxweb/internal/maintenance"
	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// selfCheck goes round all campaigns once and returns what it found.
func (f *fixture) selfCheck() (found []store.Found) {
	f.tb.Helper()
	for at := (maintenance.Round{}); ; {
		next, more, err := f.SelfCheck(f.ctx, at, 2)
		if err != nil {
			f.tb.Fatal(err)
		}
		found = append(found, more...)
		if at = next; at.Campaign == "" {
			return found
		}
	}
}

// calm fails when another self-check changes or writes anything.
func (f *fixture) calm() {
	f.tb.Helper()
	before := f.modified()
	f.unchanged(func() {
		if found := f.selfCheck(); len(found) > 0 {
			f.tb.Errorf("another check found %+v", found)
		}
	})
	if after := f.modified(); after != before {
		f.tb.Errorf("another check wrote: from\n%sto\n%s", before, after)
	}
}

// drift is what a process says of its self-check.
func (f *fixture) drift() int64 {
	f.tb.Helper()
	s, err := f.Summary(f.ctx)
	if err != nil {
		f.tb.Fatal(err)
	}
	return s.Drift
}

// losses are ways in which rows get lost past the store.
var losses = map[string]func(f *fixture){
	"with counts that do not miss them": func(f *fixture) {
		f.raw(`delete from projection_apply_outbox where campaign_id = 'a'`)
	},
	"in part": func(f *fixture) {
		f.raw(`delete from projection_apply_outbox where campaign_id = 'a' and seq = 4`)
	},
	"with counts set right by a claim": func(f *fixture) {
		f.raw(`delete from projection_apply_outbox where campaign_id = 'a'`)
		f.clock.advance(time.Second)
		f.noClaim(one)
	},
	"with others put in their place": func(f *fixture) {
		f.raw(`update projection_apply_outbox set seq = 1 where campaign_id = 'a' and seq = 4`)
	},
}

func TestReconcile_repairsRowsThatAreGone(t *testing.T) {
	t.Parallel()
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.append("a", 2)
			f.drain()
			f.append("a", 3)
			lose(f)
			if r, err := f.Reconcile(f.ctx); err != nil || r.Campaigns != 1 || r.Inserted == 0 {
				t.Errorf("reconciled %+v, %v, want rows inserted", r, err)
			}
			f.settledNow()
			f.exact("a")
			f.sound()
			f.clock.advance(time.Second)
			f.drain()
			if w := f.watermark("a"); w.AppliedSeq != 5 {
				t.Errorf("applied to %d, want 5", w.AppliedSeq)
			}
		})
	}
}

// Events that the request which appended them is about to apply are no fault; what
// nobody has applied after the longest time that a request may take is.
func TestSelfCheck_leavesInlineEventsToTheirRequests(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.clock.advance(time.Millisecond)
	f.append("a", 3)
	for _, want := range []int{0, 1} {
		_, found, err := f.SelfCheck(f.ctx, maintenance.Round{}, 10)
		if err != nil || len(found) != want {
			t.Fatalf("the self-check found %+v, %v, want %d", found, err, want)
		}
		f.clock.advance(store.InlineWait)
	}
	f.append("b", 1)
	f.beside(mode(outbox.ModeInline)).reconcile(outbox.Repaired{Campaigns: 1, Inserted: 1}) // a process that starts later knows that nobody will
	f.drain()
	f.sound()
}

func TestSelfCheck_repairsWhatItFinds(t *testing.T) {
	t.Parallel()
	scenes := map[string]func(f *fixture){
		"the end of the journal": func(f *fixture) {
			f.drain()
			f.raw(`update campaigns set high_water_seq = 2 where campaign_id = 'a'`)
		},
		"counts": func(f *fixture) { f.raw(`update campaigns set pending = 9, dead = 1 where campaign_id = 'a'`) },
	}
	for name, lose := range losses {
		scenes["rows "+name] = lose
	}
	for name, breaks := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			for _, id := range []string{"0", "a", "b"} {
				f.append(id, 2)
				f.drain()
			}
			f.append("a", 3)
			breaks(f)
			woken := false
			f.OnWork(func() { woken = true })
			if found := f.selfCheck(); !woken || len(found) != 1 || found[0].CampaignID != "a" || f.drift() != 1 {
				t.Errorf("woken: %v; found %+v; drift is %d, want campaign a", woken, found, f.drift())
			}
			f.exact("a")
			f.sound()
			f.calm()
			f.clock.advance(time.Second)
			f.drain()
			if got := f.campaign("a").State(); got != outbox.StateCurrent {
				t.Errorf("campaign is %s, want current", got)
			}
		})
	}
}

// selfChecks fails unless one step of the self-check finds just one campaign.
func (f *fixture) selfChecks(id string) store.Found {
	f.tb.Helper()
	_, found, err := f.SelfCheck(f.ctx, maintenance.Round{}, 1)
	if err != nil || len(found) != 1 || found[0].CampaignID != id {
		f.tb.Fatalf("the self-check found %+v, %v, want %s", found, err, id)
	}
	return found[0]
}

func TestSelfCheck_queuesWhatIsMissingFromTheQueue(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		before func(f *fixture)
		hold   outbox.Hold // once it is repaired
	}{
		"ready":   {func(*fixture) {}, outbox.HoldNone},
		"failing": {func(f *fixture) { f.fail("boom", "a") }, outbox.HoldBackoff},
		"leased":  {func(f *fixture) { f.claim(one, 1) }, outbox.HoldLease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			for _, id := range []string{"0", "1", "2"} {
				f.append(id, 1)
			}
			f.drain()
			f.append("a", 3)
			scene.before(f)
			f.raw(`update campaigns set due_at = null where campaign_id = 'a'`)
			if e := f.explained("a"); scene.hold != outbox.HoldLease && (e.Hold != outbox.HoldUnqueued || e.ClaimableAt != nil || !strings.Contains(e.Why, "missing from the queue")) {
				t.Errorf("explained as %+v", e)
			}
			f.clock.advance(10 * time.Minute)
			f.noClaim(one)
			f.clock.advance(-10 * time.Minute)
			if found := f.selfChecks("a"); !found.Drifted {
				t.Errorf("found %+v, want it to have drifted", found)
			}
			f.exact("a")
			if e := f.explained("a"); e.Hold != scene.hold {
				t.Errorf("then explained as %+v, want %s", e, scene.hold)
			}
			f.calm()
			f.clock.advance(10 * time.Minute)
			f.drain()
			f.sound()
		})
	}
}

func TestSelfCheck_findsSoonWhatWaitsWithoutRows(t *testing.T) {
	t.Parallel()
	f := open(t)
	for _, id := range []string{"0", "1", "2"} {
		f.append(id, 1)
	}
	f.drain()
	f.append("a", 3)
	f.raw(`delete from projection_apply_outbox`)
	f.noClaim(one)
	f.selfChecks("a")
	f.drain()
	f.sound()
}

// A process whose clock was a day ahead has died with a run.
func TestSelfCheck_shortensLeasesOfRuns(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.append("a", 1)
	f.startRun(verifyAll())
	f.clock.advance(24 * time.Hour)
	f.claimRun(one)
	f.clock.advance(-24 * time.Hour)
	if _, _, err := f.SelfCheck(f.ctx, maintenance.Round{}, 10); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(lease + time.Second)
	f.claimRun(two)
}
