package store_test

import (
	"testing"
	"time"

	"outboxweb/internal/outbox"
	"outboxweb/internal/store"
)

// ages are what a summary says of the oldest events.
func (f *fixture) ages() (oldest, retryable outbox.Oldest) {
	f.tb.Helper()
	s, err := f.beside(mode(f.Mode())).Summary(f.ctx)
	if err != nil {
		f.tb.Fatal(err)
	}
	if s.Oldest != nil {
		oldest = *s.Oldest
	}
	if s.OldestRetryable != nil {
		retryable = *s.OldestRetryable
	}
	if s.Lag.MaxSeconds != oldest.AgeSeconds || s.Lag.RetryableSeconds != retryable.AgeSeconds {
		f.tb.Errorf("lag is %+v, the oldest event %v s old, the oldest retryable %v s", s.Lag, oldest.AgeSeconds, retryable.AgeSeconds)
	}
	return oldest, retryable
}

func TestAge_countsFromEventsThatHaveNoRow(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		mode outbox.Mode
		then func(f *fixture)
	}{
		"inline mode left it unapplied": {outbox.ModeInline, func(f *fixture) {
			c := f.claimInline(one, "a")
			f.settle(one, store.Result{Claim: c, Applied: 2})
		}},
		"rows lost and counted anew": {outbox.ModeOutbox, func(f *fixture) {
			f.raw(`delete from projection_apply_outbox`)
			f.noClaim(one)
		}},
		"the first row lost and counted anew": {outbox.ModeOutbox, func(f *fixture) {
			f.raw(`delete from projection_apply_outbox where seq = 3`)
			f.noClaim(one)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, mode(scene.mode))
			f.append("a", 2)
			c := f.claimInline(one, "a")
			f.mustApply(c, 2)
			f.settle(one, store.Result{Claim: c, Applied: 2})
			if oldest, retryable := f.ages(); oldest != (outbox.Oldest{}) || retryable != (outbox.Oldest{}) {
				t.Errorf("all is applied, and the oldest are %+v and %+v", oldest, retryable)
			}
			f.clock.advance(time.Minute)
			f.append("a", 1)
			f.clock.advance(time.Minute)
			f.append("a", 1)
			scene.then(f)
			oldest, retryable := f.ages()
			if oldest.CampaignID != "a" || oldest.Seq != 3 || oldest.AgeSeconds != 60 || retryable != oldest {
				t.Errorf("the oldest are %+v and %+v, want event 3 of a, 60 s old", oldest, retryable)
			}
			if lag := f.campaign("a").Lag(f.clock.now()); lag != time.Minute {
				t.Errorf("the campaign lags by %s", lag)
			}
		})
	}
}

func TestAge_ofWhatIsRetriedIsNotHiddenByWhatIsNot(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(f *fixture){
		"dead":     func(f *fixture) { f.kill("stuck") },
		"paused":   func(f *fixture) { f.pause("stuck") },
		"diverged": func(f *fixture) { f.raw(`update campaigns set diverged = 'other events' where campaign_id = 'stuck'`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.append("stuck", 3)
			stop(f)
			if _, retryable := f.ages(); retryable != (outbox.Oldest{}) {
				t.Errorf("nothing is retried, and the oldest that is, is %+v", retryable)
			}
			f.clock.advance(time.Hour)
			f.append("live", 2)
			f.clock.advance(time.Minute)
			oldest, retryable := f.ages()
			if oldest.CampaignID != "stuck" || oldest.AgeSeconds < 3600 || retryable.CampaignID != "live" || retryable.Seq != 1 || retryable.AgeSeconds != 60 {
				t.Errorf("the oldest are %+v and %+v", oldest, retryable)
			}
		})
	}
}

func TestReconcile_findsTheAgeOfWhatWasLeftWithout(t *testing.T) {
	t.Parallel()
	f := open(t, mode(outbox.ModeInline))
	f.append("a", 2)
	f.raw(`update campaigns set oldest_enqueued_at = null`)
	f.clock.advance(time.Minute)
	f.reconcile(outbox.Repaired{Campaigns: 1, Inserted: 2})
	f.settledNow()
	if oldest, _ := f.ages(); oldest.Seq != 1 || oldest.AgeSeconds != 60 {
		t.Errorf("the oldest is %+v, want event 1 of 60 s", oldest)
	}
}
