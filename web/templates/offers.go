package templates

import (
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Offers reports whether the reader may perform an action. A page only shows controls of offered
// actions.
func (p Page) Offers(action outbox.Action) bool {
	return !p.ReadOnly && p.Me.Role.Includes(action.Role())
}

func (p Page) offers(a outbox.CampaignAction) bool { return p.Offers(a.Action) }

// outside reports whether the reader may not read: the page then says what is wrong and nothing
// else.
func (p Page) outside() bool { return p.Me.Role == outbox.RoleNone }

// whyWithheld says why a page lacks the controls of some actions; empty if it lacks none.
func whyWithheld(p Page, actions []outbox.Action) string {
	if p.ReadOnly && len(actions) > 0 {
		return "This server is read-only."
	}
	me := p.Me
	me.Name = Visible(me.Name)
	return me.Withheld(actions...)
}

// known reports whether the reader is authenticated.
func known(who outbox.Identity) bool { return who.Auth != outbox.AuthLocal && who.Name != "" }

func whoInFull(who outbox.Identity) string {
	text := Visible(who.Name) + ", " + string(who.Role) + " (" + string(who.Auth) + ")"
	if len(who.Groups) > 0 {
		text += "; groups: " + Visible(strings.Join(who.Groups, ", "))
	}
	return text
}

func listedHoldActions(list []outbox.ProjectionInfo) []outbox.Action {
	all := make([]outbox.Action, 0, len(list)+1)
	for _, i := range list {
		all = append(all, i.Action())
	}
	return append(all, outbox.ActionRunStart)
}

// cursorActions are the actions on the projections of a campaign.
func cursorActions(list []outbox.Cursor) []outbox.Action {
	var all []outbox.Action
	for _, c := range list {
		if a := c.Action(); a != "" {
			all = append(all, a)
		}
	}
	return all
}

// groupActions are the actions on the rows of error groups.
func groupActions(p Page, groups []outbox.AssessedGroup) []outbox.Action {
	var all []outbox.Action
	for _, g := range groups {
		all = append(all, rehearsing(p, g.Fingerprint, g.Actions()...)...)
	}
	return all
}

// troubleActions are the actions on the objects that the overview lists.
func troubleActions(p Page, v Overview) []outbox.Action {
	var all []outbox.Action
	for _, g := range v.Causes[:min(len(v.Causes), causesShown)] {
		if g.Dead > 0 {
			all = append(all, outbox.ActionOperationStart)
		}
	}
	if slices.ContainsFunc(v.blocks(), func(f finding.Finding) bool { return f.Runs }) {
		all = append(all, outbox.ActionRunStart)
	}
	return all
}

// unskipActions are the actions on a campaign's skips.
func unskipActions(v CampaignView) []outbox.Action {
	if slices.ContainsFunc(v.Skips.Items, v.Campaign.MayUnskip) {
		return []outbox.Action{outbox.ActionUnskip}
	}
	return nil
}
