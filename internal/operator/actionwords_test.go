package operator

import (
	"github.com/outboxweb/outboxweb/internal/must"
	"slices"
	"testing"
)

func TestActionWords_eachActionHasItsOwn(t *testing.T) {
	t.Parallel()
	named, listed := map[string]Action{}, map[string]Action{}
	for _, info := range actions {
		a, words := info.Action, info.Words
		must.Hold(t, words != "" && words != string(a) && info.Choice != "", "%s has no words", a)
		must.Hold(t, slices.Contains(Roles, info.Role), "%s is for nobody", a)
		must.Hold(t, listed[info.Choice] == "", "%s and %s are both %q in lists", a, listed[info.Choice], info.Choice)
		must.Hold(t, named[words] == "", "%s and %s are both %q", a, named[words], words)
		listed[info.Choice], named[words] = a, a
	}
	must.Equal(t, len(infoOf), len(actions), "lines of the table are about", "actions")
}

func TestWithheld_groupsByRole(t *testing.T) {
	t.Parallel()
	ana := Identity{Name: "ana@example.org", Role: RoleViewer}
	ben := Identity{Name: "ben@example.org", Role: RoleOperator}
	for _, c := range []struct {
		who     Identity
		actions []Action
		want    string
	}{
		{ana, []Action{ActionRequeue}, "Requeue needs the role operator; you are ana@example.org, a viewer."},
		{ana, []Action{ActionSkip, ActionRequeue, ActionRetry}, "Requeue and retry now need the role operator, skip an event needs the role admin; you are ana@example.org, a viewer."},
		{ana, []Action{ActionPause, ActionReplay, ActionRunStart}, "Pause a campaign, replay a campaign and start a run need the role operator; you are ana@example.org, a viewer."},
		{ben, []Action{ActionSkip, ActionRequeue, ActionRetry}, "Skip an event needs the role admin; you are ben@example.org, an operator."},
		{ben, []Action{ActionRequeue}, ""},
		{ana, nil, ""},
		{Local(), []Action{ActionSkip, ActionRequeue, ActionTokenCreate}, ""},
		{Identity{Role: RoleViewer}, []Action{ActionRequeue}, "Requeue needs the role operator; you are a viewer."},
		{Identity{Name: "eve"}, []Action{ActionRequeue}, "Requeue needs the role operator; you are eve, without a role."},
	} {
		must.Equal(t, c.who.Withheld(c.actions...), c.want, c.actions, "of")
	}
}

// A service that embeds the engine names no groups.
func TestIdentity_Lacks(t *testing.T) {
	t.Parallel()
	for how, want := range map[Auth]string{
		AuthProxyHeader: "this needs the role admin; you are ana, a viewer, in none of the groups that a rule names. Ask an administrator of this server to give you or one of your groups that role",
		AuthToken:       "this needs the role admin; you are ana, a viewer. Ask an administrator of this server for a token with that role",
		AuthHost:        "this needs the role admin; you are ana, a viewer. Ask an administrator of this service to give you that role",
	} {
		must.Equal(t, (Identity{Name: "ana", Auth: how, Role: RoleViewer}).Lacks(RoleAdmin), want, how)
	}
}
