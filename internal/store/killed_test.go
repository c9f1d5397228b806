package store_test

import (
	"os"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// only is the one instance that there is.
func (f *fixture) only() outbox.InstanceState {
	all := f.instances()
	must.Need(f.TB, len(all) == 1, "instances are %+v, want one", all)
	return all[0]
}

// In a container every process may be number 1, so a killed one looks like the one that reads.
func TestInstances_anEarlierProcessOfThisNumberIsGone(t *testing.T) {
	t.Parallel()
	f := open(t)
	host := must.Get(os.Hostname()).Or(t)
	now := time.Now()
	for _, c := range []struct {
		name    string
		started time.Time
		beat    time.Duration
		want    outbox.ProcessState
	}{
		{"earlier", now.Add(-24 * time.Hour), 0, outbox.ProcessGone},
		{"this one", now, 0, outbox.ProcessAlive},
		{"of another container", now.Add(-24 * time.Hour), 2 * time.Second, outbox.ProcessAlive},
	} {
		i := outbox.InstanceState{ID: "w", Host: host, PID: os.Getpid(), StartedAt: c.started, BeatEvery: c.beat}
		f.Exec(`delete from instances`)
		must.OK(t, f.Heartbeat(f.Ctx, i))
		must.Equal(t, f.only().Process, c.want, c.name, "the process")
	}
}

// One without heartbeats that works after a pause and is killed before its next one was last seen when it
// worked: the minute of its kill, not that of the pause, is the one with counts that are lower bounds.
func TestInstances_aKilledOneWasLastSeenAtItsLastWork(t *testing.T) {
	t.Parallel()
	w := store.Worker{ID: "w 1", Build: "v1"}
	for name, work := range map[string]func(*fixture){
		"applied": func(f *fixture) { f.settleAs(w, "a", 1) },
		"applied, and others since": func(f *fixture) {
			f.settleAs(w, "a", 1)
			at := f.Clock.Now()
			f.Clock.Advance(time.Hour)
			f.AppendN("a", 1)
			f.settleAs(store.Worker{ID: "other", Build: "v1"}, "a", 2)
			f.Clock.Advance(at.Sub(f.Clock.Now()))
		},
		"failed": func(f *fixture) {
			f.Exec(`insert into attempts (campaign_id, seq, at, attempt, worker, build, error, fingerprint) values ('a', 1, $1, 1, $2, 'v1', 'boom', 'boom')`,
				f.Clock.Now().UnixMicro(), w.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t)
			gone := storetest.Killed(t, w.ID, f.Clock.Now().Add(-time.Hour))
			must.OK(t, f.Heartbeat(f.Ctx, gone))
			f.Clock.Advance(10 * time.Minute)
			f.AppendN("a", 1)
			work(f)
			killed := f.Clock.Now()
			seen := f.only().LastSeen
			must.Hold(t, seen.Equal(killed), "it was last seen at %s, want %s, when it worked last", seen, killed)
			f.Clock.Advance(5 * time.Second)
			for _, p := range f.history(outbox.RangeHour) {
				must.Equal(t, p.LowerBound, p.From.Equal(killed.Truncate(time.Minute)), "counts from", "are lower bounds")
			}
		})
	}
}

// settleAs has a worker apply a campaign's next event.
func (f *fixture) settleAs(w store.Worker, campaign string, seq int64) {
	c := f.ClaimOne(w, 1)
	must.Need(f.TB, c.CampaignID == campaign && c.First == seq, "claimed %+v, want %s seq %d", c, campaign, seq)
	f.MustSettle(w, store.Result{Claim: c, Applied: seq})
}
