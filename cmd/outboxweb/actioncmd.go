package main

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/actions"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/request"
)

// actionCmd is the command of an action that needs no more than its arguments and flags. They are those
// of the action's object and request.
type actionCmd struct {
	Call actions.Call `embed:""`
	jsonFlag
	name string // of the command, without its group
}

// addActions adds a command for each action that has a name on the command line and no command of its own.
func (c *cli) addActions() {
	for _, action := range actions.All {
		parent, name := reflect.ValueOf(c).Elem(), action.Action.Command()
		if group, command, found := strings.Cut(name, " "); found {
			parent, name = commandOf(parent, group), command
		}
		if name == "" || commandOf(parent, name).IsValid() {
			continue
		}
		tag := fmt.Sprintf(`cmd:"" name:%q help:%q`, name, action.Summary+".")
		made := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "Action", Type: reflect.TypeFor[actionCmd](), Tag: reflect.StructTag(tag)}}))
		made.Elem().Field(0).Set(reflect.ValueOf(actionCmd{Call: action.New(), name: name}))
		plugins := parent.FieldByName("Plugins").Addr().Interface().(*kong.Plugins)
		*plugins = append(*plugins, made.Interface())
	}
}

// commandOf is the field of a command, by its name below a group or the program.
func commandOf(parent reflect.Value, name string) reflect.Value {
	return parent.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, strings.ReplaceAll(name, "-", "")) })
}

func (c *actionCmd) check() error {
	_, asked := c.Call.Fields()
	needs := func(f reflect.StructField) bool { return request.Name(f) == "reason" && request.Required(f) }
	if request.Command(asked, operator.Operator{}).Reason == "" && slices.ContainsFunc(request.Fields(reflect.TypeOf(asked).Elem()), needs) {
		return usagef("a %s needs --reason TEXT", c.name)
	}
	return nil
}

// Run performs the action and prints what it answers with.
func (c *actionCmd) Run(ctx context.Context, a *app, features *actions.Features) error {
	_, asked := c.Call.Fields()
	o := request.Command(asked, command("").By)
	return a.confirming(o.Reason, o.Confirm, func(o operator.Command) error {
		result, err := c.Call.Do(ctx, features, o)
		if err != nil {
			return err
		}
		return c.print(a, result, "%s", c.Call.Says(result))
	})
}

// features are what the actions of a group of commands work on: of the configuration and the projections only what that
// group needs.
func (a *app) features(ctx context.Context, group string, open func() (*engine.Engine, error)) (f *actions.Features, err error) {
	f = new(actions.Features)
	switch group {
	case "alerts":
		f.Alerts, err = a.alerts(open)
	case "intake":
		f.Intake, err = a.intake(open)
	case "projections":
		set, failed := a.loadProjections(ctx)
		if err = failed; err == nil {
			f.Projections = set.Infos()
		}
	}
	if err != nil {
		return nil, err
	}
	st, err := open()
	if err != nil {
		return nil, err
	}
	f.Queue, f.Maintenance, f.Operations, f.Runs, f.Tokens, f.Publishers, f.Facts = st.Queue, st.Maintenance, st.Operations, st.Runs, st.Tokens, st.Publishing, st.Facts
	f.ViewCampaign = func(ctx context.Context, c campaign.Campaign) campaign.CampaignView {
		summary, _ := st.Summary(ctx) // the action is done, whatever is around it
		return c.View(time.Now(), summary.Surroundings())
	}
	return f, nil
}
