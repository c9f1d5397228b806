package outbox

import (
	"fmt"
	"slices"
	"time"
)

// Level is the severity of a state: it decides the colour and icon on pages.
type Level string

// The levels, best first.
const (
	LevelOK   Level = "ok"
	LevelBusy Level = "busy" // it will recover without action
	LevelWarn Level = "warn"
	LevelBad  Level = "bad" // action is needed
)

// Health is the overall state in a sentence, with notes.
type Health struct {
	Level    Level
	Sentence string // the worst problem, or that there is none
	Notes    []string
}

// Health puts a summary into words. Problems that keep events from being applied come first,
// slowness last. The notes leave out what the overview shows in a block or a list of its own.
func (s Summary) Health(now time.Time) Health {
	var found, shown []Health
	add := func(level Level, format string, args ...any) {
		found = append(found, Health{Level: level, Sentence: fmt.Sprintf(format, args...)})
	}
	// show adds a problem that the overview shows elsewhere, too: it is never a note.
	show := func(level Level, format string, args ...any) {
		add(level, format, args...)
		shown = append(shown, found[len(found)-1])
	}
	for _, f := range s.Faults {
		add(f.Level, "%s", f.Sentence(now))
	}
	if s.OtherJournal || s.Campaigns.Diverged > 0 {
		assessJournal(s, add)
	}
	if n := s.Campaigns.Blocked; n > 0 {
		show(LevelBad, "%s blocked by a permanently failed event.", ofTotal(n, s.Campaigns.Total))
	}
	assessRows(s, show)
	if level, trouble := s.WorkerTrouble(now); trouble != "" {
		add(level, "%s", trouble)
	}
	assessInstances(s.Instances, now, show)
	for _, clock := range ClocksThatDiffer(s.Instances, now) {
		add(LevelWarn, "%s", clock)
	}
	if s.Counts.Failed > 0 {
		show(LevelWarn, "%s failed and will be retried.", Count(s.Counts.Failed, "row", "rows"))
	}
	if s.Drift > 0 {
		add(LevelWarn, "The self-check corrected the counts of %s since the start.", Count(s.Drift, "campaign", "campaigns"))
	}
	forAll, _ := s.PausedProjections()
	if forAll > 0 { // it concerns every campaign
		assessPauses(s.Held, show)
	}
	if n := s.Campaigns.Paused; n > 0 {
		show(LevelWarn, "%s paused.", ofTotal(n, s.Campaigns.Total))
	}
	if forAll == 0 {
		assessPauses(s.Held, show)
	}
	assessBehind(s.Held, add)
	if s.Lag.Events > s.Counts.Failed+s.Counts.Dead {
		show(LevelBusy, "%s not yet applied, in %s.", Count(s.Lag.Events, "event", "events"), Count(s.Campaigns.Lagging, "campaign", "campaigns"))
	}
	if len(found) == 0 {
		return Health{Level: LevelOK, Sentence: allCurrent(s.Campaigns.Total), Notes: s.calmNotes()}
	}
	worst := found[0]
	if s.Campaigns.Total == 0 && !s.OtherJournal && len(s.Faults) == 0 {
		worst = Health{Level: worst.Level, Sentence: allCurrent(0)}
		found = append([]Health{{}}, found...)
	}
	for _, f := range found[1:] {
		if !slices.ContainsFunc(shown, func(s Health) bool { return s.Sentence == f.Sentence }) {
			worst.Notes = append(worst.Notes, f.Sentence)
		}
	}
	worst.Notes = append(worst.Notes, s.calmNotes()...)
	return worst
}

// assessRows reports live rows that differ, or may differ, from the journal.
func assessRows(s Summary, add func(level Level, format string, args ...any)) {
	switch c := s.Campaigns; {
	case c.Drifted > c.OutdatedDrift:
		add(LevelBad, "Live rows of %s differ from the journal%s.", campaigns(c.Drifted-c.OutdatedDrift), s.otherBuilt())
	case c.Drifted > 0:
		add(LevelWarn, "%s differed from versions of projections that are not loaded any more: verify again.", campaigns(c.Drifted))
	case c.Unverifiable > 0:
		add(LevelBad, "%s could not be verified.", Count(c.Unverifiable, "campaign", "campaigns"))
	}
	if n := len(QuarantinedAmong(s.Held)); n > 0 {
		add(LevelBad, "%s quarantined.", Count(int64(n), "projection is", "projections are"))
	}
}

func assessPauses(held []HeldProjection, add func(level Level, format string, args ...any)) {
	paused := PausedAmong(held)
	switch {
	case len(paused) == 1:
		add(LevelWarn, "Projection %s is paused %s.", paused[0].Projection, paused[0].PausedWhere())
	case len(paused) > 1:
		add(LevelWarn, "%s are paused.", Count(int64(len(paused)), "projection", "projections"))
	}
}

func assessBehind(held []HeldProjection, add func(level Level, format string, args ...any)) {
	for _, h := range held {
		level := LevelBusy
		if h.RunID+h.BlockedByRun == 0 {
			level = LevelWarn
		}
		if h.Behind > 0 && !h.NotLoaded {
			add(level, "Projection %s is behind in %s%s.", h.Projection, h.Campaigns(h.Behind), h.CatchUp())
		}
	}
}

// QuarantinedAmong returns the projections that are quarantined in some campaign.
func QuarantinedAmong(held []HeldProjection) (quarantined []HeldProjection) {
	for _, h := range held {
		if h.Quarantined > 0 {
			quarantined = append(quarantined, h)
		}
	}
	return quarantined
}

// PausedAmong returns the projections that are paused in some campaign.
func PausedAmong(held []HeldProjection) (paused []HeldProjection) {
	for _, h := range held {
		if h.PausedWhere() != "" {
			paused = append(paused, h)
		}
	}
	return paused
}

// NotLoadedAmong returns the projections that were loaded earlier and are not now.
func NotLoadedAmong(held []HeldProjection) (left []HeldProjection) {
	for _, h := range held {
		if h.NotLoaded {
			left = append(left, h)
		}
	}
	return left
}

// assessInstances reports processes in trouble.
func assessInstances(all []InstanceState, now time.Time, add func(level Level, format string, args ...any)) {
	for _, i := range all {
		switch {
		case i.Trouble == "" || i.State(now) != InstanceRunning && i.State(now) != InstanceIdle:
		case i.Stalled:
			add(LevelBad, "Worker %s is stalled: %s.", i.ID, i.Trouble)
		default:
			add(LevelWarn, "Worker %s: %s.", i.ID, i.Trouble)
		}
	}
	if n := silent(all, now); n > 0 {
		add(LevelWarn, "%s.", Count(n, "instance is silent", "instances are silent"))
	}
}

// assessJournal reports projections that have events the journal lacks.
func assessJournal(s Summary, add func(level Level, format string, args ...any)) {
	const first = "Check the URL of the journal database and restore the right journal. If it is the right one, the events were applied from another journal, or it has lost them. Only then rebuild, which removes those events from the projections."
	n := s.Campaigns.Diverged
	switch {
	case s.Events == 0 && n == s.Campaigns.Total:
		add(LevelBad, "The journal is empty, but the projections have events. %s", first)
	case n == 0:
		add(LevelBad, "The projections have events that the journal does not have. %s", first)
	default:
		add(LevelBad, "%s the journal: the projections have events that the journal does not have. %s", Count(n, "campaign contradicts", "campaigns contradict"), first)
	}
	if n > 0 {
		add(LevelBad, "Until this is resolved, nothing is applied to %s; appended events queue up.", Count(n, "campaign", "campaigns"))
	}
}

// calmNotes are worth knowing, and no trouble by themselves.
func (s Summary) calmNotes() (notes []string) {
	if n := s.Operations.Running; n > 0 {
		notes = append(notes, fmt.Sprintf("%s running.", Count(n, "operation is", "operations are")))
	}
	for _, h := range NotLoadedAmong(s.Held) {
		notes = append(notes, fmt.Sprintf("Projection %s is not loaded any more: its rows are not updated, and not verified.%s", h.Projection, h.AdvancedWithout()))
	}
	return notes
}

// WorkerTrouble says what is wrong with the workers; empty if nothing is.
func (s Summary) WorkerTrouble(now time.Time) (Level, string) {
	level := LevelWarn
	if s.Lag.Events > 0 {
		level = LevelBad
	}
	switch {
	case s.Worker.Starting && !s.Worker.Running:
		return LevelBusy, "The worker is starting."
	case s.Mode == ModeInline && !s.Worker.Running:
		if s.Counts.Total() > 0 {
			return level, "No worker is running: events that failed on append are not retried."
		}
	case s.Mode == ModeShadow:
		return LevelWarn, "The mode is shadow_only: rows are rehearsed, nothing is applied."
	case !s.Worker.Running:
		return level, "No worker is running: nothing is applied."
	case s.Counts.Pending > 0 && s.Worker.LastSeen != nil && now.Sub(*s.Worker.LastSeen) > SilentAfter &&
		s.DueSince != nil && now.Sub(*s.DueSince) > SilentAfter:
		return LevelBad, fmt.Sprintf("Events are waiting, and no worker has been seen for %s.", Age(now.Sub(*s.Worker.LastSeen)))
	}
	return LevelOK, ""
}

// newsFor is how long the overview reports an instance that fell silent; the page of instances
// shows it for a week.
const newsFor = time.Hour

// silent counts the instances that recently stopped sending promised heartbeats.
func silent(instances []InstanceState, now time.Time) (n int64) {
	for _, i := range instances {
		if i.silent(now) {
			n++
		}
	}
	return n
}

func (i InstanceState) silent(now time.Time) bool {
	return i.State(now) == InstanceSilent && now.Sub(i.LastSeen) < newsFor
}

// InstancesNeedingAttention returns the instances that recently fell silent, and the running ones
// in trouble.
func InstancesNeedingAttention(all []InstanceState, now time.Time) (troubled []InstanceState) {
	for _, i := range all {
		state := i.State(now)
		if i.silent(now) || i.Trouble != "" && (state == InstanceRunning || state == InstanceIdle) {
			troubled = append(troubled, i)
		}
	}
	return troubled
}

func allCurrent(total int64) string {
	switch total {
	case 0:
		return "The journal is empty: nothing to apply yet."
	case 1:
		return "The only campaign is current."
	default:
		return fmt.Sprintf("All %s campaigns are current.", Number(total))
	}
}

func ofTotal(n, total int64) string {
	if n == 1 {
		return fmt.Sprintf("1 of %s is", Count(total, "campaign", "campaigns"))
	}
	return fmt.Sprintf("%s of %s are", Number(n), Count(total, "campaign", "campaigns"))
}
