package worker_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/enginetest"
	"github.com/outboxweb/outboxweb/internal/must"
)

// counting is a projection with two statements, of which the second one counts to a number, for events of a type.
func counting(name, on string, to int) string {
	return fmt.Sprintf(`-- projection: %[1]s
-- tables: %[1]s

-- schema
create table %[1]s (campaign_id text not null, entity_id text not null, total bigint not null, primary key (campaign_id, entity_id));

-- on: %[3]s
insert into %[1]s (campaign_id, entity_id, total) values (:campaign_id, :entity_id, :payload.amount)
on conflict (campaign_id, entity_id) do update set total = %[1]s.total + excluded.total;
with recursive n(i) as (select 1 union all select i + 1 from n where i < %[2]d)
update %[1]s set total = total + (select count(*) from n)
where campaign_id = :campaign_id and entity_id = :entity_id;
`, name, to, on)
}

// described are the projections as heartbeats and the summary tell of them.
func described(tb testing.TB, b *enginetest.Engine) (light, heavy campaign.ProjectionInfo) {
	must.OK(tb, b.Worker.Beat(b.Ctx))
	b.Store.Changed()
	all := must.Get(b.Runs.DescribeProjections(b.Ctx, b.Worker.Set.Infos())).Or(tb)
	must.Need(tb, len(all) == 2 && all[0].Cost != nil && all[1].Cost != nil, "no costs in %+v", all)
	return all[0], all[1]
}

func TestCost_namesTheHeavyStatementFirst(t *testing.T) {
	b := enginetest.Own(t, []string{counting("a_light", "counted", 2), counting("b_heavy", "counted", 3000)})
	b.Worker.Measure(1)
	began := time.Now()
	b.MustAppend(countedEvents(40, 10)...)
	for b.MustPass() {
	}
	took := time.Since(began)
	light, heavy := described(t, b)
	for _, c := range []*campaign.ProjectionCost{light.Cost, heavy.Cost} {
		t.Logf("%s; %+v", c, c.Statements)
		must.Hold(t, c.Events == 400 && len(c.Statements) == 2, "%+v", c)
		must.Hold(t, c.Statements[0].Share+c.Statements[1].Share <= c.Share*1.0001, "the statements of %+v take more than it does", c)
		must.Hold(t, c.P99 > 0 && c.Seconds*400 < took.Seconds(), "%+v", c)
	}
	worst := heavy.Cost.Statements[0]
	must.Hold(t, worst.Statement == "01.sql:10" && worst.Share > heavy.Cost.Statements[1].Share && heavy.Cost.Share > 2*light.Cost.Share, "the heavy one is %+v", heavy.Cost)
	must.Hold(t, light.Cost.Share+heavy.Cost.Share <= 1, "shares of %v and %v", light.Cost.Share, heavy.Cost.Share)
}

// BenchmarkCost drains a backlog under a processor profile, and fails where the share that a projection has of the time of all of them differs
// by more than a tenth from what the profile says. Goroutines are labeled by the type of the event, which one projection follows alone.
func BenchmarkCost(b *testing.B) {
	kinds := map[string]int{"light": 100, "middle": 200, "heavy": 400}
	var definitions []string
	for name, to := range kinds {
		definitions = append(definitions, counting(name, name, to))
	}
	w := enginetest.Open(b, enginetest.Define(b, definitions...), enginetest.BatchSize(50))
	w.Worker.OnEvent(func(eventType string) {
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("projection", eventType)))
	})
	events := countedEvents(100, 30)
	for i, name := range slices.Sorted(maps.Keys(kinds)) {
		for n := range len(events) / 3 {
			events[3*n+i].EventType = name
		}
	}
	random := rand.New(rand.NewPCG(1, 2)) // so that no wave has events of one type only
	random.Shuffle(len(events), func(i, j int) { events[i].EventType, events[j].EventType = events[j].EventType, events[i].EventType })
	file := filepath.Join(b.TempDir(), "cpu")
	for b.Loop() {
		for range 40 {
			w.MustAppend(events...)
		}
		to := must.Get(os.Create(file)).Or(b)
		runtime.SetCPUProfileRate(500) // with the usual 100 a second, chance alone makes a difference of a tenth
		must.OK(b, pprof.StartCPUProfile(to))
		w.Drain()
		pprof.StopCPUProfile()
		must.OK(b, to.Close())
	}
	must.OK(b, w.Worker.Beat(w.Ctx))
	w.Store.Changed()
	measured, profiled, all, sampled := map[string]float64{}, map[string]float64{}, 0.0, 0.0
	for _, p := range must.Get(w.Runs.DescribeProjections(w.Ctx, w.Set.Infos())).Or(b) {
		measured[p.Name], profiled[p.Name] = p.Cost.Share, ofProfile(b, file, statements, "-tagfocus=projection="+p.Name)
		all, sampled = all+measured[p.Name], sampled+profiled[p.Name]
	}
	b.Logf("of the waves %.1f %% measured, %.1f %% in the profile", 100*all, 100*sampled/ofProfile(b, file, waves))
	for name := range kinds {
		measured, profiled := measured[name]/all, profiled[name]/sampled
		b.Logf("%s: %.1f %% measured, %.1f %% in the profile", name, 100*measured, 100*profiled)
		b.ReportMetric(measured/profiled, name+"-ratio")
		must.Hold(b, math.Abs(measured/profiled-1) <= 0.1, "of the time of all projections %s takes %.3f, and in the profile %.3f", name, measured, profiled)
	}
}

// What a profile is searched for: the statements of projections, and the waves that they are in.
const (
	statements = "handlerStatement..run"
	waves      = "worker...Worker..Apply$|worker...Wave..Settle$"
)

// ofProfile is how much of a profile is of some functions, with these flags.
func ofProfile(b *testing.B, file, focus string, flags ...string) float64 {
	out := must.Get(exec.Command("go", append(append([]string{"tool", "pprof", "-top", "-unit=ms", "-focus=" + focus}, flags...), file)...).CombinedOutput()).Or(b)
	found := regexp.MustCompile(`nodes accounting for ([0-9.]+)ms`).FindSubmatch(out)
	must.Need(b, found != nil, "the profile says %s", out)
	return must.Get(strconv.ParseFloat(string(found[1]), 64)).Or(b)
}
