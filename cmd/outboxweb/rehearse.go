package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/request"
	"github.com/outboxweb/outboxweb/web/templates/jobs"
)

// rehearseCmd tries changed projection files on copies of blocked campaigns.
type rehearseCmd struct {
	Changed []string `arg:"" name:"changed" placeholder:"PATH" help:"Changed projection files, or directories of them. --projections names the loaded ones."`
	replay.RehearsalRequest
	actionFlags
}

func (c *rehearseCmd) check() (err error) {
	c.Files, err = readChanged(c.Changed)
	return err
}

// Run rehearses and prints the answer. It exits with 1 unless every blocked campaign would pass
// or, if none is blocked, the compared ones keep their rows.
func (c *rehearseCmd) Run(ctx context.Context, a *app, set *projection.Set, st *engine.Engine) error {
	if err := refuseOthers(ctx, st, set); err != nil {
		return err
	}
	run, err := st.Runs.Rehearse(ctx, command(c.Reason), c.RehearsalRequest, set)
	if err != nil {
		return err
	}
	if run, err = a.followRun(ctx, st, set, run.ID); err != nil {
		return err
	}
	if run.Kind == replay.RunVerify {
		return a.printVerified(ctx, st, set, run, nil, c.jsonFlag)
	}
	loaded, err := installed(ctx, st) // also those that this command has not loaded
	if err != nil {
		return err
	}
	d, err := st.Runs.Rehearsal(ctx, run.ID, loaded)
	if err != nil {
		return err
	}
	err = c.show(a, d, func() error { return a.printRehearsal(d) })
	return cmp.Or(err, problems(!d.Passed() && !d.Unchanged()))
}

// readChanged reads the named files, and the *.sql files of named directories.
func readChanged(paths []string) (files []campaign.RehearsalFile, err error) {
	for _, path := range paths {
		names := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if names, err = filepath.Glob(filepath.Join(path, "*.sql")); err != nil || len(names) == 0 {
				return nil, usagef("the directory %q has no .sql file", path)
			}
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err == nil && info.Size() > replay.MaxRehearsalFiles {
				return nil, usagef("%s has %s; the limit is %s", name, event.Bytes(info.Size()), event.Bytes(replay.MaxRehearsalFiles))
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, usagef("cannot read %s: %v", name, event.Cause(err))
			}
			files = append(files, campaign.RehearsalFile{Name: filepath.Base(name), Text: string(text)})
		}
	}
	return files, nil
}

func (a *app) printRehearsal(d replay.FixRehearsal) error {
	if d.Run.Status != replay.RunCompleted {
		fmt.Fprintf(a.out, "run %d is %s: %s\n", d.Run.ID, d.Run.Status, d.Run.Error)
	}
	err := a.printAnswer(d)
	_, end := fmt.Fprintf(a.out, "\nthe rows that would change: outboxweb runs show %d, or /runs/%d\n", d.Run.ID, d.Run.ID)
	return errors.Join(err, end)
}

// printAnswer prints what a rehearsal tried, its answer, and its results by outcome.
func (a *app) printAnswer(d replay.FixRehearsal) error {
	for _, v := range d.Versions {
		instead := ", which was loaded"
		if v.Before != v.Rehearsed {
			instead = " instead of " + event.ShortHash(v.Before)
		}
		fmt.Fprintf(a.out, "rehearsed: %s %s%s\n", v.Projection, event.ShortHash(v.Rehearsed), instead)
	}
	fmt.Fprintf(a.out, "%s\n%s\n\n", d.Answer, d.Effects)
	err := printColumns(a.out, jobs.RehearsalColumns(d.Run.ID), d.Groups)
	for _, v := range d.Versions {
		if v.OtherSchema {
			fmt.Fprintf(a.out, "\nthe changed file of %s gives its tables another form: drop them, restart and rebuild before requeuing\n", v.Projection)
		}
	}
	a.printNext(d)
	return err
}

// printNext prints what to do after a rehearsal that has ended.
func (a *app) printNext(d replay.FixRehearsal) {
	requeue := request.CommandLine("outboxweb requeue --dead", operations.OperationStartRequest{
		Filter: &campaign.DeadRows{Fingerprint: d.Fingerprint}, OperationOptions: operations.OperationOptions{Canary: true, Rehearsal: d.Run.ID}})
	replay := overScope("outboxweb runs start replay", replay.RunRequest{Projections: d.Replayable})
	first := "load these files and restart, then"
	switch {
	case d.Loaded:
		first = "these files are loaded:"
	case !d.Passed():
		first = "they do not fix every campaign; for those that would pass, load these files and restart, then"
	}
	switch {
	case d.Bad():
		fmt.Fprintln(a.out, "\ndo not load these files: change them, and rehearse again")
	case d.Run.Status.Active() || !d.Requeues() && !d.Replays():
	case len(d.Others) > 0 && d.Requeues():
		fmt.Fprintf(a.out, "\nno requeue can rest on this rehearsal: it %s\n", d.Others[0].Ran())
	default:
		fmt.Fprintln(a.out)
		if d.Requeues() {
			fmt.Fprintf(a.out, "%s requeue the blocked campaigns, a canary first: %s\n", first, requeue)
			first = "then"
		}
		if d.Replays() {
			fmt.Fprintf(a.out, "%s replay what is quarantined, which a requeue does not reach: %s\n", first, replay)
		}
	}
}
