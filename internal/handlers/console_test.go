package handlers

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

func TestFailures_groupRowsByWhatWentWrong(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/failures").want(t, 200, `seat &#34;7&#34; is &lt;taken&gt;`, "1 dead", "2 of 2 attempts failed with the same error on one build", `data-testid="requeue-group"`, "poison.pill (1)").lacks(t, "<taken>")
}

func TestFailures_verdictIsAboutWhatRuns(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Version = "next" }).trouble()
	s.get("/failures").want(t, 200, "Since the last failure the build changed (test, now next)")
	s.get("/api/v1/failures/groups").want(t, 200, `"retry_outlook":"some"`, `"dead":1`, `"released":2`, `"capped":false`, `"next_cursor":null`)

	s = newSite(t, func(c *Config) { c.Projections[0].Version = "v2" })
	s.seed("c-1", hopeless)
	s.work()
	const says = "Since the last failure projection campaigns changed (v1, now v2) and the build did not"
	s.get("/failures").want(t, 200, says)
	s.get("/campaigns/c-1/events/1").want(t, 200, "Failed permanently in an earlier version of projection campaigns. The projection has changed since: a dry run shows whether it passes now.")
	s.get("/").want(t, 200, says, "not loaded now")
	s.get("/api/v1/failures/groups").want(t, 200, `"retry_outlook":"some"`, says, `"tried":[{"build":"test","projection":"campaigns","projection_version":"v1","attempts":1,"permanent":1,`)
}

func TestFailures_notesArePinned(t *testing.T) {
	s := ownSite(t).trouble()
	note := func(text string) string {
		return url.Values{"fingerprint": {outbox.Fingerprint(`seat "7" is <taken>`)}, "note": {text}}.Encode()
	}
	s.lands(s.submit("/failures/groups/note", note("see <b>ticket</b>"))).want(t, 200, "see &lt;b&gt;ticket&lt;/b&gt;", "Note saved", "1 dead").lacks(t, "<b>ticket")
	s.get("/failures?fingerprint=other").want(t, 200, "No rows with this error are failed or dead any more").lacks(t, "ticket")
	s.lands(s.submit("/failures/groups/note", note(""))).want(t, 200).lacks(t, "ticket")
}

func TestHistory_isTheSameForPageAndAPI(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	must.OK(t, s.store.Sample(context.Background()))
	s.get("/api/v1/history").want(t, 200, `"span":"hour"`, `"pending":2`, `"step_seconds":60`)
	s.get("/api/v1/history?span=day").want(t, 200, `"span":"day"`)
	s.get("/api/v1/history?span=year").want(t, 422, "use hour or day")
	s.get("/api/v1/history?range=7d").want(t, 200, `"range":"7d"`, `"step_seconds":10800`, `"heatmap":{`, `"markers":[`)
	s.get("/api/v1/history?range=8d").want(t, 422, "use 1h, 6h, 24h or 7d")
	s.get("/api/v1/history?from=2026-11-01").want(t, 422, "at most 8 d")
	s.get("/api/v1/history?from=-2h&to=-1h").want(t, 200, `"range":"free"`)
	s.get("/api/v1/history?from=nowhen").want(t, 422, `"from":"from cannot be`)
	s.get("/").want(t, 200, "Waiting rows, sampled each minute: now 2, peak 2 at ", `href="/?range=24h"`, `href="/charts"`)
	s.get("/?span=day").want(t, 200, `href="/charts?range=24h"`)
	s.get("/charts?range=6h").want(t, 200, `href="/?range=6h"`, "Waiting by event type", "Campaigns behind")
	s.get("/charts?table=true").want(t, 200, "Waiting rows: pending", "<td>2<td>")
	s.get("/api/v1/campaigns/c-1/history").want(t, 200, `"items":[]`)
	s.get("/api/v1/campaigns/none/history").want(t, 404)
}

func TestCampaign_chartShowsHowFarBehindItWas(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/campaigns/c-1").want(t, 200, "peak 3 at ") // in the running minute, without a sample
	must.OK(t, s.store.Sample(context.Background()))
	s.get("/campaigns/c-1").want(t, 200, "Events behind, sampled each minute; 0 if behind for less than 5 s, peak 3 at ")
	s.get("/campaigns/c-2").want(t, 200).lacks(t, "peak ")
	s.get("/charts").want(t, 200, "c-1: at worst 3 events behind")
	s.get("/api/v1/campaigns/c-1/history").want(t, 200, `"lag_events":3`)
}

// While nothing but ages changes, a polling tab gets a 304.
func TestOverview_isUnchangedWhileOnlyAgesChange(t *testing.T) {
	s := ownSite(t).trouble()
	target := header("HX-Target", templates.LiveTarget)
	look := func() answer {
		s.srv.overviews.invalidate() // as if a second had passed for all readers
		return s.get("/", target)
	}
	before := look().want(t, 200)
	s.clock = s.clock.Add(3 * time.Second)
	if after := look(); after.Header.Get("ETag") != before.Header.Get("ETag") || after.body != before.body {
		t.Error("three seconds later the overview is another one, though nothing happened")
	}
	s.get("/campaigns").want(t, 200, "10 min")
	s.clock = s.clock.Add(overviewKept + time.Minute)
	if after := look(); after.Header.Get("ETag") == before.Header.Get("ETag") {
		t.Error("its ages are never told anew")
	}
	s.clock = s.clock.Add(43 * time.Second)
	look().want(t, 200, ">11 min<")
	s.clock = s.clock.Add(5 * time.Second)
	look().want(t, 200, ">11 min<")
	s.get("/").want(t, 200, ">12 min<") // loaded anew, it is as of now
}

// The shared part must not depend on one reader.
func TestOverview_isSharedWithoutItsReader(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*site{
		"empty": newSite(t, func(c *Config) { c.Hosts = []string{"one.example", "two.example"} }),
		"full":  newSite(t, func(c *Config) { c.Hosts = []string{"one.example", "two.example"} }).trouble(),
	} {
		s.get("/", host("one.example")).want(t, 200, "one.example")
		s.get("/", host("two.example")).want(t, 200, "two.example").lacks(t, "one.example")
		part := s.get("/", host("two.example"), header("HX-Target", "live")).want(t, 200).lacks(t, "one.example", "idempotency_key")
		if name == "full" && part.body != s.get("/", host("one.example"), header("HX-Target", "live")).body {
			t.Error("two readers are shown something else at the same time")
		}
	}
}

func TestOverview_showsAnActWhicheverWayItCameIn(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.work()
	const paused = `<a href="/campaigns/c-1"><code>c-1</code></a>`
	s.get("/").want(t, 200).lacks(t, paused)
	s.post("/api/v1/campaigns/c-1/pause", "{}").want(t, 200)
	s.get("/").want(t, 200, paused)
	s.submit("/campaigns/c-1/resume", "").want(t, 303)
	s.get("/").want(t, 200).lacks(t, paused)
	must.Get(s.store.PauseCampaign(t.Context(), outbox.Command{By: outbox.Operator{Name: "ana", Via: "cli"}}, "c-1")).Or(t)
	s.get("/").want(t, 200, paused)
}

func TestOverview_tellsWhatIsSwitchedOffAndWhatWasDone(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.ReadOnly = true }).trouble()
	order := outbox.Command{By: outbox.Operator{Name: "ana", Via: "cli"}, Reason: "migration of <users>"}
	must.Get(s.store.PauseCampaign(context.Background(), order, "c-2")).Or(t)
	s.get("/").want(t, 200, "read-only", "no worker", "Paused campaign c-2.", "migration of &lt;users&gt;", `href="/campaigns/c-2"`, "refuses every change")
}

func TestActions_thatNeedAReasonAskForOne(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.ReasonFrom = 2 }).trouble() // two rows are released
	s.get("/rows/c-1/2/requeue").want(t, 200, "(required)")
	s.get("/campaigns/c-1").want(t, 200, "Requeue event 2…").lacks(t, `data-testid="requeue"`)
	s.seed("c-9", poison, "a", "b", "c")
	s.pass() // fails once; nothing is released by a retry
	s.get("/campaigns/c-9").want(t, 200, `id="head-reason"`).lacks(t, "(required)")
	s.submit("/rows/c-9/1/retry", "expected_status=failed&return_to=campaign").want(t, http.StatusSeeOther)
}

// An action is done even if the page that shows it cannot name it.
func TestForms_doneWithoutTheirRecordLeadOn(t *testing.T) {
	s := ownSite(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	rec := httptest.NewRecorder()
	err := s.srv.done(rec, httptest.NewRequestWithContext(gone, "POST", "http://127.0.0.1/", nil), "/campaigns/c-1")
	if err != nil || rec.Code != http.StatusSeeOther || rec.Header().Get("Location") != "/campaigns/c-1" {
		t.Errorf("%d to %q, %v", rec.Code, rec.Header().Get("Location"), err)
	}
}

func TestAbout_tellsOfDatabasesSettingsAndWhatLookingCosts(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Settings = []outbox.Setting{{Name: "mode", Value: "outbox_apply_only", Given: true}}
	})
	type about struct {
		Databases []outbox.DatabaseInfo
		Cost      outbox.CostReport
		Ready     bool
	}
	s.get("/about").want(t, 200, `title="outbox_apply_only: appends enqueue events; the worker applies them" data-testid="mode">applied by workers<`, "<code>outbox_apply_only</code>: appends enqueue events")
	before := decodeAs[about](t, s.get("/api/v1/about").want(t, 200))
	if len(before.Databases) != 2 || before.Databases[0].Bytes == 0 || len(before.Databases[0].Settings) == 0 || !before.Ready {
		t.Errorf("%+v", before)
	}
	for _, d := range before.Databases {
		for _, m := range d.Migrations {
			if m.AppliedAt == nil {
				t.Errorf("migration %s of the %s database was not applied", m.Name, d.Name)
			}
		}
	}
	s.get("/campaigns")
	s.get("/api/v1/summary")
	after := decodeAs[about](t, s.get("/api/v1/about").want(t, 200)).Cost
	if c := before.Cost; after.Requests != c.Requests+3 || after.Reads <= c.Reads || after.Statements <= c.Statements || after.Shared+after.Taken <= c.Shared+c.Taken {
		t.Errorf("after two more requests the cost is %+v, before it was %+v", after, c)
	}
	must.OK(t, s.store.Heartbeat(context.Background(), outbox.InstanceState{ID: "w"}))
	s.work()
	if again := decodeAs[about](t, s.get("/api/v1/about").want(t, 200)).Cost; again.Requests != after.Requests+1 {
		t.Errorf("%d requests counted, want %d", again.Requests, after.Requests+1)
	}
	s.get("/about").want(t, 200, "Console overhead", "Configuration", "--mode", "00031_schema.sql", "builtin:campaigns")
}

func TestFailures_retriesTheFailedRowsOfAnError(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", poison)
	s.seed("c-2", poison)
	s.pass()
	fingerprint := outbox.Fingerprint(`seat "7" is <taken>`)
	s.get("/failures").want(t, 200, "2 failed", `data-testid="retry-group"`, "Retry 2 now")
	s.lands(s.submit("/failures/groups/retry", url.Values{"fingerprint": {fingerprint}}.Encode())).want(t, 200, "Retried 2 failed rows: due now.")
	s.post("/api/v1/rows/retry", `{"limit":1}`).want(t, 200, `{"retried":1}`)
	s.submit("/failures/groups/retry", "fingerprint=").want(t, 422, "Fingerprint is required")
}
