//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// callers is the number of concurrent appenders, where many append.
const callers = 32

const event = `{"campaign_id":%q,"event_type":"bench.moved","entity_type":"token","entity_id":"t-%d","payload":{"amount":%d,"note":"moved across the bridge at dusk","from":{"x":12,"y":7}}}`

func appendProbes() []*probe {
	one := func(c string, n int) string { return fmt.Sprintf(event, c, n, n%97) }
	batch := func(c string, n int) string {
		events := make([]string, 500)
		for i := range events {
			events[i] = one(c, i)
		}
		return `{"events":[` + strings.Join(events, ",") + `]}`
	}
	return []*probe{appendProbe("append, 1 caller", 1, 20, 1, one), appendProbe("append, 32 callers", callers, 2, 1, one), appendProbe("append, batches of 500", 1, 1, 500, batch)}
}

// appendProbe appends with so many callers, each so many times to a campaign of
// its own.
func appendProbe(name string, callers, times, events int, body func(campaign string, n int) string) *probe {
	return newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		errs := make([]error, callers)
		cpu, err := s.appends.cost(func() error {
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					c := fmt.Sprintf("c-%d", i)
					for n := 0; n < times && errs[i] == nil; n++ {
						_, errs[i] = s.appends.ask(ctx, "/api/v1/campaigns/"+c+"/events", body(c, n))
					}
				})
			}
			all.Wait()
			return errors.Join(errs...)
		})
		return []float64{cpu / float64(callers*times*events)}, err
	}, &row{name: name, unit: micros}).times(3, 6)
}

func (l *lab) prepareAppends(ctx context.Context, s *side) (err error) {
	s.appends, err = serve(ctx, s.binary, s.settings("appends"), "--no-worker")
	return err
}

// shape is a backlog: so many campaigns with so many events each.
type shape struct {
	name, dir         string
	campaigns, events int
	random            bool // the campaigns' ids
}

var shapes = []shape{{"1 campaign", "long", 1, 20_000, false}, {"100 campaigns", "hundred", 100, 200, false}, {"2,000 campaigns", "short", 2_000, 10, false},
	{"20,000 campaigns", "single", 20_000, 1, false}, {"20,000 random campaigns", "random", 20_000, 1, true}}

// campaign is the id of a campaign, in the order of its number or in none, as UUIDs are.
func (s shape) campaign(n int) string {
	id := fmt.Sprintf("c-%04d", n)
	if s.random {
		return uuid.NewSHA1(uuid.Nil, []byte(id)).String()
	}
	return id
}

const projection = `-- projection: bench
-- tables: bench_tokens

-- schema
create table bench_tokens (campaign_id text not null, token_id text not null, amount bigint not null, primary key (campaign_id, token_id));

-- on: bench.moved
insert into bench_tokens (campaign_id, token_id, amount) values (:campaign_id, :entity_id, :payload.amount!)
on conflict (campaign_id, token_id) do update set amount = bench_tokens.amount + excluded.amount;
`

// drained is the directory of databases with the events of the middle shape, all
// of them applied.
const drained = "drained"

// projected are the settings of databases that the projection above follows.
func (s *side) projected(name string) []string {
	return s.settings(name, "OUTBOXWEB_PROJECTIONS="+filepath.Join(s.dir, "projections"))
}

func (l *lab) prepareBacklogs(ctx context.Context, s *side) error {
	if err := os.Mkdir(filepath.Join(s.dir, "projections"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "projections", "bench.sql"), []byte(projection), 0o600); err != nil {
		return err
	}
	for _, b := range shapes {
		var lines strings.Builder
		for n := range b.events {
			for c := range b.campaigns {
				fmt.Fprintf(&lines, event+"\n", b.campaign(c), n%500, n%97)
			}
		}
		if _, _, err := s.run(ctx, s.projected(b.dir), lines.String(), "append", "-"); err != nil {
			return err
		}
	}
	if err := s.copied("hundred", drained); err != nil {
		return err
	}
	return s.on(ctx, s.projected(drained), os.Interrupt, func(running *server) error { return running.drain(ctx) })
}

// drain waits until every event is applied.
func (s *server) drain(ctx context.Context) error {
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		var rows struct{ Items []deadRow }
		err := s.read(ctx, "/api/v1/rows?limit=1", &rows)
		return len(rows.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

// drainProbe is the CPU time of a server from its start until it has applied a
// backlog.
func drainProbe(b shape) *probe {
	return newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		if err := s.copied(b.dir, "copy"); err != nil {
			return nil, err
		}
		cpu := 0.0
		err := s.on(ctx, s.projected("copy"), os.Kill, func(running *server) (err error) {
			if err := running.drain(ctx); err != nil {
				return err
			}
			cpu, err = running.cpu()
			return err
		})
		return []float64{cpu / float64(b.campaigns*b.events)}, err
	}, &row{name: "drain, " + b.name, unit: micros}).atOnce().times(2, 1)
}

func rebuildProbe() *probe {
	return newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		if err := s.copied(drained, "copy"); err != nil {
			return nil, err
		}
		args := []string{"runs", "start", "rebuild", "--wait"}
		for c := range shapes[1].campaigns {
			args = append(args, "--campaign", fmt.Sprintf("c-%04d", c))
		}
		_, cpu, err := s.run(ctx, s.projected("copy"), "", args...)
		return []float64{cpu.Seconds() / float64(shapes[1].campaigns*shapes[1].events)}, err
	}, &row{name: "rebuild", unit: micros}).atOnce().times(2, 1)
}

// startProbe starts a server on databases that exist.
func startProbe() *probe {
	return newProbe(func(ctx context.Context, s *side) (got []float64, err error) {
		err = s.on(ctx, s.projected(drained), syscall.SIGTERM, func(running *server) error {
			got = []float64{running.startCPU, running.start.Seconds()}
			return nil
		})
		return got, err
	}, &row{name: "start, CPU", unit: millis}, &row{name: "start, clock", unit: millis, shown: true}).times(4, 1)
}

// memoryProbe starts a server and asks it for pages.
func memoryProbe() *probe {
	return newProbe(func(ctx context.Context, s *side) ([]float64, error) {
		var rest, after float64
		err := s.on(ctx, s.projected(drained), syscall.SIGTERM, func(running *server) (err error) {
			if rest, err = running.settledRSS(ctx); err != nil {
				return err
			}
			for range 150 {
				for _, path := range []string{"/", "/rows", "/campaigns", "/api/v1/campaigns"} {
					if _, err := running.ask(ctx, path, ""); err != nil {
						return err
					}
				}
			}
			after, err = running.settledRSS(ctx)
			return err
		})
		return []float64{rest, after}, err
	}, &row{name: "memory at rest", unit: megabytes}, &row{name: "memory after 600 pages", unit: megabytes}).atOnce().times(2, 1)
}

func sizeProbe() *probe {
	return newProbe(func(_ context.Context, s *side) ([]float64, error) {
		file, err := os.Stat(s.binary)
		if err != nil {
			return nil, err
		}
		return []float64{float64(file.Size())}, nil
	}, &row{name: "size of the binary", unit: megabytes}).times(2, 1)
}
