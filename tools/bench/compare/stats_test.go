//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// ratios makes pairs with these ratios.
func ratios(of ...float64) (pairs []pair) {
	for i, r := range of {
		base := float64(i + 1)
		pairs = append(pairs, pair{base, base * r})
	}
	return pairs
}

func TestRank_leavesOutOneInSixteenAtTheMost(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{0: 0, 1: 0, 4: 0, 5: 1, 8: 1, 9: 2, 12: 3, 27: 9, 100: 41} {
		if got := rank(n); got != want {
			t.Errorf("rank(%d) is %d, want %d", n, got, want)
		}
	}
}

func TestJudge_saysSlowerBeyondDoubtAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		ratios  []float64
		want    string // ratio, low, high
		verdict string
		again   bool // more pairs could show that it is slower
	}{
		{"the same", []float64{1, 1.02, 0.98, 1.01, 0.99}, "1.00 0.98–1.02", "", false},
		{"a quarter slower", []float64{1.25, 1.2, 1.3, 1.24, 1.26}, "1.25 1.20–1.30", "SLOWER", false},
		{"one outlier of nine", []float64{1.25, 0.5, 1.3, 1.24, 1.26, 1.21, 1.22, 1.27, 1.23}, "1.24 1.21–1.27", "SLOWER", false},
		{"wide", []float64{1.25, 1.1, 1.3, 1.24, 1.26}, "1.25 1.10–1.30", "", true},
		{"one burst", []float64{1, 1, 1, 1, 3}, "1.00 1.00–3.00", "", false},
		{"a little slower", []float64{1.12, 1.13, 1.14, 1.13, 1.12}, "1.13 1.12–1.14", "", false},
		{"at the limit", []float64{1.15, 1.15, 1.15, 1.15, 1.15}, "1.15 1.15–1.15", "", false},
		{"a fifth faster", []float64{0.8, 0.81, 0.79, 0.8, 0.8}, "0.80 0.79–0.81", "faster", false},
		{"too few pairs", []float64{2, 2, 2, 2}, "2.00 0.00–0.00", "", true},
		{"none", nil, "NaN", "", false},
	} {
		r := row{name: tt.name, unit: millis, pairs: ratios(tt.ratios...)}
		j := verdictOf(r.pairs)
		if got := fmt.Sprintf("%.2f %.2f–%.2f", j.ratio, j.low, j.high); tt.ratios != nil && got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		line, slower := r.line()
		if !strings.HasSuffix(line, fmt.Sprintf("| %-10s |\n", tt.verdict)) || slower != (tt.verdict == "SLOWER") {
			t.Errorf("%s: line %q and slower %v, want %q", tt.name, line, slower, tt.verdict)
		}
		if j.undecided() != tt.again {
			t.Errorf("%s: undecided is %v", tt.name, j.undecided())
		}
	}
}

func TestLine_judgesNothingThatIsShownOnly(t *testing.T) {
	t.Parallel()
	r := row{shown: true, pairs: ratios(2, 2, 2, 2, 2)}
	if line, slower := r.line(); slower || !strings.HasSuffix(line, "| not judged |\n") {
		t.Errorf("line is %q, slower %v", line, slower)
	}
}

func TestRun_refusesWrongUsageWithTheWayOut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, want string }{
		{"", "BASE=main"},
		{"-base", "needs an argument"},
		{"-base main extra", `unexpected argument "extra"`},
		{"-base main -turns 2", "must be 3 or more"},
		{"-base main -turns many", "invalid value"},
		{"-base main -speed 3", "not defined: -speed"},
		{"-base main -only nothing-has-this-name", "no row's name contains"},
		{"-base no-such-revision", `"no-such-revision" is no revision here`},
		{"-base --all", "is not a revision"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), strings.Fields(tt.args), &out, &errs); code != 2 || out.Len() > 0 || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want 2, nothing, and %q", tt.args, code, out.String(), errs.String(), tt.want)
		}
	}
}
