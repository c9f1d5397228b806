package ui

import (
	"strings"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// Offers reports whether the reader may perform an action. A page only shows controls of offered
// actions.
func (p Page) Offers(action operator.Action) bool {
	return !p.ReadOnly && p.Me.Role.Includes(action.Role())
}

// Outside reports whether the reader may not read: the page then says what is wrong and nothing
// else.
func (p Page) Outside() bool { return p.Me.Role == operator.RoleNone }

// whyWithheld says why a page lacks the controls of some actions; empty if it lacks none.
func whyWithheld(p Page, actions []operator.Action) string {
	if p.ReadOnly && len(actions) > 0 {
		return "This server is read-only."
	}
	me := p.Me
	me.Name = Visible(me.Name)
	return me.Withheld(actions...)
}

// Known reports whether the reader is authenticated.
func Known(who operator.Identity) bool { return who.Auth != operator.AuthLocal && who.Name != "" }

func WhoInFull(who operator.Identity) string {
	text := Visible(who.Name) + ", " + string(who.Role) + " (" + string(who.Auth) + ")"
	if len(who.Groups) > 0 {
		text += "; groups: " + Visible(strings.Join(who.Groups, ", "))
	}
	return text
}

// NeedsOwnPage reports whether an action that releases so many rows is offered not in a list, but
// on its own page with a preview.
func (p Page) NeedsOwnPage(released int64) bool {
	return operator.ActionRequeue.Phrase(operator.Reach{Released: released}) != "" || p.NeedsReason(released)
}

func (p Page) NeedsReason(released int64) bool {
	return operator.NeedsReason(p.ReasonFrom, released)
}
