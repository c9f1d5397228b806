package templates

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"outboxweb/internal/outbox"
)

// countSteps are the distances of ticks of counts within a power of ten, secondSteps those of
// seconds.
var (
	countSteps  = []float64{1, 2, 5}
	secondSteps = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400}
)

// ticks returns two to four round values from 0 to at least most.
func ticks(most float64, u unit) []float64 {
	const intervals = 3
	step := 1.0
	if u == unitSeconds {
		i := slices.IndexFunc(secondSteps, func(s float64) bool { return most <= intervals*s })
		if step = secondSteps[max(i, 0)]; i < 0 {
			step = 86400 * math.Ceil(most/86400/intervals)
		}
	} else {
	search:
		for power := 1.0; ; power *= 10 {
			for _, s := range countSteps {
				if step = s * power; most <= intervals*step {
					break search
				}
			}
		}
	}
	all := []float64{0}
	for v := step; ; v += step {
		all = append(all, v)
		if v >= most {
			return all
		}
	}
}

// tickText is a tick's value in few characters.
func tickText(v float64, u unit) string {
	switch {
	case v == 0:
		return "0"
	case u == unitSeconds:
		return valueText(v, u)
	case v >= 1e9:
		return number(v/1e9) + " G"
	case v >= 1e6:
		return number(v/1e6) + " M"
	case v >= 1e4:
		return number(v/1e3) + " k"
	}
	return num(int64(v))
}

func number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// valueText is a value with its unit.
func valueText(v float64, u unit) string {
	switch {
	case u == unitCount && v < 10 && v != math.Trunc(v):
		return number(v)
	case u == unitCount:
		return num(int64(math.Round(v)))
	case v < 1:
		return strconv.FormatFloat(math.Round(v*1000), 'f', -1, 64) + " ms"
	case v < 120:
		return rounded(v) + " s"
	case v < 3600:
		return rounded(v/60) + " min"
	case v < 2*86400:
		return rounded(v/3600) + " h"
	}
	return rounded(v/86400) + " d"
}

// rounded has a decimal only below ten.
func rounded(v float64) string {
	if v >= 10 {
		v = math.Round(v)
	}
	return number(v)
}

// timeTick is a round time on the axis.
type timeTick struct {
	at    string // in percent of the width
	text  string
	class string // odd ones are left out where there is little space
}

// classOf is the attribute of a class, or none.
func classOf(name string) templ.Attributes {
	if name == "" {
		return nil
	}
	return templ.Attributes{"class": name}
}

var timeSteps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour}

// timeTicks returns at most eight round times inside a window, with dates where it is longer than
// a day.
func timeTicks(w outbox.Window) (all []timeTick) {
	length := w.To.Sub(w.From)
	i := slices.IndexFunc(timeSteps, func(s time.Duration) bool { return length/s <= 8 })
	step := timeSteps[max(i, 0)]
	if i < 0 {
		step = timeSteps[len(timeSteps)-1]
	}
	form := "15:04"
	if step >= 24*time.Hour {
		form = "Jan 2"
	} else if length > 25*time.Hour {
		form = "Jan 2 15:04"
	}
	for at := w.From.Truncate(step).Add(step); at.Before(w.To); at = at.Add(step) {
		share := float64(at.Sub(w.From)) / float64(length)
		if share > .03 && share < .97 {
			all = append(all, timeTick{percent(share), at.Format(form), [2]string{"", "odd"}[len(all)%2]})
		}
	}
	return all
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}

// placeOf is where a time is, in percent of the width.
func placeOf(w outbox.Window, t time.Time) string {
	return percent(min(1, max(0, float64(t.Sub(w.From))/float64(w.To.Sub(w.From)))))
}

// drawn is a chart's geometry.
type drawn struct {
	ticks []drawnTick
	times []timeTick
	paths []path
	gaps  string // path of the steps without a record
	peak  *peakLabel
	width int
}

type drawnTick struct {
	y    string
	text string
}

// path is a shape of an SVG.
type path struct{ class, d string }

type peakLabel struct {
	x, y, anchor, text string
}

// draw makes the geometry of a chart.
func draw(c chart) drawn {
	bucket, most, found := c.peak()
	values := ticks(most, c.unit)
	top := values[len(values)-1]
	d := drawn{times: timeTicks(c.window), width: c.window.Buckets() * bucketWidth}
	for _, v := range values {
		d.ticks = append(d.ticks, drawnTick{itoa(plotTop + plotArea - int(math.Round(v/top*plotArea))), tickText(v, c.unit)})
	}
	d.gaps = gapPath(c.recorded, c.window)
	if c.lines {
		for _, l := range c.layers {
			d.paths = append(d.paths, path{l.class, linePath(l.values, top)})
		}
	} else {
		d.paths = barPaths(c, top)
	}
	if found {
		share := (float64(bucket) + .5) / float64(c.window.Buckets())
		anchor := "middle"
		if share < .12 {
			anchor = "start"
		} else if share > .88 {
			anchor = "end"
		}
		d.peak = &peakLabel{percent(share), itoa(plotTop + plotArea - int(math.Round(most/top*plotArea)) - 4), anchor, "peak " + valueText(most, c.unit)}
	}
	return d
}

// gapPath covers the steps without a record that are not in the future.
func gapPath(recorded []bool, w outbox.Window) string {
	var b strings.Builder
	for i := 0; i < len(recorded); i++ {
		from := i
		for i < len(recorded) && !recorded[i] && !w.Start(i).After(w.Now) {
			i++
		}
		if i > from {
			fmt.Fprintf(&b, "M%d 0h%dv%dh-%dz", from*bucketWidth, (i-from)*bucketWidth, fullHeight, (i-from)*bucketWidth)
		}
	}
	return b.String()
}

func scaled(v, top float64) int {
	if v <= 0 {
		return 0
	}
	return max(12, int(math.Round(v/top*fullHeight)))
}

// barPaths stacks the layers; the bar of the running step has a look of its own.
func barPaths(c chart, top float64) []path {
	n := c.window.Buckets()
	bottoms := make([]int, n)
	paths := []path{}
	draw := func(class string, values []*float64, ghost bool) {
		var whole, running strings.Builder
		for i, v := range values {
			if v == nil || *v <= 0 {
				continue
			}
			h := min(scaled(*v, top), fullHeight-bottoms[i])
			b := &whole
			if c.window.Incomplete(i) {
				b = &running
			}
			fmt.Fprintf(b, "M%d %dh%dv%dh-%dz", i*bucketWidth+1, fullHeight-bottoms[i]-h, bucketWidth-2, h, bucketWidth-2)
			if !ghost {
				bottoms[i] += h
			}
		}
		for _, p := range []path{{class, whole.String()}, {class + " running", running.String()}} {
			if p.d != "" {
				paths = append(paths, p)
			}
		}
	}
	if c.ghost != nil {
		draw(c.layers[0].class+" ghost", c.ghost, true)
	}
	for _, l := range c.layers {
		draw(l.class, l.values, false)
	}
	return paths
}

// linePath connects the middles of the steps, with breaks at steps without a record. A value
// alone is a dot.
func linePath(values []*float64, top float64) string {
	var b strings.Builder
	for i, v := range values {
		if v == nil {
			continue
		}
		x, y := i*bucketWidth+bucketWidth/2, fullHeight-int(math.Round(*v/top*fullHeight))
		if i > 0 && values[i-1] != nil {
			fmt.Fprintf(&b, "L%d %d", x, y)
			continue
		}
		fmt.Fprintf(&b, "M%d %d", x, y)
		if i+1 == len(values) || values[i+1] == nil {
			b.WriteString("h1")
		}
	}
	return b.String()
}

// heatPath draws the cells of one shade in a row of a heatmap: the darker, the higher.
func heatPath(row outbox.HeatmapRow, shade int, worst int64) string {
	var b strings.Builder
	h := 4 * shade
	for i := 0; i < len(row.LagEvents); i++ {
		from := i
		for i < len(row.LagEvents) && outbox.Shade(row.LagEvents[i], worst) == shade {
			i++
		}
		if i > from {
			fmt.Fprintf(&b, "M%d %dh%dv%dh-%dz", from*bucketWidth, 20-h, (i-from)*bucketWidth, h, (i-from)*bucketWidth)
		}
	}
	return b.String()
}

// heatData are the values of a row.
func heatData(row outbox.HeatmapRow) string {
	words := make([]string, len(row.LagEvents))
	for i, n := range row.LagEvents {
		if n > 0 {
			words[i] = strconv.FormatInt(n, 10)
		}
	}
	return strings.Join(words, ",")
}

// worstOf is the most events that any campaign of a heatmap was behind.
func worstOf(h outbox.Heatmap) (worst int64) {
	for _, r := range h.Campaigns {
		worst = max(worst, r.Worst)
	}
	return worst
}
