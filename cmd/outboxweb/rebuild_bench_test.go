package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/internal/sample"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/worker"
)

var (
	benchEvents   = flag.Int("bench.events", 100_000, "events of BenchmarkRebuild")
	benchRebuilt  = flag.Int("bench.rebuilt", 200, "campaigns of BenchmarkRebuild")
	benchPostgres = flag.Bool("bench.postgres", false, "let BenchmarkRebuild use the databases of $OUTBOXWEB_JOURNAL_DB and $OUTBOXWEB_PROJECTIONS_DB")
)

// BenchmarkRebuild measures a rebuild of everything beside the bare replay of the same events,
// which is its lower bound; response times of pages meanwhile, and the growth of the process. Then
// it measures how much slower events are applied while a run replays, in turns with none.
func BenchmarkRebuild(b *testing.B) {
	tuneCollector(0)
	s, set := rebuildable(b)
	working(b, s, set, func() {
		untilApplied(b, s)
		b.Run("rebuild", func(b *testing.B) { measureRebuild(b, s, set) })
	})
	b.Run("beside", func(b *testing.B) { measureBeside(b, s, set) })
}

func working(b *testing.B, s *engine.Engine, set *projection.Set, f func()) {
	w := worker.New(worker.Config{Queue: s.Queue, Set: set, Mode: campaign.ModeOutbox, PollInterval: 100 * time.Millisecond})
	s.WorkOnRuns(w, runs.WorkerConfig{PollInterval: w.PollInterval})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	f()
	stop()
	must.OK(b, <-ended)
}

func measureRebuild(b *testing.B, s *engine.Engine, set *projection.Set) {
	server := offering(b, s)
	limit := bareReplay(b, s, set)
	debug.FreeOSMemory()
	before := residentMB(b, os.Getpid())
	run := startRun(b, s, set, replay.RunRebuild)
	looking, stop := context.WithCancel(b.Context())
	times := timings{of: map[string][]time.Duration{}}
	var lookers sync.WaitGroup
	peak := before
	openPages(looking, b, server.Client(), server.URL, map[string]string{"overview": "/", "campaigns": "/campaigns", "rows": "/rows", "audit": "/audit", "projections": "/projections"}, &times, &lookers)
	lookers.Go(func() {
		every(looking, 0, 50*time.Millisecond, func() { peak = max(peak, residentMB(b, os.Getpid())) })
	})
	must.Within(b, 20*time.Minute, "the run ends", func() bool {
		run = must.Get(s.Runs.Get(b.Context(), run.ID)).Or(b)
		return !run.Status.Active()
	})
	stop()
	lookers.Wait()
	speed := float64(run.Events.Done) / run.FinishedAt.Sub(*run.StartedAt).Seconds()
	must.Need(b, run.Status == replay.RunCompleted && run.Verdict == campaign.VerdictMatch, "run %+v", run)
	b.ReportMetric(limit, "bare-fold-events/s")
	b.ReportMetric(speed, "rebuild-events/s")
	b.ReportMetric(speed/limit, "of-bare-fold")
	b.ReportMetric(before, "resident-before-MB")
	b.ReportMetric(peak, "resident-peak-MB")
	times.report(b)
}

// measureBeside drains the same number of events in turns, with a run that never ends and without
// one.
func measureBeside(b *testing.B, s *engine.Engine, set *projection.Set) {
	campaigns := allCampaigns(b, s)
	var alone, beside time.Duration
	const turns, batch = 6, 150_000
	by := operator.Command{By: operator.Operator{Name: "bench", Via: "cli"}}
	for turn := range turns {
		appendSpread(b, s, campaigns, batch, turn)
		took := &alone
		if turn%2 == 1 {
			startRun(b, s, set, replay.RunVerify)
			took = &beside
		}
		working(b, s, set, func() {
			began := time.Now()
			untilApplied(b, s)
			*took += time.Since(began)
		})
		for _, run := range must.Get(s.Runs.Active(b.Context())).Or(b) {
			must.Get(s.Runs.Cancel(b.Context(), by, run.ID)).Or(b)
		}
	}
	b.ReportMetric(turns/2*batch/alone.Seconds(), "alone-events/s")
	b.ReportMetric(turns/2*batch/beside.Seconds(), "beside-a-run-events/s")
	b.ReportMetric(100*(1-alone.Seconds()/beside.Seconds()), "slower-%")
}

func rebuildable(b *testing.B) (*engine.Engine, *projection.Set) {
	p, dialect := dbtest.Files(b.TempDir()), "sqlite"
	if *benchPostgres {
		p.Journal, p.Projections, dialect = os.Getenv("OUTBOXWEB_JOURNAL_DB"), os.Getenv("OUTBOXWEB_PROJECTIONS_DB"), "postgres"
	}
	s := benched(b, p)
	set := must.Get(projection.Load(dialect, "builtin:campaigns")).Or(b)
	must.OK(b, runs.Install(b.Context(), s.Store, set))
	appendAll(b, s, slices.Collect(sample.Events(sample.Config{Campaigns: *benchRebuilt, Events: *benchEvents, Seed: 1, End: time.Now()})))
	return s, set
}

func benched(b *testing.B, p dbtest.Pair) *engine.Engine {
	s := engine.Wire(must.Get(store.Open(b.Context(), store.Options{Journal: p.Journal, Projections: p.Projections, Mode: campaign.ModeOutbox})).Or(b))
	b.Cleanup(func() { s.Close() })
	return s
}

// appendSpread appends events that no projection refuses, the same number to each campaign.
func appendSpread(b *testing.B, s *engine.Engine, campaigns []campaign.Campaign, n, turn int) {
	var events []event.Event
	for i := range n {
		c := campaigns[i%len(campaigns)].CampaignID
		events = append(events, event.Event{CampaignID: c, EventID: fmt.Sprintf("spread-%d-%d", turn, i), EventType: "campaign.updated", Payload: []byte(`{"fields":{"name":"spread"}}`)})
	}
	appendAll(b, s, events)
}

func appendAll(b *testing.B, s *engine.Engine, events []event.Event) {
	for batch := range slices.Chunk(events, 1000) {
		must.Get(s.Append(b.Context(), store.Append{Events: batch})).Or(b)
	}
}

func untilApplied(b *testing.B, s *engine.Engine) {
	must.Within(b, 10*time.Minute, "the events are applied", func() bool {
		wait, any, err := s.UntilDue(b.Context(), campaign.Scope{})
		must.OK(b, err)
		return !any || wait >= time.Minute
	})
}

// bareReplay is how many events per second two replayers process, without comparing or swapping.
func bareReplay(b *testing.B, s *engine.Engine, set *projection.Set) float64 {
	campaigns := allCampaigns(b, s)
	began := time.Now()
	var events int64
	var replayers sync.WaitGroup
	for half := range 2 {
		replayers.Go(func() {
			f, err := runs.NewReplayer(b.Context(), s.Store, set)
			for i := half; i < len(campaigns) && err == nil; i += 2 {
				var expected *runs.Expected
				if expected, err = f.Begin(b.Context(), campaigns[i].CampaignID, nil); err == nil {
					err = expected.To(b.Context(), campaigns[i].HighWaterSeq)
				}
			}
			if err != nil {
				b.Error(err)
				return
			}
			f.Close()
		})
	}
	for _, c := range campaigns {
		events += c.HighWaterSeq
	}
	replayers.Wait()
	return float64(events) / time.Since(began).Seconds()
}

func startRun(b *testing.B, s *engine.Engine, set *projection.Set, kind replay.RunKind) replay.Run {
	return must.Get(s.Runs.Start(b.Context(), operator.Command{By: operator.Operator{Name: "bench", Via: "cli"}, Reason: "bench", Confirm: "rebuild all campaigns"}, replay.RunRequest{Kind: kind, All: true}, set.Infos())).Or(b)
}

func residentMB(b *testing.B, pid int) float64 {
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))).Or(b)
	pages := must.Get(strconv.ParseFloat(string(bytes.Fields(text)[1]), 64)).Or(b)
	return pages * float64(os.Getpagesize()) / 1e6
}
