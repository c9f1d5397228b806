package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"outboxweb/internal/outbox"
)

func instanceAnchor(id string) string { return "instance-" + id }

func conditionGlyph(c outbox.Condition) string {
	switch c {
	case outbox.InstanceRunning:
		return "✓"
	case outbox.InstanceIdle:
		return "○"
	case outbox.InstanceSilent:
		return "!"
	default:
		return "‖"
	}
}

// JudgeInstances puts all instances into a sentence: who is there, who is not,
// and when others may take what those hold.
func JudgeInstances(list []outbox.InstanceState, now time.Time) Health {
	numbers := make(map[outbox.Condition]int64)
	var left outbox.Holding
	var leavers, stoppedLeavers int64
	for _, i := range list {
		numbers[i.State(now)]++
		if i.Left(now) {
			left = left.Plus(i.Holding)
			leavers++
			if i.StoppedAt != nil {
				stoppedLeavers++
			}
		}
	}
	present := numbers[outbox.InstanceRunning] + numbers[outbox.InstanceIdle]
	h := Health{Level: "ok", Notes: disagreements(list, now)}
	switch {
	case present == 0 && left.Campaigns > 0:
		h.Level = "bad"
	case present == 0 || left.Campaigns > 0:
		h.Level = "warn"
	case len(h.Notes) > 0:
		h.Level = "busy"
	}
	var parts []string
	if present == 0 {
		parts = append(parts, "no instance is running")
	}
	for _, p := range []struct {
		n    int64
		what string
	}{
		{numbers[outbox.InstanceRunning], "running"}, {numbers[outbox.InstanceIdle], "idle"},
		{numbers[outbox.InstanceSilent], "silent"}, {stoppedLeavers, "stopped with work in hand"},
	} {
		switch {
		case p.n == 0:
		case len(parts) == 0:
			parts = append(parts, count(p.n, "instance", "instances")+" "+p.what)
		default:
			parts = append(parts, num(p.n)+" "+p.what)
		}
	}
	h.Sentence = strings.Join(parts, ", ")
	if left.Campaigns > 0 {
		whose := "its"
		if leavers > 1 {
			whose = "their"
		}
		h.Sentence += ": " + left.Fate(now, whose)
	}
	h.Sentence = sentence(h.Sentence)
	return h
}

// disagreements says in what running instances differ although they should
// not, or not for long. Idle ones may have been gone for days.
func disagreements(list []outbox.InstanceState, now time.Time) []string {
	versions, modes := make(map[string]int64), make(map[string]int64)
	for _, i := range list {
		if i.State(now) == outbox.InstanceRunning {
			versions[i.Version]++
			modes[string(i.Mode)]++
		}
	}
	notes := outbox.ClocksThatDiffer(list, now)
	if len(versions) > 1 {
		notes = append(notes, "Versions differ, as during a rolling restart: "+tally(versions)+".")
	}
	if len(modes) > 1 {
		notes = append(notes, "Modes differ, and only one should run: "+tally(modes)+".")
	}
	return notes
}

// tally lists how many there are of each: "v1 (2), v2 (1)".
func tally(numbers map[string]int64) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		words = append(words, fmt.Sprintf("%s (%s)", name, num(numbers[name])))
	}
	return strings.Join(words, ", ")
}

// promise says how often an instance is to be heard of.
func promise(i outbox.InstanceState) string {
	if i.BeatEvery > 0 {
		return "It promised a heartbeat every " + outbox.Age(i.BeatEvery)
	}
	return "It promised no heartbeat: it writes only when it has worked"
}

// heldText is what a lease covers: "events 3–7, epoch 2".
func heldText(c outbox.Held) string {
	var words []string
	switch {
	case c.Rows == 1:
		words = append(words, fmt.Sprintf("event %d", c.HeadSeq))
	case c.Rows > 1:
		words = append(words, fmt.Sprintf("events %d–%d", c.HeadSeq, c.HeadSeq+c.Rows-1))
	}
	if c.Withheld {
		words = append(words, "paused or diverged")
	}
	return strings.Join(append(words, fmt.Sprintf("epoch %d", c.Epoch)), ", ")
}
