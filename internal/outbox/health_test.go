package outbox

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// made makes an instance in a condition with as many leased campaigns as ends, each expiring after that time.
func made(c Condition, ends ...time.Duration) InstanceState {
	i := InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: ModeOutbox, StartedAt: noon, LastSeen: noon}
	hour := noon.Add(-time.Hour)
	switch c {
	case InstanceIdle:
		i.LastSeen = hour
	case InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Leases.Add(HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: noon.Add(end)})
	}
	return i
}

func TestInstancesHealth_saysTheWholeInOneSentence(t *testing.T) {
	t.Parallel()
	const s = time.Second
	running, idle, silent, stopped := made(InstanceRunning, 30*s), made(InstanceIdle), made(InstanceSilent), made(InstanceStopped)
	unseen := idle
	idle.Here = true
	newer, shadow, older, fresh := running, running, idle, silent
	fresh.LastSeen = noon.Add(-time.Minute)
	newer.Version, older.Version, shadow.Mode = "v2", "v0", ModeShadow
	for _, c := range []struct {
		level      Level
		says, note string
		list       []InstanceState
	}{
		{"ok", "1 instance running.", "", []InstanceState{running, stopped}},
		{"ok", "1 instance idle.", "", []InstanceState{idle}},
		{"ok", "1 instance not seen lately.", "", []InstanceState{unseen}},
		{"ok", "2 instances running, 1 idle, 1 not seen lately, 1 silent.", "", []InstanceState{running, running, idle, unseen, silent}},
		{"warn", "3 instances running, 1 silent: its 2 campaigns become claimable in 18 s (14:03:22 UTC).", "",
			[]InstanceState{running, running, running, made(InstanceSilent, 18*s, 18*s)}},
		{"warn", "1 instance running, 2 silent: some of their 3 campaigns are claimable now, the last in 18 s (14:03:22 UTC).", "",
			[]InstanceState{running, made(InstanceSilent, -s), made(InstanceSilent, 2*s, 18*s)}},
		{"warn", "1 instance running, 1 stopped while holding leases: its lease has expired, any worker may claim its campaign.", "",
			[]InstanceState{running, made(InstanceStopped, -s), stopped}},
		{"warn", "1 instance running, 1 silent.", "", []InstanceState{running, fresh}},
		{"warn", "No instance is running.", "", []InstanceState{stopped}},
		{"bad", "No instance is running, 1 silent: its campaign becomes claimable in 18 s (14:03:22 UTC).", "",
			[]InstanceState{made(InstanceSilent, 18*s)}},
		{"busy", "3 instances running, 1 idle, 1 silent.", "Versions differ, as during a rolling restart: v1 (2), v2 (1).",
			[]InstanceState{running, newer, running, silent, older}},
		{"busy", "2 instances running.", "Modes differ, and only one should run: outbox_apply_only (1), shadow_only (1).",
			[]InstanceState{running, shadow}},
	} {
		h := InstancesHealth(c.list, noon)
		must.Hold(t, h.Level == c.level && h.Sentence == c.says && strings.Join(h.Notes, " ") == c.note, "got  %+v\nwant %s %q %q", h, c.level, c.says, c.note)
	}
}

func TestPublishersHealth_worstFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := &Lease{ExpiresAt: now.Add(time.Minute)}
	well := Publisher{Status: PublisherActive, Lease: held}
	with := func(change func(*Publisher)) Publisher {
		p := well
		change(&p)
		return p
	}
	behind := with(func(p *Publisher) { p.LagEvents = 3 })
	retrying := with(func(p *Publisher) { p.ErrorCount = 1 })
	failed := with(func(p *Publisher) { p.Status = PublisherFailed })
	stopped := with(func(p *Publisher) { p.Status, p.Stopped = PublisherFailed, true })
	paused := with(func(p *Publisher) { p.Status, p.LagEvents = PublisherPaused, 9 })
	quiet := with(func(p *Publisher) { p.Status = PublisherPaused })
	idle := with(func(p *Publisher) { p.Lease = nil })
	left := with(func(p *Publisher) { p.Lease, p.LagEvents = nil, 1 })
	unknown := with(func(p *Publisher) { p.Lease, p.LagCapped = nil, true })
	for _, c := range []struct {
		list  []Publisher
		level Level
		says  string
	}{
		{[]Publisher{well}, "ok", "The only publisher is up to date."},
		{[]Publisher{behind}, "ok", "The only publisher is delivering waiting events."},
		{[]Publisher{well, well}, "ok", "All 2 publishers are up to date."},
		{[]Publisher{well, behind, behind}, "ok", "All 3 publishers are delivering; 2 of them have events waiting."},
		{[]Publisher{paused}, "warn", "The only publisher is paused; 9 events wait for it."},
		{[]Publisher{paused, well}, "warn", "1 of 2 publishers is paused; 9 events wait for it. 1 of 2 publishers is up to date."},
		{[]Publisher{quiet, well, behind}, "warn", "1 of 3 publishers is paused. 2 of 3 publishers are delivering; 1 of them has events waiting."},
		{[]Publisher{paused, paused}, "warn", "2 of 2 publishers are paused; events wait for them."},
		{[]Publisher{paused, quiet}, "warn", "2 of 2 publishers are paused; events wait for 1 of them."},
		{[]Publisher{idle, well}, "ok", "1 of 2 publishers is up to date. 1 has no running server, and nothing to deliver."},
		{[]Publisher{left, well}, "warn", "1 of 2 publishers has waiting events and no running server."},
		{[]Publisher{unknown, well}, "warn", "1 of 2 publishers has waiting events and no running server."},
		{[]Publisher{retrying}, "warn", "The only publisher had an error and is retrying."},
		{[]Publisher{retrying, failed, failed, stopped, paused, well}, "bad", "1 of 6 publishers is stopped: its destination is gone. 2 have failed. 1 had an error and is retrying. 1 is paused; 9 events wait for it."},
		{[]Publisher{failed, failed}, "bad", "2 of 2 publishers have failed."},
	} {
		h := PublishersHealth(c.list, now)
		if says := strings.Join(append([]string{h.Sentence}, h.Notes...), " "); h.Level != c.level || says != c.says {
			t.Errorf("%s: %q, want %s: %q", h.Level, says, c.level, c.says)
		}
		isPaused := func(p Publisher) bool { return p.Status == PublisherPaused }
		troubled := len(PublishersNeedingAttention(c.list, now)) > 0
		must.Hold(t, troubled == (c.level != "ok") || slices.ContainsFunc(c.list, isPaused), "%q: in trouble: %v", c.says, troubled)
	}
}
