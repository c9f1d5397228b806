package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

// benchCmd measures this program on the user's own storage: on their disk, in new directories, or
// on their server, in new schemas. Both are removed afterwards.
type benchCmd struct {
	Dir   string   `placeholder:"DIR" help:"The directory for temporary SQLite files. Default: beside the journal."`
	Scale float64  `default:"1" placeholder:"X" help:"Multiply every size by this, e.g. 0.1 for a quick run."`
	Only  []string `placeholder:"NAME" help:"Run only benchmarks whose name contains this. Repeatable."`
	jsonFlag
}

// measurement is one line of the result.
type measurement struct {
	Name            string  `json:"name"`
	Events          int     `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
}

// benchResult is the command's output. FsyncPerSecond and Dir are set on SQLite, the other two on
// PostgreSQL.
type benchResult struct {
	Results          []measurement `json:"results"`
	FsyncPerSecond   float64       `json:"fsync_per_second,omitempty"`
	Dir              string        `json:"dir,omitempty"`
	CommitsPerSecond float64       `json:"commits_per_second,omitempty"`
	Server           string        `json:"server,omitempty"`
}

// benchmark is what is measured on two new databases.
type benchmark interface {
	title() string
	run(context.Context, *bench, store.Options) (events int, took time.Duration, err error)
}

// appends are concurrent callers that append batches, each to its own campaign.
type appends struct {
	name                   string
	callers, batch, events int
}

// drain is a backlog, with so many events in each campaign, and the workers that drain it.
type drain struct {
	name              string
	campaigns, events int
	instances         int
	waves             int // concurrent waves of each instance
}

func (m appends) title() string { return m.name }
func (d drain) title() string   { return d.name }

// benchmarks are what is measured, by dialect.
var benchmarks = map[string][]benchmark{
	"sqlite": {
		appends{"append_1_caller", 1, 1, 6_000},
		appends{"append_32_callers", 32, 1, 32_000},
		appends{"append_batches_of_100", 1, 100, 100_000},
		drain{"drain_1x100k", 1, 100_000, 1, 2},
		drain{"drain_100x1k", 100, 1_000, 1, 2},
		drain{"drain_10000x10", 10_000, 10, 1, 2},
	},
	"postgres": {
		appends{"append_1_caller", 1, 1, 6_000},
		appends{"append_16_callers", 16, 1, 16_000},
		appends{"append_batches_of_100", 1, 100, 100_000},
		drain{"drain_1x100k_1_worker", 1, 100_000, 1, 1},
		drain{"drain_1x100k_4_workers", 1, 100_000, 1, 4},
		drain{"drain_100x1k_1_worker", 100, 1_000, 1, 1},
		drain{"drain_100x1k_4_workers", 100, 1_000, 1, 4},
		drain{"drain_100x1k_2_instances", 100, 1_000, 2, 2},
		drain{"drain_10000x10_1_worker", 10_000, 10, 1, 1},
		drain{"drain_10000x10_4_workers", 10_000, 10, 1, 4},
		drain{"drain_10000x10_2_instances", 10_000, 10, 2, 2},
	},
}

// bench is one run of the command.
type bench struct {
	app     *app
	storage *benchStorage
	set     *projection.Set // applied by drains
	scale   float64
	result  benchResult
}

// Run measures and prints.
func (c *benchCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Scale <= 0 || c.Scale > 100 {
		return usagef("--scale must be more than 0 and at most 100")
	}
	tuneCollector(0) // as serve does
	b := &bench{app: a, scale: c.Scale}
	if b.storage, err = c.storage(ctx, a); err != nil {
		return err
	}
	if b.set, err = benchProjection(b.storage.dialect); err != nil {
		return err
	}
	if err := b.storage.durability(ctx, &b.result); err != nil {
		return err
	}
	for _, m := range benchmarks[b.storage.dialect] {
		wanted := func(part string) bool { return strings.Contains(m.title(), part) }
		if len(c.Only) > 0 && !slices.ContainsFunc(c.Only, wanted) {
			continue
		}
		if err := b.measure(ctx, m); err != nil {
			return err
		}
	}
	return c.show(a, b.result, func() error { return printBench(a, b.result) })
}

// measure adds the measurement of a benchmark.
func (b *bench) measure(ctx context.Context, m benchmark) error {
	fmt.Fprintf(b.app.err, "measuring %s\n", m.title())
	err := b.storage.fresh(func(o store.Options) error {
		n, took, err := m.run(ctx, b, o)
		if err == nil {
			b.result.Results = append(b.result.Results, measurement{m.title(), n, took.Seconds(), float64(n) / took.Seconds()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measure %s: %w", m.title(), err)
	}
	return nil
}

// scaled returns a size under --scale.
func (b *bench) scaled(n, least int) int { return max(least, int(float64(n)*b.scale)) }

func printBench(a *app, r benchResult) error {
	if r.Server != "" {
		fmt.Fprintf(a.out, "%s: %s commits/s\n\n", r.Server, outbox.Number(int64(r.CommitsPerSecond)))
	} else {
		fmt.Fprintf(a.out, "disk of %s: %s fsync/s\n\n", r.Dir, outbox.Number(int64(r.FsyncPerSecond)))
	}
	return printTable(a.out, "MEASUREMENT\tEVENTS\tSECONDS\tEVENTS/S", r.Results, func(m measurement) []any {
		return []any{m.Name, outbox.Number(int64(m.Events)), fmt.Sprintf("%.2f", m.Seconds), outbox.Number(int64(m.EventsPerSecond))}
	})
}
