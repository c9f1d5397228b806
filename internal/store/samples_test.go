package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func (f *fixture) history(over outbox.RangeName) []outbox.Point {
	h := must.Get(f.beside().History(f.Ctx, outbox.Range{Name: over})).Or(f.TB)
	return h.Points
}

func TestSample_oncePerMinuteAndOnlyWhenSomethingChanged(t *testing.T) {
	t.Parallel()
	f := open(t)
	count := func() int64 { return f.Number(`select count(*) from samples`) }
	f.AppendN("a", 3)
	f.MustSample()
	f.AppendN("a", 1)
	f.MustSample()
	must.Equal(t, count(), 1, "samples of one minute")
	f.Clock.Advance(time.Minute)
	f.MustSample()
	f.Drain()
	f.Clock.Advance(time.Minute)
	f.MustSample()
	must.Equal(t, count(), 3, "samples of three minutes")
	f.Clock.Advance(time.Minute)
	f.Unchanged(f.MustSample)
	f.Clock.Advance(9 * 24 * time.Hour)
	f.AppendN("a", 1)
	f.MustSample()
	must.Equal(t, count(), 2, "samples, of which one is older than eight days")
}

// What is applied before the first sample is counted, and once.
func TestHistory_countsFromTheBeginning(t *testing.T) {
	t.Parallel()
	f := open(t)
	beat := outbox.InstanceState{ID: "w", StartedAt: f.Clock.Now()}
	for _, step := range []struct {
		total, want int64
		pause       time.Duration
		best        float64 // in a minute of the last day
	}{{3, 3, 0, 3}, {3, 3, time.Minute, 3}, {8, 8, time.Minute, 5}, {10, 2, 9 * 24 * time.Hour, 2}} {
		f.Clock.Advance(step.pause)
		beat.Applied = step.total
		must.OK(t, f.Heartbeat(f.Ctx, beat))
		f.MustSample()
		applied := int64(0)
		for _, p := range f.history(outbox.RangeDay) {
			applied += p.Applied
		}
		must.Equal(t, applied, step.want, "after", step.pause, "and", step.total, "events in all, a day's chart shows")
		must.Equal(t, must.Get(f.beside().Pace(f.Ctx)).Or(t), step.best/60, "the events per second that estimates assume, after", step.pause, "and", step.total, "events")
	}
}

func TestHistory_tellsWhatStoodAtEachMinute(t *testing.T) {
	t.Parallel()
	f := open(t)
	if points := f.history(outbox.RangeHour); len(points) != 1 || !points[0].Incomplete {
		t.Fatalf("without a sample there are points other than of the running minute: %v", points)
	}
	beat := outbox.InstanceState{ID: "w", StartedAt: f.Clock.Now()}
	worked := func(applied, failed int64) {
		beat.Applied, beat.Failed = applied, failed
		must.OK(t, f.Heartbeat(f.Ctx, beat))
	}
	f.AppendN("a", 3)
	worked(0, 0)
	f.MustSample()
	for range 5 { // minutes without a sample
		f.Clock.Advance(time.Minute)
	}
	f.AppendN("b", 1)
	worked(120, 6)
	f.MustSample()
	points := f.history(outbox.RangeHour)
	must.Need(t, len(points) == 7, "%d points, want the running minute and one for each since the one that the first sample ended", len(points))
	first, last, running := points[1], points[5], points[6]
	must.Hold(t, first.Counts.Pending == 3 && first.Applied == 0 && first.OldestAgeSeconds == 60, "at first: %+v", first)
	must.Hold(t, last.Counts.Pending == 4 && last.AppliedPerSecond == 2 && last.Applied == 120 && last.Failed == 6 && last.At.Equal(f.Clock.Now()) && !last.Incomplete, "at the end: %+v", last)
	must.Hold(t, running.Incomplete && running.Applied == 0 && running.Counts.Pending == 4, "the running minute: %+v", running)
	f.Clock.Advance(30 * time.Minute)
	day := f.history(outbox.RangeDay)
	must.Hold(t, len(day) >= 2 && day[len(day)-1].Counts.Pending == 4 && day[0].Applied+day[1].Applied == 120, "the day: %+v", day)
}

func TestCampaignHistory_keepsThoseThatAreBehindForLong(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("slow", 3)
	f.Kill("slow")
	f.Clock.Advance(3 * time.Minute)
	f.AppendN("fast", 1)
	f.MustSample()
	f.Drain()
	f.Clock.Advance(time.Minute)
	f.MustSample()
	points, err := f.CampaignHistory(f.Ctx, "slow", outbox.Range{})
	must.Hold(t, err == nil && len(points) == 2 && points[1].LagEvents == 3 && points[1].LagSeconds >= 4*60, "%+v, %v", points, err)
	must.Equal(t, len(must.Get(f.CampaignHistory(f.Ctx, "fast", outbox.Range{})).Or(t)), 0, "a campaign a moment behind")
	for _, name := range outbox.RangeNames {
		h, err := f.Heatmap(f.Ctx, outbox.Range{Name: name})
		must.Hold(t, err == nil && len(h.Campaigns) == 1 && h.Campaigns[0].CampaignID == "slow" && h.Campaigns[0].Worst == 3 && slices.Max(h.Campaigns[0].LagEvents) == 3, "heatmap of %s: %+v, %v", name, h, err)
		// Two samples are at the ends of three minutes, as in the charts of all campaigns.
		cells := slices.DeleteFunc(h.Campaigns[0].LagEvents, func(n int64) bool { return n == 0 })
		must.Hold(t, name != outbox.RangeHour || len(cells) == 3, "heatmap of an hour has the cells %v", cells)
	}
	points, err = f.CampaignHistory(f.Ctx, "slow", outbox.Range{Name: outbox.RangeWeek})
	must.Hold(t, err == nil && len(points) != 0 && points[0].LagEvents == 3, "over a week: %+v, %v", points, err)
}

// Blocked from 31 seconds past a minute until 43 seconds past the next one, a campaign has the
// sample between them, as the chart of all waiting rows does.
func TestCampaignHistory_hasWhatBlocksItAtASample(t *testing.T) {
	t.Parallel()
	f := open(t)
	minute := f.Clock.Now().Truncate(time.Minute).Add(time.Minute)
	until := func(after time.Duration) { f.Clock.Advance(minute.Add(after).Sub(f.Clock.Now())) }
	until(31 * time.Second)
	f.AppendN("a", 95)
	f.Kill("a")
	until(time.Minute)
	f.MustSample()
	until(103 * time.Second)
	f.must(f.RequeueRow(f.Ctx, ana("fixed"), "a", 1))
	f.Drain()
	until(2 * time.Minute)
	f.MustSample()
	points, err := f.CampaignHistory(f.Ctx, "a", outbox.Range{})
	must.Hold(t, err == nil && len(points) == 1 && points[0].LagEvents == 95 && points[0].At.Equal(minute.Add(time.Minute)), "%+v, %v", points, err)
	h, err := f.Heatmap(f.Ctx, outbox.Range{})
	must.Need(t, err == nil && len(h.Campaigns) == 1, "heatmap: %+v, %v", h, err)
	first, _ := h.Window.Index(minute)
	must.Equal(t, h.Campaigns[0].LagEvents[first:first+3], []int64{95, 95, 0}, "the cells of three minutes")
}

// An action is marked in the charts at once: the data that they share are of before it.
func TestHistory_hasAnActionAtOnce(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	for _, want := range []int{0, 1} {
		h, err := f.History(f.Ctx, outbox.Range{})
		must.Hold(t, err == nil && len(h.Markers) == want, "%d markers (%v), want %d", len(h.Markers), err, want)
		if want == 0 {
			f.MustPause("a")
			f.Changed()
		}
	}
}

// What a note changes is in the scenarios of the command.
func TestNoteGroup_isPinnedAndTakenAway(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Fail("boom", "a")
	for _, text := range []string{"waits for the fix of Monday", ""} {
		note := must.Get(f.SetGroupNote(f.Ctx, ana("known"), "boom", text)).Or(t)
		pinned := must.Get(f.ErrorGroups(f.Ctx)).Or(t).Groups[0].Note
		must.Hold(t, (note != nil) == (text != "") && (pinned != nil) == (text != "") && (pinned == nil || pinned.Note == text && note.By == "ana"), "of %q there is %+v, pinned is %+v", text, note, pinned)
	}
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "boom", string(make([]byte, 2001)))), outbox.ErrInvalid, "2001 bytes")
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "", "x")), outbox.ErrInvalid, "fingerprint")
	refused(t, storetest.No(f.SetGroupNote(f.Ctx, ana(""), "never seen", "")), outbox.ErrNotFound, `no row failed with the fingerprint "never seen"`)
	// A note changes no row, so a refusal does not mention it.
	r := refused(t, storetest.No(f.RequeueRow(f.Ctx, ana(""), "a", 1)), outbox.ErrConflict, "not dead")
	must.Hold(t, len(r.Detail) <= 80, "the refusal tells of the note: %s", r.Detail)
}

// Open pages keep the shared summary fresh; the sample of a new minute must not use the summary
// of the last.
func TestSample_ofANewMinuteIsNotTheOldMinutesSummary(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	for n := range int64(3) {
		f.must(f.Summary(f.Ctx))
		f.Clock.Advance(time.Minute)
		f.AppendN("a", 1)
		must.OK(t, f.Sample(f.Ctx))
		got := f.Number(`select count(*) from samples`)
		must.Need(t, got == n+1, "%d samples after %d minutes", got, n+1)
	}
}

func TestSample_goesOnWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.AppendN("a", 1)
	f.Clock.Advance(48 * time.Hour)
	f.MustSample()
	f.Clock.Advance(-48 * time.Hour)
	f.AppendN("a", 1)
	f.MustSample()
	f.Clock.Advance(time.Minute)
	f.AppendN("a", 1)
	f.MustSample()
	points := f.history(outbox.RangeHour)
	must.Hold(t, len(points) == 3 && points[1].Counts.Pending == 3, "after the clock was set back the history is %+v, want the two minutes since and the running one", points)
	must.Equal(t, f.Number(`select count(*) from samples`), 2, "samples are kept")
}
