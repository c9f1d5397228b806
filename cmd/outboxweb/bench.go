package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

// benchCmd measures this program on the user's own storage: on their disk, in a new directory, or
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

// ground is where a run measures: a directory, or PostgreSQL servers.
type ground interface {
	dialect() string
	plan() benchPlan
	// durability fills in how many small durable writes a second the storage manages, and where it
	// is.
	durability(ctx context.Context, r *benchResult) error

	fresh(ctx context.Context) (databases, error) // new and empty
	remove(ctx context.Context, d databases) error
	close() error // removes what is left
}

// databases is a pair of databases made by a run.
type databases struct {
	number               int
	journal, projections string // URLs
}

func (d databases) options() store.Options {
	return store.Options{Journal: d.journal, Projections: d.projections}
}

// benchPlan is what is measured on a ground.
type benchPlan struct {
	callers []int // of single appends, at a time
	drains  []drainPlan
}

// drainPlan is a backlog and the workers that drain it.
type drainPlan struct {
	name string
	shape
	instances int
	waves     int // concurrent waves of each instance
}

// shape is the size of a backlog: the number of campaigns, and of events in each.
type shape struct{ campaigns, events int }

func (s shape) total() int { return s.campaigns * s.events }

// The backlogs that the benchmark drains.
var (
	oneLong   = shape{1, 100_000}
	hundred   = shape{100, 1_000}
	manyShort = shape{10_000, 10}
)

// bench is one run of the command.
type bench struct {
	app    *app
	ground ground
	scale  float64
	set    *projection.Set
}

// Run measures and prints.
func (c *benchCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Scale <= 0 || c.Scale > 100 {
		return usagef("--scale must be more than 0 and at most 100")
	}
	tuneCollector(0) // as serve does
	b := &bench{app: a, scale: c.Scale}
	if b.ground, err = c.ground(ctx, a); err != nil {
		return err
	}
	defer func() {
		left := b.ground.close()
		if err == nil {
			err = left
		} else if left != nil {
			fmt.Fprintln(a.err, "outboxweb:", left)
		}
	}()
	if b.set, err = benchProjection(b.ground.dialect()); err != nil {
		return err
	}
	result, err := b.measure(ctx, c.wants)
	if err != nil {
		return err
	}
	if c.JSON {
		return a.printJSON(result)
	}
	return printBench(a, result)
}

// ground returns the storage that the database URLs lead to.
func (c *benchCmd) ground(ctx context.Context, a *app) (ground, error) {
	projections := a.ProjectionsDB
	if engine.DialectOf(a.JournalDB) == "postgres" && a.sources["projections-db"] == fromDefault {
		projections = a.JournalDB
	}
	switch {
	case engine.DialectOf(a.JournalDB) != engine.DialectOf(projections):
		return nil, usagef("--journal-db and --projections-db must both be sqlite:PATH or both postgres://… to run benchmarks")
	case strings.HasPrefix(a.JournalDB, "sqlite:"):
		return newSQLiteGround(c.Dir, a.JournalDB)
	case engine.DialectOf(a.JournalDB) == "sqlite":
		return nil, usagef("--journal-db: %q is not a database URL; use sqlite:PATH or postgres://…", a.JournalDB)
	case c.Dir != "":
		return nil, usagef("--dir is for SQLite; on PostgreSQL the benchmarks run in the databases that the URLs name")
	}
	return newPostgresGround(ctx, a.JournalDB, projections)
}

func (c *benchCmd) wants(name string) bool {
	return len(c.Only) == 0 || slices.ContainsFunc(c.Only, func(part string) bool { return strings.Contains(name, part) })
}

type namedMeasurement struct {
	name string
	run  func(context.Context) (measurement, error)
}

func (b *bench) measurements() []namedMeasurement {
	var all []namedMeasurement
	plan := b.ground.plan()
	for _, n := range plan.callers {
		all = append(all, namedMeasurement{"append_" + counted(n, "caller"), func(ctx context.Context) (measurement, error) {
			return b.append(ctx, n, 1, b.amount(max(6_000, n*1_000)))
		}})
	}
	all = append(all, namedMeasurement{"append_batches_of_100", func(ctx context.Context) (measurement, error) {
		return b.append(ctx, 1, 100, b.amount(100_000))
	}})
	for _, d := range plan.drains {
		d.shape = b.shrink(d.shape)
		all = append(all, namedMeasurement{d.name, func(ctx context.Context) (measurement, error) { return b.drain(ctx, d) }})
	}
	return all
}

// counted is 1_caller or 16_callers.
func counted(n int, what string) string {
	if n == 1 {
		return "1_" + what
	}
	return strconv.Itoa(n) + "_" + what + "s"
}

// measure takes the measurements whose names are wanted.
func (b *bench) measure(ctx context.Context, wanted func(name string) bool) (result benchResult, err error) {
	if err := b.ground.durability(ctx, &result); err != nil {
		return result, err
	}
	for _, m := range b.measurements() {
		if !wanted(m.name) {
			continue
		}
		fmt.Fprintf(b.app.err, "measuring %s\n", m.name)
		one, err := m.run(ctx)
		if err != nil {
			return result, fmt.Errorf("measure %s: %w", m.name, err)
		}
		one.Name = m.name
		result.Results = append(result.Results, one)
	}
	return result, nil
}

func (b *bench) amount(n int) int { return max(200, int(float64(n)*b.scale)) }

// shrink scales down the larger dimension of a shape.
func (b *bench) shrink(s shape) shape {
	if s.campaigns > s.events {
		s.campaigns = max(1, int(float64(s.campaigns)*b.scale))
	} else {
		s.events = max(1, int(float64(s.events)*b.scale))
	}
	return s
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

// rate returns the measurement of n events that took the given time.
func rate(n int, took time.Duration) measurement {
	return measurement{Events: n, Seconds: took.Seconds(), EventsPerSecond: float64(n) / took.Seconds()}
}
