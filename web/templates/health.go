package templates

import (
	"fmt"
	"time"

	"outboxweb/internal/outbox"
)

// Health is the state of everything in a sentence, and what else is worth
// knowing.
type Health struct {
	Level    string // ok, busy, warn or bad: the colour and the mark beside it
	Sentence string // the worst thing there is, or that there is none
	Notes    []string
}

// Judge puts a summary into words. What keeps events from being applied comes
// first; what is only slow comes last.
func Judge(s outbox.Summary, now time.Time) Health {
	var found []Health
	add := func(level, format string, args ...any) {
		found = append(found, Health{Level: level, Sentence: fmt.Sprintf(format, args...)})
	}
	judgeDisks(s, now, add)
	if s.OtherJournal || s.Campaigns.Diverged > 0 {
		judgeJournal(s, add)
	}
	if n := s.Campaigns.Blocked; n > 0 {
		add("bad", "%s blocked by a dead head.", ofTotal(n, s.Campaigns.Total))
	}
	judgeRows(s, add)
	judgeWorker(s, now, add)
	for _, i := range s.Instances {
		switch {
		case i.Trouble == "" || i.State(now) != outbox.InstanceRunning && i.State(now) != outbox.InstanceIdle:
		case i.Stalled:
			add("bad", "Worker %s is stalled: %s.", i.ID, i.Trouble)
		default:
			add("warn", "Worker %s: %s.", i.ID, i.Trouble)
		}
	}
	if n := silent(s.Instances, now); n > 0 {
		add("warn", "%s.", count(n, "instance is silent", "instances are silent"))
	}
	for _, clock := range outbox.ClocksThatDiffer(s.Instances, now) {
		add("warn", "%s", clock)
	}
	if s.Counts.Failed > 0 {
		add("warn", "%s failed and will be retried.", count(s.Counts.Failed, "row", "rows"))
	}
	if s.Drift > 0 {
		add("warn", "The self-check corrected the counts of %s since the start.", count(s.Drift, "campaign", "campaigns"))
	}
	if n := s.Campaigns.Paused; n > 0 {
		add("warn", "%s paused.", ofTotal(n, s.Campaigns.Total))
	}
	judgeHeld(s.Held, add)
	if s.Lag.Events > s.Counts.Failed+s.Counts.Dead {
		add("busy", "%s still to be applied, in %s.", count(s.Lag.Events, "event", "events"), count(s.Campaigns.Lagging, "campaign", "campaigns"))
	}
	if len(found) == 0 {
		return Health{Level: "ok", Sentence: allCurrent(s.Campaigns.Total), Notes: append(operationNotes(s.Operations), skipNotes(s)...)}
	}
	worst := found[0]
	if s.Campaigns.Total == 0 && !s.OtherJournal && len(s.DisksFull) == 0 {
		worst = Health{Level: worst.Level, Sentence: allCurrent(0)}
		found = append([]Health{{}}, found...)
	}
	for _, f := range found[1:] {
		worst.Notes = append(worst.Notes, f.Sentence)
	}
	worst.Notes = append(append(worst.Notes, operationNotes(s.Operations)...), skipNotes(s)...)
	return worst
}

// judgeRows tells of live rows that are not, or may not be, those of the journal.
func judgeRows(s outbox.Summary, add func(level, format string, args ...any)) {
	if n := s.Campaigns.Unverifiable; n > 0 {
		add("bad", "%s not be verified, so nobody knows whether the live rows are right.", count(n, "campaign could", "campaigns could"))
	}
	if n := s.Campaigns.Drifted; n > 0 {
		add("bad", "%s drifted: live rows differ from the journal, as last verified.", count(n, "campaign has", "campaigns have"))
	}
	for _, h := range quarantinedProjections(s.Held) {
		add("bad", "Projection %s is quarantined for %s after a failure.", h.Projection, h.Campaigns(h.Quarantined))
	}
}

// judgeHeld tells of projections that are paused or behind.
func judgeHeld(held []outbox.HeldProjection, add func(level, format string, args ...any)) {
	paused := pausedProjections(held)
	switch {
	case len(paused) == 1:
		add("warn", "Projection %s is paused %s.", paused[0].Projection, paused[0].PausedWhere())
	case len(paused) > 1:
		add("warn", "%d projections are paused.", len(paused))
	}
	for _, h := range held {
		level := "busy"
		if h.RunID+h.BlockedByRun == 0 {
			level = "warn"
		}
		if h.Behind > 0 {
			add(level, "Projection %s is behind in %s%s.", h.Projection, h.Campaigns(h.Behind), h.CatchUp())
		}
	}
}

func quarantinedProjections(held []outbox.HeldProjection) (quarantined []outbox.HeldProjection) {
	for _, h := range held {
		if h.Quarantined > 0 {
			quarantined = append(quarantined, h)
		}
	}
	return quarantined
}

func pausedProjections(held []outbox.HeldProjection) (paused []outbox.HeldProjection) {
	for _, h := range held {
		if h.PausedWhere() != "" {
			paused = append(paused, h)
		}
	}
	return paused
}

// judgeDisks tells of databases that nothing can be written to.
func judgeDisks(s outbox.Summary, now time.Time, add func(level, format string, args ...any)) {
	for _, d := range s.DisksFull {
		meanwhile := "nothing is applied, and appended events wait"
		if d.Database == "journal" {
			meanwhile = "appends and acts are refused with status 507, and nothing is applied"
		}
		add("bad", "The disk of the %s database has been full for %s: %s. Make room there; all goes on by itself then, without a restart.",
			d.Database, outbox.Age(now.Sub(d.Since)), meanwhile)
	}
}

// judgeJournal tells of projections that have events that the journal does not.
func judgeJournal(s outbox.Summary, add func(level, format string, args ...any)) {
	const first = "Check --journal-db, and put the right journal back. If this is the right one, they were applied from another one meanwhile, or it has lost them. Only then rebuild: that removes what the projections have of those events."
	n := s.Campaigns.Diverged
	switch {
	case s.Events == 0 && n == s.Campaigns.Total:
		add("bad", "The journal is empty, but the projections have events. %s", first)
	case n == 0:
		add("bad", "The projections have events that the journal does not have. %s", first)
	default:
		add("bad", "%s the journal: the projections have events that it does not have. %s", count(n, "campaign contradicts", "campaigns contradict"), first)
	}
	if n > 0 {
		add("bad", "Nothing is applied to %s until then; what is appended waits.", count(n, "campaign", "campaigns"))
	}
}

// operationNotes tell of operations that somebody should look at.
func operationNotes(n outbox.OperationCounts) (notes []string) {
	if n.Running > 0 {
		notes = append(notes, fmt.Sprintf("%s running.", count(n.Running, "operation is", "operations are")))
	}
	if n.Unacknowledged > 0 {
		notes = append(notes, fmt.Sprintf("%s not acknowledged yet.", count(n.Unacknowledged, "operation has ended and is", "operations have ended and are")))
	}
	return notes
}

func judgeWorker(s outbox.Summary, now time.Time, add func(level, format string, args ...any)) {
	level := "warn"
	if s.Lag.Events > 0 {
		level = "bad"
	}
	switch {
	case s.Mode == outbox.ModeInline && !s.Worker.Running:
		if s.Counts.Total() > 0 {
			add(level, "No worker is running: what an append could not apply is not tried again.")
		}
	case s.Mode == outbox.ModeShadow:
		add("warn", "The mode is shadow_only: rows are rehearsed, nothing is applied.")
	case !s.Worker.Running:
		add(level, "No worker is running: nothing is applied.")
	case s.Counts.Pending > 0 && s.Worker.LastSeen != nil && now.Sub(*s.Worker.LastSeen) > outbox.SilentAfter &&
		s.OldestRetryable != nil && now.Sub(s.OldestRetryable.EnqueuedAt) > outbox.SilentAfter:
		add("bad", "Events wait, and no worker has been seen for %s.", outbox.Age(now.Sub(*s.Worker.LastSeen)))
	}
}

// skipNotes tells of skipped events, which are no trouble any more.
func skipNotes(s outbox.Summary) []string {
	if s.Campaigns.Skips == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s skipped and never applied.", count(s.Campaigns.Skips, "event is", "events are"))}
}

// newsFor is how long the overview tells of an instance that fell silent; the
// page of instances tells of it for a week.
const newsFor = time.Hour

// silent counts the instances that lately broke their promise of a sign of life.
func silent(instances []outbox.InstanceState, now time.Time) (n int64) {
	for _, i := range instances {
		if i.State(now) == outbox.InstanceSilent && now.Sub(i.LastSeen) < newsFor {
			n++
		}
	}
	return n
}

func allCurrent(total int64) string {
	switch total {
	case 0:
		return "The journal is empty: nothing to apply yet."
	case 1:
		return "The only campaign is current."
	default:
		return fmt.Sprintf("All %s campaigns are current.", num(total))
	}
}

func ofTotal(n, total int64) string {
	if n == 1 {
		return fmt.Sprintf("1 of %s is", count(total, "campaign", "campaigns"))
	}
	return fmt.Sprintf("%s of %s are", num(n), count(total, "campaign", "campaigns"))
}

func count(n int64, one, many string) string { return outbox.Count(n, one, many) }
