package templates

import (
	"strings"

	"outboxweb/internal/outbox"
)

// Offers reports whether who reads the page may do what a control leads to. A
// page shows no control that it does not offer.
func (p Page) Offers(action outbox.Action) bool {
	return !p.ReadOnly && p.Me.Role.Includes(action.Role())
}

// outside reports whether the page is for somebody who may not look: then it
// says what is wrong and nothing of what is inside.
func (p Page) outside() bool { return p.Me.Role == outbox.RoleNone }

// whyWithheld says why a page lacks the controls of some actions; it is empty
// when it lacks none.
func whyWithheld(p Page, actions []outbox.Action) string {
	if p.ReadOnly && len(actions) > 0 {
		return "This server is read-only: it shows and changes nothing."
	}
	me := p.Me
	me.Name = Visible(me.Name)
	return me.Withheld(actions...)
}

// known reports whether somebody was asked who he is.
func known(who outbox.Identity) bool { return who.Auth != outbox.AuthLocal && who.Name != "" }

// whoInFull is an identity in one line.
func whoInFull(who outbox.Identity) string {
	text := Visible(who.Name) + ", " + string(who.Role) + " (" + string(who.Auth) + ")"
	if len(who.Groups) > 0 {
		text += "; groups: " + Visible(strings.Join(who.Groups, ", "))
	}
	return text
}

// headActions are what may be done about the head that holds a campaign up.
func headActions(s outbox.Status) []outbox.Action {
	switch s {
	case outbox.Dead:
		return []outbox.Action{outbox.ActRequeue}
	case outbox.Failed:
		return []outbox.Action{outbox.ActRetry}
	}
	return nil
}

// rowActions are what may be done about a row, by anybody.
func rowActions(d outbox.RowDetail) []outbox.Action {
	var all []outbox.Action
	if d.Row.Status == outbox.Dead || d.Row.IsHead {
		all = headActions(d.Row.Status)
	}
	if deadLetterable(d) {
		all = append(all, outbox.ActDeadLetter)
	}
	if skippable(d) {
		all = append(all, outbox.ActSkip)
	}
	return all
}

// deadLetterable reports whether the row is a failing head that nobody holds.
func deadLetterable(d outbox.RowDetail) bool {
	return d.Row.IsHead && d.Row.AttemptCount > 0 && (d.Row.Status == outbox.Failed || d.Row.Status == outbox.Pending)
}

// skippable reports whether the row holds its campaign up, so that its event
// may be skipped.
func skippable(d outbox.RowDetail) bool {
	return d.Row.IsHead && d.Event.Skipped == nil && (d.Row.Status == outbox.Dead || d.Row.Status == outbox.Failed)
}

// campaignActions are what may be done about a campaign as it is.
func campaignActions(c outbox.Campaign) []outbox.Action {
	return append(headActions(c.HeadStatus), outbox.ActReplay, pauseOrResume(c.Paused != nil, outbox.ActPause, outbox.ActResume))
}

// holdAct is what may be done about a projection for all campaigns, or a
// campaign's cursor.
func holdAct(paused bool) outbox.Action {
	return pauseOrResume(paused, outbox.ActProjectionPause, outbox.ActProjectionResume)
}

func pauseOrResume(paused bool, pause, resume outbox.Action) outbox.Action {
	if paused {
		return resume
	}
	return pause
}

// listedHoldActions are what may be done about projections of a list.
func listedHoldActions(list []outbox.ProjectionInfo) []outbox.Action {
	all := make([]outbox.Action, 0, len(list)+1)
	for _, i := range list {
		all = append(all, holdAct(i.Paused != nil))
	}
	return append(all, outbox.ActRunStart)
}

// cursorActions are what may be done about the projections of a campaign.
func cursorActions(list []outbox.Cursor) []outbox.Action {
	var all []outbox.Action
	for _, c := range list {
		if c.State != outbox.CursorQuarantined && !c.PausedForAll {
			all = append(all, holdAct(c.State == outbox.CursorPaused))
		}
	}
	return all
}

// publisherActions are what may be done about a publisher as it is.
func publisherActions(v PublisherView) []outbox.Action {
	var all []outbox.Action
	add := func(possible bool, a outbox.Action) {
		if possible {
			all = append(all, a)
		}
	}
	add(pausablePublisher(v.Publisher), outbox.ActPublisherPause)
	add(resumablePublisher(v.Publisher), outbox.ActPublisherResume)
	add(resettablePublisher(v.Publisher), outbox.ActPublisherReset)
	add(true, outbox.ActPublisherSeek)
	add(v.Tests, outbox.ActPublisherTest)
	add(v.InTheWay() != nil, outbox.ActPublisherSkip)
	return all
}

// groupActions are what may be done about errors that rows have in common.
func groupActions(groups []outbox.ErrorGroup) []outbox.Action {
	var all []outbox.Action
	for _, g := range groups {
		if g.Dead > 0 {
			all = append(all, outbox.ActOperationStart)
		}
		if g.Failed > 0 {
			all = append(all, outbox.ActRetryMany)
		}
		all = append(all, outbox.ActNoteErrors)
	}
	return all
}

// troubleActions are what may be done about what the overview lists.
func troubleActions(v Overview) []outbox.Action {
	var all []outbox.Action
	for _, c := range v.Blocked {
		all = append(all, headActions(c.HeadStatus)...)
	}
	for _, g := range v.Groups.Groups[:min(len(v.Groups.Groups), causesShown)] {
		if g.Dead > 0 {
			all = append(all, outbox.ActOperationStart)
		}
	}
	return all
}

// operationAct is what may be done about an operation as it is; empty when
// nothing may.
func operationAct(o outbox.Operation) outbox.Action {
	switch {
	case o.Status == outbox.OperationRunning:
		return outbox.ActOperationCancel
	case o.Acknowledgeable():
		return outbox.ActOperationAcknowledge
	}
	return ""
}

// runAct is what may be done about a run as it is; empty when nothing may.
func runAct(r outbox.Run) outbox.Action {
	switch {
	case r.Status.Active() && r.Status != outbox.RunCancelling:
		return outbox.ActRunCancel
	case resumable(r):
		return outbox.ActRunResume
	}
	return ""
}

// runActions are what may be done about a run, and by another like it.
func runActions(r outbox.Run) []outbox.Action {
	var all []outbox.Action
	if a := runAct(r); a != "" {
		all = append(all, a)
	}
	if !r.Status.Active() {
		all = append(all, outbox.ActRunStart)
	}
	return all
}

// unskipActions are what may be done about a campaign's skips.
func unskipActions(v CampaignView) []outbox.Action {
	for _, k := range v.Skips.Items {
		if mayUnskip(v.Campaign, k) {
			return []outbox.Action{outbox.ActUnskip}
		}
	}
	return nil
}
