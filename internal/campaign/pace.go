package campaign

import (
	"strconv"
	"time"

	"github.com/outboxweb/outboxweb/internal/event"
)

// PaceMinutes is how many busy minutes a pace is taken from.
const PaceMinutes = 15

// Pace returns the rate, in events per second, that estimates of time assume: the highest of that of busy workers now and
// of the last PaceMinutes busy minutes, those in which an event was applied. totals are the numbers
// of all events ever applied, as of every minute or of those in which it grew, newest first. Without
// a busy minute it is 0. A minute with little to do shows less than workers can do; the best of
// several is seldom such a minute.
func Pace(now float64, totals []int64) float64 {
	best, busy := now, 0
	for i := 1; i < len(totals) && busy < PaceMinutes; i++ {
		if applied := totals[i-1] - totals[i]; applied > 0 { // less where a database was restored
			best = max(best, float64(applied)/time.Minute.Seconds())
			busy++
		}
	}
	return best
}

// Estimate says how long workers take for so many rows at a pace: "up to 4 min at 900 events/s",
// since workers that had little to do are faster than their pace. It is empty without a pace.
func Estimate(rows int64, pace float64) string {
	if pace <= 0 {
		return ""
	}
	at := " at " + Rate(pace) + " events/s"
	seconds := float64(rows) / pace
	if seconds < 1 {
		return "less than 1 s" + at
	}
	return "up to " + event.Age(time.Duration(min(seconds, 1e9)*float64(time.Second))) + at
}

// Rate is a number per second: 1,200, 3.4 or 0.012.
func Rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 0.1:
		return strconv.FormatFloat(perSecond, 'f', 3, 64)
	case perSecond < 10:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	default:
		return event.Number(int64(perSecond + 0.5))
	}
}
