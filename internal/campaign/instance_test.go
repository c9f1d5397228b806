package campaign

import (
	"encoding/json"
	"github.com/outboxweb/outboxweb/internal/must"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

// holding leases as many campaigns as ends, each for that long.
func holding(ends ...time.Duration) HeldLeases {
	var h HeldLeases
	for _, end := range ends {
		h.Add(HeldLease{CampaignID: "c", Rows: 5, ExpiresAt: noon.Add(end)})
	}
	return h
}

// paused leases one more campaign, which is paused.
func paused(h HeldLeases, end time.Duration) HeldLeases {
	h.Add(HeldLease{CampaignID: "p", ExpiresAt: noon.Add(end), Withheld: true})
	return h
}

func TestInstance_stateAndWhatBecomesOfItsCampaigns(t *testing.T) {
	t.Parallel()
	const s, m = time.Second, time.Minute
	for _, c := range []struct {
		quiet   time.Duration // since it was last seen
		beat    time.Duration
		stopped bool
		process ProcessState
		here    bool
		holds   HeldLeases
		state   Condition
		why     string
	}{
		{quiet: 2 * s, beat: 2 * s, state: InstanceRunning, why: "running; nothing leased"},
		{quiet: 6 * s, beat: 2 * s, holds: holding(30*s, 30*s, 30*s, 30*s), state: InstanceRunning, why: "running; 4 campaigns leased"},
		{quiet: 6*s + 1, beat: 2 * s, state: InstanceSilent, why: "silent for 6 s; nothing leased"},
		{quiet: 12 * s, beat: 2 * s, holds: holding(18*s, 18*s, 18*s), state: InstanceSilent,
			why: "silent for 12 s; its 3 campaigns become claimable in 18 s (14:03:22 UTC)"},
		{quiet: 12 * s, beat: 2 * s, holds: holding(18 * s), state: InstanceSilent,
			why: "silent for 12 s; its campaign becomes claimable in 18 s (14:03:22 UTC)"},
		{quiet: 12 * s, beat: 2 * s, holds: holding(4*s, 18*s), state: InstanceSilent,
			why: "silent for 12 s; its 2 campaigns become claimable, the first in 4 s, the last in 18 s (14:03:22 UTC)"},
		{quiet: 12 * s, beat: 2 * s, holds: holding(0, 18*s), state: InstanceSilent,
			why: "silent for 12 s; some of its 2 campaigns are claimable now, the last in 18 s (14:03:22 UTC)"},
		{quiet: 4 * m, beat: 2 * s, holds: holding(-3*m, -3*m), state: InstanceSilent,
			why: "silent for 4 min; its leases have expired, any worker may claim its 2 campaigns"},
		{quiet: 4 * m, beat: 2 * s, holds: holding(0), state: InstanceSilent,
			why: "silent for 4 min; its lease has expired, any worker may claim its campaign"},
		{quiet: 4 * m, beat: 2 * s, holds: paused(holding(-3*m, -3*m), -3*m), state: InstanceSilent,
			why: "silent for 4 min; its leases have expired, any worker may claim its 3 campaigns, except 1 paused or diverged"},
		{quiet: 4 * m, beat: 2 * s, holds: paused(HeldLeases{}, -3*m), state: InstanceSilent,
			why: "silent for 4 min; its campaign is paused or diverged and cannot be claimed"},
		{quiet: 1 * s, beat: 2 * s, holds: holding(-s), state: InstanceRunning,
			why: "running; its lease has expired, any worker may claim its campaign"},

		{quiet: 15 * s, state: InstanceRunning, why: "running; nothing leased"},
		{quiet: 15*s + 1, state: InstanceIdle, why: "not seen for 15 s; nothing leased"},
		{quiet: 3 * 24 * time.Hour, state: InstanceIdle, why: "not seen for 3 d; nothing leased"},
		{quiet: 15*s + 1, here: true, state: InstanceIdle, why: "idle for 15 s; nothing leased"},
		{quiet: 20 * s, holds: holding(10*s, 10*s), state: InstanceRunning, why: "running; 2 campaigns leased"},
		{quiet: 4 * m, holds: holding(-3 * m), state: InstanceSilent,
			why: "silent for 4 min; its lease has expired, any worker may claim its campaign"},

		{quiet: 2 * m, beat: 2 * s, stopped: true, state: InstanceStopped, why: "stopped 2 min ago; nothing leased"},
		{quiet: 2 * m, stopped: true, holds: holding(-m), state: InstanceStopped,
			why: "stopped 2 min ago; its lease has expired, any worker may claim its campaign"},

		{quiet: 3 * time.Hour, process: ProcessAlive, state: InstanceIdle, why: "idle for 3 h; nothing leased"},
		{quiet: s, process: ProcessGone, holds: holding(18 * s), state: InstanceCrashed,
			why: "crashed or was killed: last seen at work 1 s ago, and its process is gone; its campaign becomes claimable in 18 s (14:03:22 UTC)"},
		{quiet: 2 * m, process: ProcessGone, stopped: true, state: InstanceCrashed, why: "crashed or was killed: last seen at work 2 min ago, noticed 1 min ago; nothing leased"},
		{quiet: 4 * s, beat: 2 * s, process: ProcessGone, state: InstanceRunning, why: "running; nothing leased"}, // of a container with the host's name
	} {
		i := InstanceState{ID: "i", LastSeen: noon.Add(-c.quiet), BeatEvery: c.beat, Leases: c.holds, Here: c.here, Process: c.process}
		if c.stopped {
			i.StoppedAt = &i.LastSeen
			if c.process == ProcessGone {
				i.StoppedAt = new(noon.Add(-m))
			}
		}
		must.Equal(t, i.State(noon), c.state, c.why, "it")
		must.Equal(t, i.Why(noon), c.why)
	}
	unknown := InstanceState{ID: "i", Leases: holding(-time.Hour)}
	must.Equal(t, unknown.State(noon), InstanceSilent, "one without a record")
	must.Equal(t, unknown.Why(noon), "unknown: it left no record; its lease has expired, any worker may claim its campaign")
}

func TestHolding_countsAllAndNamesTheFirst(t *testing.T) {
	t.Parallel()
	var h HeldLeases
	for i := range MaxHeldLeases + 5 {
		h.Add(HeldLease{Rows: 2, ExpiresAt: noon.Add(time.Duration(i) * time.Second)})
	}
	must.Hold(t, h.Campaigns == MaxHeldLeases+5 && h.Rows == 2*h.Campaigns && len(h.Held) == MaxHeldLeases && h.Held[0].ExpiresAt.Equal(noon), "it holds %+v", h)
	must.Hold(t, h.ClaimableFrom.Equal(noon) && h.ClaimableBy.Equal(noon.Add((MaxHeldLeases+4)*time.Second)), "claimable from %v to %v", h.ClaimableFrom, h.ClaimableBy)
}

func TestSortInstances_whoLeftCampaignsBehindComesFirst(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) time.Time { return noon.Add(-d) }
	hour := ago(time.Hour)
	all := []InstanceState{
		{ID: "stopped", LastSeen: hour, StoppedAt: &hour},
		{ID: "gone", LastSeen: hour, BeatEvery: time.Second},
		{ID: "idle", LastSeen: hour},
		{ID: "crashed-holding", LastSeen: hour, Process: ProcessGone, Leases: holding(time.Minute)},
		{ID: "running-old", LastSeen: noon, StartedAt: ago(2 * time.Hour), Leases: holding(time.Minute)},
		{ID: "running-b", LastSeen: noon, StartedAt: hour},
		{ID: "running-a", LastSeen: noon, StartedAt: hour},
		{ID: "stopped-holding", LastSeen: hour, StoppedAt: &hour, Leases: holding(time.Minute)},
		{ID: "silent-holding", LastSeen: hour, StartedAt: hour, BeatEvery: time.Second, Leases: holding(time.Minute)},
	}
	SortInstances(all, noon)
	var ids []string
	for _, i := range all {
		ids = append(ids, i.ID)
	}
	must.Equal(t, strings.Join(ids, " "), "silent-holding crashed-holding stopped-holding running-a running-b running-old idle gone stopped", "the order")
}

func TestInstance_asJSONPromisesHeartbeatsInSeconds(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal([]InstanceState{{ID: "i", BeatEvery: 1500 * time.Millisecond, Leases: holding(time.Second)}})
	must.Hold(t, err == nil && strings.Contains(string(got), `"id":"i"`) && strings.Contains(string(got), `"heartbeat_seconds":1.5`) && !strings.Contains(string(got), "olding"), "got %s, %v", got, err)
}
