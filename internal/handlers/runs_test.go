package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
)

func (s *site) reportRun(l runs.Lease, rep runs.Progress) {
	rep.Lease = time.Minute
	must.Get(s.runs.Report(context.Background(), l, rep)).Or(s.t)
}

// everything is a scope with what a rebuild of it needs.
const everything = `"all_campaigns":true,"reason":"drift","confirm":"rebuild all campaigns"`

func (s *site) startRun(body string) replay.Run {
	return decodeAs[replay.Run](s.t, s.post("/api/v1/runs", body).want(s.t, 202))
}

// ran is a run that a worker has ended with these results.
func (s *site) ran(body string, status replay.RunStatus, why string, results ...replay.RunResult) replay.Run {
	run := s.startRun(body)
	l := s.claimRun()
	s.reportRun(l, runs.Progress{Results: results, EventsDone: int64(len(results))})
	s.finishRun(l, status, why)
	return run
}

func matched(campaignID string) replay.RunResult {
	return replay.RunResult{CampaignID: campaignID, Outcome: replay.OutcomeMatch, Seq: 1, Events: 1, Projections: []replay.ProjectionResult{
		{Projection: "campaigns", Verdict: campaign.VerdictMatch, Seq: 1, Comparison: &projection.Comparison{}}}}
}

func TestRunPages_startOnceAndLeadToTheRun(t *testing.T) {
	s := ownSite(t).seed("c/1", "a", "b").work()
	s.get("/runs").want(t, 200, "No runs yet", `href="/runs/new?all_campaigns=true&amp;kind=verify" data-testid="run-new"`)
	s.get("/runs/new").want(t, 200, "Start a run", "Readers see the old rows or the new", "Preview").lacks(t, `data-testid="run-start"`, `data-testid="run-preview"`)
	page := s.get("/runs/new?kind=rebuild&campaigns=%20c%2F1%20%0D%0A%0D%0A&projections=campaigns&rate=50&reason=looks+odd").want(t, 200,
		"This rebuild replays 2 events of 1 campaign into 1 projection and replaces the live rows", "Events continue to be applied", "never a mix",
		`value="rebuild" checked`, `value="campaigns" checked`, `value="50"`, `value="looks odd"`, "outboxweb runs start rebuild --campaign=c/1 --projection=campaigns --rate=50", `data-testid="run-start">Start rebuild`)
	key := regexp.MustCompile(`name="idempotency_key" value="([^"]+)"`).FindStringSubmatch(page.body)[1]
	form := url.Values{"idempotency_key": {key}, "kind": {"rebuild"}, "campaigns": {"c/1\r\n"}, "projection": {"campaigns"}, "rate": {"50"}, "reason": {"looks odd"}}
	for range 2 {
		to := s.submit("/runs", form.Encode()).want(t, http.StatusSeeOther).Header.Get("Location")
		must.Hold(t, strings.HasPrefix(to, "/runs/1?act="), "the form leads to %q", to)
		s.get(to).want(t, 200, "Started run 1: rebuild of projection campaigns in campaign c/1.", "looks odd", "50 events/s", "Queued: waiting for a worker")
	}
	s.get("/api/v1/runs").lacks(t, `"id":2`)
	s.get("/audit").want(t, 200, `<a href="/runs/1">run 1</a>`)

	const odd = " two  words " // does not survive a list of lines
	s.seed(odd, "a").work()
	s.get("/runs/new?kind=verify&campaign_ids="+url.QueryEscape(odd)).want(t, 200, "1 event of 1 campaign", "does not fit on a line", "<input type=\"hidden\" name=\"campaign_ids\" value=\" two  words \">")
	s.submit("/runs", url.Values{"kind": {"verify"}, "campaign_ids": {odd}}.Encode()).want(t, http.StatusSeeOther)
	s.get("/api/v1/runs/2").want(t, 200, `"campaign_id":"`+odd+`"`)
}

func TestRunPages_sayWhatAnOrderNeedsAndWhatIsInItsWay(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	for query, says := range map[string]string{"kind=verify&campaign_ids=nobody": `here is no campaign &#34;nobody&#34;`, "kind=verify&campaign_ids=c-1&projections=nope": "is not loaded",
		"kind=rebuild&campaign_ids=c-1&until_seq=1": "ntil_seq is for a verify run"} {
		s.get("/runs/new?"+query).want(t, 200, says).lacks(t, `data-testid="run-start"`)
	}
	s.get("/runs/new?kind=mend").want(t, 422)
	s.get("/runs/x").want(t, 422)
	s.get("/runs/7").want(t, 404, "There is no run 7")
	s.submit("/runs", "kind=verify").want(t, 422, "Name the campaigns, or choose all")

	s.get("/runs/new?kind=verify&all_campaigns=true").want(t, 200).lacks(t, `data-testid="confirm"`)
	s.get("/runs/new?kind=rebuild&all_campaigns=true").want(t, 200, `data-testid="confirm"`, "(required to start)", "--confirm=&#39;rebuild all campaigns&#39;", `&#34;confirm&#34;:&#34;rebuild all campaigns&#34;`)
	s.submit("/runs", "kind=rebuild&all_campaigns=true&reason=odd").want(t, http.StatusUnprocessableEntity, "This replaces the rows of 1 campaign; to confirm it, type: rebuild all campaigns")

	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	s.get("/runs/new?kind=rebuild&campaign_ids=c-1").want(t, 200, `<a href="/runs/1">Run 1</a> is blocking`).lacks(t, "idempotency_key", `data-testid="run-start"`)
	s.submit("/runs", "kind=rebuild&campaign_ids=c-1").want(t, 409, "Blocked by run 1", `href="/runs/1" data-testid="in-the-way"`)
}

// Before a resume the page names what failed in this run, be it quarantined or not.
func TestRunPage_namesTheEventsAtWhichAResumedRunFailsAgain(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b")
	s.ran(`{"kind":"verify","all_campaigns":true}`, replay.RunFailed, "1 campaign failed", replay.RunResult{CampaignID: "c-1", Outcome: replay.OutcomeFailed, Error: "boom", Projections: []replay.ProjectionResult{{Projection: "campaigns", Error: "boom", ErrorSeq: 2}}})
	s.get("/runs/1").want(t, 200, `data-testid="failed-before"`, `Projection <code>campaigns</code> fails at <a href="/campaigns/c-1/events/2">event 2 of campaign <bdi>c-1</bdi></a>`, "it has no row to skip").lacks(t, `class="primary" data-testid="run-resume"`, "Unless the event is skipped")
	s.fresh("/").want(t, 200, `data-testid="failed_run"`)
	s.get("/").want(t, 200, "Run 1 (verify) has failed", `href="/runs/1"`)
	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	s.fresh("/").want(t, 200).lacks(t, `data-testid="failed_run"`)
}

func TestRunPages_sayHowManyRowsWereReplaced(t *testing.T) {
	s := ownSite(t).seed("c-1", "a").seed("c-2", "a")
	for kind, want := range map[string]string{"rebuild": "campaigns: its rows differed before; 2 rows before, 3 after", "replay": "campaigns: caught up to event 5; 2 rows before, 3 after"} {
		p := replay.ProjectionResult{Projection: "campaigns", Generation: 2, Seq: 5, Rows: &campaign.RowsReplaced{Before: 2, After: 3}}
		outcome, none := replay.OutcomeReplayed, "nothing to catch up"
		if kind == "rebuild" {
			p.Verdict, outcome, none = campaign.VerdictDrift, replay.OutcomeDrift, `<span class="muted">nothing</span>`
		}
		run := s.ran(`{"kind":"`+kind+`",`+everything+`}`, replay.RunCompleted, "", replay.RunResult{CampaignID: "c-1", Outcome: outcome, Projections: []replay.ProjectionResult{p}}, replay.RunResult{CampaignID: "c-2", Outcome: outcome})
		page := fmt.Sprintf("/runs/%d", run.ID)
		s.get(page).want(t, 200, want, none)
		s.get(page+"/results/c-1").want(t, 200, "2 before, 3 after")
	}
}

func TestRunResultPage_leadsToTheChangeOfTheProjection(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b")
	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	result := drifted("c-1")
	result.Projections[0].Comparison.ReplayedWith = campaign.ReplayedWith{Version: "v1", RowsBuilt: campaign.RowsBuilt{BuiltByOtherVersion: true, BuiltVersions: []campaign.LoadedVersion{{Version: "v0"}}}}
	s.reportRun(s.claimRun(), runs.Progress{Results: []replay.RunResult{result}})
	s.get("/runs/1").want(t, 200, "campaigns: 1 row changed; replayed with version v1, rows built by version v0", `data-testid="versions-campaigns"`)
	s.get("/runs/1/results/c-1").want(t, 200, "Replayed with version v1, rows built by version v0.", `href="/projections/campaigns#change" data-testid="see-change"`).lacks(t, "outside the journal", `data-testid="first-seq"`)
}

func TestRunPages_followARunToItsEnd(t *testing.T) {
	s := ownSite(t).seed("c/1", "a", "b").seed("c-2", "a").seed("c-3", "a").work()
	s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true,"projections":["campaigns"],"rate":500,"reason":"looks odd"}`).
		want(t, 202, `"status":"queued"`, `"campaign_ids":[]`, `"all_campaigns":true`, `"versions":{"campaigns":"v1"}`, `"rate":500`, `"lease":null`, `"seconds_left":null`).header(t, "Location", "/api/v1/runs/1")
	l := s.claimRun()
	failed := replay.RunResult{CampaignID: "c-2", Outcome: replay.OutcomeFailed, Error: "event 1 cannot be replayed: <b>\u202eboom", Events: 1}
	s.reportRun(l, runs.Progress{Results: []replay.RunResult{drifted("c/1"), failed}, EventsDone: 2, EventsPerSecond: 4,
		Lines: []replay.RunLine{{CampaignID: "c-2", Text: "failed: <i>stack\n\tat 1"}, {Text: strings.Repeat("long ", 1000)}}})
	live := s.get("/runs/1").want(t, 200, "running", "2 of 3 campaigns done", `max="4" value="2" aria-label="2 of 4 events, 50%" data-testid="run-progress"`, "4.0 events/s, about 1 s left",
		"test-1", "✕ failed 1", "≠ drift 1", "Needs attention first", `data-testid="first-c-2"`, `data-testid="first-c/1"`, "campaigns: 1 row changed; first divergence at event 2 or earlier",
		"failed: &lt;i&gt;stack", `<details id="line-`, `href="/api/v1/runs/1/log"`, `data-testid="run-cancel"`).lacks(t, "data-ended", "\u202e")
	must.Hold(t, strings.Index(live.body, `data-testid="first-c-2"`) <= strings.Index(live.body, `data-testid="first-c/1"`), "what failed comes after what differs")
	const api = "/api/v1/runs/1"
	s.get(api).want(t, 200, `"status":"running"`, `"events":{"done":2,"total":4}`, `"campaigns":{"done":2,"total":3}`, `"seconds_left":0.5`, `"owner":"test-1"`)
	s.get(api+"/results").want(t, 200, `"campaign_id":"c/1"`, `"changed":1`, `"samples":null`, `"campaign_id":"c-2"`)
	s.get(api+"/results?outcome=failed").want(t, 200, `"campaign_id":"c-2"`).lacks(t, "c/1")
	s.get(api+"/results/c%2F1").want(t, 200, `"fields":[{"name":"name","live":"Ash","expected":{"a":[1]}},{"name":"seats","live":null,"expected":3}]`)
	s.get(api+"/log?limit=1").want(t, 200, `"text":"long `).lacks(t, "failed: ")
	s.get("/api/v1/campaigns/c%2F1/verifications").want(t, 200, `"verdict":"drift"`, `"changed":1`, `"run_id":1`)
	died := s.clock
	s.clock = died.Add(14 * time.Second)
	s.get("/runs/1").want(t, 200, "Its process last reported 14 s ago; if it is dead, another worker takes over in 46 s.", "last report 14 s ago").lacks(t, "events/s, about")
	s.clock = died.Add(2 * time.Minute)
	s.get("/runs/1").want(t, 200, "No process works on it: the last one reported 2 min ago. The next free worker takes over.")
	s.get("/runs").want(t, 200, "last report 2 min ago").lacks(t, "events/s")
	s.clock = died
	s.get("/runs/1?outcome=drift").want(t, 200, `data-testid="result-c/1"`).lacks(t, `data-testid="result-c-2"`, "Needs attention first")
	s.get("/runs/1?limit=1").want(t, 200, `data-testid="next-page"`)
	s.get("/runs").want(t, 200, `id="run-1"`, "verify", "✕", "1 failed", "1 drift", "0 match", "looks odd", "by local via api", `data-testid="run-progress"`)
	s.get("/runs?status=running&campaign=c-3").want(t, 200, `id="run-1"`, `<input type="hidden" name="status" value="running"`)
	s.get("/").want(t, 200, `data-testid="active-runs"`, `<a href="/runs/1">Run 1</a>`, `data-testid="drift"`, "Live rows of 1 campaign differ from the journal in projection campaigns", `href="/runs/1/results/c%2F1"`)

	s.lands(s.submit("/runs/1/cancel", "reason=enough")).want(t, 200, "Cancelled run 1; its worker is stopping.", "Cancelled by local").lacks(t, `data-testid="run-cancel"`)
	s.finishRun(l, replay.RunFailed, "it <broke>")
	s.get("/runs/1").want(t, 200, "data-ended", "it &lt;broke&gt;", `data-testid="run-resume"`, "1 finished campaign stays done", `data-testid="run-rebuild">Rebuild 1 drifted campaign…`,
		`href="/runs/new?drifted=1"`)
	s.get("/api/v1/runs?status=failed&kind=verify&campaign=c-2").want(t, 200, `"error":"it <broke>"`, `"verdict":"drift"`)
	s.get("/api/v1/runs?kind=rebuild").want(t, 200, `"items":[]`)
	s.get("/runs/new?drifted=1").want(t, 200, "Start a rebuild run", `rows="3" autocomplete="off" spellcheck="false">c/1</textarea>`, `value="campaigns" checked`)
	s.lands(s.submit("/runs/1/resume", "reason=mended")).want(t, 200, "Resumed run 1", "queued")
	l = s.claimRun()
	s.reportRun(l, runs.Progress{Results: []replay.RunResult{matched("c-2"), matched("c-3")}, EventsDone: 4})
	s.finishRun(l, replay.RunCompleted, "")
	s.get("/runs/1").want(t, 200, "completed", "Drift in 1 of 3 campaigns: the live rows differ from the journal").lacks(t, `data-testid="run-resume"`, `data-testid="run-cancel"`)
	s.get("/").want(t, 200, `data-testid="drift"`).lacks(t, `data-testid="active-runs"`)
}

func TestRunPages_sayWhatWasNotComparedAndOfARebuildWhatIsLacking(t *testing.T) {
	s := ownSite(t).seed("c/1", "a", "b", "c").seed("c-2", "a")
	partly := replay.RunResult{CampaignID: "c/1", Outcome: replay.OutcomeNotCompared, Seq: 3, Events: 3, Projections: []replay.ProjectionResult{
		{Projection: "campaigns", Verdict: campaign.VerdictMatch, Seq: 1, LeftOut: campaign.CursorPaused, Comparison: &projection.Comparison{}}}}
	s.ran(`{"kind":"verify","all_campaigns":true}`, replay.RunCompleted, "", partly, matched("c-2"))
	s.get("/runs/1").want(t, 200, "The live rows of 1 campaign match the journal, as far as events are applied. 1 campaign was not fully compared", "‖ not fully compared 1", `data-testid="first-c/1"`,
		"campaigns: events 2 to 3 not compared, paused").lacks(t, `data-testid="run-verdict"`, `data-testid="run-rebuild"`)
	s.get("/runs/1?outcome=not_compared").want(t, 200, `data-testid="result-c/1"`).lacks(t, `data-testid="result-c-2"`)
	s.get("/runs/1/results/c%2F1").want(t, 200, "No differences, but not all events were compared.", "Not compared: events 2 to 3. The projection was paused at the time.")
	s.get("/runs").want(t, 200, "1 not fully compared")
	s.get("/api/v1/runs/1").want(t, 200, `"verdict":""`, `"not_compared":1`)
	s.get("/api/v1/runs/1/results/c%2F1").want(t, 200, `"outcome":"not_compared"`, `"left_out":"paused"`)

	lacking := drifted("c/1")
	lacking.Projections[0].LeftOut, lacking.Projections[0].Seq = campaign.CursorPaused, 1
	s.ran(`{"kind":"rebuild",`+everything+`}`, replay.RunCompleted, "", lacking, matched("c-2"))
	s.get("/runs/2").want(t, 200, "Rebuilt. The rows of 2 campaigns match the journal now, as far as events are applied; in 1 some differed before.",
		"≠ differed before 1", "did not differ 1", "Differed, or is not complete").lacks(t, "drifted", "Needs attention first")
	s.get("/runs/2/results/c%2F1").want(t, 200, "Rebuilt. Some rows differed before. A paused projection lacks events.")
}

func TestOverview_saysWhenEverythingWasVerified(t *testing.T) {
	s := ownSite(t)
	run := func(kind, scope string, results ...replay.RunResult) {
		s.ran(`{"kind":"`+kind+`",`+scope+`}`, replay.RunCompleted, "", results...)
	}
	run("verify", everything) // of an empty journal, it says nothing of what comes later
	s.get("/api/v1/runs/1").want(t, 200, `"verdict":""`)
	s.seed("c/1", "a").seed("c-2", "a").fresh("/").want(t, 200, "No verify has compared all campaigns lately.")
	run("verify", `"campaign_id":"c-2"`, matched("c-2"))
	s.fresh("/").want(t, 200, "No verify has compared all campaigns lately.")
	run("verify", everything, drifted("c/1"), matched("c-2"))
	s.fresh("/").want(t, 200, `by <a href="/runs/3">run 3</a>, in 2 campaigns: drift in 1 of 2 campaigns.`)
	run("rebuild", everything, drifted("c/1"), matched("c-2"))
	s.fresh("/").want(t, 200, `Rows were rebuilt since, by <a href="/runs/4">run 4</a>.`)
	run("verify", everything, matched("c/1"), matched("c-2"))
	s.fresh("/").want(t, 200, `by <a href="/runs/5">run 5</a>, in 2 campaigns: no differences, as far as events were applied then.`)
	s.get("/").lacks(t, "rebuilt since", "newer")
	s.seed("c-3", "a").fresh("/").want(t, 200, "1 newer campaign was not compared.")
}

func TestRunPages_showHowRowsDiffer(t *testing.T) {
	s := ownSite(t).seed("c/1", "a", "b")
	result := drifted("c/1")
	c := result.Projections[0].Comparison
	c.Changed, c.Added, c.Removed = 25, 1, 1
	c.Samples = []projection.RowChange{
		{Table: "campaigns", Kind: projection.RowChanged, Key: []projection.Field{{Name: "id", Value: []byte("9007199254740993")}}, Fields: []projection.FieldChange{
			{Name: "name", Live: []byte(`"<script>alert(1)</script> \u202e"`), Expected: []byte(`"Ash \\u003c"`)},
			{Name: "big", Live: []byte("12345678901234567890"), Expected: []byte(`"` + strings.Repeat("x", 40_000) + `"`)}}},
		{Table: "campaigns", Kind: projection.RowAdded, Key: []projection.Field{}, Fields: []projection.FieldChange{{Name: "seats", Expected: []byte("3")}}},
		{Table: "campaigns", Kind: projection.RowRemoved, Key: []projection.Field{}, Fields: []projection.FieldChange{}},
	}
	s.ran(`{"kind":"verify","campaign_id":"c/1"}`, replay.RunCompleted, "", result)
	page := s.get("/runs/1/results/c%2F1").want(t, 200, "the live rows differ from the journal", `href="/campaigns/c%2F1/events/2" data-testid="first-seq">event 2`,
		"1 row missing in live data, 25 changed, 1 unexpected in live data.", "24 more rows differ", "9007199254740993", "12345678901234567890", `&#34;&lt;script&gt;alert(1)&lt;/script&gt; \u202e&#34;`, `&#34;Ash \\u003c&#34;`,
		"and 35,906 more bytes", "absent", "no other field", "≠", "sha256:fold", "sha256:live", `data-testid="start-rebuild"`, `href="/runs/new?campaign_ids=c%2F1&amp;kind=rebuild"`).lacks(t, "<script>alert", "\u202e")
	page.times(t, 3, `data-testid="row-change"`)
	s.get("/api/v1/runs/1").want(t, 200, `"campaign_id":"c/1"`, `"digests":{"campaigns":"sha256:fold","full":"sha256:full"}`, fmt.Sprintf(`"digests_before":{"campaigns":"sha256:live","full":%q}`, projection.FullDigestOf([]string{"sha256:live"})), `"seq":2`, `"verdict":"drift"`)
	s.get("/runs/1").want(t, 200, "Digests at event 2", "sha256:fold", "sha256:live", "sha256:full", `data-testid="digest-differs"`)
	s.get("/campaigns/c%2F1").want(t, 200, `data-testid="verified-campaigns"`, "at event 2,", `href="/runs/1/results/c%2F1"`, "; first divergence at event 2 or earlier.", `data-testid="start-verify"`)
	s.get("/runs/1/results/nobody").want(t, 404)
}

func TestRunPages_offerTheRebuildOfRowsOfAnotherVersion(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	s.kit.ExecProjections(`insert into projection_versions (projection, version, built_version, installed_at) values ('campaigns', 'v1', 'v0', 1)`)
	run := s.ran(`{"kind":"verify","all_campaigns":true}`, replay.RunCompleted, "", drifted("c-1"))
	for _, target := range []string{"/projections", "/projections/campaigns", "/campaigns/c-1", "/runs/new?all_campaigns=true&kind=rebuild", fmt.Sprintf("/runs/%d", run.ID), fmt.Sprintf("/runs/%d/results/c-1", run.ID)} {
		s.fresh(target).want(t, 200, `data-testid="other-version-campaigns"`)
		s.get(target).want(t, 200, "Rows of projection campaigns were built by version v0. Version v1 is loaded now, and builds what is applied since then. "+campaign.BuiltAdvice)
	}
	s.get("/projections/campaigns").want(t, 200, "version v0, and since by the loaded version v1")
	s.get("/runs/new?all_campaigns=true&kind=verify").want(t, 200).lacks(t, "other-version")
	must.OK(t, s.store.ReadModel().MarkBuilt(context.Background(), "campaigns", "v1"))
	s.get("/projections").want(t, 200).lacks(t, "other-version")
}

func tried(t replay.Trial) replay.RunResult {
	campaign, seq, next := t.CampaignID, t.Seq, t.Next
	return replay.RunResult{CampaignID: campaign, Outcome: replay.OutcomeFailed, Seq: seq, Error: fmt.Sprintf("no <room> in %d", next),
		Projections: append(drifted(campaign).Projections, replay.ProjectionResult{Projection: "others"}),
		Rehearsed:   &replay.Rehearsed{Head: seq, Applied: 1, FailedSeq: seq + 1, EventType: "b", Projection: "campaigns"}}
}

func TestDryRun_ofARowInPageAndAPI(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.DryRun = func(_ context.Context, t replay.Trial) (replay.RunResult, error) {
			if t.Seq > 2 {
				return replay.RunResult{}, event.NotFound("campaign %q has no event %d", t.CampaignID, t.Seq)
			}
			return tried(t), nil
		}
	}).seed("c/1", poison, "b").work()
	s.get("/campaigns/c%2F1/events/1").want(t, 200, `href="/rows/c%2F1/1/dry-run?next=10" data-testid="dry-run-open"`)
	s.get("/rows/c%2F1/1/dry-run").want(t, 200, "Event 1 would be applied.", `href="/campaigns/c%2F1/events/2" data-testid="dry-run-failed">Event 2</a> would fail in projection campaigns:`,
		"no &lt;room&gt; in 10", "Rows would change: 1 row changed", "nothing was changed", "requeue --dry-run --next=10 -- c/1 1").lacks(t, "start-rebuild")
	a := s.get("/api/v1/rows/c%2F1/1/dry-run?next=0").want(t, 200)
	got, want := strings.TrimSpace(a.body), must.Get(json.Marshal(tried(replay.Trial{CampaignID: "c/1", Seq: 1}))).Or(t)
	must.Hold(t, string(want) == strings.ReplaceAll(strings.ReplaceAll(got, "<", `\u003c`), ">", `\u003e`), "the API tells of %s, want %s", got, want)
	s.get("/rows/c%2F1/1/dry-run?next=-1").want(t, 422)
	s.get("/api/v1/rows/c%2F1/3/dry-run").want(t, 404)
}

func (s *site) claimRun() runs.Lease {
	l, ok, err := s.runs.Claim(context.Background(), testWorker, map[string]string{"campaigns": "v1"}, time.Minute)
	must.Need(s.t, err == nil && ok, "claim a run: %v, %v", ok, err)
	return l
}

func (s *site) finishRun(l runs.Lease, status replay.RunStatus, why string) {
	must.Get(s.runs.Finish(context.Background(), l, status, why)).Or(s.t)
}

func drifted(campaignID string) replay.RunResult {
	return replay.RunResult{CampaignID: campaignID, Outcome: replay.OutcomeDrift, Seq: 2, Events: 2, Full: "sha256:full", Projections: []replay.ProjectionResult{
		{Projection: "campaigns", Verdict: campaign.VerdictDrift, Digest: "sha256:fold", Before: "sha256:live", Seq: 2, Comparison: &projection.Comparison{Changed: 1, FirstSeq: 2, ReplayedWith: campaign.ReplayedWith{RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}},
			Samples: []projection.RowChange{{Table: "campaigns", Kind: projection.RowChanged, Key: []projection.Field{{Name: "id", Value: []byte(`"x"`)}},
				Fields: []projection.FieldChange{{Name: "name", Live: []byte(`"Ash"`), Expected: []byte(`{"a":[1]}`)}, {Name: "seats", Live: nil, Expected: []byte("3")}}}}}}}}
}
