package facts

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// made makes an instance in a condition with as many leased campaigns as ends, each expiring after that time.
func made(c campaign.Condition, ends ...time.Duration) campaign.InstanceState {
	i := campaign.InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: campaign.ModeOutbox, StartedAt: findingNoon, LastSeen: findingNoon}
	hour := findingNoon.Add(-time.Hour)
	switch c {
	case campaign.InstanceIdle:
		i.LastSeen = hour
	case campaign.InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case campaign.InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Leases.Add(campaign.HeldLease{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: findingNoon.Add(end)})
	}
	return i
}

func TestInstancesHealth_isTheWorstFindingOrTheirNumbers(t *testing.T) {
	t.Parallel()
	running, idle, silent, stopped := made(campaign.InstanceRunning, 30*time.Second), made(campaign.InstanceIdle), made(campaign.InstanceSilent), made(campaign.InstanceStopped)
	unseen := idle
	idle.Here = true
	newer, shadow, fresh := running, running, silent
	fresh.LastSeen = findingNoon.Add(-time.Minute)
	newer.Version, shadow.Mode = "v2", campaign.ModeShadow
	for _, c := range []struct {
		level finding.Level
		says  string
		list  []campaign.InstanceState
	}{
		{"ok", "1 instance is running.", []campaign.InstanceState{running, stopped}},
		{"ok", "1 instance is not seen.", []campaign.InstanceState{unseen}},
		{"ok", "2 instances are running, 1 idle, 1 not seen, 1 silent.", []campaign.InstanceState{running, running, idle, unseen, silent}},
		{"ok", "No instance is running.", []campaign.InstanceState{stopped}},
		{"warn", "Instance i has been silent for 1 min. 1 instance is running, 1 silent.", []campaign.InstanceState{running, fresh}},
		{"ok", "2 instances are running. Versions differ, as during a rolling restart: v1 (1), v2 (1).", []campaign.InstanceState{running, newer}},
		{"ok", "2 instances are running. Modes differ, and only one should run: outbox_apply_only (1), shadow_only (1).", []campaign.InstanceState{running, shadow}},
	} {
		h := campaign.InstancesHealth(c.list, Facts{Summary: campaign.Summary{Worker: campaign.WorkerSummary{Running: true}, Instances: c.list}}.Judged(findingNoon).Findings, findingNoon)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && strings.HasPrefix(says, c.says), "got %s %q, want %s %q", h.Level, says, c.level, c.says)
	}
}

func TestPublishers_areToldWorstFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := &campaign.Lease{ExpiresAt: now.Add(time.Minute)}
	well := subscription.Publisher{Status: subscription.PublisherActive, Lease: held}
	with := func(change func(*subscription.Publisher)) subscription.Publisher {
		p := well
		change(&p)
		return p
	}
	behind := with(func(p *subscription.Publisher) { p.LagEvents = 3 })
	retrying := with(func(p *subscription.Publisher) { p.ErrorCount = 1 })
	failed := with(func(p *subscription.Publisher) { p.Status = subscription.PublisherFailed })
	stopped := with(func(p *subscription.Publisher) { p.Status, p.Stopped = subscription.PublisherFailed, true })
	paused := with(func(p *subscription.Publisher) { p.Status, p.LagEvents = subscription.PublisherPaused, 9 })
	quiet := with(func(p *subscription.Publisher) { p.Status = subscription.PublisherPaused })
	idle := with(func(p *subscription.Publisher) { p.Lease = nil })
	left := with(func(p *subscription.Publisher) { p.Lease, p.LagEvents = nil, 1 })
	unknown := with(func(p *subscription.Publisher) { p.Lease, p.LagCapped = nil, true })
	for _, c := range []struct {
		list  []subscription.Publisher
		level finding.Level
		says  string
	}{
		{[]subscription.Publisher{well}, "ok", "The only publisher is up to date."},
		{[]subscription.Publisher{behind}, "ok", "The only publisher is delivering waiting events."},
		{[]subscription.Publisher{well, well}, "ok", "All 2 publishers are up to date."},
		{[]subscription.Publisher{well, behind, behind}, "ok", "All 3 publishers are delivering; events wait for 2 of them."},
		{[]subscription.Publisher{idle}, "ok", "No publisher is delivering."},
		{[]subscription.Publisher{idle, well}, "ok", "1 of 2 publishers is up to date."},
		{[]subscription.Publisher{paused}, "warn", "Publisher t/p is paused; 9 events wait for it."},
		{[]subscription.Publisher{paused, quiet}, "warn", "2 publishers are paused."},
		{[]subscription.Publisher{left, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]subscription.Publisher{unknown, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]subscription.Publisher{retrying}, "warn", "Publisher t/p is retried, and has not recovered: 1 error in a row."},
		{[]subscription.Publisher{retrying, failed, stopped, paused, well}, "bad", "3 publishers need attention. Publisher t/p is paused; 9 events wait for it."},
	} {
		for i := range c.list {
			c.list[i].SubscriptionName = operator.SubscriptionName{Topic: "t", Publisher: "p"}
		}
		h := finding.HealthOfKinds(Facts{Publishers: c.list}.Judged(now).Findings, subscription.PublishersCalm(c.list, now), campaign.FindsPublisher, campaign.FindsNotDelivered)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && says == c.says, "%s: %q, want %s: %q", h.Level, says, c.level, c.says)
	}
}
