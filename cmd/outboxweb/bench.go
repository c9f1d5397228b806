package main

import (
	"context"
	"fmt"

	"github.com/outboxweb/outboxweb/internal/bench"
	"github.com/outboxweb/outboxweb/internal/event"
)

// benchCmd measures this program on the user's own storage: on their disk, in new directories, or
// on their server, in new schemas. Both are removed afterwards.
type benchCmd struct {
	Dir   string   `placeholder:"DIR" help:"The directory for temporary SQLite files. Default: beside the journal."`
	Scale float64  `default:"1" placeholder:"X" help:"Multiply every size by this, e.g. 0.1 for a quick run."`
	Only  []string `placeholder:"NAME" help:"Run only benchmarks whose name contains this. Repeatable."`
	jsonFlag
}

// Run measures and prints.
func (c *benchCmd) Run(ctx context.Context, a *app) error {
	if c.Scale <= 0 || c.Scale > 100 {
		return usagef("--scale must be more than 0 and at most 100")
	}
	projections := a.ProjectionsDB
	if a.sources["projections-db"] == fromDefault {
		projections = ""
	}
	tuneCollector(0) // as serve does
	result, err := bench.Run(ctx, bench.Config{
		JournalDB: a.JournalDB, ProjectionsDB: projections, Dir: c.Dir, Scale: c.Scale, Only: c.Only, Build: version, Err: a.err,
		Filling: func() (func(done, total int64), func()) {
			bar := a.progress("fill")
			return bar.set, bar.end
		},
	})
	if err != nil {
		return err
	}
	return c.show(a, result, func() error { return printBench(a, result) })
}

func printBench(a *app, r bench.Result) error {
	if r.Server != "" {
		fmt.Fprintf(a.out, "%s: %s commits/s\n\n", r.Server, event.Number(int64(r.CommitsPerSecond)))
	} else {
		fmt.Fprintf(a.out, "disk of %s: %s fsync/s\n\n", r.Dir, event.Number(int64(r.FsyncPerSecond)))
	}
	return printTable(a.out, "MEASUREMENT\tEVENTS\tSTART\tSECONDS\tEVENTS/S\tCPU µs/EVENT", r.Results, func(m bench.Measurement) []any {
		return []any{m.Name, event.Number(int64(m.Events)), fmt.Sprintf("%.2f", m.StartSeconds), fmt.Sprintf("%.2f", m.Seconds), event.Number(int64(m.EventsPerSecond)), fmt.Sprintf("%.1f", m.MicrosPerEvent)}
	})
}
