package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/projection"
)

// projectionsCmd groups the commands on projections.
type projectionsCmd struct {
	List   projectionsListCmd   `cmd:"" help:"List the loaded projections."`
	Check  projectionsCheckCmd  `cmd:"" help:"Check projection files without a database."`
	Status projectionsStatusCmd `cmd:"" help:"Show the campaigns where projections are not live, and why."`
	kong.Plugins
}

// projectionsListCmd lists the definitions that --projections loads.
type projectionsListCmd struct{ jsonFlag }

// Run lists the projections; it opens no database.
func (c *projectionsListCmd) Run(a *app, set *projection.Set) error {
	infos := set.Infos()
	if c.JSON {
		return a.printJSON(map[string]any{"projections": infos})
	}
	return printTable(a.out, "NAME\tVERSION\tON FAILURE\tMAX ATTEMPTS\tTABLES\tSOURCE", infos, func(p campaign.ProjectionInfo) []any {
		most := "-"
		if p.MaxAttempts > 0 {
			most = strconv.Itoa(p.MaxAttempts)
		}
		return []any{p.Name, firstLine(p.Version, 12), p.OnFailure, most, strings.Join(p.Tables, ", "), p.Source}
	})
}

// projectionsCheckCmd checks definitions offline.
type projectionsCheckCmd struct {
	Dir string `arg:"" help:"A directory of projection files, or builtin:NAME."`
	jsonFlag
}

// Run checks the files. A fault names the file and line, and the exit code is 1.
func (c *projectionsCheckCmd) Run(ctx context.Context, a *app) error {
	set, err := projection.Check(ctx, c.Dir)
	doc := map[string]any{"ok": err == nil, "error": ""}
	if err == nil {
		doc["projections"], doc["warnings"] = set.Infos(), append([]string{}, set.Warnings()...)
	} else {
		doc["error"] = refusalText(err)
		fmt.Fprintln(a.err, "outboxweb:", doc["error"])
	}
	if c.JSON {
		if err := a.printJSON(doc); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return errFound
	case c.JSON:
		return nil
	}
	warnings := set.Warnings()
	for _, w := range warnings {
		fmt.Fprintln(a.err, "warning:", w)
	}
	for _, p := range set.Projections() {
		if p.MaxAttempts > 0 {
			fmt.Fprintf(a.out, "%s: max-attempts %d\n", p.Name, p.MaxAttempts)
		}
	}
	sum := "no problems found"
	if len(warnings) > 0 {
		sum = event.Count(int64(len(warnings)), "warning", "warnings")
	}
	fmt.Fprintf(a.out, "%s, %s\n", event.Count(int64(len(set.Projections())), "projection", "projections"), sum)
	return nil
}
