package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"outboxweb/internal/projection"
	"outboxweb/internal/store"
)

// benchCmd measures this program on the user's own disk, in a directory of
// its own that it removes.
type benchCmd struct {
	Dir   string   `placeholder:"DIR" help:"Where to make the temporary databases. Default: beside the journal."`
	Scale float64  `default:"1" placeholder:"X" help:"Multiply every amount by this, such as 0.1 for a quick look."`
	Only  []string `placeholder:"NAME" help:"Only measurements whose name contains this. Repeatable."`
	JSON  bool     `name:"json" help:"Print one JSON document."`
}

// measurement is one line of the result.
type measurement struct {
	Name            string  `json:"name"`
	Events          int     `json:"events"`
	Seconds         float64 `json:"seconds"`
	EventsPerSecond float64 `json:"events_per_second"`
	Bare            float64 `json:"bare_events_per_second,omitempty"` // the bare driver doing the same row operations
	Ratio           float64 `json:"ratio,omitempty"`                  // to the bare driver
}

// benchResult is what the command prints.
type benchResult struct {
	Results        []measurement `json:"results"`
	FsyncPerSecond float64       `json:"fsync_per_second"`
	Dir            string        `json:"dir"`
}

// bench is one run of the command.
type bench struct {
	app   *app
	dir   string
	scale float64
	set   *projection.Set
}

// Run measures and prints.
func (c *benchCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Scale <= 0 || c.Scale > 100 {
		return usagef("--scale must be more than 0 and at most 100")
	}
	dir, err := c.tempDir(a)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{app: a, dir: dir, scale: c.Scale}
	if b.set, err = benchProjection(dir); err != nil {
		return err
	}
	result := benchResult{Dir: filepath.Dir(dir)}
	if result.FsyncPerSecond, err = fsyncRate(ctx, dir); err != nil {
		return err
	}
	for _, m := range b.measurements() {
		if !c.wants(m.name) {
			continue
		}
		fmt.Fprintf(a.err, "measuring %s\n", m.name)
		one, err := m.run(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
		one.Name = m.name
		result.Results = append(result.Results, one)
	}
	if c.JSON {
		return a.printJSON(result)
	}
	return printBench(a, result)
}

func (c *benchCmd) wants(name string) bool {
	for _, part := range c.Only {
		if strings.Contains(name, part) {
			return true
		}
	}
	return len(c.Only) == 0
}

func (c *benchCmd) tempDir(a *app) (string, error) {
	dir := c.Dir
	if dir == "" {
		dir = filepath.Dir(strings.TrimPrefix(a.JournalDB, "sqlite:"))
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", usagef("--dir: cannot create %s: %v", dir, unwrapAll(err))
	}
	temp, err := os.MkdirTemp(dir, "outboxweb-bench-")
	if err != nil {
		return "", usagef("--dir: cannot write to %s: %v", dir, unwrapAll(err))
	}
	return temp, nil
}

type namedMeasurement struct {
	name string
	run  func(context.Context) (measurement, error)
}

func (b *bench) measurements() []namedMeasurement {
	all := []namedMeasurement{
		{"append_1_caller", func(ctx context.Context) (measurement, error) { return b.append(ctx, 1, 1, b.amount(6_000)) }},
		{"append_32_callers", func(ctx context.Context) (measurement, error) { return b.append(ctx, 32, 1, b.amount(32_000)) }},
		{"append_batches_of_100", func(ctx context.Context) (measurement, error) { return b.append(ctx, 1, 100, b.amount(100_000)) }},
	}
	for _, d := range []struct {
		name string
		shape
	}{{"drain_1x100k", shape{1, 100_000}}, {"drain_100x1k", shape{100, 1_000}}, {"drain_10000x10", shape{10_000, 10}}} {
		scaled := b.shrink(d.shape)
		all = append(all, namedMeasurement{d.name, func(ctx context.Context) (measurement, error) { return b.drain(ctx, scaled) }})
	}
	return all
}

func (b *bench) amount(n int) int { return max(200, int(float64(n)*b.scale)) }

// shape is a backlog: so many campaigns with so many events each.
type shape struct{ campaigns, events int }

func (s shape) total() int { return s.campaigns * s.events }

// shrink scales what a shape has more of.
func (b *bench) shrink(s shape) shape {
	if s.campaigns > s.events {
		s.campaigns = max(1, int(float64(s.campaigns)*b.scale))
	} else {
		s.events = max(1, int(float64(s.events)*b.scale))
	}
	return s
}

// open opens fresh databases under a name.
func (b *bench) open(ctx context.Context, name string) (*store.Store, error) {
	return store.Open(ctx, b.options(name))
}

func (b *bench) options(name string) store.Options {
	return store.Options{Journal: "sqlite:" + b.path(name, "journal"), Projections: "sqlite:" + b.path(name, "projections")}
}

func (b *bench) path(name, database string) string {
	return filepath.Join(b.dir, name+"-"+database+".db")
}

// fsyncRate is how often a second this disk makes 4 KiB durable.
func fsyncRate(ctx context.Context, dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, fmt.Errorf("measure fsync: %w", err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	start, n := time.Now(), 0
	for time.Since(start) < time.Second && ctx.Err() == nil {
		if _, err := f.WriteAt(block, int64(n%1024)*4096); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("measure fsync: %w", err)
		}
		n++
	}
	return float64(n) / time.Since(start).Seconds(), ctx.Err()
}

func printBench(a *app, r benchResult) error {
	fmt.Fprintf(a.out, "disk of %s: %s fsync/s\n\n", r.Dir, thousands(int64(r.FsyncPerSecond)))
	t := table(a.out)
	fmt.Fprintln(t, "MEASUREMENT\tEVENTS\tSECONDS\tEVENTS/S\tBARE DRIVER\tRATIO")
	for _, m := range r.Results {
		bare, ratio := "", ""
		if m.Bare > 0 {
			bare, ratio = thousands(int64(m.Bare)), fmt.Sprintf("%.2f", m.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%s\t%s\n", m.Name, thousands(int64(m.Events)), m.Seconds, thousands(int64(m.EventsPerSecond)), bare, ratio)
	}
	return t.Flush()
}

// rate fills in the measurement of n events that took a time.
func rate(n int, took time.Duration) measurement {
	return measurement{Events: n, Seconds: took.Seconds(), EventsPerSecond: float64(n) / took.Seconds()}
}
