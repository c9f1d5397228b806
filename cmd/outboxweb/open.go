package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/mattn/go-isatty"

	"github.com/outboxweb/outboxweb/internal/actions"
	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/intake"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/timetravel"
)

// storeOptions returns the store's options from the common flags, for a command that uses existing
// databases: it neither creates nor migrates them.
func (a *app) storeOptions() store.Options {
	return store.Options{Journal: a.JournalDB, Projections: a.ProjectionsDB, NoCreate: true, NoMigrate: true,
		Mode: campaign.Mode(a.Mode), MaxPayload: a.MaxPayload, ReasonFrom: a.ReasonFrom, Log: a.logger()}
}

// migratingOptions returns storeOptions for a command that migrates both databases to this
// program's version.
func (a *app) migratingOptions() store.Options {
	o := a.storeOptions()
	o.NoCreate, o.NoMigrate = false, false
	return o
}

// execute runs a command, once its flags have passed its check. Its Run may take an open store, which is
// closed afterwards, the alerts or the sources of the configuration file on it, the projections, or what
// actions work on.
func (a *app) execute(ctx context.Context, parsed *kong.Context) error {
	if err := cmp.Or(checkValues(parsed), checkLimits(parsed)); err != nil {
		return err
	}
	if c, checks := parsed.Selected().Target.Addr().Interface().(interface{ check() error }); checks {
		if err := c.check(); err != nil {
			return err
		}
	}
	var opened *engine.Engine
	defer func() {
		if opened != nil {
			opened.Close()
		}
	}()
	open := sync.OnceValues(func() (st *engine.Engine, err error) {
		if st, err = a.openStore(ctx, a.storeOptions()); err == nil {
			opened = st
		}
		return st, err
	})
	parsed.BindTo(ctx, (*context.Context)(nil))
	for _, provider := range []any{
		open,
		func() (*alerts.Alerts, error) { return a.alerts(open) },
		func() (*intake.Intake, error) { return a.intake(open) },
		func() (*projection.Set, error) { return a.loadProjections(ctx) },
		func() (*actions.Features, error) { return a.features(ctx, parsed.Selected().Parent.Name, open) },
	} {
		if err := parsed.BindToProvider(provider); err != nil {
			return err
		}
	}
	return parsed.Run(a)
}

// openStore opens both databases and registers the event types that
// --audit-only names. The caller closes the store.
func (a *app) openStore(ctx context.Context, o store.Options) (*engine.Engine, error) {
	opened, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	st := engine.Wire(opened)
	if o.ReadOnly {
		return st, nil
	}
	if err := st.RegisterAuditOnly(ctx, a.AuditOnly); err != nil {
		st.Close()
		return nil, asUsage("--audit-only", err)
	}
	return st, nil
}

// loadProjections loads the files of --projections for the projections database, and checks them
// before any database is touched. An error names the file and line at fault.
func (a *app) loadProjections(ctx context.Context) (*projection.Set, error) {
	set, err := engine.LoadProjections(ctx, a.ProjectionsDB, a.ProjectionFiles...)
	if err != nil {
		return nil, asUsage("--projections", err)
	}
	return set, nil
}

// openBoth opens the store, loads the projections and makes their tables: for a command that applies
// events with them.
func (a *app) openBoth(ctx context.Context, o store.Options) (*engine.Engine, *projection.Set, error) {
	st, set, err := a.openUninstalled(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if err := engine.Install(ctx, st.Store, set); err != nil {
		st.Close()
		return nil, nil, err
	}
	return st, set, nil
}

// openUninstalled opens the store and loads the projections, which may be other versions than those
// that servers apply events with.
func (a *app) openUninstalled(ctx context.Context, o store.Options) (*engine.Engine, *projection.Set, error) {
	set, err := a.loadProjections(ctx)
	if err != nil {
		return nil, nil, err
	}
	st, err := a.openStore(ctx, o)
	return st, set, err
}

// openReading is openUninstalled for a command that only reads.
func (a *app) openReading(ctx context.Context) (*engine.Engine, *projection.Set, error) {
	o := a.storeOptions()
	o.ReadOnly = true
	return a.openUninstalled(ctx, o)
}

// refuseOthers refuses projections in other versions than those that events are applied with, for a
// command that compares live rows with what the projections make of the journal; only those named
// matter, none meaning all.
func refuseOthers(ctx context.Context, st *engine.Engine, set *projection.Set, only ...string) error {
	versions, err := st.ReadModel().Versions(ctx)
	if err != nil {
		return err
	}
	for _, p := range set.Projections() {
		switch is := versions[p.Name]; {
		case is == p.Version || len(only) > 0 && !slices.Contains(only, p.Name):
			continue
		case is == "":
			return usagef("--projections: no server has loaded projection %s, or none has any more; name the files that outboxweb serve was started with, or start it with these", p.Name)
		}
		return usagef("--projections: this is not the version of projection %s that events are applied with; name the files that outboxweb serve was started with; what other files would change: outboxweb runs start rebuild --all --dry-run", p.Name)
	}
	return nil
}

// install makes the tables of projections, for a command that builds their rows. Beside a running worker they
// must be in the versions that it applies events with, since it goes on with these.
func install(ctx context.Context, st *engine.Engine, set *projection.Set) error {
	summary, err := st.Summary(ctx)
	if err == nil && summary.Worker.Running {
		err = refuseOthers(ctx, st, set)
	}
	if err != nil {
		return err
	}
	return engine.Install(ctx, st.Store, set)
}

// notLoaded returns the projections that events are applied with and the command does not have, such
// as those that a service has in Go.
func notLoaded(set *projection.Set, versions map[string]string) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if versions[name] != "" && set.Named(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

func (a *app) printNotLoaded(names []string) {
	for _, name := range names {
		fmt.Fprintf(a.out, "not compared: projection %s, which this command has not loaded\n", name)
	}
}

// installed returns the projections that events are applied with, by name. Nothing else is known of them.
func installed(ctx context.Context, st *engine.Engine) (loaded []campaign.ProjectionInfo, err error) {
	versions, err := st.ReadModel().Versions(ctx)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if hash := versions[name]; hash != "" {
			loaded = append(loaded, campaign.ProjectionInfo{Name: name, Version: hash})
		}
	}
	return loaded, err
}

// readShown returns what read returns, its secrets hidden, of databases that are only read, with the
// projections of this command, which may be other versions than the installed ones and are not installed.
func readShown[T any](ctx context.Context, a *app, f redactFlags, read func(*redact.Redactor, *engine.Engine, *projection.Set, *timetravel.Travel) (T, error)) (found T, err error) {
	hide, err := f.redactor()
	if err != nil {
		return found, err
	}
	st, set, err := a.openReading(ctx)
	if err != nil {
		return found, err
	}
	defer st.Close()
	travel := timetravel.New(timetravel.Config{Store: st.Store, Set: set})
	defer travel.Close()
	if found, err = read(hide, st, set, travel); err != nil {
		return found, err
	}
	return redact.Shown(hide, found), nil
}

// command returns a command given on the command line, by the operating system's user.
func command(reason string) operator.Command {
	return operator.Command{By: operator.Operator{Name: osUser(), Via: "cli", Auth: operator.AuthOS, Role: operator.RoleAdmin}, Reason: reason}
}

func osUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid-" + strconv.Itoa(os.Getuid())
}

// confirming performs an action with the flags --reason and --confirm. If the action requires a
// phrase and none was given, it prompts once when attached to a terminal; otherwise it is refused
// with the flag to use.
func (a *app) confirming(reason, confirm string, act func(operator.Command) error) error {
	o := command(reason)
	o.Confirm = confirm
	err := act(o)
	refusal, refused := errors.AsType[*event.Refusal](err)
	if refused && refusal.Confirm != "" && o.Confirm == "" && a.atTerminal() {
		fmt.Fprintln(a.err, refusal)
		line := bufio.NewScanner(a.in)
		line.Scan() // at the end of the input the phrase is empty
		o.Confirm = line.Text()
		err = act(o)
		refusal, refused = errors.AsType[*event.Refusal](err)
	}
	if refused && refusal.Confirm != "" {
		return usagef("%s; to confirm it, add --confirm %s", refusal.Detail, event.ShellWord(refusal.Confirm))
	}
	return err
}

// atTerminal reports whether the command can prompt.
func (a *app) atTerminal() bool {
	in, ok := a.in.(*os.File)
	return ok && isatty.IsTerminal(in.Fd())
}
