package outbox

import (
	"fmt"
	"time"
)

// The actions that the current state of a row, a campaign and so on permits, regardless of role.
// Pages offer actions by these rules and the store refuses by them, on what its transaction reads.

// HeadActions returns the actions on a head of the status that blocks its campaign.
func (s Status) HeadActions() []Action {
	switch s {
	case Dead:
		return []Action{ActionRequeue}
	case Failed:
		return []Action{ActionRetry}
	}
	return nil
}

// Actions returns the actions on the row.
func (d RowDetail) Actions() []Action {
	var all []Action
	if d.Row.Requeueable() || d.Row.Retryable() {
		all = d.Row.Status.HeadActions()
	}
	if d.DeadLetterable() {
		all = append(all, ActionDeadLetter)
	}
	if d.Skippable() {
		all = append(all, ActionSkip)
	}
	return all
}

// DeadLetterable and Skippable are about the row as read with its event.
func (d RowDetail) DeadLetterable() bool { return d.Row.WhyNotDeadLettered() == "" }
func (d RowDetail) Skippable() bool      { return d.Row.Skippable(d.Event.Skipped) }

// Requeueable reports whether the row may be requeued.
func (r Row) Requeueable() bool { return r.Status == Dead }

// Retryable reports whether the row is a failed head, which may be retried at once.
func (r Row) Retryable() bool { return r.IsHead && r.Status == Failed }

// Skippable reports whether the row blocks its campaign, so that its event may be skipped. standing
// is the event's active skip; nil without one.
func (r Row) Skippable(standing *Skip) bool { return r.IsHead && r.Status.Stuck() && standing == nil }

// WhyNotDeadLettered continues a sentence about the row; it is empty for a failing head that no
// worker has leased, which may be dead-lettered.
func (r Row) WhyNotDeadLettered() string {
	switch {
	case r.Status == Dead:
		return "is already dead"
	case r.Status == Processing:
		return "is being applied; wait for the attempt to end"
	case !r.IsHead:
		return "is not the head of its campaign; only a failing head is dead-lettered"
	case r.AttemptCount == 0:
		return "has not failed; only a failing head is dead-lettered"
	}
	return ""
}

// WhyNoAction says why a row that is neither dead nor a failed head has no actions.
func (d RowDetail) WhyNoAction(now time.Time, around Surroundings) string {
	r, c := d.Row, d.Campaign
	switch {
	case r.Status == Processing:
		return "A worker is processing it."
	case !r.IsHead && c.HeadSeq > 0:
		return fmt.Sprintf("Waiting behind event %d, the head of its campaign.", c.HeadSeq)
	case r.Status == Pending && d.Event.Skipped != nil && c.Paused == nil:
		return "Skipped: the next free worker skips it."
	case r.Status == Pending && c.Paused != nil:
		return "Its campaign is paused; resume the campaign first."
	case r.Status == Pending && c.Explain(now, around).Blocker == BlockerUnserved:
		return "Due, but no running instance serves its campaign."
	case r.Status == Pending:
		return "Due: waiting for a free worker."
	}
	return "Nothing to do."
}

// Actions returns the actions on the campaign, those on its head first.
func (c Campaign) Actions() []Action {
	all := c.HeadStatus.HeadActions()
	for _, a := range c.Offered() {
		all = append(all, a.Action)
	}
	return all
}

// MayUnskip reports whether a skip of the campaign may be undone.
func (c Campaign) MayUnskip(k Skip) bool { return k.Undoable(c.AppliedSeq) }

// Undoable reports whether the skip may be undone with the watermark at applied: no later event has
// been applied or skipped.
func (k Skip) Undoable(applied int64) bool { return k.Active() && applied <= k.Seq }

// PauseAction is the pause or resume that a projection takes, for all campaigns or for one.
func PauseAction(paused bool) Action {
	if paused {
		return ActionProjectionResume
	}
	return ActionProjectionPause
}

// Action is the action on the projection for all campaigns.
func (i ProjectionInfo) Action() Action { return PauseAction(i.Paused != nil) }

// Action is the action on the projection in its campaign; empty if there is none.
func (c Cursor) Action() Action {
	if c.State == CursorQuarantined || c.PausedForAll {
		return ""
	}
	return PauseAction(c.State == CursorPaused)
}

// Actions returns the actions on the publisher; tests says whether this process can send it a test
// event.
func (p Publisher) Actions(tests bool) []Action {
	var all []Action
	add := func(possible bool, a Action) {
		if possible {
			all = append(all, a)
		}
	}
	add(p.Pausable(), ActionPublisherPause)
	add(p.Resumable(), ActionPublisherResume)
	add(p.Resettable(), ActionPublisherReset)
	add(true, ActionPublisherSeek)
	add(tests, ActionPublisherTest)
	add(p.BlockingEvent() != nil, ActionPublisherSkip)
	return all
}

// Pausable, Resumable and Resettable report which actions a publisher takes.
func (p Publisher) Pausable() bool  { return p.Status != PublisherPaused }
func (p Publisher) Resumable() bool { return p.Status != PublisherActive || p.ErrorCount > 0 }
func (p Publisher) Resettable() bool {
	return p.ErrorCount > 0 || p.LastError != "" || p.Status == PublisherFailed
}

// PauseOrResume is the one that the publisher takes, or resume if it takes both.
func (p Publisher) PauseOrResume() Action {
	if p.Resumable() {
		return ActionPublisherResume
	}
	return ActionPublisherPause
}

// Actions returns the actions on the rows of an error group.
func (g ErrorGroup) Actions() []Action {
	var all []Action
	if g.Dead > 0 {
		all = append(all, ActionOperationStart)
	}
	if g.Failed > 0 {
		all = append(all, ActionRetryMany)
	}
	return append(all, ActionNoteErrors)
}

// Action is the action on the operation; empty if there is none.
func (o Operation) Action() Action {
	switch {
	case o.Cancellable():
		return ActionOperationCancel
	case o.Acknowledgeable():
		return ActionOperationAcknowledge
	}
	return ""
}

// Leased reports whether a process has leased the run.
func (r Run) Leased(now time.Time) bool { return r.Lease != nil && r.Lease.ExpiresAt.After(now) }

// runQuiet is how long a process at work on a run may report nothing; it reports twice a second.
const runQuiet = 5 * time.Second

// Silent reports whether the process that has leased the run may be dead: it has not reported lately.
func (r Run) Silent(now time.Time) bool {
	return r.Status.Active() && r.Leased(now) && now.Sub(r.UpdatedAt) > runQuiet
}

// Unattended says what is known of the process at work on an active run when it has not reported
// lately; empty while it reports.
func (r Run) Unattended(now time.Time) string {
	ago := Age(now.Sub(r.UpdatedAt)) + " ago"
	switch {
	case r.Silent(now):
		return fmt.Sprintf("Its process last reported %s; if it is dead, another worker takes over in %s.", ago, Age(r.Lease.ExpiresAt.Sub(now)))
	case (r.Status == RunRunning || r.Status == RunCancelling) && !r.Leased(now):
		return "No process works on it: the last one reported " + ago + ". The next free worker takes over."
	}
	return ""
}

// StatusWords is the run's status, and how old its last report is when that is not recent.
func (r Run) StatusWords(now time.Time) string {
	if r.Unattended(now) != "" {
		return string(r.Status) + ", last report " + Age(now.Sub(r.UpdatedAt)) + " ago"
	}
	return string(r.Status)
}

// Cancellable reports whether the run may be cancelled. Its holder ends a cancelling run. If the
// holder is gone the run can be cancelled again, which ends it at once: no other process may be
// there to do so.
func (r Run) Cancellable(now time.Time) bool {
	return r.Status.Active() && (r.Status != RunCancelling || !r.Leased(now))
}

// Resumable reports whether the run stopped before its end, or failed.
func (r Run) Resumable() bool { return r.Status == RunInterrupted || r.Status == RunFailed }

// Action is the action on the run; empty if there is none.
func (r Run) Action(now time.Time) Action {
	switch {
	case r.Cancellable(now):
		return ActionRunCancel
	case r.Resumable():
		return ActionRunResume
	}
	return ""
}

// Actions returns the actions on the run, including starting another like it.
func (r Run) Actions(now time.Time) []Action {
	var all []Action
	if a := r.Action(now); a != "" {
		all = append(all, a)
	}
	if !r.Status.Active() {
		all = append(all, ActionRunStart)
	}
	return all
}
