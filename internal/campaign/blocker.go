package campaign

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Blocker is what keeps workers from claiming a campaign, in one word.
type Blocker string

// The blockers, in the order in which they are checked.
const (
	BlockerDiverged Blocker = "diverged" // its watermark contradicts the journal
	BlockerDead     Blocker = "dead"     // its head is dead
	BlockerPaused   Blocker = "paused"   // an operator paused it
	BlockerEmpty    Blocker = "empty"    // it has no row
	BlockerLease    Blocker = "lease"    // a worker has leased it
	BlockerBackoff  Blocker = "backoff"  // its head will be retried later
	BlockerUnqueued Blocker = "unqueued" // workers may claim it, but it is not queued
	BlockerUnserved Blocker = "unserved" // no running instance serves it
	BlockerNone     Blocker = "none"     // workers may claim it
)

// ClaimFacts decide whether a worker may claim a campaign. Times are microseconds UTC, as in the
// database.
type ClaimFacts struct {
	Diverged    bool
	Paused      bool
	Head        event.Status // of the lowest row; empty if there is none
	NextAttempt int64        // when a failed head is retried; meaningless for others
	Bare        bool         // events are unapplied and none of them has a row
	Leased      bool
	LeaseEnds   int64
}

// Blocker is the rule of claiming: what blocks the campaign at the given time, and when it becomes
// claimable if nothing but time passes; 0 if time alone changes nothing. Workers claim by it and
// pages explain by it.
func (s ClaimFacts) Blocker(now int64) (hold Blocker, until int64) {
	switch {
	case s.Diverged:
		return BlockerDiverged, 0
	case s.Head == event.Dead:
		return BlockerDead, 0
	case s.Paused:
		return BlockerPaused, 0
	case s.Head == "" && !(s.Bare && s.Leased): // once its lease expires a worker may claim it
		return BlockerEmpty, 0
	case s.Leased && s.LeaseEnds > now:
		return BlockerLease, s.LeaseEnds
	case s.Head == event.Failed && s.NextAttempt > now:
		return BlockerBackoff, s.NextAttempt
	default:
		return BlockerNone, now
	}
}

// Surroundings are what a campaign's progress depends on beside its own state.
type Surroundings struct {
	Mode   Mode
	Worker *WorkerSummary // nil when the state of workers is unknown
	Pace   float64        // in applied events per second, see Pace; 0 when unknown
	Ends   PauseEnds      // of pauses
	Empty  string         // when all that workers apply is applied, as in Outlook
	// OtherBuilt goes on that rows differ from the journal, where other versions built them; empty otherwise.
	OtherBuilt string
	Rejecting  map[string][]string // sources with a rejected row that blocks a campaign, by campaign
}

// Explanation says why a campaign is or is not progressing.
type Explanation struct {
	// what keeps workers from claiming it, by the rule that workers claim by; none: it may be
	// claimed now; unqueued: it may be claimed, but only later or once the self-check has queued
	// it; unserved: no running instance serves it
	Blocker     Blocker    `json:"blocker"`
	ClaimableAt *time.Time `json:"claimable_at"` // when a worker may claim it if nothing but time passes; nil when time alone changes nothing
	// when its events are applied at the latest, if all goes on as in the last seconds: "now", "4 min", "never" without an operator, or "unknown"
	Empty string `json:"empty"`
	Why   string `json:"why"` // one sentence on why it is or is not progressing, without a final period
}

// ClaimFacts returns the facts that decide whether a worker may claim the campaign.
func (c Campaign) ClaimFacts() ClaimFacts {
	s := ClaimFacts{Diverged: c.Diverged != "", Paused: c.Paused != nil, Head: c.HeadStatus, Leased: c.Lease != nil,
		Bare: c.HeadSeq == 0 && c.LagEvents() > 0}
	if !c.HeadNextAttempt.IsZero() {
		s.NextAttempt = c.HeadNextAttempt.UnixMicro()
	}
	if s.Leased {
		s.LeaseEnds = c.Lease.ExpiresAt.UnixMicro()
	}
	return s
}

// Explain says why the campaign is or is not progressing, by the rule that workers claim by and the
// time they check it.
func (c Campaign) Explain(now time.Time, around Surroundings) Explanation {
	hold, until := c.ClaimFacts().Blocker(now.UnixMicro())
	unseen := (hold == BlockerNone || hold == BlockerBackoff) && (c.Unqueued || c.DueAt.UnixMicro() > until)
	if unseen {
		hold, until = BlockerUnqueued, 0
		if !c.Unqueued {
			until = c.DueAt.UnixMicro()
		}
	} else if (hold == BlockerNone || hold == BlockerBackoff) && !around.Worker.serves(c.CampaignID) {
		hold, until = BlockerUnserved, 0
	}
	e := Explanation{Blocker: hold, Why: c.why(hold, now, around), Empty: cmp.Or(around.Empty, "unknown")}
	switch {
	case c.LagEvents() == 0:
		e.Empty = "now"
	case hold == BlockerDiverged || hold == BlockerDead || hold == BlockerPaused || hold == BlockerUnserved || around.Mode == ModeShadow:
		e.Empty = "never"
	}
	if found := c.verifyText(around); found != "" && c.LagEvents() == 0 && hold == BlockerEmpty {
		e.Why = found
	} else if found != "" {
		e.Why += ". " + found
	}
	if sources := around.Rejecting[c.CampaignID]; len(sources) > 0 {
		waits := "A row of source " + event.Joined(sources, " and ") + " is rejected and blocks it: later rows of it wait in their table, and are not in the journal"
		if e.Why = e.Why + ". " + waits; strings.HasPrefix(e.Why, everythingApplied) {
			e.Why = waits
		}
	}
	if until > 0 {
		at := time.UnixMicro(until).UTC()
		e.ClaimableAt = &at
	}
	return e
}

// withOther follows what is known of a version that is gone.
const withOther = "; that was with a version that is not loaded any more: verify again with the loaded one"

// verifyText says what the last verify found wrong; empty if nothing.
func (c Campaign) verifyText(around Surroundings) string {
	var found []string
	switch {
	case c.Unverified != nil:
		text := "C" + strings.TrimPrefix(c.Unverified.Failure(), "c")
		if c.Unverified.Outdated {
			text += withOther
		}
		found = append(found, text)
	case c.Unverifiable > c.OutdatedFailed:
		found = append(found, "The last verify could not replay its events")
	case c.Unverifiable > 0:
		found = append(found, "The last verify could not replay its events"+withOther)
	}
	if n := c.OutdatedDrift; n > 0 {
		found = append(found, "The rows of "+event.Count(n, "projection differed from a version that is", "projections differed from versions that are")+" not loaded any more; verify again with the loaded one")
	}
	if n := c.Drifted - c.OutdatedDrift; n > 0 {
		found = append(found, "The rows of "+event.Count(n, "projection", "projections")+" differed from the journal at the last verification"+around.OtherBuilt+"; a rebuild fixes them if the projection files are right")
	}
	return strings.Join(found, ". ")
}

// Why is the sentence of Explain.
func (c Campaign) Why(now time.Time, around Surroundings) string {
	return c.Explain(now, around).Why
}

func (c Campaign) why(hold Blocker, now time.Time, around Surroundings) string {
	switch hold {
	case BlockerDiverged:
		return c.whyDiverged()
	case BlockerDead:
		return fmt.Sprintf("Event %d %s and %s behind it; requeue it once the cause is fixed%s",
			c.HeadSeq, deadSince(c.HeadNextAttempt, now), rowsWait(c.BlockedBehind()), c.otherBlocker(now, around))
	case BlockerPaused:
		return c.whyPaused(now, around)
	case BlockerEmpty:
		return c.whyEmpty(around.Mode)
	}
	if c.HeadSeq > c.AppliedSeq+1 {
		return fmt.Sprintf("Events %d to %d have no row, so event %d cannot be applied; the self-check of a running worker repairs the gap within a minute", c.AppliedSeq+1, c.HeadSeq-1, c.HeadSeq)
	}
	if hold == BlockerLease && IsRun(c.Lease.Owner) {
		return fmt.Sprintf("Leased by %s; events are applied once it has ended. If its process dies, the lease expires in %s", c.Lease.Owner, event.Age(c.Lease.ExpiresAt.Sub(now)))
	}
	if hold == BlockerLease {
		return fmt.Sprintf("Worker %s holds the lease and is applying; if it dies, the lease expires in %s", c.Lease.Owner, event.Age(c.Lease.ExpiresAt.Sub(now)))
	}
	if around.Mode == ModeShadow {
		return "The mode is shadow_only: rows are rehearsed and never applied"
	}
	if hold == BlockerUnserved {
		return around.Worker.whyUnserved()
	}
	if hold == BlockerUnqueued {
		return c.whyUnqueued(now)
	}
	if hold == BlockerBackoff {
		return fmt.Sprintf("Event %d failed and will be retried in %s", c.HeadSeq, event.Age(c.HeadNextAttempt.Sub(now)))
	}
	return c.whyReady(now, around.Worker)
}

func (c Campaign) whyPaused(now time.Time, around Surroundings) string {
	return fmt.Sprintf("Paused by %s %s ago%s: %s", c.Paused.By, event.Age(now.Sub(c.Paused.At)), around.Ends.Campaign(c.CampaignID), cmp.Or(c.Paused.Reason, "no reason given"))
}

// otherBlocker says what would block the campaign if its head were not dead; empty if nothing
// would.
func (c Campaign) otherBlocker(now time.Time, around Surroundings) string {
	switch {
	case c.Paused != nil:
		return ". " + c.whyPaused(now, around)
	case !around.Worker.serves(c.CampaignID):
		return ". " + around.Worker.whyUnserved()
	}
	return ""
}

func (c Campaign) whyDiverged() string {
	why := "Diverged: " + c.Diverged
	if n := c.LagEvents(); n > 0 {
		why += ", and " + event.Count(n, "event waits", "events wait") + " until this is resolved"
	}
	return why + "; " + RightJournalFirst
}

func (c Campaign) whyUnqueued(now time.Time) string {
	if c.Unqueued {
		return "Due, but missing from the queue; the self-check of a running worker fixes that within a minute"
	}
	return fmt.Sprintf("Queued to start in %s because a clock was ahead; the self-check of a running worker corrects that within a minute", event.Age(c.DueAt.Sub(now)))
}

func (c Campaign) whyEmpty(mode Mode) string {
	switch {
	case c.LagEvents() == 0 && c.Skips > 0:
		return everythingApplied + ", except " + event.Count(c.Skips, "skipped event", "skipped events")
	case c.LagEvents() == 0:
		return everythingApplied
	case mode == ModeInline:
		return fmt.Sprintf("%s appended but not applied yet: the append is still in progress, or its process died and a replay repairs the gap", event.Count(c.LagEvents(), "event is", "events are"))
	default:
		return event.Count(c.Gap(), "event has neither been applied nor has a row", "events have neither been applied nor have a row") + "; the self-check of a running worker repairs the gap within a minute"
	}
}

// SilentAfter is how long events may be due without a sign of life of any worker before workers
// count as gone.
const SilentAfter = 30 * time.Second

func (c Campaign) whyReady(now time.Time, worker *WorkerSummary) string {
	due := c.HeadNextAttempt
	if c.UpdatedAt.After(due) { // such as one that was resumed
		due = c.UpdatedAt
	}
	switch {
	case worker == nil:
	case worker.Absent():
		return "Due, but no worker is running"
	case worker.LastSeen != nil && now.Sub(*worker.LastSeen) > SilentAfter && now.Sub(due) > SilentAfter:
		return fmt.Sprintf("Due, but no worker has been seen for %s", event.Age(now.Sub(*worker.LastSeen)))
	}
	return "Due: waiting for a free worker"
}

func deadSince(t, now time.Time) string {
	if t.IsZero() {
		return "is dead"
	}
	return "has been dead for " + event.Age(now.Sub(t))
}

func rowsWait(n int64) string {
	if n == 0 {
		return "nothing waits"
	}
	return event.Count(n, "row waits", "rows wait")
}

// RunOwner names a run and the process executing it, as an owner of leases.
func RunOwner(run int64, process string) string {
	return fmt.Sprintf("%s%d of %s", runOwner, run, process)
}

const runOwner = "run "

// SameRun reports whether two lease owners are the same run, in whatever processes.
func SameRun(a, b string) bool {
	of, _, _ := strings.Cut(a, " of ")
	other, _, _ := strings.Cut(b, " of ")
	return IsRun(a) && of == other
}

// IsRun reports whether a lease owner is a run rather than a worker.
func IsRun(owner string) bool { return strings.HasPrefix(owner, runOwner) }
