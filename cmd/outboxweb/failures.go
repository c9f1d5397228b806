package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// failuresCmd lists the errors that rows have in common.
type failuresCmd struct {
	List        failuresListCmd        `cmd:"" help:"Group failed and dead rows by error."`
	Explain     failuresExplainCmd     `cmd:"" help:"Explain why an event fails: the statement, its values, and the row that is there."`
	Projections failuresProjectionsCmd `cmd:"" help:"List events that failed in projections and quarantined them or block campaigns, newest first."`
	Note        failuresNoteCmd        `cmd:"" help:"Annotate rows with the same error; an empty note removes it."`
}

type failuresListCmd struct{ jsonFlag }

// Run lists the groups.
func (c *failuresListCmd) Run(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(st *engine.Engine) error {
		all, err := st.ErrorGroups(ctx)
		if err != nil {
			return err
		}
		versions, loaded, err := installed(ctx, st)
		if err != nil {
			return err
		}
		running, err := st.Operations.Requeuing(ctx)
		if err != nil {
			return err
		}
		groups := all.Assessed(outbox.Running{Build: version, Versions: versions}, running)
		if err := st.Runs.RestOnRehearsals(ctx, groups, loaded); err != nil {
			return err
		}
		quarantined, more, err := st.ReadModel().QuarantineCauses(ctx)
		if err != nil {
			return err
		}
		all.More = all.More || more
		if c.JSON {
			return a.printJSON(map[string]any{"groups": groups, "capped": all.Capped(), "more": all.More, "rehearsed": all.Rehearsed, "quarantined": quarantined})
		}
		if err := a.printGroups(groups, all); err != nil || len(quarantined) == 0 {
			return err
		}
		fmt.Fprintln(a.out, "\nprojections are quarantined, which a requeue does not reach:")
		return printTable(a.out, "PROJECTION\tCAMPAIGNS\tSINCE\tLAST\tFINGERPRINT\tERROR", quarantined, func(q outbox.QuarantineCause) []any {
			return []any{q.Projection, outbox.AtLeast(q.Campaigns, q.Capped), stamp(q.FirstAt), stamp(q.LastAt), firstLine(q.Fingerprint, 80), firstLine(q.Example, 80)}
		})
	})
}

// worstPrinted is the number of campaigns that the table names for each error.
const worstPrinted = 3

func (a *app) printGroups(groups []outbox.AssessedGroup, all outbox.ErrorGroups) error {
	if says := all.Rehearsed.Text(); says != "" {
		fmt.Fprintln(a.out, says)
	}
	if all.More {
		fmt.Fprintln(a.out, outbox.MoreCauses)
	}
	if len(groups) == 0 {
		fmt.Fprintln(a.out, "no row is failed or dead")
		return nil
	}
	return printTable(a.out, "DEAD\tFAILED\tWOULD FAIL\tREACH\tRELEASES\tSINCE\tNEXT RETRY\tBUILDS\tWORST CAMPAIGNS\tOPERATION\tFINGERPRINT\tERROR\tVERDICT\tNOTE", groups, func(g outbox.AssessedGroup) []any {
		note, operation := "", "-"
		if g.Note != nil {
			note = g.Note.Note
		}
		if g.Operation != nil {
			operation = fmt.Sprintf("%d (%s)", g.Operation.ID, g.Operation.Phase)
		}
		return []any{g.Dead, g.Failed, g.Rehearsed, g.Reach(), g.Released, timeOrDash(g.FirstAt), timeOrDash(g.NextAttemptAt), triedBuilds(g), worstCampaigns(g), operation,
			firstLine(g.Fingerprint, 80), firstLine(g.Example, 80), g.Verdict, firstLine(note, 80)}
	})
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func triedBuilds(g outbox.AssessedGroup) string {
	names := make([]string, len(g.Builds))
	for i, b := range g.Builds {
		names[i] = cmp.Or(b.Name, "unknown")
	}
	return cmp.Or(firstLine(strings.Join(names, ", "), 80), "-")
}

func worstCampaigns(g outbox.AssessedGroup) string {
	var names []string
	for _, c := range g.Worst[:min(len(g.Worst), worstPrinted)] {
		names = append(names, fmt.Sprintf("%s event %d", c.CampaignID, c.HeadSeq))
	}
	return cmp.Or(firstLine(strings.Join(names, ", "), 120), "-")
}

type failuresNoteCmd struct {
	outbox.NoteRequest
	jsonFlag
}

// Run pins the note.
func (c *failuresNoteCmd) Run(ctx context.Context, a *app) error {
	return a.withStore(ctx, func(st *engine.Engine) error {
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
