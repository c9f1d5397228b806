package campaign

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operator"
)

// The actions that the current state of a row, a campaign and so on permits, regardless of role.
// Pages offer actions by these rules and the store refuses by them, on what its transaction reads.

// HeadActions returns the actions on a head of the status that blocks its campaign.
func HeadActions(s event.Status) []operator.Action {
	switch s {
	case event.Dead:
		return []operator.Action{operator.ActionRequeue}
	case event.Failed:
		return []operator.Action{operator.ActionRetry}
	}
	return nil
}

// Actions returns the actions on the row.
func (d RowDetail) Actions() []operator.Action {
	var all []operator.Action
	if d.Row.Requeueable() || d.Row.Retryable() {
		all = HeadActions(d.Row.Status)
	}
	if d.DeadLetterable() {
		all = append(all, operator.ActionDeadLetter)
	}
	if d.Skippable() {
		all = append(all, operator.ActionSkip)
	}
	return all
}

// DeadLetterable and Skippable are about the row as read with its event.
func (d RowDetail) DeadLetterable() bool { return d.Row.WhyNotDeadLettered() == "" }
func (d RowDetail) Skippable() bool      { return d.Row.Skippable(d.Event.Skipped) }

// Requeueable reports whether the row may be requeued.
func (r Row) Requeueable() bool { return r.Status == event.Dead }

// Retryable reports whether the row is a failed head, which may be retried at once.
func (r Row) Retryable() bool { return r.IsHead && r.Status == event.Failed }

// Skippable reports whether the row blocks its campaign, so that its event may be skipped. standing
// is the event's active skip; nil without one.
func (r Row) Skippable(standing *event.Skip) bool {
	return r.IsHead && r.Status.Stuck() && standing == nil
}

// WhyNotDeadLettered continues a sentence about the row; it is empty for a failing head that no
// worker has leased, which may be dead-lettered.
func (r Row) WhyNotDeadLettered() string {
	switch {
	case r.Status == event.Dead:
		return "is already dead"
	case r.Status == event.Processing:
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
	case r.Status == event.Processing:
		return "A worker is processing it."
	case !r.IsHead && c.HeadSeq > 0:
		return fmt.Sprintf("Waiting behind event %d, the head of its campaign.", c.HeadSeq)
	case r.Status == event.Pending && d.Event.Skipped != nil && c.Paused == nil:
		return "Skipped: the next free worker skips it."
	case r.Status == event.Pending && c.Paused != nil:
		return "Its campaign is paused; resume the campaign first."
	case r.Status == event.Pending && c.Explain(now, around).Blocker == BlockerUnserved:
		return "Due, but no running instance serves its campaign."
	case r.Status == event.Pending:
		return "Due: waiting for a free worker."
	}
	return "Nothing to do."
}

// Actions returns the actions on the campaign, those on its head first.
func (c Campaign) Actions() []operator.Action {
	all := HeadActions(c.HeadStatus)
	for _, a := range c.Offered() {
		all = append(all, a.Action)
	}
	return all
}

// MayUnskip reports whether a skip of the campaign may be undone.
func (c Campaign) MayUnskip(k event.Skip) bool { return k.Undoable(c.AppliedSeq) }

// PauseAction is the pause or resume that a projection takes, for all campaigns or for one.
func PauseAction(paused bool) operator.Action {
	if paused {
		return operator.ActionProjectionResume
	}
	return operator.ActionProjectionPause
}

// Action is the action on the projection for all campaigns.
func (i ProjectionInfo) Action() operator.Action { return PauseAction(i.Paused != nil) }

// Action is the action on the projection in its campaign; empty if there is none.
func (c Cursor) Action() operator.Action {
	if c.State == CursorQuarantined || c.PausedForAll {
		return ""
	}
	return PauseAction(c.State == CursorPaused)
}

// Actions returns the actions on the rows of an error group.
func (g ErrorGroup) Actions() []operator.Action {
	var all []operator.Action
	if g.Dead > 0 {
		all = append(all, operator.ActionOperationStart)
	}
	if g.Failed > 0 {
		all = append(all, operator.ActionRetryMany)
	}
	return append(all, operator.ActionNoteErrors)
}

// CampaignAction describes an action on a campaign, other than those on its head, for pages.
type CampaignAction struct {
	Action  operator.Action
	Does    string // continues a sentence after the verb: "stops applying its events; new events keep queueing."
	Hint    string // what to state as the reason
	Primary bool   // the action that the campaign needs
	// Fixes means that no decision is needed: the action is refused if the head is not the one shown, and
	// requires a reason only where reasons are mandatory.
	Fixes bool
}

// Verb is the action's button text and the start of sentences about it: "Pause".
func (a CampaignAction) Verb() string {
	verb, _, _ := strings.Cut(a.Action.Words(), " ")
	return verb
}

// Offered returns the actions on the campaign that its current state permits, in the order of pages.
func (c Campaign) Offered() []CampaignAction {
	replay := CampaignAction{Action: operator.ActionReplay, Does: "enqueues events that have no row; there are none now.", Hint: "why the rows are missing", Fixes: true}
	if n := c.Gap(); n > 0 {
		replay.Does = "enqueues " + event.Count(n, "event", "events") + " without a row, due now."
	}
	if c.Paused != nil {
		return []CampaignAction{replay, {Action: operator.ActionResume, Does: "lets workers apply its events again.", Hint: "why it can continue", Primary: true}}
	}
	return []CampaignAction{replay, {Action: operator.ActionPause, Does: "stops applying its events; new events keep queueing.", Hint: "why it must stop"}}
}

// ReleasedByHead is how many rows an action on the campaign's head releases. A retry releases only
// rows that would be released anyway.
func (c Campaign) ReleasedByHead() int64 {
	if c.HeadStatus != event.Dead {
		return 0
	}
	return c.BlockedBehind()
}

// Released is how many rows a requeue of the row releases: those waiting only for it.
func (r Row) Released() int64 {
	if !r.IsHead {
		return 0
	}
	return r.BlockedBehind
}
