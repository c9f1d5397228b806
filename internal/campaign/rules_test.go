package campaign_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
)

func TestSwitches_resolvesAllEight(t *testing.T) {
	t.Parallel()
	const refusal = campaign.Mode("")
	for i, want := range []campaign.Mode{
		0b000: campaign.ModeInline, 0b001: refusal, 0b010: refusal, 0b011: refusal,
		0b100: campaign.ModeOutbox, 0b101: campaign.ModeShadow, 0b110: campaign.ModeOutbox, 0b111: campaign.ModeOutbox,
	} {
		got, err := campaign.Switches{Outbox: i&4 > 0, Worker: i&2 > 0, Shadow: i&1 > 0}.Mode()
		must.Hold(t, got == want && (err != nil) == (want == refusal) && (err == nil || errors.Is(err, event.ErrInvalid)), "switches %03b give %q, %v, want %q", i, got, err, want)
	}
}

func TestParse_knowsItsNamesAndListsThemInRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known []string
		parse func(string) (string, error)
		zero  string
	}{
		"mode":   {strs(campaign.Modes), func(s string) (string, error) { m, err := campaign.ParseMode(s); return string(m), err }, string(campaign.ModeOutbox)},
		"status": {strs(event.Statuses), func(s string) (string, error) { return event.ParseName("status", s, strs(event.Statuses)) }, ""},
		"state":  {strs(campaign.States), func(s string) (string, error) { return event.ParseName("state", s, strs(campaign.States)) }, ""},
	} {
		for _, known := range c.known {
			must.Equal(t, must.Get(c.parse(known)).Or(t), known, name, "is read as")
		}
		must.Equal(t, must.Get(c.parse("")).Or(t), c.zero, "the empty", name, "is read as")
		_, err := c.parse("Nonsense")
		var r *event.Refusal
		must.Need(t, errors.As(err, &r) && errors.Is(err, event.ErrInvalid) && r.Field == name && strings.Contains(r.Detail, "Nonsense"), "%s: got error %v", name, err)
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
	pause := &campaign.Pause{By: "ana", At: noon.Add(-4 * time.Minute)}
	held := &campaign.Lease{Owner: "w-1", Epoch: 3, ExpiresAt: noon.Add(20 * time.Second)}
	ran := &campaign.Lease{Owner: "w-1", Epoch: 3, ExpiresAt: noon}
	pending := campaign.Campaign{HighWaterSeq: 9, AppliedSeq: 4, HeadSeq: 5, HeadStatus: event.Pending, Counts: campaign.Counts{Pending: 5}}
	with := func(change func(*campaign.Campaign)) campaign.Campaign {
		c := pending
		change(&c)
		return c
	}
	dead := with(func(c *campaign.Campaign) { c.HeadStatus, c.Counts = event.Dead, campaign.Counts{Pending: 4, Dead: 1} })
	failed := with(func(c *campaign.Campaign) {
		c.HeadStatus, c.Counts, c.HeadNextAttempt = event.Failed, campaign.Counts{Pending: 4, Failed: 1}, noon.Add(8*time.Second)
	})
	unlisted := with(func(c *campaign.Campaign) { c.HeadSeq, c.HeadStatus, c.Counts = 0, "", campaign.Counts{} })
	for name, c := range map[string]struct {
		campaign campaign.Campaign
		mode     campaign.Mode
		state    campaign.State
		why      string
	}{
		"current":            {campaign.Campaign{HighWaterSeq: 9, AppliedSeq: 9}, campaign.ModeOutbox, campaign.StateCurrent, "Everything is applied"},
		"current but a skip": {campaign.Campaign{HighWaterSeq: 9, AppliedSeq: 9, Skips: 1}, campaign.ModeOutbox, campaign.StateCurrent, "Everything is applied, except 1 skipped event"},
		"empty":              {campaign.Campaign{}, campaign.ModeOutbox, campaign.StateCurrent, "Everything is applied"},
		"ready":              {pending, campaign.ModeOutbox, campaign.StateLagging, "Due: waiting for a free worker"},
		"held":               {with(func(c *campaign.Campaign) { c.Lease = held }), campaign.ModeOutbox, campaign.StateLagging, "Worker w-1 holds the lease and is applying; if it dies, the lease expires in 20 s"},
		"lease ran out":      {with(func(c *campaign.Campaign) { c.Lease = ran }), campaign.ModeOutbox, campaign.StateLagging, "Due: waiting for a free worker"},
		"shadow":             {pending, campaign.ModeShadow, campaign.StateLagging, "The mode is shadow_only: rows are rehearsed and never applied"},
		"never tried":        {with(func(c *campaign.Campaign) { c.HeadNextAttempt = noon.Add(time.Hour) }), campaign.ModeOutbox, campaign.StateLagging, "Due: waiting for a free worker"},
		"failed":             {failed, campaign.ModeOutbox, campaign.StateFailing, "Event 5 failed and will be retried in 8 s"},
		"failed and due":     {func() campaign.Campaign { c := failed; c.HeadNextAttempt = noon; return c }(), campaign.ModeOutbox, campaign.StateFailing, "Due: waiting for a free worker"},
		"dead":               {dead, campaign.ModeOutbox, campaign.StateBlocked, "Event 5 is dead and 4 rows wait behind it; requeue it once the cause is fixed"},
		"paused":             {with(func(c *campaign.Campaign) { c.Paused = pause }), campaign.ModeOutbox, campaign.StatePaused, "Paused by ana 4 min ago: no reason given"},
		"dead and paused":    {func() campaign.Campaign { c := dead; c.Paused = pause; return c }(), campaign.ModeOutbox, campaign.StateBlocked, "Event 5 is dead"},
		"failed and paused":  {func() campaign.Campaign { c := failed; c.Paused = pause; return c }(), campaign.ModeOutbox, campaign.StatePaused, "Paused by ana"},
		"diverged":           {func() campaign.Campaign { c := dead; c.Diverged = "built elsewhere"; return c }(), campaign.ModeOutbox, campaign.StateDiverged, "Diverged: built elsewhere"},
		"no rows":            {unlisted, campaign.ModeOutbox, campaign.StateLagging, "5 events have neither been applied nor have a row; the self-check"},
		"no rows, inline":    {unlisted, campaign.ModeInline, campaign.StateLagging, "5 events are appended but not applied yet: the append is still in progress, or its process died and a replay repairs the gap"},
		"no rows, applied":   {func() campaign.Campaign { c := unlisted; c.Lease = held; return c }(), campaign.ModeInline, campaign.StateLagging, "Worker w-1 holds the lease and is applying; if it dies, the lease expires in 20 s"},
		"hole before head":   {with(func(c *campaign.Campaign) { c.HeadSeq = 8 }), campaign.ModeOutbox, campaign.StateLagging, "Events 5 to 7 have no row, so event 8 cannot be applied; the self-check"},
	} {
		must.Equal(t, c.campaign.State(), c.state, name, "state")
		got := c.campaign.Why(noon, campaign.Surroundings{Mode: c.mode})
		must.Hold(t, strings.HasPrefix(got, c.why), "%s: why is %q, want %q", name, got, c.why)
	}
}

func TestCampaign_countsWhatWaits(t *testing.T) {
	t.Parallel()
	c := campaign.Campaign{HighWaterSeq: 10, AppliedSeq: 3, HeadSeq: 4, HeadStatus: event.Dead, Counts: campaign.Counts{Pending: 4, Dead: 1}, OldestEnqueuedAt: noon.Add(-time.Minute)}
	must.Hold(t, c.LagEvents() == 7 && c.Lag(noon) == time.Minute && c.BlockedBehind() == 4 && c.Gap() == 2, "lag %d, %s; %d blocked behind; gap %d", c.LagEvents(), c.Lag(noon), c.BlockedBehind(), c.Gap())
	c.HeadStatus = event.Processing
	must.Equal(t, c.BlockedBehind(), 0, "rows are blocked behind a head that is being applied")
	// A wave between its two databases: applied already, rows still there.
	c = campaign.Campaign{HighWaterSeq: 3, AppliedSeq: 5, Counts: campaign.Counts{Processing: 3}, OldestEnqueuedAt: noon}
	must.Hold(t, c.LagEvents() == 0 && c.Gap() == 0 && c.Lag(noon.Add(-time.Second)) == 0, "lag %d, %s; gap %d, want none below zero", c.LagEvents(), c.Lag(noon.Add(-time.Second)), c.Gap())
}

func TestCounts_ofEveryStatusAddUp(t *testing.T) {
	t.Parallel()
	c := campaign.Counts{Pending: 1, Processing: 20, Failed: 300, Dead: 4000}
	sum := int64(0)
	for _, s := range event.Statuses {
		sum += c.Of(s)
	}
	must.Hold(t, sum == 4321 && c.Total() == 4321 && c.Of("other") == 0, "sum %d, total %d, want 4321", sum, c.Total())
}

func TestCampaign_whyTellsWhenNobodyWorks(t *testing.T) {
	t.Parallel()
	seen := noon.Add(-5 * time.Minute)
	ready := campaign.Campaign{HighWaterSeq: 9, AppliedSeq: 4, HeadSeq: 5, HeadStatus: event.Pending, Counts: campaign.Counts{Pending: 5}, HeadNextAttempt: noon.Add(-2 * time.Minute)}
	fresh, resumed := ready, ready
	fresh.HeadNextAttempt, resumed.UpdatedAt = noon.Add(-time.Second), noon.Add(-time.Second)
	for _, c := range []struct {
		campaign campaign.Campaign
		worker   *campaign.WorkerSummary
		why      string
	}{
		{ready, nil, "Due: waiting for a free worker"},
		{ready, &campaign.WorkerSummary{}, "Due, but no worker is running"},
		{ready, &campaign.WorkerSummary{Running: true, LastSeen: &seen}, "Due, but no worker has been seen for 5 min"},
		{resumed, &campaign.WorkerSummary{Running: true, LastSeen: &seen}, "Due: waiting for a free worker"},
		{ready, &campaign.WorkerSummary{Running: true, LastSeen: &noon}, "Due: waiting for a free worker"},
		{fresh, &campaign.WorkerSummary{Running: true, LastSeen: &seen}, "Due: waiting for a free worker"},
	} {
		must.Equal(t, c.campaign.Why(noon, campaign.Surroundings{Mode: campaign.ModeOutbox, Worker: c.worker}), c.why, "why")
	}
}

func TestCampaign_explainsFromWhenItMayBeTaken(t *testing.T) {
	t.Parallel()
	later := noon.Add(20 * time.Second)
	c := campaign.Campaign{HighWaterSeq: 9, HeadSeq: 1, HeadStatus: event.Processing, Lease: &campaign.Lease{Owner: "w-1", ExpiresAt: later}}
	e := c.Explain(noon, campaign.Surroundings{})
	must.Hold(t, e.Blocker == campaign.BlockerLease && e.ClaimableAt != nil && e.ClaimableAt.Equal(later), "leased: %+v", e)
	c = campaign.Campaign{HighWaterSeq: 9, HeadSeq: 1, HeadStatus: event.Failed, HeadNextAttempt: later}
	e = c.Explain(noon, campaign.Surroundings{})
	must.Hold(t, e.Blocker == campaign.BlockerBackoff && e.ClaimableAt != nil && e.ClaimableAt.Equal(later), "in back-off: %+v", e)
	c.HeadStatus, c.HeadNextAttempt, c.Counts = event.Dead, noon.Add(-3*time.Minute), campaign.Counts{Pending: 1, Dead: 1}
	e = c.Explain(noon, campaign.Surroundings{})
	must.Hold(t, e.Blocker == campaign.BlockerDead && e.ClaimableAt == nil && strings.HasPrefix(e.Why, "Event 1 has been dead for 3 min and 1 row waits behind it;"), "dead: %+v", e)
}
