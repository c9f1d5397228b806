//go:build linux

package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// unit is how figures are shown.
type unit struct {
	name string
	each float64 // seconds or bytes
}

var (
	micros    = unit{"µs", 1e-6}
	millis    = unit{"ms", 1e-3}
	megabytes = unit{"MB", 1e6}
)

func (u unit) show(v float64) string { return fmt.Sprintf("%.4g %s", v/u.each, u.name) }

const line = "| %-28s | %9s | %9s | %5s | %11s | %-10s |\n"

// print writes the table, and reports whether some row is slower.
func (l *lab) print(out io.Writer, probes []*probe, turns int) (slower bool, err error) {
	text := fmt.Sprintf("base %s, current %s: %d cores, %d turns, %s\n\n", l.sides[base].rev, l.sides[current].rev,
		runtime.NumCPU(), turns, time.Since(l.began).Round(time.Second))
	text += fmt.Sprintf(line, "", "base", "current", "ratio", "95 %", "")
	text += "|" + strings.Repeat("-", 30) + strings.Repeat("|-----------", 2) + "|-------|-------------|------------|\n"
	for _, p := range probes {
		for _, r := range p.rows {
			if l.wants(r.name) {
				judged, isSlower := r.line()
				text, slower = text+judged, slower || isSlower
			}
		}
	}
	text += "\nbase and current are medians; ratio is the median of the ratios of pairs, and lies within the bounds with 95 % confidence.\n"
	_, err = io.WriteString(out, text)
	return slower, err
}

// line is the row as the table shows it.
func (r *row) line() (text string, slower bool) {
	if r.note != "" {
		return fmt.Sprintf(line, r.name, "", "", "", "", r.note), false
	}
	j, verdict := verdictOf(r.pairs), ""
	switch {
	case r.shown:
		verdict = "not judged"
	case j.slower():
		verdict = "SLOWER"
	case j.faster():
		verdict = "faster"
	}
	return fmt.Sprintf(line, r.name, r.unit.show(j.base), r.unit.show(j.current), fmt.Sprintf("%.2f", j.ratio),
		fmt.Sprintf("%.2f–%.2f", j.low, j.high), verdict), verdict == "SLOWER"
}
