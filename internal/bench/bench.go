// Package bench measures appends and drains of this program on the user's own storage: on their disk, in
// new directories, or on their server, in new schemas. Both are removed afterwards.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/store"
)

// Config is what to measure, and where.
type Config struct {
	JournalDB, ProjectionsDB string // URLs; on PostgreSQL the second is the first if it is empty
	Dir                      string // for temporary SQLite files; empty is beside the journal
	Scale                    float64
	Only                     []string // parts of names; all if there are none
	Build                    string
	Err                      io.Writer // names what is measured, and what could not be removed
	// Filling begins a display of how far databases are filled.
	Filling func() (set func(done, total int64), end func())
}

// Measurement is one line of the result.
type Measurement struct {
	Name            string  `json:"name"`
	Events          int     `json:"events"`
	Seconds         float64 `json:"seconds"`           // after StartSeconds
	EventsPerSecond float64 `json:"events_per_second"` // in Seconds
	// StartSeconds is how long workers took from their start until the first events were applied; 0 for
	// appends, and where the first wave has all.
	StartSeconds float64 `json:"start_seconds"`
	// MicrosPerEvent is the processor time of this process for an event, without that of the start. On
	// PostgreSQL the server's comes on top.
	MicrosPerEvent float64 `json:"micros_per_event"`
}

// Result is what was measured, and where. FsyncPerSecond and Dir are set on SQLite, the other two on
// PostgreSQL.
type Result struct {
	Results          []Measurement `json:"results"`
	FsyncPerSecond   float64       `json:"fsync_per_second,omitempty"`
	Dir              string        `json:"dir,omitempty"`
	CommitsPerSecond float64       `json:"commits_per_second,omitempty"`
	Server           string        `json:"server,omitempty"`
}

// benchmark is what is measured on two new databases.
type benchmark interface {
	title() string
	run(context.Context, *bench, store.Options) (Measurement, error)
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
	waves             int  // concurrent waves of each instance
	random            bool // the campaigns' ids
}

func (m appends) title() string { return m.name }
func (d drain) title() string   { return d.name }

// benchmarks are what is measured, by dialect.
var benchmarks = map[string][]benchmark{
	"sqlite": {
		appends{"append_1_caller", 1, 1, 6_000},
		appends{"append_32_callers", 32, 1, 32_000},
		appends{"append_batches_of_100", 1, 100, 100_000},
		drain{"drain_1x100k", 1, 100_000, 1, 2, false},
		drain{"drain_100x1k", 100, 1_000, 1, 2, false},
		drain{"drain_10000x10", 10_000, 10, 1, 2, false},
		drain{"drain_10000x10_random", 10_000, 10, 1, 2, true},
		drain{"drain_100000x1", 100_000, 1, 1, 2, false},
		drain{"drain_100000x1_random", 100_000, 1, 1, 2, true},
	},
	"postgres": {
		appends{"append_1_caller", 1, 1, 6_000},
		appends{"append_16_callers", 16, 1, 16_000},
		appends{"append_batches_of_100", 1, 100, 100_000},
		drain{"drain_1x100k_1_worker", 1, 100_000, 1, 1, false},
		drain{"drain_1x100k_4_workers", 1, 100_000, 1, 4, false},
		drain{"drain_100x1k_1_worker", 100, 1_000, 1, 1, false},
		drain{"drain_100x1k_4_workers", 100, 1_000, 1, 4, false},
		drain{"drain_100x1k_2_instances", 100, 1_000, 2, 2, false},
		drain{"drain_10000x10_1_worker", 10_000, 10, 1, 1, false},
		drain{"drain_10000x10_4_workers", 10_000, 10, 1, 4, false},
		drain{"drain_10000x10_2_instances", 10_000, 10, 2, 2, false},
		drain{"drain_10000x10_random_4_workers", 10_000, 10, 1, 4, true},
		drain{"drain_100000x1_4_workers", 100_000, 1, 1, 4, false},
		drain{"drain_100000x1_random_4_workers", 100_000, 1, 1, 4, true},
	},
}

// bench is one run.
type bench struct {
	Config
	storage *storage
	set     *projection.Set // applied by drains
	result  Result
}

// Run measures. What the user must fix first is an *event.Refusal with event.ErrSetup.
func Run(ctx context.Context, c Config) (Result, error) {
	b := &bench{Config: c}
	var err error
	if b.storage, err = findStorage(ctx, c); err != nil {
		return Result{}, err
	}
	if b.set, err = loadProjection(b.storage.dialect); err != nil {
		return Result{}, err
	}
	if err := b.storage.durability(ctx, &b.result); err != nil {
		return Result{}, err
	}
	for _, m := range benchmarks[b.storage.dialect] {
		wanted := func(part string) bool { return strings.Contains(m.title(), part) }
		if len(c.Only) > 0 && !slices.ContainsFunc(c.Only, wanted) {
			continue
		}
		if err := b.measure(ctx, m); err != nil {
			return Result{}, err
		}
	}
	return b.result, nil
}

// measure adds the measurement of a benchmark.
func (b *bench) measure(ctx context.Context, m benchmark) error {
	fmt.Fprintf(b.Err, "measuring %s\n", m.title())
	err := b.storage.fresh(func(o store.Options) error {
		measured, err := m.run(ctx, b, o)
		if err == nil {
			measured.Name = m.title()
			b.result.Results = append(b.result.Results, measured)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measure %s: %w", m.title(), err)
	}
	return nil
}

// scaled returns a size under --scale.
func (b *bench) scaled(n, least int) int { return max(least, int(float64(n)*b.Scale)) }
