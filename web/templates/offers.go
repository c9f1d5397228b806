package templates

import (
	"slices"
	"strings"

	"outboxweb/internal/outbox"
)

// Offers reports whether who reads the page may do what a control leads to. A
// page shows no control that it does not offer.
func (p Page) Offers(action outbox.Action) bool {
	return !p.ReadOnly && p.Me.Role.Includes(action.Role())
}

func (p Page) offers(a outbox.CampaignAction) bool { return p.Offers(a.Action) }

// outside reports whether the page is for somebody who may not look: then it
// says what is wrong and nothing of what is inside.
func (p Page) outside() bool { return p.Me.Role == outbox.RoleNone }

// whyWithheld says why a page lacks the controls of some actions; it is empty
// when it lacks none.
func whyWithheld(p Page, actions []outbox.Action) string {
	if p.ReadOnly && len(actions) > 0 {
		return "This server is read-only."
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

// listedHoldActions are what may be done about projections of a list.
func listedHoldActions(list []outbox.ProjectionInfo) []outbox.Action {
	all := make([]outbox.Action, 0, len(list)+1)
	for _, i := range list {
		all = append(all, i.Action())
	}
	return append(all, outbox.ActionRunStart)
}

// cursorActions are what may be done about the projections of a campaign.
func cursorActions(list []outbox.Cursor) []outbox.Action {
	var all []outbox.Action
	for _, c := range list {
		if a := c.Action(); a != "" {
			all = append(all, a)
		}
	}
	return all
}

// groupActions are what may be done about errors that rows have in common.
func groupActions(groups []outbox.ErrorGroup) []outbox.Action {
	var all []outbox.Action
	for _, g := range groups {
		all = append(all, g.Actions()...)
	}
	return all
}

// troubleActions are what may be done about what the overview lists.
func troubleActions(v Overview) []outbox.Action {
	var all []outbox.Action
	for _, c := range v.Blocked {
		all = append(all, c.HeadStatus.HeadActions()...)
	}
	for _, g := range v.Groups.Groups[:min(len(v.Groups.Groups), causesShown)] {
		if g.Dead > 0 {
			all = append(all, outbox.ActionOperationStart)
		}
	}
	return all
}

// unskipActions are what may be done about a campaign's skips.
func unskipActions(v CampaignView) []outbox.Action {
	if slices.ContainsFunc(v.Skips.Items, v.Campaign.MayUnskip) {
		return []outbox.Action{outbox.ActionUnskip}
	}
	return nil
}
