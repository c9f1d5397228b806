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

func (d drain) total() int { return d.campaigns * d.events }

// What is measured, by dialect.
var (
	benchAppends = map[string][]appends{
		"sqlite": {
			{"append_1_caller", 1, 1, 6_000},
			{"append_32_callers", 32, 1, 32_000},
			{"append_batches_of_100", 1, 100, 100_000},
		},
		"postgres": {
			{"append_1_caller", 1, 1, 6_000},
			{"append_16_callers", 16, 1, 16_000},
			{"append_batches_of_100", 1, 100, 100_000},
		},
	}
	benchDrains = map[string][]drain{
		"sqlite": {
			{"drain_1x100k", 1, 100_000, 1, 2},
			{"drain_100x1k", 100, 1_000, 1, 2},
			{"drain_10000x10", 10_000, 10, 1, 2},
		},
		"postgres": {
			{"drain_1x100k_1_worker", 1, 100_000, 1, 1},
			{"drain_1x100k_4_workers", 1, 100_000, 1, 4},
			{"drain_100x1k_1_worker", 100, 1_000, 1, 1},
			{"drain_100x1k_4_workers", 100, 1_000, 1, 4},
			{"drain_100x1k_2_instances", 100, 1_000, 2, 2},
			{"drain_10000x10_1_worker", 10_000, 10, 1, 1},
			{"drain_10000x10_4_workers", 10_000, 10, 1, 4},
			{"drain_10000x10_2_instances", 10_000, 10, 2, 2},
		},
	}
)

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
	if err := b.measureAll(ctx, c.Only); err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(b.result)
	}
	return printBench(a, b.result)
}

// measureAll measures what has one of the words in its name, or all without words.
func (b *bench) measureAll(ctx context.Context, only []string) error {
	wanted := func(name string) bool {
		return len(only) == 0 || slices.ContainsFunc(only, func(part string) bool { return strings.Contains(name, part) })
	}
	for _, m := range benchAppends[b.storage.dialect] {
		if !wanted(m.name) {
			continue
		}
		m.events = max(200, int(float64(m.events)*b.scale))
		if err := b.measure(m.name, func(o store.Options) (int, time.Duration, error) { return m.run(ctx, o) }); err != nil {
			return err
		}
	}
	for _, d := range benchDrains[b.storage.dialect] {
		if !wanted(d.name) {
			continue
		}
		larger := &d.events
		if d.campaigns > d.events {
			larger = &d.campaigns
		}
		*larger = max(1, int(float64(*larger)*b.scale))
		if err := b.measure(d.name, func(o store.Options) (int, time.Duration, error) { return b.drain(ctx, o, d) }); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the measurement that run makes on new databases.
func (b *bench) measure(name string, run func(store.Options) (events int, took time.Duration, err error)) error {
	fmt.Fprintf(b.app.err, "measuring %s\n", name)
	err := b.storage.fresh(func(o store.Options) error {
		n, took, err := run(o)
		if err == nil {
			b.result.Results = append(b.result.Results, measurement{name, n, took.Seconds(), float64(n) / took.Seconds()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measure %s: %w", name, err)
	}
	return nil
}

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
