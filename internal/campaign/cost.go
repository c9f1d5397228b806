package campaign

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/outboxweb/outboxweb/internal/event"
)

// Cost is what applying events takes, in the waves of the last busy minutes whose time was taken.
type Cost struct {
	Share   float64 `json:"share"`             // of the time of these waves, from their claim to their end: 0 to 1
	Events  int64   `json:"events"`            // that they applied, an estimate
	Seconds float64 `json:"seconds_per_event"` // on average
	P99     float64 `json:"p99_seconds"`       // 99 of 100 events took at most as long; of several processes that of the slowest
}

// ProjectionCost is what a projection costs. The rest of the time of waves goes to claiming, loading, committing and
// settling.
type ProjectionCost struct {
	Cost
	Statements []StatementCost `json:"statements"`  // the costliest first; a function in Go is one
	Doubled    string          `json:"double_load"` // what twice the load would do; see Outlook
}

// StatementCost is what a statement of a projection costs.
type StatementCost struct {
	Statement string `json:"statement" redact:"-"` // FILE:LINE
	Cost
}

// String is the cost in words: "62 % of the time of waves, 1.2 ms per event, 99 of 100 within 3.4 ms".
func (c Cost) String() string {
	return fmt.Sprintf("%s of the time of waves, %s per event, 99 of 100 within %s", Percent(c.Share), Millis(c.Seconds), Millis(c.P99))
}

// Percent is a share in words: 62 %, 0.4 %.
func Percent(share float64) string { return figures(100*share) + " %" }

// Millis is a short time in words: 3.4 ms, 0.012 ms.
func Millis(seconds float64) string { return figures(1000*seconds) + " ms" }

// figures writes two figures of a number, and all of those before its point.
func figures(x float64) string {
	if x < 0.0005 {
		return "0"
	}
	return fmt.Sprintf("%.*f", max(0, 1-int(math.Floor(math.Log10(x)))), x)
}

// Spent is the time that a process took of waves in its last busy minutes. A wave that stands for others counts as
// often.
type Spent struct {
	Of WaveSums  `json:"of"`
	On []SpentOn `json:"on"`
}

// WaveSums are sums over waves: of 1, of the numbers of their events, of the seconds that they took, of the squares of
// the events, and of the products of both.
type WaveSums [5]float64

// Add adds so many times the sums of one wave.
func (s *WaveSums) Add(times, events, seconds float64) {
	for i, x := range (WaveSums{1, events, seconds, events * events, events * seconds}) {
		s[i] += times * x
	}
}

// SpentOn is the time that a process took of a projection, or of one of its statements.
type SpentOn struct {
	Spender
	Events  float64 `json:"n"`
	Seconds float64 `json:"s"`
	P99     float64 `json:"p99"` // seconds
}

// Spender is a projection, or one of its statements.
type Spender struct {
	Projection string `json:"p"`
	Version    string `json:"v"`           // see event.ShortHash
	Statement  string `json:"l,omitempty"` // FILE:LINE; empty for the projection
}

// spent is that of all running instances together.
func (s Summary) spent() (all Spent) {
	for _, i := range s.Instances {
		if state := i.State(s.AsOf); state != InstanceRunning && state != InstanceIdle {
			continue
		}
		for n, x := range i.Spent.Of {
			all.Of[n] += x
		}
		all.On = append(all.On, i.Spent.On...)
	}
	return all
}

// CostOf is what the loaded version of a projection costs in all running instances together; nil if no time was taken of it.
func (s Summary) CostOf(projection, version string) *ProjectionCost {
	sums, all := map[string]SpentOn{}, s.spent()
	for _, on := range all.On {
		if on.Projection == projection && on.Version == event.ShortHash(version) {
			sum := sums[on.Statement]
			sums[on.Statement] = SpentOn{Events: sum.Events + on.Events, Seconds: sum.Seconds + on.Seconds, P99: max(sum.P99, on.P99)}
		}
	}
	costOf := func(on SpentOn) Cost {
		return Cost{Share: on.Seconds / all.Of[2], Events: int64(math.Ceil(on.Events)), Seconds: on.Seconds / on.Events, P99: on.P99}
	}
	if sums[""].Events == 0 {
		return nil
	}
	cost := &ProjectionCost{Cost: costOf(sums[""]), Statements: []StatementCost{}, Doubled: s.Outlook.Doubled}
	for statement, on := range sums {
		if statement != "" && on.Events > 0 {
			cost.Statements = append(cost.Statements, StatementCost{statement, costOf(on)})
		}
	}
	slices.SortFunc(cost.Statements, func(a, b StatementCost) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Statement, b.Statement))
	})
	return cost
}

// perEvent is how many seconds one more event in a wave takes: less than an event takes on average, since each wave
// has its commits, and no less than its statements take. It is 0 if waves of several sizes were not measured.
func (s Spent) perEvent() float64 {
	waves, events, seconds, squares, products := s.Of[0], s.Of[1], s.Of[2], s.Of[3], s.Of[4]
	spread := waves*squares - events*events
	if spread <= 0 {
		return 0
	}
	var least float64
	for _, on := range s.On {
		if on.Statement == "" {
			least += on.Seconds / events
		}
	}
	return min(max((waves*products-events*seconds)/spread, least), seconds/events)
}

// paceWave is the size of the waves of a backlog in events, as far as estimates go.
const paceWave = 100

// BusyPace is how many events per second workers apply while they have a backlog, by the waves that were measured; 0 if
// none was.
func (s Summary) BusyPace() float64 {
	spent := s.spent()
	waves, events, seconds := spent.Of[0], spent.Of[1], spent.Of[2]
	if seconds == 0 {
		return 0
	}
	each := spent.perEvent()
	if each == 0 {
		return events / seconds
	}
	return paceWave / ((seconds-events*each)/waves + paceWave*each)
}

// doubled says what twice the load would do, without a final period; keepUp is that workers apply what comes.
func (s Summary) doubled(keepUp bool) string {
	in, out, busy := s.Throughput.AppendedPerSecond, s.Throughput.AppliedPerSecond, s.Throughput.BusyShare
	if !keepUp && out > 0 {
		busy *= in / out
	}
	load := "the load, " + Rate(in) + " events/s, takes " + Percent(busy) + " of the workers' time; twice of it "
	large := 2 * in * s.spent().perEvent()
	switch {
	case !s.Worker.Running || s.Mode == ModeShadow:
		return "no worker is running"
	case in == 0:
		return "nothing comes in now"
	case busy == 0:
		return "workers have applied nothing in the last seconds"
	case 2*busy <= 1:
		return load + "takes at most " + Percent(2*busy)
	case large == 0:
		return load + "is too much, unless larger waves take less per event"
	case large <= 1:
		return load + "makes waves larger, which take less per event: events wait longer, and the backlog does not grow"
	}
	return load + "takes " + Percent(large) + " even in large waves: the backlog may grow by " + Rate(2*in-2*in/large) + " events/s"
}
