package outbox

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHealth_saysTheWorstFirst(t *testing.T) {
	t.Parallel()
	now := noon
	worker := WorkerSummary{Running: true, LastSeen: &now}
	long, soon := now.Add(-2*time.Minute), now.Add(3*time.Minute)
	for _, c := range []struct {
		name    string
		summary Summary
		level   Level
		says    string
	}{
		{"empty", Summary{Worker: worker}, "ok", "The journal is empty"},
		{"empty beside full projections", Summary{Worker: worker, OtherJournal: true}, "bad", "Check the URL of the journal database"},
		{"empty beside full projections, as the worker found", Summary{Worker: worker, OtherJournal: true, Campaigns: CampaignCounts{Total: 9, Diverged: 9}}, "bad", "Check the URL of the journal database"},
		{"full of other events beside full projections", Summary{Worker: worker, OtherJournal: true, Events: 3, Campaigns: CampaignCounts{Total: 9, Diverged: 8}}, "bad",
			"8 campaigns contradict the journal: the projections have events that the journal does not have. Check the URL of the journal database and restore the right journal. If it is the right one, the events were applied from another journal"},
		{"of other campaigns, and no worker has looked", Summary{Worker: worker, OtherJournal: true, Events: 1, Campaigns: CampaignCounts{Total: 1}}, "bad", "events that the journal does not have. Check the URL of the journal database"},
		{"full disk of the journal", Summary{Worker: worker, AsOf: now, Faults: []DatabaseFault{FullDisk("journal", long)}, Campaigns: CampaignCounts{Total: 9, Blocked: 2}}, "bad",
			"The disk of the journal database is full: appends and actions are refused with status 507, and nothing is applied. Free up space; work resumes by itself, without a restart. It began 2 min ago."},
		{"full disk before the first event", Summary{Worker: worker, Faults: []DatabaseFault{FullDisk("journal", now)}}, "bad", "The disk of the journal database is full: "},
		{"full disk of the projections", Summary{Worker: worker, AsOf: now, Faults: []DatabaseFault{FullDisk("projections", long)}, Campaigns: CampaignCounts{Total: 9}}, "bad",
			"The disk of the projections database is full: nothing is applied, and appended events queue up. Free up space"},
		{"current", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 590}}, "ok", "All 590 campaigns are current."},
		{"empty, and nobody works", Summary{}, "warn", "The journal is empty"},
		{"nobody works, nothing to do", Summary{Campaigns: CampaignCounts{Total: 2}}, "warn", "No worker is running"},
		{"nobody works", Summary{Campaigns: CampaignCounts{Total: 2, Lagging: 1}, Lag: Lag{Events: 3}}, "bad", "No worker is running"},
		{"it starts", Summary{Worker: WorkerSummary{Starting: true}, Campaigns: CampaignCounts{Total: 2, Lagging: 1}, Lag: Lag{Events: 3}}, "busy", "The worker is starting."},
		{"inline needs none", Summary{Mode: ModeInline, Campaigns: CampaignCounts{Total: 2}}, "ok", "All 2 campaigns"},
		{"inline, and nobody tries again", Summary{Mode: ModeInline, Counts: Counts{Failed: 1}, Campaigns: CampaignCounts{Total: 2, Lagging: 1},
			Lag: Lag{Events: 1}}, "bad", "No worker is running: events that failed on append are not retried."},
		{"events without rows", Summary{Mode: ModeInline, Worker: worker, Campaigns: CampaignCounts{Total: 1, Lagging: 1},
			Lag: Lag{Events: 1}}, "busy", "1 event not yet applied, in 1 campaign."},
		{"silent worker", Summary{Worker: WorkerSummary{Running: true, LastSeen: &long}, Counts: Counts{Pending: 3},
			OldestRetryable: &Oldest{EnqueuedAt: long}, DueSince: &long, Campaigns: CampaignCounts{Total: 2, Lagging: 1}, Lag: Lag{Events: 3}}, "bad", "no worker has been seen for 2 min"},
		{"worker that waits for the next attempt", Summary{Worker: WorkerSummary{Running: true, LastSeen: &long}, Counts: Counts{Pending: 2, Failed: 1},
			OldestRetryable: &Oldest{EnqueuedAt: long}, DueSince: &soon, Campaigns: CampaignCounts{Total: 2, Lagging: 1}, Lag: Lag{Events: 3}}, "warn", "1 row failed and will be retried"},
		{"unverifiable", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 9, Unverifiable: 2}}, "bad", "2 campaigns could not be verified."},
		{"drifted", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 9, Unverifiable: 2, Drifted: 1}}, "bad", "Live rows of 1 campaign differ from the journal."},
		{"blocked and diverged", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 2000, Blocked: 1, Diverged: 2}}, "bad", "2 campaigns contradict the journal"},
		{"a projection and a campaign paused", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 9, Paused: 1}, Held: []HeldProjection{{Projection: "stock", Paused: &Pause{}}}}, "warn",
			"Projection stock is paused for all campaigns."},
		{"a campaign paused, and a projection in one", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 9, Paused: 3}, Held: []HeldProjection{{Projection: "stock", PausedCampaigns: 1}}}, "warn",
			"3 of 9 campaigns are paused."},
		{"an instance fell silent", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 3},
			Instances: []InstanceState{{ID: "w", LastSeen: long, BeatEvery: 2 * time.Second}}}, "warn", "1 instance is silent."},
		{"an instance fell silent yesterday", Summary{Worker: worker, Campaigns: CampaignCounts{Total: 3},
			Instances: []InstanceState{{ID: "w", LastSeen: now.Add(-24 * time.Hour), BeatEvery: 2 * time.Second}}}, "ok", "All 3 campaigns"},
		{"busy", Summary{Worker: worker, Counts: Counts{Pending: 44200}, Campaigns: CampaignCounts{Total: 3, Lagging: 1},
			Lag: Lag{Events: 44200}}, "busy", "44,200 events not yet applied, in 1 campaign."},
	} {
		h := c.summary.Health(now)
		must.Hold(t, h.Level == c.level && strings.Contains(h.Sentence, c.says), "%s: %s %q", c.name, h.Level, h.Sentence)
	}
}

func TestHealth_tellsOfOperationsBesideTheRest(t *testing.T) {
	t.Parallel()
	now := noon
	worker := WorkerSummary{Running: true, LastSeen: &now}
	h := Summary{Worker: worker, Campaigns: CampaignCounts{Total: 590}, Operations: OperationCounts{Running: 1, Unacknowledged: 2}}.Health(now)
	if want := []string{"1 operation is running."}; !slices.Equal(h.Notes, want) || !strings.Contains(h.Sentence, "All 590") {
		t.Errorf("health is %+v, want it with the notes %q", h, want)
	}
	h = Summary{Worker: worker, Campaigns: CampaignCounts{Total: 590, Blocked: 3, Paused: 2, Drifted: 1}, Counts: Counts{Failed: 1, Dead: 3}, Lag: Lag{Events: 40},
		Operations: OperationCounts{Running: 1, Unacknowledged: 1}, Drift: 2}.Health(now)
	if want := []string{"The self-check corrected the counts of 2 campaigns since the start.", "1 operation is running."}; !slices.Equal(h.Notes, want) {
		t.Errorf("beside blocks that tell of the rest the notes are %q, want %q", h.Notes, want)
	}
}

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
	newer, shadow, older := running, running, idle
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
