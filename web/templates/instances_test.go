package templates

import (
	"context"
	"strings"
	"testing"
	"time"

	"outboxweb/internal/outbox"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// made makes an instance in a condition that holds as many campaigns as ends
// are given, each for that long.
func made(c outbox.Condition, ends ...time.Duration) outbox.InstanceState {
	i := outbox.InstanceState{ID: "i", Host: "h", PID: 7, Version: "v1", Mode: outbox.ModeOutbox, StartedAt: noon, LastSeen: noon}
	hour := noon.Add(-time.Hour)
	switch c {
	case outbox.InstanceIdle:
		i.LastSeen = hour
	case outbox.InstanceSilent:
		i.LastSeen, i.BeatEvery = hour, time.Second
	case outbox.InstanceStopped:
		i.StoppedAt = &hour
	}
	for _, end := range ends {
		i.Holding.Add(outbox.Held{CampaignID: "c", HeadSeq: 3, Rows: 5, Epoch: 2, ExpiresAt: noon.Add(end)})
	}
	return i
}

func TestJudgeInstances_saysTheWholeInOneSentence(t *testing.T) {
	t.Parallel()
	const s = time.Second
	running, idle, silent, stopped := made(outbox.InstanceRunning, 30*s), made(outbox.InstanceIdle), made(outbox.InstanceSilent), made(outbox.InstanceStopped)
	newer, shadow, older := running, running, idle
	newer.Version, older.Version, shadow.Mode = "v2", "v0", outbox.ModeShadow
	for _, c := range []struct {
		level, says, note string
		list              []outbox.InstanceState
	}{
		{"ok", "1 instance running.", "", []outbox.InstanceState{running, stopped}},
		{"ok", "1 instance idle.", "", []outbox.InstanceState{idle}},
		{"ok", "2 instances running, 1 idle, 1 silent.", "", []outbox.InstanceState{running, running, idle, silent}},
		{"warn", "3 instances running, 1 silent: its 2 campaigns become claimable by others in 18 s (12:00:18 UTC).", "",
			[]outbox.InstanceState{running, running, running, made(outbox.InstanceSilent, 18*s, 18*s)}},
		{"warn", "1 instance running, 2 silent: some of their 3 campaigns are claimable by others now, the last in 18 s (12:00:18 UTC).", "",
			[]outbox.InstanceState{running, made(outbox.InstanceSilent, -s), made(outbox.InstanceSilent, 2*s, 18*s)}},
		{"warn", "1 instance running, 1 stopped with work in hand: its lease has ended, any worker may take its campaign.", "",
			[]outbox.InstanceState{running, made(outbox.InstanceStopped, -s), stopped}},
		{"warn", "No instance is running.", "", []outbox.InstanceState{stopped}},
		{"bad", "No instance is running, 1 silent: its campaign becomes claimable by others in 18 s (12:00:18 UTC).", "",
			[]outbox.InstanceState{made(outbox.InstanceSilent, 18*s)}},
		{"busy", "3 instances running, 1 idle, 1 silent.", "Versions differ, as during a rolling restart: v1 (2), v2 (1).",
			[]outbox.InstanceState{running, newer, running, silent, older}},
		{"busy", "2 instances running.", "Modes differ, and only one should run: outbox_apply_only (1), shadow_only (1).",
			[]outbox.InstanceState{running, shadow}},
	} {
		h := JudgeInstances(c.list, noon)
		if h.Level != c.level || h.Sentence != c.says || strings.Join(h.Notes, " ") != c.note {
			t.Errorf("got  %+v\nwant %s %q %q", h, c.level, c.says, c.note)
		}
	}
}

func TestInstances_showWhatIsKnownAndNoMore(t *testing.T) {
	t.Parallel()
	many := made(outbox.InstanceRunning)
	for range outbox.MaxHeld + 4 {
		many.Holding.Add(outbox.Held{CampaignID: "c", HeadSeq: 3, Rows: 5, ExpiresAt: noon.Add(time.Minute)})
	}
	withheld := made(outbox.InstanceSilent)
	withheld.Holding.Add(outbox.Held{CampaignID: "c", Epoch: 2, Withheld: true, ExpiresAt: noon.Add(-time.Minute)})
	unknown := outbox.InstanceState{ID: "<x>", Holding: made(outbox.InstanceSilent, time.Minute).Holding}
	for name, c := range map[string]struct {
		list   []outbox.InstanceState
		shows  []string
		hushes []string
	}{
		"running": {[]outbox.InstanceState{many}, []string{`class="badge s-running"`, "0/s", "<details><summary>Running; holds 24 campaigns.", "and 4 more, whose leases end later; 120 rows in all"}, nil},
		"idle":    {[]outbox.InstanceState{made(outbox.InstanceIdle)}, []string{`class="badge s-idle"`, "Idle for 1 h; holds nothing.", "It promised no heartbeat"}, []string{"0/s", "<details"}},
		"silent":  {[]outbox.InstanceState{withheld}, []string{`class="badge s-silent"`, "<details open>", "paused or diverged, epoch 2", "ended"}, []string{"0/s", "event 0"}},
		"stopped": {[]outbox.InstanceState{made(outbox.InstanceStopped)}, []string{`class="badge s-stopped"`, "holds nothing."}, []string{"0/s", "<details"}},
		"unknown": {[]outbox.InstanceState{unknown}, []string{"&lt;x&gt;", "unknown", "–", "events 3–7, epoch 2"}, []string{"<x>", "process 0", "version", ">0<"}},
	} {
		var b strings.Builder
		if err := InstancesLive(Page{Now: noon}, c.list).Render(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(b.String(), "<tbody>")
		for _, text := range c.shows {
			if !strings.Contains(table, text) {
				t.Errorf("%s: lacks %q:\n%s", name, text, table)
			}
		}
		for _, text := range c.hushes {
			if strings.Contains(table, text) {
				t.Errorf("%s: has %q:\n%s", name, text, table)
			}
		}
	}
}
