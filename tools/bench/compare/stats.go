//go:build linux

package main

import (
	"math"
	"slices"
)

const (
	// limit is the ratio above which a row is slower.
	limit = 1.15
	// minTurns makes 6 pairs of every row; from 5 on the extremes hold the true
	// median with a confidence of about 95 %.
	minTurns = 3
)

// pair is one measurement of each side, made one right after the other.
type pair struct{ base, current float64 }

// judgement is the result of pairs. Low and high bound the median of the ratios with a confidence
// of at least 93.75 %; both are 0 when there are too few pairs.
type judgement struct {
	base, current    float64 // medians
	ratio, low, high float64
}

func verdictOf(pairs []pair) judgement {
	var base, current, ratios []float64
	for _, p := range pairs {
		base, current, ratios = append(base, p.base), append(current, p.current), append(ratios, p.current/p.base)
	}
	j := judgement{base: median(base), current: median(current), ratio: median(ratios)}
	if k := rank(len(ratios)); k > 0 {
		j.low, j.high = ratios[k-1], ratios[len(ratios)-k]
	}
	return j
}

func (j judgement) slower() bool { return j.low > limit }

func (j judgement) faster() bool { return j.high > 0 && j.high < 1/limit }

// undecided reports whether more pairs could show that the row is slower.
func (j judgement) undecided() bool { return j.ratio > limit && j.low <= limit }

// median sorts its values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// rank is the largest k such that the k-th lowest and the k-th highest of n
// values hold the true median between them in at least 15 of 16 cases: the
// number of values below the median is binomial, each with probability 1/2.
// It is 0 when even the extremes do not.
func rank(n int) int {
	k, exactly := 0, math.Exp2(-float64(n)) // the probability of k values below the median
	for below := 0.0; k < n/2; k++ {
		if below += exactly; below > 1.0/32 {
			break
		}
		exactly *= float64(n-k) / float64(k+1)
	}
	return k
}
