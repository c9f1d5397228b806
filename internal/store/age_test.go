package store_test

import (
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestAge_countsFromEventsThatHaveNoRow(t *testing.T) {
	t.Parallel()
	for name, scene := range map[string]struct {
		mode outbox.Mode
		then func(f *fixture)
	}{
		"inline mode left it unapplied": {outbox.ModeInline, func(f *fixture) {
			f.Works(one, f.claimInline(one, "a"), 2)
		}},
		"rows lost and counted anew": {outbox.ModeOutbox, func(f *fixture) {
			f.Exec(`delete from projection_apply_outbox`)
			f.NoClaim(one)
		}},
		"the first row lost and counted anew": {outbox.ModeOutbox, func(f *fixture) {
			f.Exec(`delete from projection_apply_outbox where seq = 3`)
			f.NoClaim(one)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, storetest.InMode(scene.mode))
			f.AppendN("a", 2)
			f.Works(one, f.claimInline(one, "a"), 2)
			if oldest, retryable := f.Ages(); oldest != (outbox.Oldest{}) || retryable != (outbox.Oldest{}) {
				t.Errorf("all is applied, and the oldest are %+v and %+v", oldest, retryable)
			}
			f.Clock.Advance(time.Minute)
			f.AppendN("a", 1)
			f.Clock.Advance(time.Minute)
			f.AppendN("a", 1)
			scene.then(f)
			oldest, retryable := f.Ages()
			must.Hold(t, oldest.CampaignID == "a" && oldest.Seq == 3 && oldest.AgeSeconds == 60 && retryable == oldest, "the oldest are %+v and %+v", oldest, retryable)
			must.Equal(t, f.MustCampaign("a").Lag(f.Clock.Now()), time.Minute, "the campaign lags by")
		})
	}
}

func TestAge_ofWhatIsRetriedIsNotHiddenByWhatIsNot(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(f *fixture){
		"dead":     func(f *fixture) { f.Kill("stuck") },
		"paused":   func(f *fixture) { f.MustPause("stuck") },
		"diverged": func(f *fixture) { f.Exec(`update campaigns set diverged = 'other events' where campaign_id = 'stuck'`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			f.AppendN("stuck", 3)
			stop(f)
			_, retryable := f.Ages()
			must.Hold(t, retryable == (outbox.Oldest{}), "nothing is retried, and the oldest that is, is %+v", retryable)
			f.Clock.Advance(time.Hour)
			f.AppendN("live", 2)
			f.Clock.Advance(time.Minute)
			oldest, retryable := f.Ages()
			must.Hold(t, oldest.CampaignID == "stuck" && oldest.AgeSeconds >= 3600 && retryable.CampaignID == "live" && retryable.Seq == 1 && retryable.AgeSeconds == 60, "the oldest are %+v and %+v", oldest, retryable)
		})
	}
}

// A worker that waits for the next attempt is not one that has stopped: an event is due when it may
// be claimed.
func TestSummary_saysSinceWhenAnEventIsDue(t *testing.T) {
	t.Parallel()
	f := open(t)
	due := func(want *time.Time) {
		t.Helper()
		s := must.Get(f.Beside(storetest.InMode(f.Mode())).Summary(f.Ctx)).Or(t)
		must.Hold(t, (s.DueSince == nil) == (want == nil) && (want == nil || s.DueSince.Equal(*want)), "due since %v, want %v", s.DueSince, want)
	}
	due(nil)
	appended := f.Clock.Now()
	f.AppendN("a", 2)
	f.Clock.Advance(time.Minute)
	due(&appended)
	f.Fail("no such thing", "a")
	next := f.MustCampaign("a").HeadNextAttempt
	if !next.After(f.Clock.Now()) {
		t.Fatalf("the next attempt is at %v, want later than %v", next, f.Clock.Now())
	}
	due(&next)
	f.Clock.Advance(5 * time.Minute)
	due(&next)
	for range f.Retry().Attempts() - 1 {
		f.Fail("no such thing", "a")
		f.Clock.Advance(5 * time.Minute)
	}
	due(nil)
}
