package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/finding"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/storetest"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

var findingNoon = time.Date(2026, 11, 21, 14, 3, 4, 0, time.UTC)

// minutesOn is some minutes later.
func minutesOn(minutes int) *time.Time {
	return new(findingNoon.Add(time.Duration(minutes) * time.Minute))
}

// The first finding is the health, the title and the guide of the whole.
func TestFind_worstFirst(t *testing.T) {
	t.Parallel()
	now := findingNoon
	worker, held := campaign.WorkerSummary{Running: true, LastSeen: &now}, []campaign.HeldProjection{}
	long, soon := now.Add(-2*time.Minute), now.Add(3*time.Minute)
	lagging := campaign.CampaignCounts{Total: 2, Lagging: 1}
	full := func(d string) []database.DatabaseFault { return []database.DatabaseFault{database.FullDisk(d, long)} }
	for _, c := range []struct {
		name               string
		summary            campaign.Summary
		level              finding.Level
		says, short, guide string
	}{
		{"empty", campaign.Summary{Worker: worker}, "ok", "The journal is empty: nothing to apply yet.", "", ""},
		{"empty beside full projections", campaign.Summary{Worker: worker, OtherJournal: true}, "bad", "The journal is empty, but the projections have events", "other journal", "databases-restored-from-different-days"},
		{"empty beside full projections, as the worker found", campaign.Summary{Worker: worker, OtherJournal: true, Campaigns: campaign.CampaignCounts{Total: 9, Diverged: 9}}, "bad", "The journal is empty, but", "other journal", "databases-restored"},
		{"full of other events beside full projections", campaign.Summary{Worker: worker, OtherJournal: true, Events: 3, Campaigns: campaign.CampaignCounts{Total: 9, Diverged: 8}}, "bad", "8 campaigns contradict the journal", "8 diverged", "databases-restored"},
		{"of other campaigns, and no worker has looked", campaign.Summary{Worker: worker, OtherJournal: true, Events: 1, Campaigns: campaign.CampaignCounts{Total: 1}}, "bad", "The projections have events that the journal does not have.", "other journal", "databases-restored"},
		{"full disk", campaign.Summary{Worker: worker, Faults: full("journal"), Campaigns: campaign.CampaignCounts{Total: 9, Blocked: 2, Diverged: 1}}, "bad", "The disk of the journal database is full.", "disk full", "disk-full"},
		{"current", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 590}}, "ok", "All 590 campaigns are current.", "", ""},
		{"nobody works, nothing to do", campaign.Summary{Campaigns: campaign.CampaignCounts{Total: 2}}, "warn", "No worker is running: nothing is applied.", "no worker", "a-worker-hangs"},
		{"nobody works", campaign.Summary{Campaigns: lagging, Lag: campaign.Lag{Events: 3}}, "bad", "No worker is running: nothing is applied.", "no worker", "a-worker-hangs"},
		{"it starts", campaign.Summary{Worker: campaign.WorkerSummary{Starting: true}, Campaigns: lagging, Lag: campaign.Lag{Events: 3}}, "busy", "The worker is starting.", "", ""},
		{"inline needs none", campaign.Summary{Mode: campaign.ModeInline, Campaigns: campaign.CampaignCounts{Total: 2}}, "ok", "All 2 campaigns", "", ""},
		{"inline, and nobody tries again", campaign.Summary{Mode: campaign.ModeInline, Counts: campaign.Counts{Failed: 1}, Campaigns: lagging, Lag: campaign.Lag{Events: 1}}, "bad", "No worker is running: events that failed on append are not retried.", "no worker", "a-worker-hangs"},
		{"shadow", campaign.Summary{Mode: campaign.ModeShadow, Worker: worker, Campaigns: campaign.CampaignCounts{Total: 2}}, "warn", "The mode is shadow_only: rows are rehearsed, nothing is applied.", "shadow mode", ""},
		{"events without rows", campaign.Summary{Mode: campaign.ModeInline, Worker: worker, Campaigns: lagging, Lag: campaign.Lag{Events: 1}}, "busy", "1 event not yet applied, in 1 campaign.", "", "lag-rises"},
		{"silent worker", campaign.Summary{Worker: campaign.WorkerSummary{Running: true, LastSeen: &long}, Counts: campaign.Counts{Pending: 3}, DueSince: &long, Campaigns: lagging, Lag: campaign.Lag{Events: 3}}, "bad", "Events are waiting, and no worker has been seen for 2 min.", "no worker", "a-worker"},
		{"workers of others", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9, Lagging: 2, Unserved: 2}, Lag: campaign.Lag{Events: 3}}, "bad", "2 campaigns wait that no running instance serves: they serve only campaigns that match *.", "no worker", "a-worker"},
		{"worker that waits for the next attempt", campaign.Summary{Worker: campaign.WorkerSummary{Running: true, LastSeen: &long}, Counts: campaign.Counts{Pending: 2, Failed: 1}, DueSince: &soon, Campaigns: lagging, Lag: campaign.Lag{Events: 3}}, "warn",
			"1 row has failed and will be retried.", "1 failing", "lag-rises"},
		{"blocked", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 60, Blocked: 40, Drifted: 3}, Counts: campaign.Counts{Failed: 5}}, "bad", "40 of 60 campaigns are blocked by a permanently failed event.", "40 blocked", "dead-heads-grow"},
		{"unverifiable", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9, Unverifiable: 2}}, "bad", "2 campaigns could not be verified: replaying the events failed.", "2 unverifiable", "when-a-campaign"},
		{"drifted", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9, Drifted: 3, OutdatedDrift: 2}}, "bad", "Live rows of 1 campaign differ from the journal.", "1 drifted", "a-projection-is-wrong"},
		{"counts corrected", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9}, Drift: 2}, "ok", "All 9 campaigns", "", ""},
		{"a projection and a campaign paused", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9, Paused: 1}, Held: []campaign.HeldProjection{{Projection: "stock", Paused: &campaign.Pause{}}}}, "warn",
			"Projection stock is paused for all campaigns.", "projection paused", ""},
		{"campaigns paused", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 9, Paused: 3}}, "warn", "3 of 9 campaigns are paused.", "3 paused", "lag-rises"},
		{"an instance fell silent", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 3}, Instances: []campaign.InstanceState{{ID: "w", LastSeen: long, BeatEvery: 2 * time.Second}}}, "warn",
			"Instance w has been silent for 2 min.", "instance silent", "a-worker"},
		{"an instance fell silent yesterday", campaign.Summary{Worker: worker, Campaigns: campaign.CampaignCounts{Total: 3}, Instances: []campaign.InstanceState{{ID: "w", LastSeen: now.Add(-24 * time.Hour), BeatEvery: 2 * time.Second}}}, "ok", "All 3 campaigns", "", ""},
		{"busy", campaign.Summary{Worker: worker, Counts: campaign.Counts{Pending: 44200}, Campaigns: campaign.CampaignCounts{Total: 3, Lagging: 1}, Lag: campaign.Lag{Events: 44200}}, "busy", "44,200 events not yet applied, in 1 campaign.", "", "lag-rises"},
	} {
		if c.summary.Held == nil {
			c.summary.Held = held
		}
		all := Facts{Summary: c.summary}.Judged(now).Findings
		guide, h := "", c.summary.Overall(all)
		if len(all) > 0 {
			guide = all[0].Guide
		}
		must.Hold(t, h.Level == c.level && strings.Contains(h.Sentence, c.says) && all.Short() == c.short && strings.Contains(guide, c.guide), "%s: %+v, %q, %q", c.name, h, all.Short(), guide)
	}
	h := campaign.Summary{Operations: campaign.OperationCounts{Running: 1}}.Overall(nil)
	must.Equal(t, strings.Join(h.Notes, " "), "1 operation is running.", "beside it")
}

// the finding of a kind among what facts tell.
func the(t *testing.T, f Facts, kind finding.Kind) finding.Finding {
	if f.Summary.Held == nil {
		f.Summary.Held = []campaign.HeldProjection{}
	}
	for i := range f.Drifted {
		if f.Drifted[i].Outdated {
			f.Summary.Campaigns.OutdatedDrift++
		}
		f.Summary.Campaigns.Drifted++
	}
	of := f.Judged(findingNoon).Findings.Of(kind)
	must.Need(t, len(of) == 1, "%s: %+v", kind, of)
	return of[0]
}

// A rebuild makes what the loaded file says, be it right or wrong.
func TestFind_driftLeadsToTheChangeOfAFileBeforeARebuild(t *testing.T) {
	t.Parallel()
	other := campaign.RowsBuilt{BuiltByOtherVersion: true, BuiltVersion: "5b70", BuiltVersions: []campaign.LoadedVersion{{Version: "5b70"}}}
	f := Facts{Loaded: []campaign.ProjectionInfo{{Name: "orders", Version: "ed74"}, {Name: "parcels", Version: "aaaa"}, {Name: "seats", Version: "bbbb", RowsBuilt: other}},
		Drifted: []campaign.Verification{{CampaignID: "c", Projection: "orders", RunID: 7}, {CampaignID: "c", Projection: "parcels"}, {CampaignID: "d", Projection: "parcels"}}}
	got := the(t, f, campaign.FindsDrift)
	must.Equal(t, got.Link+" "+got.Page, "Rebuild… /runs/new?campaign_ids=c&campaign_ids=d&kind=rebuild&projections=orders&projections=parcels", "drift of unchanged projections leads to")
	must.Hold(t, got.Runs && len(got.Items) == 2 && got.Items[0].Note+got.Items[0].Page+got.Items[1].Page == "projections orders and parcels, /runs/7/results/c/campaigns/d", "campaigns are %+v", got.Items)
	many := f
	many.Drifted = nil
	for n := range 60 {
		many.Drifted = append(many.Drifted, campaign.Verification{CampaignID: fmt.Sprint("c-", n), Projection: "orders", RunID: 7})
	}
	got = the(t, many, campaign.FindsDrift)
	must.Equal(t, got.Link+" "+got.Page, "Rebuild what run 7 found… /runs/new?drifted=7", "drift of more campaigns than an address has")
	many.Drifted[9].RunID = 8
	must.Hold(t, !the(t, many, campaign.FindsDrift).Runs, "what several runs found is prepared as one rebuild")
	f.Loaded[0].RowsBuilt = other
	got = the(t, f, campaign.FindsDrift)
	must.Hold(t, got.Link == "Show campaigns" && strings.HasSuffix(got.Does, "All rows of projection parcels were built by the loaded version: there it is not the cause.") && !strings.Contains(got.Does, "seats"), "%s: %s", got.Link, got.Does)
	f.Drifted = f.Drifted[:1]
	got = the(t, f, campaign.FindsDrift)
	const want = "Rows of projection orders were built by version 5b70. Version ed74 is loaded now, and builds what is applied since then. If the loaded version is wrong, load the right file again"
	must.Hold(t, got.Link == "See what changed" && got.Page == "/projections/orders#change" && strings.Contains(got.Does, want), "%s %s: %s", got.Link, got.Page, got.Does)
	f.Drifted = append(f.Drifted, campaign.Verification{CampaignID: "d", Projection: "seats"})
	got = the(t, f, campaign.FindsDrift)
	must.Hold(t, got.Page == "/projections" && strings.Contains(got.Does, "Rows of projection seats were built by version 5b70."), "%s: %s", got.Page, got.Does)
}

// What a verify found with a version that is not loaded any more is no reason to rebuild with the loaded one.
func TestFind_outdatedDriftAsksForAVerifyWithTheLoadedVersion(t *testing.T) {
	t.Parallel()
	loaded := time.Date(2026, 11, 26, 18, 30, 0, 0, time.UTC)
	f := Facts{Loaded: []campaign.ProjectionInfo{{Name: "orders", Version: "5b70", RowsBuilt: campaign.RowsBuilt{LoadedAt: &loaded}}},
		Drifted: []campaign.Verification{{CampaignID: "c", Projection: "orders", Version: "ed74", Outdated: true}, {CampaignID: "d", Projection: "orders", Version: "ed74", Outdated: true}}}
	got := the(t, f, campaign.FindsOutdated)
	const want = "2 campaigns differed from version ed74 of projection orders, which is not loaded any more; verify again with the loaded version 5b70 (loaded 2026-11-26 18:30:00 UTC)"
	must.Equal(t, got.Says+" "+got.Page, want+" /runs/new?all_campaigns=true&kind=verify&projections=orders", "outdated drift")
	f.Drifted[0].Outdated = false
	must.Hold(t, strings.HasPrefix(the(t, f, campaign.FindsDrift).Says, "Live rows of 1 campaign"), "drift of the loaded version beside it")
}

// The loaded version builds rows, too, unless it is named as one that did.
func TestFind_namesEveryVersionThatBuildsRows(t *testing.T) {
	t.Parallel()
	f := Facts{Loaded: []campaign.ProjectionInfo{{Name: "seats", Version: "cccc", RowsBuilt: campaign.RowsBuilt{BuiltByOtherVersion: true, LoadedAt: new(findingNoon.Add(-time.Hour)), BuiltVersions: []campaign.LoadedVersion{{Version: "aaaa"}, {Version: "bbbb"}}}}}}
	got := the(t, f, campaign.FindsOtherVersion)
	must.Equal(t, got.Link+" "+got.Items[0].Note, "Verify all… built by versions aaaa and bbbb; version cccc, which builds what is applied since, was loaded ", "a new version")
	f.Drifted = []campaign.Verification{{CampaignID: "c", Projection: "seats"}}
	must.Hold(t, !the(t, f, campaign.FindsOtherVersion).Runs, "what a verify has found to differ is to be verified")
	f.Drifted, f.Quarantined = nil, []campaign.QuarantineCause{{Projection: "seats", Fingerprint: "f", LastAt: findingNoon}}
	got = the(t, f, campaign.FindsOtherVersion)
	must.Hold(t, !got.Runs && strings.Contains(got.Items[0].Note, "which builds what is applied since and fails now,"), "where the new version is quarantined: %+v", got)
	f.Quarantined, f.Build = nil, "build 2"
	for build, fails := range map[string]bool{"build 1": false, "build 2": true} {
		f.Groups.Groups = []campaign.ErrorGroup{{Fingerprint: "g", Tried: []campaign.Tried{{Build: build, Projection: "seats", ProjectionVersion: "cccc"}}}}
		told := strings.Contains(the(t, f, campaign.FindsOtherVersion).Items[0].Note, "fails now")
		must.Hold(t, told == fails && (f.Failing()["seats"] == "g") == fails, "rows that failed with %s: told is %t", build, told)
	}
	f.Groups.Groups, f.Loaded[0].Version = nil, "aaaa"
	must.Equal(t, the(t, f, campaign.FindsOtherVersion).Items[0].Note, "built by versions aaaa and bbbb; version aaaa was loaded ", "after going back")
}

// Only what a verify found is named: that another projection fails elsewhere is not the cause.
func TestFind_namesWhatCouldNotBeReplayed(t *testing.T) {
	t.Parallel()
	f := Facts{Summary: campaign.Summary{Campaigns: campaign.CampaignCounts{Unverifiable: 3}}}
	for _, campaignID := range []string{"a", "b"} {
		for _, projection := range []string{"reads", "seats"} { // reads has tables of seats in its statements
			f.Unverified = append(f.Unverified, campaign.Verification{CampaignID: campaignID, Projection: projection, RunID: 7, Seq: 4, Error: "event 4 cannot be replayed: projection seats (seats.sql:9) on taken: no seat"})
		}
	}
	f.Unverified = append(f.Unverified, campaign.Verification{CampaignID: "c", Projection: "seats", Seq: 2, Error: "event 2 is missing from the journal"})
	got := the(t, f, campaign.FindsUnverifiable)
	must.Hold(t, len(got.Items) == 2 && got.Items[0].Name == "a" && got.Items[0].Page == "/runs/7/results/a" && strings.Contains(got.Items[0].Note, "on taken: no seat, and likewise in 1 other") && got.Items[1].Name == "c", "%+v", got.Items)
	for i := range f.Unverified {
		f.Unverified[i].Outdated = i > 0
	}
	must.Equal(t, the(t, f, campaign.FindsUnverifiable).Link, "Show campaigns", "with one of the loaded version")
	f.Unverified[0].Outdated = true
	f.Loaded = []campaign.ProjectionInfo{{Name: "seats"}}
	got = the(t, f, campaign.FindsUnverifiable)
	must.Hold(t, got.Page == "/runs/new?all_campaigns=true&kind=verify&projections=seats" && strings.Contains(got.Says, "3 campaigns could not be verified with versions of projections that are not loaded any more"), "%+v", got)
}

func TestFind_failedRunsAreThoseThatNoLaterRunRepeats(t *testing.T) {
	t.Parallel()
	recently, longAgo := *minutesOn(-60), *minutesOn(-60 * 48)
	rebuild := replay.Run{Kind: replay.RunRebuild, Status: replay.RunFailed, Projections: []string{"revenue"}, CampaignIDs: []string{"a"}, FinishedAt: &recently}
	later := func(change func(*replay.Run)) replay.Run {
		r := rebuild
		r.Status, r.FinishedAt = replay.RunCompleted, nil
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		latest []replay.Run
		want   int
	}{
		"alone":                           {[]replay.Run{rebuild}, 1},
		"interrupted":                     {[]replay.Run{later(func(r *replay.Run) { r.Status, r.FinishedAt = replay.RunInterrupted, &recently })}, 1},
		"repeated":                        {[]replay.Run{later(func(*replay.Run) {}), rebuild}, 0},
		"repeated over everything":        {[]replay.Run{later(func(r *replay.Run) { r.All, r.CampaignIDs, r.Projections = true, nil, []string{"revenue", "seats"} }), rebuild}, 0},
		"repeated, and failed again":      {[]replay.Run{rebuild, rebuild}, 1},
		"before one elsewhere":            {[]replay.Run{later(func(r *replay.Run) { r.CampaignIDs = []string{"b"} }), rebuild}, 1},
		"before one of other projections": {[]replay.Run{later(func(r *replay.Run) { r.Projections = []string{"seats"} }), rebuild}, 1},
		"before one of another kind":      {[]replay.Run{later(func(r *replay.Run) { r.Kind = replay.RunVerify }), rebuild}, 1},
		"before all was found right":      {[]replay.Run{later(func(r *replay.Run) { r.Kind, r.Verdict = replay.RunVerify, campaign.VerdictMatch }), rebuild}, 0},
		"before another version was right": {[]replay.Run{later(func(r *replay.Run) {
			r.Kind, r.Verdict, r.With = replay.RunVerify, campaign.VerdictMatch, map[string]string{"revenue": "v1"}
		}), rebuild}, 1},
		"long ago":  {[]replay.Run{later(func(r *replay.Run) { r.Status, r.FinishedAt = replay.RunFailed, &longAgo })}, 0},
		"cancelled": {[]replay.Run{later(func(r *replay.Run) { r.Status, r.FinishedAt = replay.RunCancelled, &recently })}, 0},
	} {
		must.Equal(t, len(Facts{Summary: campaign.Summary{Held: []campaign.HeldProjection{}, Worker: campaign.WorkerSummary{Running: true}}, Runs: c.latest}.Judged(*minutesOn(0)).Findings), c.want, name, "findings")
	}
}

func TestInstancesHealth_isTheWorstFindingOrTheirNumbers(t *testing.T) {
	t.Parallel()
	running, idle, silent, stopped := storetest.InstanceIn(findingNoon, campaign.InstanceRunning, 30*time.Second), storetest.InstanceIn(findingNoon, campaign.InstanceIdle), storetest.InstanceIn(findingNoon, campaign.InstanceSilent), storetest.InstanceIn(findingNoon, campaign.InstanceStopped)
	unseen := idle
	idle.Here = true
	newer, shadow, fresh := running, running, silent
	fresh.LastSeen = findingNoon.Add(-time.Minute)
	newer.Version, shadow.Mode = "v2", campaign.ModeShadow
	for _, c := range []struct {
		level finding.Level
		says  string
		list  []campaign.InstanceState
	}{
		{"ok", "1 instance is running.", []campaign.InstanceState{running, stopped}},
		{"ok", "1 instance is not seen.", []campaign.InstanceState{unseen}},
		{"ok", "2 instances are running, 1 idle, 1 not seen, 1 silent.", []campaign.InstanceState{running, running, idle, unseen, silent}},
		{"ok", "No instance is running.", []campaign.InstanceState{stopped}},
		{"warn", "Instance i has been silent for 1 min. 1 instance is running, 1 silent.", []campaign.InstanceState{running, fresh}},
		{"ok", "2 instances are running. Versions differ, as during a rolling restart: v1 (1), v2 (1).", []campaign.InstanceState{running, newer}},
		{"ok", "2 instances are running. Modes differ, and only one should run: outbox_apply_only (1), shadow_only (1).", []campaign.InstanceState{running, shadow}},
	} {
		h := campaign.InstancesHealth(c.list, Facts{Summary: campaign.Summary{Worker: campaign.WorkerSummary{Running: true}, Instances: c.list}}.Judged(findingNoon).Findings, findingNoon)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && strings.HasPrefix(says, c.says), "got %s %q, want %s %q", h.Level, says, c.level, c.says)
	}
}

func TestPublishers_areToldWorstFirst(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := &campaign.Lease{ExpiresAt: now.Add(time.Minute)}
	well := subscription.Publisher{Status: subscription.PublisherActive, Lease: held}
	with := func(change func(*subscription.Publisher)) subscription.Publisher {
		p := well
		change(&p)
		return p
	}
	behind := with(func(p *subscription.Publisher) { p.LagEvents = 3 })
	retrying := with(func(p *subscription.Publisher) { p.ErrorCount = 1 })
	failed := with(func(p *subscription.Publisher) { p.Status = subscription.PublisherFailed })
	stopped := with(func(p *subscription.Publisher) { p.Status, p.Stopped = subscription.PublisherFailed, true })
	paused := with(func(p *subscription.Publisher) { p.Status, p.LagEvents = subscription.PublisherPaused, 9 })
	quiet := with(func(p *subscription.Publisher) { p.Status = subscription.PublisherPaused })
	idle := with(func(p *subscription.Publisher) { p.Lease = nil })
	left := with(func(p *subscription.Publisher) { p.Lease, p.LagEvents = nil, 1 })
	abandoned := with(func(p *subscription.Publisher) { p.Lease, p.LagEvents, p.ErrorCount = nil, 1, 2 })
	unknown := with(func(p *subscription.Publisher) { p.Lease, p.LagCapped = nil, true })
	for _, c := range []struct {
		list  []subscription.Publisher
		level finding.Level
		says  string
	}{
		{[]subscription.Publisher{well}, "ok", "The only publisher is up to date."},
		{[]subscription.Publisher{behind}, "ok", "The only publisher is delivering waiting events."},
		{[]subscription.Publisher{well, well}, "ok", "All 2 publishers are up to date."},
		{[]subscription.Publisher{well, behind, behind}, "ok", "All 3 publishers are delivering; events wait for 2 of them."},
		{[]subscription.Publisher{idle}, "ok", "No publisher is delivering."},
		{[]subscription.Publisher{idle, well}, "ok", "1 of 2 publishers is up to date."},
		{[]subscription.Publisher{paused}, "warn", "Publisher t/p is paused; 9 events wait for it."},
		{[]subscription.Publisher{paused, quiet}, "warn", "2 publishers are paused."},
		{[]subscription.Publisher{left, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]subscription.Publisher{unknown, well}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]subscription.Publisher{abandoned}, "warn", "Publisher t/p has waiting events and no running server."},
		{[]subscription.Publisher{retrying}, "warn", "Publisher t/p is retried, and has not recovered: 1 error in a row."},
		{[]subscription.Publisher{retrying, failed, stopped, paused, well}, "bad", "3 publishers need attention. Publisher t/p is paused; 9 events wait for it."},
	} {
		for i := range c.list {
			c.list[i].SubscriptionName = operator.SubscriptionName{Topic: "t", Publisher: "p"}
		}
		h := finding.HealthOfKinds(Facts{Publishers: c.list}.Judged(now).Findings, subscription.PublishersCalm(c.list, now), campaign.FindsPublisher, campaign.FindsNotDelivered)
		says := strings.Join(append([]string{h.Sentence}, h.Notes...), " ")
		must.Hold(t, h.Level == c.level && says == c.says, "%s: %q, want %s: %q", h.Level, says, c.level, c.says)
	}
}
