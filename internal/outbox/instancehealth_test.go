package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
)

// made makes an instance in a condition with as many leased campaigns as ends, each expiring after that time.
func made(c Condition, ends ...time.Duration) InstanceState {
	i := InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: ModeOutbox, StartedAt: findingNoon, LastSeen: findingNoon}
	hour := findingNoon.Add(-time.Hour)
	switch c {
	case InstanceIdle:
		i.LastSeen = hour
	case InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Leases.Add(HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: findingNoon.Add(end)})
	}
	return i
}

func TestInstancesHealth_isTheWorstFindingOrTheirNumbers(t *testing.T) {
	t.Parallel()
	running, idle, silent, stopped := made(InstanceRunning, 30*time.Second), made(InstanceIdle), made(InstanceSilent), made(InstanceStopped)
	unseen := idle
	idle.Here = true
	newer, shadow, fresh := running, running, silent
	fresh.LastSeen = findingNoon.Add(-time.Minute)
	newer.Version, shadow.Mode = "v2", ModeShadow
	for _, c := range []struct {
		level finding.Level
		says  string
		list  []InstanceState
	}{
		{"ok", "1 instance is running.", []InstanceState{running, stopped}},
		{"ok", "1 instance is not seen.", []InstanceState{unseen}},
		{"ok", "2 instances are running, 1 idle, 1 not seen, 1 silent.", []InstanceState{running, running, idle, unseen, silent}},
		{"ok", "No instance is running.", []InstanceState{stopped}},
		{"warn", "Instance i has been silent for 1 min. 1 instance is running, 1 silent.", []InstanceState{running, fresh}},
		{"ok", "2 instances are running. Versions differ, as during a rolling restart: v1 (1), v2 (1).", []InstanceState{running, newer}},
		{"ok", "2 instances are running. Modes differ, and only one should run: outbox_apply_only (1), shadow_only (1).", []InstanceState{running, shadow}},
	} {
		h := InstancesHealth(c.list, Facts{Summary: Summary{Worker: WorkerSummary{Running: true}, Instances: c.list}}.Judged(findingNoon).Findings, findingNoon)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && strings.HasPrefix(says, c.says), "got %s %q, want %s %q", h.Level, says, c.level, c.says)
	}
}

func TestPublishers_areToldWorstFirst(t *testing.T) {
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
		level finding.Level
		says  string
	}{
		{[]Publisher{well}, "ok", "The only publisher is up to date."},
		{[]Publisher{behind}, "ok", "The only publisher is delivering waiting events."},
		{[]Publisher{well, well}, "ok", "All 2 publishers are up to date."},
		{[]Publisher{well, behind, behind}, "ok", "All 3 publishers are delivering; events wait for 2 of them."},
		{[]Publisher{idle}, "ok", "No publisher is delivering."},
		{[]Publisher{idle, well}, "ok", "1 of 2 publishers is up to date."},
		{[]Publisher{paused}, "warn", "Publisher t/p is paused; 9 events wait for it."},
		{[]Publisher{paused, quiet}, "warn", "2 publishers are paused."},
		{[]Publisher{left, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]Publisher{unknown, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]Publisher{retrying}, "warn", "Publisher t/p is retried, and has not recovered: 1 error in a row."},
		{[]Publisher{retrying, failed, stopped, paused, well}, "bad", "3 publishers need attention. Publisher t/p is paused; 9 events wait for it."},
	} {
		for i := range c.list {
			c.list[i].SubscriptionName = SubscriptionName{Topic: "t", Publisher: "p"}
		}
		h := HealthOfKinds(Facts{Publishers: c.list}.Judged(now).Findings, PublishersCalm(c.list, now), FindsPublisher, FindsNotDelivered)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && says == c.says, "%s: %q, want %s: %q", h.Level, says, c.level, c.says)
	}
}
