package charts

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/web/templates/ui"
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
	return ui.Num(int64(v))
}

func number(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

func valueText(v float64, u unit) string {
	switch {
	case u == unitCount && v < 10 && v != math.Trunc(v):
		return number(v)
	case u == unitCount:
		return ui.Num(int64(math.Round(v)))
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

// timeTick is a round time on the axis, in percent of the width.
type timeTick struct{ at, text string }

var timeSteps = []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour}

// timeTicks returns the time at which a window begins and at most eight round ones inside it, with dates
// where it is longer than a day.
func timeTicks(w samples.Window) (all []timeTick) {
	length := w.To.Sub(w.From)
	step := timeSteps[slices.IndexFunc(timeSteps, func(s time.Duration) bool { return length/s <= 8 })]
	form := "15:04"
	if step >= 24*time.Hour {
		form = "Jan 2"
	} else if length > 25*time.Hour {
		form = "Jan 2 15:04"
	}
	all = []timeTick{{"0%", w.From.Format(form)}}
	for at := w.From.Truncate(step).Add(step); at.Before(w.To); at = at.Add(step) {
		share := float64(at.Sub(w.From)) / float64(length)
		if share > .1 && share < .97 {
			all = append(all, timeTick{percent(share), at.Format(form)})
		}
	}
	return all
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}

// placeOf is where a time is, in percent of the width.
func placeOf(w samples.Window, t time.Time) string {
	return percent(min(1, max(0, float64(t.Sub(w.From))/float64(w.To.Sub(w.From)))))
}

// drawn is a chart's geometry. A step is one wide.
type drawn struct {
	ticks  []drawnTick
	grid   string // path of the ticks' lines
	paths  []path
	gaps   string // path of the steps without a record
	gap    string // the middle of the longest of them, if it is wide enough for a word; otherwise empty
	peak   *peakLabel
	height int // of the highest tick
	scale  float64
}

type drawnTick struct{ y, text string }

// path is a shape of an SVG.
type path struct{ class, d string }

type peakLabel struct {
	x, y, anchor, text string
}

// scaleOf is what values are multiplied by to be heights: whole numbers, with the decimals that a reader
// sees. Areas, whose values the script does not read from their paths, need no more than can be seen.
func scaleOf(top float64, c Chart) float64 {
	switch {
	case c.shape == areas:
		return 300 / top
	case c.unit == unitSeconds && top < 86400:
		return 1000
	case c.unit == unitCount && top < 100:
		return 10
	}
	return 1
}

func draw(c Chart) drawn {
	bucket, most, found := c.peak()
	highest := most
	if c.beside != nil {
		_, highest, _ = c.beside.peak()
	}
	values := ticks(max(most, highest), c.unit)
	top, n := values[len(values)-1], c.window.Buckets()
	d := drawn{gap: widestGap(c), scale: scaleOf(top, c)}
	d.height = int(math.Round(top * d.scale))
	d.gaps = gapPath(c, d.height)
	for _, c := range withBeside(c) {
		d.paths = append(d.paths, paths(c, d.scale)...)
	}
	for _, v := range values {
		d.ticks = append(d.ticks, drawnTick{plotY(v / top), tickText(v, c.unit)})
		d.grid += fmt.Sprintf("M-.5-%dh%d", int(math.Round(v*d.scale)), n)
	}
	if found {
		share := (float64(bucket) + .5) / float64(n)
		anchor := ""
		if share < .12 {
			anchor = "start"
		} else if share > .88 {
			anchor = "end"
		}
		d.peak = &peakLabel{percent(share), ui.Itoa(plotTop + plotArea - int(math.Round(most/top*plotArea)) - 6), anchor, "peak " + valueText(most, c.unit)}
	}
	return d
}

// plotY is how far down a share of the highest tick is, in pixels.
func plotY(share float64) string {
	return ui.Itoa(plotTop + plotArea - int(math.Round(share*plotArea)))
}

// gapPath covers the steps without a record that are not in the future.
func gapPath(c Chart, height int) string {
	return runs(len(c.recorded), c.missing, func(from, n int) string {
		return fmt.Sprintf("M%g 0h%dv-%dh-%dz", float64(from)-.5, n, height, n)
	})
}

// widestGap is the middle of the longest run of steps without a record, in percent of the width;
// empty if it is too narrow for a word.
func widestGap(c Chart) string {
	widest, middle := 0, 0.0
	n := len(c.recorded)
	runs(n, c.missing, func(from, length int) string {
		if length > widest {
			widest, middle = length, float64(from)+float64(length)/2
		}
		return ""
	})
	if widest < max(n/3, 3) { // of few steps none is worth a word
		return ""
	}
	return percent(middle / float64(n))
}

// missing reports whether a step that is not in the future has no record.
func (c Chart) missing(i int) bool { return !c.recorded[i] && !c.window.Start(i).After(c.window.Now) }

func runs(n int, chosen func(int) bool, path func(from, n int) string) string {
	var b strings.Builder
	for i := 0; i < n; i++ {
		from := i
		for i < n && chosen(i) {
			i++
		}
		if i > from {
			b.WriteString(path(from, i-from))
		}
	}
	return b.String()
}

// heights are how high values are; -1 without a record.
func heights(values []*float64, scale float64) []int {
	all := make([]int, len(values))
	for i, v := range values {
		if all[i] = -1; v != nil {
			all[i] = int(math.Round(*v * scale))
		}
	}
	return all
}

// paths are the shapes of the layers, in the order in which they are drawn. What is counted in the
// running step has a look of its own.
func paths(c Chart, scale float64) (all []path) {
	n := c.window.Buckets()
	whole, below := n, make([]int, n)
	if c.window.Incomplete(n - 1) {
		whole--
	}
	for _, l := range c.layers {
		h := heights(l.values, scale)
		switch c.shape {
		case lines:
			all = append(all, path{l.class, linePath(h)}, path{"dot " + l.class, dotsPath(h)})
		case areas:
			for i := range h {
				if h[i] >= 0 {
					h[i] += below[i]
					below[i] = h[i]
				}
			}
			all = append([]path{{"under " + l.class, areaPath(h)}}, all...)
		default:
			all = append(all, path{l.class, stepPath(h, 0, whole)}, path{l.class + " running", stepPath(h, whole, n)})
		}
	}
	return slices.DeleteFunc(all, func(p path) bool { return p.d == "" })
}

// stepPath holds the heights from one step on and before another for the length of each, with breaks
// where there is none. The script reads the values from it.
func stepPath(heights []int, from, before int) string {
	known := func(i int) bool { return i >= from && heights[i] >= 0 }
	d := runs(before, known, func(from, n int) string {
		d := fmt.Sprintf("M%g %dh1", float64(from)-.5, -heights[from])
		for i := from + 1; i < from+n; i++ {
			d += fmt.Sprintf("v%dh1", heights[i-1]-heights[i])
		}
		return d
	})
	return strings.ReplaceAll(d, " -", "-")
}

// linePath leads from the middle of a step to that of the next, and is read as stepPath is.
func linePath(heights []int) string {
	var b strings.Builder
	for i, h := range heights {
		switch {
		case h < 0:
		case i == 0 || heights[i-1] < 0:
			fmt.Fprintf(&b, "M%d %dl0 0", i, -h)
		default:
			fmt.Fprintf(&b, " 1 %d", heights[i-1]-h)
		}
	}
	return strings.ReplaceAll(b.String(), " -", "-")
}

// dotsPath are the heights without neighbours, which a line does not show.
func dotsPath(heights []int) string {
	return runs(len(heights), func(i int) bool { return heights[i] >= 0 }, func(from, n int) string {
		if n > 1 {
			return ""
		}
		return fmt.Sprintf("M%d %dl0 0", from, -heights[from])
	})
}

// areaPath is what is below steps.
func areaPath(heights []int) string {
	return runs(len(heights), func(i int) bool { return heights[i] >= 0 }, func(from, n int) string {
		d, y := fmt.Sprintf("M%g 0", float64(from)-.5), 0
		for _, h := range heights[from : from+n] {
			d += fmt.Sprintf("v%dh1", y-h)
			y = h
		}
		return d + "V0"
	})
}

// heatPath draws the cells of one shade in a row of a heatmap as strokes: the darker, the higher.
func heatPath(row samples.HeatmapRow, shade int, worst int64) string {
	return runs(len(row.LagEvents), func(i int) bool { return samples.Shade(row.LagEvents[i], worst) == shade }, func(from, n int) string {
		return fmt.Sprintf("M%d %dh%d", from, 20-2*shade, n)
	})
}

// unrecordedCell reports whether a step of a row of a heatmap has no record: known are the steps that have
// one of anything.
func unrecordedCell(h samples.Heatmap, row samples.HeatmapRow, known []bool, i int) bool {
	return row.LagEvents[i] == 0 && !known[i] && !h.Window.Start(i).After(h.Window.Now)
}

// heatGaps covers the steps of a row without a record.
func heatGaps(h samples.Heatmap, row samples.HeatmapRow, known []bool) string {
	return runs(len(row.LagEvents), func(i int) bool { return unrecordedCell(h, row, known, i) }, func(from, n int) string {
		return fmt.Sprintf("M%d 10h%d", from, n)
	})
}

// heatData are the values of a row: nothing for 0, and a dash without a record.
func heatData(h samples.Heatmap, row samples.HeatmapRow, known []bool) string {
	words := make([]string, len(row.LagEvents))
	for i, n := range row.LagEvents {
		if words[i] = ui.Positive(n); unrecordedCell(h, row, known, i) {
			words[i] = "-"
		}
	}
	return strings.Join(words, ",")
}

// joined are words of values between commas.
func joined[V any](values []V, word func(V) string) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = word(v)
	}
	return strings.Join(words, ",")
}
