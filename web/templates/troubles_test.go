package templates

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// What waits elsewhere, or is not updated, is not all right.
func TestOverviewHealth_isNotAllRightBesideOtherTrouble(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC)
	paused := outbox.Publisher{Status: outbox.PublisherPaused, LagEvents: 36}
	for want, trouble := range map[string]func(*Page, *Overview){
		".": func(*Page, *Overview) {},
		", but something else needs attention.": func(_ *Page, v *Overview) {
			v.Sources = []outbox.IntakeSource{{Name: "shop", Configured: true, Rejected: 1, RejectedAt: &now}}
		},
		", but the only publisher is paused; 36 events wait for it.": func(_ *Page, v *Overview) { v.Publishers = []outbox.Publisher{paused} },
		", but 2 of 2 publishers are paused; events wait for them.":  func(_ *Page, v *Overview) { v.Publishers = []outbox.Publisher{paused, paused} },
		" in the loaded projections.": func(_ *Page, v *Overview) {
			v.Summary.Held = []outbox.HeldProjection{{Projection: "orders", NotLoaded: true}}
		},
		", but not all rows were built by the loaded projections.": func(p *Page, _ *Overview) {
			p.Loaded = []outbox.ProjectionInfo{{Name: "orders", RowsBuilt: outbox.RowsBuilt{BuiltByOtherVersion: true}}}
		},
	} {
		page, v := Page{Now: now}, Overview{Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Total: 3}, Worker: outbox.WorkerSummary{Running: true, LastSeen: &now}}}
		trouble(&page, &v)
		level := outbox.LevelWarn
		if want == "." {
			level = outbox.LevelOK
		}
		got := overviewHealth(page, v)
		must.Hold(t, got.Level == level && got.Sentence == "All 3 campaigns are current"+want && (len(got.Notes) == 1) == (len(v.Summary.Held) == 1), "%q: %+v", want, got)
	}
}

// A rebuild makes what the loaded file says, be it right or wrong.
func TestDriftTrouble_leadsToTheChangeOfAFileBeforeARebuild(t *testing.T) {
	t.Parallel()
	p := Page{Me: outbox.Local()}
	other := outbox.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []outbox.LoadedVersion{{Version: "5b70"}}}
	p.Loaded = []outbox.ProjectionInfo{{Name: "seats", RowsBuilt: other}, {Name: "orders", Version: "ed74"}}
	v := Overview{Drifted: []outbox.Verification{{CampaignID: "c", Projection: "orders"}}}
	must.Equal(t, driftTrouble(p, v).action, "Rebuild…", "drift of an unchanged projection")
	p.Loaded[1].RowsBuilt = other
	if got := driftTrouble(p, v); got.action != "See what changed" || got.to != "/projections/orders#change" || !strings.Contains(got.note, "Rows of projection orders were built by version 5b70. Version ed74 is loaded now, and builds what is applied since then. If the loaded version is wrong, load the right file again") {
		t.Errorf("drift of a changed projection: %+v", got)
	}
}

// The loaded version builds rows, too, unless it is named as one that did.
func TestBuiltTrouble_namesEveryVersionThatBuildsRows(t *testing.T) {
	t.Parallel()
	seats := outbox.ProjectionInfo{Name: "seats", Version: "cccc", RowsBuilt: outbox.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []outbox.LoadedVersion{{Version: "aaaa"}, {Version: "bbbb"}}}}
	if got, want := builtTrouble(Page{Loaded: []outbox.ProjectionInfo{seats}}, Overview{}).items[0].sub, "built by versions aaaa and bbbb; version cccc, which builds what is applied since, is loaded"; got != want {
		t.Errorf("a new version: %q, want %q", got, want)
	}
	quarantined := builtTrouble(Page{Loaded: []outbox.ProjectionInfo{seats}, Failing: map[string]string{"seats": "f"}, Me: outbox.Local()}, Overview{})
	if want := "which builds what is applied since and fails now: fix it before a rebuild, is loaded"; !strings.HasSuffix(quarantined.items[0].sub, want) || quarantined.action != "" {
		t.Errorf("where the new version is quarantined: %+v", quarantined)
	}
	able := Page{Loaded: []outbox.ProjectionInfo{seats}, Me: outbox.Local()}
	must.Equal(t, builtTrouble(able, Overview{}).action, "Verify all…", "what has not been verified offers")
	if got := builtTrouble(able, Overview{Drifted: []outbox.Verification{{CampaignID: "c", Projection: "seats", Verdict: outbox.VerdictDrift}}}).action; got != "" {
		t.Errorf("what a verify has found to differ offers %q", got)
	}
	seats.Version = "aaaa"
	must.Equal(t, builtTrouble(Page{Loaded: []outbox.ProjectionInfo{seats}}, Overview{}).items[0].sub, "built by versions aaaa and bbbb; version aaaa is loaded", "after going back")
}

// What a verify found with a version that is not loaded any more is no reason to rebuild with the loaded
// one.
func TestOutdatedTrouble_asksForAVerifyWithTheLoadedVersion(t *testing.T) {
	t.Parallel()
	loaded := time.Date(2026, 11, 26, 18, 30, 0, 0, time.UTC)
	p := Page{Me: outbox.Local(), Loaded: []outbox.ProjectionInfo{{Name: "orders", Version: "5b70", RowsBuilt: outbox.RowsBuilt{LoadedAt: &loaded}}}}
	v := Overview{Drifted: []outbox.Verification{{CampaignID: "c", Projection: "orders", Version: "ed74", Outdated: true}, {CampaignID: "d", Projection: "orders", Version: "ed74", Outdated: true}}}
	must.Equal(t, driftTrouble(p, v).title, "", "drift of a version that is not loaded")
	const want = "2 campaigns differed from version ed74 of projection orders, which is not loaded any more; verify again with the loaded version 5b70 (loaded 2026-11-26 18:30:00 UTC)."
	if got := outdatedTrouble(p, v); got.title != want || got.action != "Verify again…" || got.to != "/runs/new?all=1&kind=verify&projection=orders" {
		t.Errorf("%+v", got)
	}
	v.Drifted[0].Outdated = false
	if got := driftTrouble(p, v); got.action != "Rebuild…" || !strings.HasPrefix(got.title, "1 campaign drifted") {
		t.Errorf("drift of the loaded version: %+v", got)
	}
}

func TestDriftTrouble_namesEveryProjection(t *testing.T) {
	t.Parallel()
	other := outbox.RowsBuilt{BuiltByOtherVersion: true, BuiltVersion: "5b70", BuiltVersions: []outbox.LoadedVersion{{Version: "5b70"}}}
	p := Page{Me: outbox.Local(), Loaded: []outbox.ProjectionInfo{{Name: "orders", Version: "ed74", RowsBuilt: other}, {Name: "parcels", Version: "aaaa"}, {Name: "seats", Version: "bbbb", RowsBuilt: other}}}
	v := Overview{Drifted: []outbox.Verification{{CampaignID: "c", Projection: "orders"}, {CampaignID: "c", Projection: "parcels"}, {CampaignID: "d", Projection: "parcels"}}}
	got := driftTrouble(p, v)
	must.Hold(t, len(got.items) == 2 && got.items[0].sub == "projections orders and parcels, " && got.items[1].sub == "projection parcels, ", "campaigns are %+v", got.items)
	if got.action != "Show campaigns" || !strings.HasSuffix(got.note, "All rows of projection parcels were built by the loaded version: there it is not the cause.") || strings.Contains(got.note, "seats") {
		t.Errorf("%s: %s", got.action, got.note)
	}
	v.Drifted[1].Projection, v.Drifted[2].Projection = "seats", "seats"
	if got := driftTrouble(p, v); got.action != "See what changed" || got.to != p.Links.Projections() || !strings.Contains(got.note, "Rows of projection seats were built by version 5b70.") || strings.Contains(got.note, "not the cause") {
		t.Errorf("%s %s: %s", got.action, got.to, got.note)
	}
}

// Only what a verify found is named: that another projection fails elsewhere is not the cause.
func TestUnverifiableTrouble_namesWhatCouldNotBeReplayed(t *testing.T) {
	t.Parallel()
	p := Page{Me: outbox.Local(), Failing: map[string]string{"orders": "elsewhere"}}
	v := Overview{Summary: outbox.Summary{Campaigns: outbox.CampaignCounts{Unverifiable: 3}}}
	for _, campaign := range []string{"a", "b"} {
		for _, projection := range []string{"reads", "seats"} { // reads has tables of seats in its statements
			v.Unverified = append(v.Unverified, outbox.Verification{CampaignID: campaign, Projection: projection, RunID: 7, Seq: 4, Error: "event 4 cannot be replayed: projection seats (seats.sql:9) on taken: no seat"})
		}
	}
	v.Unverified = append(v.Unverified, outbox.Verification{CampaignID: "c", Projection: "seats", Seq: 2, Error: "event 2 is missing from the journal"})
	got := unverifiableTrouble(p, v)
	if len(got.items) != 2 || got.items[0].name != "a" || got.items[0].to != "/runs/7/results/a" || !strings.Contains(got.items[0].sub, "projection seats (seats.sql:9) on taken: no seat, and likewise in 1 other") || got.items[1].name != "c" {
		t.Errorf("%+v", got.items)
	}
	for i := range v.Unverified {
		v.Unverified[i].Outdated = i > 0
	}
	must.Equal(t, unverifiableTrouble(p, v).action, "Show campaigns", "with one of the loaded version")
	v.Unverified[0].Outdated = true
	p.Loaded = []outbox.ProjectionInfo{{Name: "seats"}}
	if got := unverifiableTrouble(p, v); got.action != "Verify again…" || got.to != "/runs/new?all=1&kind=verify&projection=seats" || !strings.Contains(got.title, "3 campaigns could not be verified with versions of projections that are not loaded any more") {
		t.Errorf("with versions that are not loaded: %+v", got)
	}
}

// A writer's mistake half an hour after a deploy is not put down to the deploy.
func TestCause_isPutDownToADeployJustBeforeItAlone(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		20 * time.Second: `ago</time>, after <a href="/projections/orders">projection orders changed to v2 on h</a>`,
		30 * time.Minute: `ago</time>; the last change was 30 min earlier: <a href="/projections/orders">`,
		2 * time.Hour:    `ago</time></span>`,
	} {
		g := outbox.ErrorGroup{Dead: 1, Heads: 1, Campaigns: 1, FirstAt: &first, Tried: []outbox.Tried{{Projection: "orders"}}}
		m := outbox.Marker{At: first.Add(-ago), Kind: outbox.MarkerVersion, Subject: "orders", Version: "v2", Host: "h"}
		c := causeView{AssessedGroup: outbox.AssessedGroup{ErrorGroup: g}, After: deployBefore([]outbox.Marker{m}, g)}
		html := rendered(t, cause(Page{Now: first.Add(time.Minute)}, c))
		text := html
		must.Hold(t, strings.Contains(text, want), "%v before: lacks %q:\n%s", ago, want, text)
	}
}

// What ran before a deploy and had the error, too, shows that the deploy is not to blame.
func TestDeployBefore_isNotOneWhoseErrorIsOlder(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 21, 7, 40, 0, 0, time.UTC)
	at := func(m int) time.Time { return first.Add(time.Duration(m) * time.Minute) }
	version := func(m int, from, to string) outbox.Marker {
		return outbox.Marker{At: at(m), Kind: outbox.MarkerVersion, Subject: "orders", Previous: from, Version: to}
	}
	build := outbox.Marker{At: at(-1), Kind: outbox.MarkerDeploy, Previous: "b1", Version: "b2"}
	tried := func(versions ...string) (all []outbox.Tried) {
		for _, v := range versions {
			all = append(all, outbox.Tried{Build: "b2", Projection: "orders", ProjectionVersion: v})
		}
		return all
	}
	for name, c := range map[string]struct {
		markers []outbox.Marker
		tried   []outbox.Tried
		earlier *time.Time
		want    bool
	}{
		"a deploy":                         {[]outbox.Marker{version(-1, "v1", "v2")}, tried("v2"), nil, true},
		"a failed fix after it":            {[]outbox.Marker{version(-1, "v1", "v2"), version(5, "v2", "v3")}, tried("v3", "v2"), nil, true},
		"a rollback that failed, too":      {[]outbox.Marker{version(-1, "v1", "v2"), version(5, "v2", "v1")}, tried("v1", "v2"), nil, false},
		"one before the version before it": {[]outbox.Marker{version(-9, "v0", "v1"), version(-1, "v1", "v2")}, tried("v0", "v2"), nil, false},
		"settled rows failed before it":    {[]outbox.Marker{version(-1, "v1", "v2")}, tried("v2"), new(at(-30)), false},
		"the same bad version again":       {[]outbox.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-39)), true},
		"settled rows failed between them": {[]outbox.Marker{version(-40, "v1", "v2"), version(-20, "v2", "v1"), version(-1, "v1", "v2")}, tried("v2"), new(at(-10)), false},
		"settled rows failed after it":     {[]outbox.Marker{version(-3, "v1", "v2")}, tried("v2"), new(at(-2)), true},
		"a build":                          {[]outbox.Marker{build}, tried("v2"), nil, true},
		"a build and the one before it":    {[]outbox.Marker{build}, append(tried("v2"), outbox.Tried{Build: "b1"}), nil, false},
	} {
		g := outbox.ErrorGroup{FirstAt: &first, EarlierAt: c.earlier, Tried: c.tried}
		if m := deployBefore(c.markers, g); (m != nil) != c.want {
			t.Errorf("%s: put down to %+v", name, m)
		}
	}
}

func TestCounts_ofOneAreSingular(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64][3]string{1: {"event behind", "failing cause", ">campaign waiting for it<"}, 2: {"events behind", "failing causes", ">campaigns waiting for it<"}} {
		v := Overview{Summary: outbox.Summary{Lag: outbox.Lag{Events: n}}, Causes: make([]outbox.AssessedGroup, n)}
		numbers := heroNumbers(Page{}, v)
		if numbers[0].name != want[0] || numbers[2].name != want[1] {
			t.Errorf("%d: %q, %q", n, numbers[0].name, numbers[2].name)
		}
		html := rendered(t, projectionCounts(Page{}, outbox.ProjectionInfo{Name: "orders", Blocking: n}))
		must.Hold(t, strings.Contains(html, want[2]), "%d: %s", n, html)
	}
}
