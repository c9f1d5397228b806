package outbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

func TestSwitches_resolvesAllEight(t *testing.T) {
	t.Parallel()
	const refusal = outbox.Mode("")
	for i, want := range []outbox.Mode{
		0b000: outbox.ModeInline, 0b001: refusal, 0b010: refusal, 0b011: refusal,
		0b100: outbox.ModeOutbox, 0b101: outbox.ModeShadow, 0b110: outbox.ModeOutbox, 0b111: outbox.ModeOutbox,
	} {
		got, err := outbox.Switches{Outbox: i&4 > 0, Worker: i&2 > 0, Shadow: i&1 > 0}.Mode()
		must.Hold(t, got == want && (err != nil) == (want == refusal) && (err == nil || errors.Is(err, outbox.ErrInvalid)), "switches %03b give %q, %v, want %q", i, got, err, want)
	}
}

func TestParse_knowsItsNamesAndListsThemInRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known []string
		parse func(string) (string, error)
		zero  string
	}{
		"mode":   {strs(outbox.Modes), func(s string) (string, error) { m, err := outbox.ParseMode(s); return string(m), err }, string(outbox.ModeOutbox)},
		"status": {strs(outbox.Statuses), func(s string) (string, error) { return outbox.ParseName("status", s, strs(outbox.Statuses)) }, ""},
		"state":  {strs(outbox.States), func(s string) (string, error) { return outbox.ParseName("state", s, strs(outbox.States)) }, ""},
	} {
		for _, known := range c.known {
			must.Equal(t, must.Get(c.parse(known)).Or(t), known, name, "is read as")
		}
		must.Equal(t, must.Get(c.parse("")).Or(t), c.zero, "the empty", name, "is read as")
		_, err := c.parse("Nonsense")
		var r *outbox.Refusal
		must.Need(t, errors.As(err, &r) && errors.Is(err, outbox.ErrInvalid) && r.Field == name && strings.Contains(r.Detail, "Nonsense"), "%s: got error %v", name, err)
		for _, known := range c.known {
			must.Hold(t, strings.Contains(r.Detail, known), "%q does not offer %s", r.Detail, known)
		}
	}
}

func strs[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestCampaign_stateAndWhy(t *testing.T) {
	t.Parallel()
	pause := &outbox.Pause{By: "ana", At: noon.Add(-4 * time.Minute)}
	held := &outbox.Lease{Owner: "w-1", Epoch: 3, ExpiresAt: noon.Add(20 * time.Second)}
	ran := &outbox.Lease{Owner: "w-1", Epoch: 3, ExpiresAt: noon}
	pending := outbox.Campaign{HighWaterSeq: 9, AppliedSeq: 4, HeadSeq: 5, HeadStatus: outbox.Pending, Counts: outbox.Counts{Pending: 5}}
	with := func(change func(*outbox.Campaign)) outbox.Campaign {
		c := pending
		change(&c)
		return c
	}
	dead := with(func(c *outbox.Campaign) { c.HeadStatus, c.Counts = outbox.Dead, outbox.Counts{Pending: 4, Dead: 1} })
	failed := with(func(c *outbox.Campaign) {
		c.HeadStatus, c.Counts, c.HeadNextAttempt = outbox.Failed, outbox.Counts{Pending: 4, Failed: 1}, noon.Add(8*time.Second)
	})
	unlisted := with(func(c *outbox.Campaign) { c.HeadSeq, c.HeadStatus, c.Counts = 0, "", outbox.Counts{} })
	for name, c := range map[string]struct {
		campaign outbox.Campaign
		mode     outbox.Mode
		state    outbox.State
		why      string
	}{
		"current":            {outbox.Campaign{HighWaterSeq: 9, AppliedSeq: 9}, outbox.ModeOutbox, outbox.StateCurrent, "Everything is applied"},
		"current but a skip": {outbox.Campaign{HighWaterSeq: 9, AppliedSeq: 9, Skips: 1}, outbox.ModeOutbox, outbox.StateCurrent, "Everything is applied, except 1 skipped event"},
		"empty":              {outbox.Campaign{}, outbox.ModeOutbox, outbox.StateCurrent, "Everything is applied"},
		"ready":              {pending, outbox.ModeOutbox, outbox.StateLagging, "Due: waiting for a free worker"},
		"held":               {with(func(c *outbox.Campaign) { c.Lease = held }), outbox.ModeOutbox, outbox.StateLagging, "Worker w-1 holds the lease and is applying; if it dies, the lease expires in 20 s"},
		"lease ran out":      {with(func(c *outbox.Campaign) { c.Lease = ran }), outbox.ModeOutbox, outbox.StateLagging, "Due: waiting for a free worker"},
		"shadow":             {pending, outbox.ModeShadow, outbox.StateLagging, "The mode is shadow_only: rows are rehearsed and never applied"},
		"never tried":        {with(func(c *outbox.Campaign) { c.HeadNextAttempt = noon.Add(time.Hour) }), outbox.ModeOutbox, outbox.StateLagging, "Due: waiting for a free worker"},
		"failed":             {failed, outbox.ModeOutbox, outbox.StateFailing, "Event 5 failed and will be retried in 8 s"},
		"failed and due":     {func() outbox.Campaign { c := failed; c.HeadNextAttempt = noon; return c }(), outbox.ModeOutbox, outbox.StateFailing, "Due: waiting for a free worker"},
		"dead":               {dead, outbox.ModeOutbox, outbox.StateBlocked, "Event 5 is dead and 4 rows wait behind it; requeue it once the cause is fixed"},
		"paused":             {with(func(c *outbox.Campaign) { c.Paused = pause }), outbox.ModeOutbox, outbox.StatePaused, "Paused by ana 4 min ago: no reason given"},
		"dead and paused":    {func() outbox.Campaign { c := dead; c.Paused = pause; return c }(), outbox.ModeOutbox, outbox.StateBlocked, "Event 5 is dead"},
		"failed and paused":  {func() outbox.Campaign { c := failed; c.Paused = pause; return c }(), outbox.ModeOutbox, outbox.StatePaused, "Paused by ana"},
		"diverged":           {func() outbox.Campaign { c := dead; c.Diverged = "built elsewhere"; return c }(), outbox.ModeOutbox, outbox.StateDiverged, "Diverged: built elsewhere"},
		"no rows":            {unlisted, outbox.ModeOutbox, outbox.StateLagging, "5 events have neither been applied nor have a row; the self-check"},
		"no rows, inline":    {unlisted, outbox.ModeInline, outbox.StateLagging, "5 events are appended but not applied yet: the append is still in progress, or its process died and a replay repairs the gap"},
		"no rows, applied":   {func() outbox.Campaign { c := unlisted; c.Lease = held; return c }(), outbox.ModeInline, outbox.StateLagging, "Worker w-1 holds the lease and is applying; if it dies, the lease expires in 20 s"},
		"hole before head":   {with(func(c *outbox.Campaign) { c.HeadSeq = 8 }), outbox.ModeOutbox, outbox.StateLagging, "Events 5 to 7 have no row, so event 8 cannot be applied; the self-check"},
	} {
		must.Equal(t, c.campaign.State(), c.state, name, "state")
		got := c.campaign.Why(noon, outbox.Surroundings{Mode: c.mode})
		must.Hold(t, strings.HasPrefix(got, c.why), "%s: why is %q, want %q", name, got, c.why)
	}
}

func TestCampaign_countsWhatWaits(t *testing.T) {
	t.Parallel()
	c := outbox.Campaign{HighWaterSeq: 10, AppliedSeq: 3, HeadSeq: 4, HeadStatus: outbox.Dead, Counts: outbox.Counts{Pending: 4, Dead: 1}, OldestEnqueuedAt: noon.Add(-time.Minute)}
	must.Hold(t, c.LagEvents() == 7 && c.Lag(noon) == time.Minute && c.BlockedBehind() == 4 && c.Gap() == 2, "lag %d, %s; %d blocked behind; gap %d", c.LagEvents(), c.Lag(noon), c.BlockedBehind(), c.Gap())
	c.HeadStatus = outbox.Processing
	must.Equal(t, c.BlockedBehind(), 0, "rows are blocked behind a head that is being applied")
	// A wave between its two databases: applied already, rows still there.
	c = outbox.Campaign{HighWaterSeq: 3, AppliedSeq: 5, Counts: outbox.Counts{Processing: 3}, OldestEnqueuedAt: noon}
	must.Hold(t, c.LagEvents() == 0 && c.Gap() == 0 && c.Lag(noon.Add(-time.Second)) == 0, "lag %d, %s; gap %d, want none below zero", c.LagEvents(), c.Lag(noon.Add(-time.Second)), c.Gap())
}

func TestCounts_ofEveryStatusAddUp(t *testing.T) {
	t.Parallel()
	c := outbox.Counts{Pending: 1, Processing: 20, Failed: 300, Dead: 4000}
	sum := int64(0)
	for _, s := range outbox.Statuses {
		sum += c.Of(s)
	}
	must.Hold(t, sum == 4321 && c.Total() == 4321 && c.Of("other") == 0, "sum %d, total %d, want 4321", sum, c.Total())
}

func TestRowFilter_matchesAndKnowsWhenItMustLook(t *testing.T) {
	t.Parallel()
	r := outbox.Row{CampaignID: "c-1", Seq: 3, EventType: "x", Status: outbox.Failed, Fingerprint: "f", LastError: "disk is full"}
	for _, c := range []struct {
		filter            outbox.RowFilter
		matches, filtered bool
	}{
		{outbox.RowFilter{}, true, false},
		{outbox.RowFilter{Status: outbox.Failed}, true, false},
		{outbox.RowFilter{Status: outbox.Dead}, false, false},
		{outbox.RowFilter{Status: outbox.Pending}, false, true},
		{outbox.RowFilter{CampaignID: "c-1"}, true, false},
		{outbox.RowFilter{CampaignID: "c-1", Status: outbox.Failed}, true, true},
		{outbox.RowFilter{CampaignID: "c"}, false, false},
		{outbox.RowFilter{EventType: "x"}, true, true},
		{outbox.RowFilter{EventType: "y"}, false, true},
		{outbox.RowFilter{Fingerprint: "f"}, true, true},
		{outbox.RowFilter{Fingerprint: "g"}, false, true},
		{outbox.RowFilter{Q: "-1"}, true, true},
		{outbox.RowFilter{Q: "full"}, true, true},
		{outbox.RowFilter{Q: "empty"}, false, true},
	} {
		must.Hold(t, c.filter.Matches(r) == c.matches && c.filter.Filtered() == c.filtered, "%+v: matches %v, filtered %v", c.filter, c.filter.Matches(r), c.filter.Filtered())
	}
}

func TestCampaign_whyTellsWhenNobodyWorks(t *testing.T) {
	t.Parallel()
	seen := noon.Add(-5 * time.Minute)
	ready := outbox.Campaign{HighWaterSeq: 9, AppliedSeq: 4, HeadSeq: 5, HeadStatus: outbox.Pending, Counts: outbox.Counts{Pending: 5}, HeadNextAttempt: noon.Add(-2 * time.Minute)}
	fresh := ready
	fresh.HeadNextAttempt = noon.Add(-time.Second)
	for _, c := range []struct {
		campaign outbox.Campaign
		worker   *outbox.WorkerSummary
		why      string
	}{
		{ready, nil, "Due: waiting for a free worker"},
		{ready, &outbox.WorkerSummary{}, "Due, but no worker is running"},
		{ready, &outbox.WorkerSummary{Running: true, LastSeen: &seen}, "Due, but no worker has been seen for 5 min"},
		{ready, &outbox.WorkerSummary{Running: true, LastSeen: &noon}, "Due: waiting for a free worker"},
		{fresh, &outbox.WorkerSummary{Running: true, LastSeen: &seen}, "Due: waiting for a free worker"},
	} {
		must.Equal(t, c.campaign.Why(noon, outbox.Surroundings{Mode: outbox.ModeOutbox, Worker: c.worker}), c.why, "why")
	}
}

func TestCampaign_explainsFromWhenItMayBeTaken(t *testing.T) {
	t.Parallel()
	later := noon.Add(20 * time.Second)
	c := outbox.Campaign{HighWaterSeq: 9, HeadSeq: 1, HeadStatus: outbox.Processing, Lease: &outbox.Lease{Owner: "w-1", ExpiresAt: later}}
	e := c.Explain(noon, outbox.Surroundings{})
	must.Hold(t, e.Blocker == outbox.BlockerLease && e.ClaimableAt != nil && e.ClaimableAt.Equal(later), "leased: %+v", e)
	c = outbox.Campaign{HighWaterSeq: 9, HeadSeq: 1, HeadStatus: outbox.Failed, HeadNextAttempt: later}
	e = c.Explain(noon, outbox.Surroundings{})
	must.Hold(t, e.Blocker == outbox.BlockerBackoff && e.ClaimableAt != nil && e.ClaimableAt.Equal(later), "in back-off: %+v", e)
	c.HeadStatus, c.HeadNextAttempt, c.Counts = outbox.Dead, noon.Add(-3*time.Minute), outbox.Counts{Pending: 1, Dead: 1}
	e = c.Explain(noon, outbox.Surroundings{})
	must.Hold(t, e.Blocker == outbox.BlockerDead && e.ClaimableAt == nil && strings.HasPrefix(e.Why, "Event 1 has been dead for 3 min and 1 row waits behind it;"), "dead: %+v", e)
}
