package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// findCmd finds what a text names.
type findCmd struct {
	Text []string `arg:"" help:"An id, a name, an entity such as order:17, or a part of an error; with a range of time at its end."`
	jsonFlag
	redactFlags
}

// Run prints what the search of a server finds, but for actions.
func (c *findCmd) Run(ctx context.Context, a *app, st *engine.Engine) error {
	loaded, err := installed(ctx, st)
	if err != nil {
		return err
	}
	hide, err := c.redactor()
	if err != nil {
		return err
	}
	server := handlers.Config{Redact: hide, Queue: st.Queue, Search: st.Search, Operations: st.Operations, Runs: st.Runs, Publishers: st.Publishing, Intake: st.Intake, Projections: loaded, Now: time.Now}
	found, err := server.Find(ctx, strings.Join(c.Text, " "))
	if err != nil {
		return err
	}
	answer := handlers.FoundIn(ui.NewLinks("/"), found)
	if c.JSON {
		return a.printJSON(answer)
	}
	if len(answer.Found) == 0 {
		fmt.Fprintln(a.out, "nothing is named so; texts of events: outboxweb events --q TEXT")
		return nil
	}
	return printTable(a.out, "KIND\tWHAT\tNOTE\tPAGE", answer.Found, func(f handlers.FoundItem) []any {
		return []any{f.Kind, firstLine(f.Title, 100), firstLine(f.Note, 60), f.URL}
	})
}
