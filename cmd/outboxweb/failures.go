package main

import (
	"context"
	"fmt"

	"outboxweb/internal/outbox"
)

// failuresCmd lists the errors that rows have in common.
type failuresCmd struct {
	List        failuresListCmd        `cmd:"" help:"Group failed and dead rows by error."`
	Projections failuresProjectionsCmd `cmd:"" help:"List events that quarantined projections, newest first."`
	Note        failuresNoteCmd        `cmd:"" help:"Annotate rows with the same error; an empty note removes it."`
}

type failuresListCmd struct{ jsonFlag }

// Run lists the groups.
func (c *failuresListCmd) Run(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(st *engine) error {
		all, err := st.ErrorGroups(ctx)
		if err != nil {
			return err
		}
		versions, err := st.ReadModel().Versions(ctx)
		if err != nil {
			return err
		}
		groups := all.Assessed(outbox.Running{Build: version, Versions: versions})
		if c.JSON {
			return a.printJSON(map[string]any{"groups": groups, "capped": all.Capped})
		}
		return a.printGroups(groups)
	})
}

func (a *app) printGroups(groups []outbox.AssessedGroup) error {
	if len(groups) == 0 {
		fmt.Fprintln(a.out, "no row is failed or dead")
		return nil
	}
	return printTable(a.out, "DEAD\tFAILED\tRELEASES\tFINGERPRINT\tERROR\tVERDICT\tNOTE", groups, func(g outbox.AssessedGroup) []any {
		note := ""
		if g.Note != nil {
			note = g.Note.Note
		}
		return []any{g.Dead, g.Failed, g.Released, firstLine(g.Fingerprint, 80), firstLine(g.Example, 80), g.Verdict, firstLine(note, 80)}
	})
}

type failuresNoteCmd struct {
	Fingerprint string `arg:"" help:"The fingerprint of the error."`
	Note        string `arg:"" help:"The note."`
	actionFlags
}

// Run pins the note.
func (c *failuresNoteCmd) Run(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(st *engine) error {
		note, err := st.SetGroupNote(ctx, command(c.Reason), c.Fingerprint, c.Note)
		if err != nil {
			return err
		}
		did := "note saved"
		if note == nil {
			did = "note removed"
		}
		return c.print(a, map[string]any{"fingerprint": c.Fingerprint, "note": note}, "%s", did)
	})
}
