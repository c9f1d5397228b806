package campaign_test

import (
	"slices"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestPace_isTheBestOfTheLastBusyMinutes(t *testing.T) {
	t.Parallel()
	long := []int64{1_000_000} // a fast minute long ago, then sixteen slow ones, newest first
	for i := range campaign.PaceMinutes {
		long = append(long, long[i]-600)
	}
	for name, c := range map[string]struct {
		now    float64
		totals []int64
		want   float64
	}{
		"nothing known":                    {0, nil, 0},
		"one sample says nothing":          {0, []int64{700}, 0},
		"nothing applied":                  {0, []int64{700, 700, 700}, 0},
		"the best minute":                  {0, []int64{1260, 1200, 600, 540}, 10},
		"now is faster":                    {12, []int64{1260, 1200, 600}, 12},
		"idle minutes do not count":        {0, slices.Concat([]int64{600}, slices.Repeat([]int64{600}, 100), []int64{0}), 10},
		"fifteen busy minutes count":       {0, slices.Concat(long[:campaign.PaceMinutes], []int64{long[campaign.PaceMinutes-1] - 60_000}), 1000},
		"one before them does not":         {0, slices.Concat(long, []int64{long[campaign.PaceMinutes] - 60_000}), 10},
		"a total that sank is no progress": {0, []int64{60, 6000, 5940}, 1},
	} {
		must.Equal(t, campaign.Pace(c.now, c.totals), c.want, name, "the pace")
	}
}

func TestEstimate_namesTheRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows int64
		pace float64
		want string
	}{
		{5, 0, ""},
		{0, 900, "less than 1 s at 900 events/s"},
		{899, 900, "less than 1 s at 900 events/s"},
		{900, 900, "up to 1 s at 900 events/s"},
		{220_000, 900, "up to 4 min at 900 events/s"},
		{100, 0.05, "up to 33 min at 0.050 events/s"},
		{7200, 2, "up to 1 h at 2.0 events/s"},
		{1 << 62, 0.001, "up to 11574 d at 0.001 events/s"},
	} {
		must.Equal(t, campaign.Estimate(c.rows, c.pace), c.want, c.rows, "rows at", c.pace)
	}
}
