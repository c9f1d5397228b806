package handlers

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/samples"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

func TestFailures_verdictIsAboutWhatRuns(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Version = "next" }).trouble()
	s.get("/failures").want(t, 200, "Since the last failure the build changed (test, now next)")
	s.get("/api/v1/failures/groups").want(t, 200, `"retry_outlook":"some"`, `"dead":1`, `"released":2`, `"capped":false`, `"next_cursor":null`)

	s = newSite(t, func(c *Config) { c.Projections[0].Version = "v2" }).seed("c-1", hopeless).work()
	const says = "Since the last failure projection campaigns changed (v1, now v2) and the build did not"
	s.get("/failures").want(t, 200, says)
	s.get("/campaigns/c-1/events/1").want(t, 200, "Failed permanently in an earlier version of projection campaigns. The projection has changed since: a dry run shows whether it passes now.")
	s.get("/").want(t, 200, says)
	s.get("/api/v1/failures/groups").want(t, 200, `"retry_outlook":"some"`, says, `"tried":[{"build":"test","projection":"campaigns","projection_version":"v1","attempts":1,"permanent":1,`)
}

func TestFailures_groupRowsByWhatWentWrongAndPinNotes(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/failures").want(t, 200, `seat &#34;7&#34; is &lt;taken&gt;`, "1 dead", "2 of 2 attempts failed with the same error on one build", `data-testid="requeue-group"`, "poison.pill (1)").lacks(t, "<taken>")
	note := func(text string) string {
		return url.Values{"fingerprint": {event.Fingerprint(`seat "7" is <taken>`)}, "note": {text}}.Encode()
	}
	s.lands(s.submit("/failures/groups/note", note("see <b>ticket</b>"))).want(t, 200, "see &lt;b&gt;ticket&lt;/b&gt;", "Note saved", "1 dead").lacks(t, "<b>ticket")
	s.get("/failures?fingerprint=other").want(t, 200, "No rows with this error are failed or dead any more").lacks(t, "ticket")
	s.lands(s.submit("/failures/groups/note", note(""))).want(t, 200).lacks(t, "ticket")
}

func TestHistory_isTheSameForPageAndAPI(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b")
	must.OK(t, s.kit.Sample(context.Background()))
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
}

// An earlier range is beside the charts' own step by step: a day before it, or until a marker.
func TestCharts_layAnEarlierRangeBesideTheirOwn(t *testing.T) {
	s := ownSite(t)
	for ago := range 60 { // each minute has a number of its own
		for days, pending := range []int{160 - ago, 460 - 2*ago} {
			at := s.clock.Add(-time.Duration(ago)*time.Minute - time.Duration(days)*24*time.Hour)
			s.kit.Exec(`insert into samples (minute, pending, processing, failed, dead, lag_events, blocked, applied_total, failed_total) values ($1, $2, 0, 0, 0, 0, 0, $3, 0)`,
				at.UnixMicro(), pending, (1-days)*9000+(60-ago)*(60-ago))
		}
	}
	s.clock = s.clock.Add(-20 * time.Minute)
	s.post("/api/v1/markers", `{"text":"a deploy","reason":"x"}`).want(t, 200)
	s.clock = s.clock.Add(20 * time.Minute)
	s.get("/charts").want(t, 200, `href="/charts?beside=24h"`).lacks(t, "l-beside")
	s.get("/charts?beside=24h").want(t, 200, `data-said="all, a day earlier"`, "applied, a day earlier: Nov 20 06:01 – Nov 20 07:01 UTC", "; all, a day earlier, peak 460 at Nov 20 06:59 UTC",
		`name="beside" value="24h"`, `href="/charts?beside=24h&amp;range=6h"`, `href="/api/v1/history?beside=24h"`)
	const row = "<th scope=row>Nov 21 %s<td>0<td>0<td>0<td>%d<td>%d<td>%d<td>0<td>%d<td>"
	s.get("/charts?table=true&beside=24h").want(t, 200, "Waiting rows: all, a day earlier, Nov 20 06:01", fmt.Sprintf(row, "06:30", 131, 402, 61, 61))
	after := strings.Replace(aroundMark, "?", "?table=true&", 1)
	s.get("/charts").want(t, 200, `href="`+strings.ReplaceAll(aroundMark, "&", "&amp;")+`">Before and after</a>`)
	s.get(after).want(t, 200, "Waiting rows: all, before, Nov 21 06:19", fmt.Sprintf(row, "06:45", 146, 125, 91, 49)).lacks(t, "row>Nov 21 06:39")
	s.get("/charts?beside=168h&range=7d").want(t, 200, "; all, a week earlier, not recorded in this period")
	s.get("/api/v1/history?beside=24h").want(t, 200, `"beside":{"range":"free","span":"","from":"2026-11-20T06:01:00Z","to":"2026-11-20T07:01:00Z","step_seconds":60,`)
	s.get("/api/v1/history").want(t, 200, `"beside":null`)
	s.get("/api/v1/history?beside=2h").want(t, 422, "beside must be one of 1h, 24h, 168h, or a time (UTC)")
	s.get("/api/v1/history?beside=2026-11-21T08:00:00Z").want(t, 422, "beside must be before the end of the range")
}

// aroundMark are the charts from 20 minutes ago on, beside the 21 steps before.
const aroundMark = "/charts?beside=2026-11-21T06%3A40%3A00Z&from=2026-11-21T06%3A40%3A00Z&to=2026-11-21T07%3A01%3A00Z"

func TestCampaign_chartShowsHowFarBehindItWas(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/campaigns/c-1").want(t, 200, "peak 3 at ") // in the running minute, without a sample
	must.OK(t, s.kit.Sample(context.Background()))
	s.get("/campaigns/c-1").want(t, 200, "Events behind, sampled each minute; 0 if behind for less than 5 s, peak 3 at ")
	s.get("/campaigns/c-2").want(t, 200).lacks(t, "peak ")
	s.get("/charts").want(t, 200, "c-1: at worst 3 events behind")
	s.get("/api/v1/campaigns/c-1/history").want(t, 200, `"lag_events":3`)
}

// While nothing but ages changes, a polling tab gets a 304.
func TestOverview_isUnchangedWhileOnlyAgesChange(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Hosts = []string{"one.example", "two.example"} }).trouble()
	must.OK(t, s.kit.Sample(t.Context()))                       // with which the charts begin
	s.get("/", host("one.example")).want(t, 200, "one.example") // shared without its reader
	s.get("/", host("two.example")).want(t, 200, "two.example").lacks(t, "one.example")
	s.get("/").want(t, 200, `form="take-publisher"`).lacks(t, `id="take-publisher"`) // of a finding that may come while the page is open
	part := s.get("/", host("two.example"), header("HX-Target", "live")).want(t, 200).lacks(t, "one.example", "idempotency_key")
	must.Equal(t, part.body, s.get("/", host("one.example"), header("HX-Target", "live")).body, "what two readers are shown at the same time")
	target := header("HX-Target", ui.LiveTarget)
	look := func() answer {
		s.srv.overviews.invalidate() // as if a second had passed for all readers
		return s.get("/", target)
	}
	before := look().want(t, 200)
	s.clock = s.clock.Add(3 * time.Second)
	after := look()
	after.header(t, "ETag", before.Header.Get("ETag"))
	must.Equal(t, after.body, before.body, "the overview three seconds later, though nothing happened,")
	s.get("/campaigns").want(t, 200, "10 min")
	s.clock = s.clock.Add(overviewKept + time.Minute)
	must.Hold(t, look().Header.Get("ETag") != before.Header.Get("ETag"), "its ages are never told anew")
	s.clock = s.clock.Add(43 * time.Second)
	look().want(t, 200, ">11 min<")
	s.clock = s.clock.Add(5 * time.Second)
	look().want(t, 200, ">11 min<")
	s.get("/").want(t, 200, ">12 min<") // loaded anew, it is as of now
}

func TestOverview_showsAnActWhicheverWayItCameIn(t *testing.T) {
	s := ownSite(t).seed("c-1", "a").work()
	const paused = `<a href="/campaigns/c-1"><code>c-1</code></a>`
	s.get("/").want(t, 200).lacks(t, paused)
	s.post("/api/v1/campaigns/c-1/pause", `{"reason":"migration of <users>"}`).want(t, 200)
	s.get("/").want(t, 200, paused, "Paused campaign c-1.", "migration of &lt;users&gt;")
	s.submit("/campaigns/c-1/resume", "").want(t, 303)
	s.get("/").want(t, 200).lacks(t, paused)
	must.Get(s.kit.PauseCampaign(t.Context(), operator.Command{By: operator.Operator{Name: "ana", Via: "cli"}}, "c-1")).Or(t)
	s.get("/").want(t, 200, paused)
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
	must.Hold(t, err == nil && rec.Code == http.StatusSeeOther && rec.Header().Get("Location") == "/campaigns/c-1", "%d to %q, %v", rec.Code, rec.Header().Get("Location"), err)
}

func TestAbout_tellsOfDatabasesSettingsAndWhatLookingCosts(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.Settings = []database.Setting{{Name: "mode", Value: "outbox_apply_only", Given: true}}
	})
	s.get("/about").want(t, 200, "<code>outbox_apply_only</code>: appends enqueue events")
	before := decodeAs[campaign.About](t, s.get("/api/v1/about").want(t, 200))
	must.Hold(t, len(before.Databases) == 2 && before.Databases[0].Bytes != 0 && len(before.Databases[0].Settings) != 0 && before.Ready, "%+v", before)
	for _, d := range before.Databases {
		for _, m := range d.Migrations {
			must.Hold(t, m.AppliedAt != nil, "migration %s of the %s database was not applied", m.Name, d.Name)
		}
	}
	s.get("/campaigns")
	s.get("/api/v1/summary")
	after := decodeAs[campaign.About](t, s.get("/api/v1/about").want(t, 200)).Cost
	c := before.Cost
	must.Hold(t, after.Requests == c.Requests+3 && after.Reads > c.Reads && after.Statements > c.Statements && after.Shared+after.Taken > c.Shared+c.Taken, "after two more requests the cost is %+v, before it was %+v", after, c)
	s.get("/about").want(t, 200, "Console overhead", "Configuration", "--mode", "00031_schema.sql", "builtin:campaigns")
}

func TestFailures_sayWhenFailedRowsAreRetriedAndRetryThemAtOnce(t *testing.T) {
	s := ownSite(t).seed("c-1", poison, "a").seed("c-2", "a").seed("c-3", poison)
	s.pass()
	s.get("/").want(t, 200, "2 campaigns retrying, 3 events waiting", "next retry").lacks(t, "Requeue with a canary")
	s.submit("/campaigns/c-2/pause", "reason=x").want(t, 303)
	s.fresh("/").want(t, 200, `<a href="/campaigns/c-2"><code>c-2</code></a>`)
	fingerprint := event.Fingerprint(`seat "7" is <taken>`)
	s.get("/failures").want(t, 200, "2 failed", `data-testid="retry-group"`, "Retry 2 now")
	s.lands(s.submit("/failures/groups/retry", url.Values{"fingerprint": {fingerprint}}.Encode())).want(t, 200, "Retried 2 failed rows: due now.")
	s.post("/api/v1/rows/retry", `{"limit":1}`).want(t, 200, `{"retried":1}`)
	s.submit("/failures/groups/retry", "fingerprint=").want(t, 422, "Fingerprint is required")
}

// badDeploy kills 40 of 60 campaigns with one error, and two with others.
func (s *site) badDeploy() *site {
	for i := range 60 {
		types := []string{"a", "b"}
		switch {
		case i < 40:
			types = []string{"a", poison, "b", "c"}
		case i == 40:
			types = []string{hopeless, "b"}
		}
		s.seed(fmt.Sprintf("c-%02d", i), types...)
	}
	s.work()
	return s
}

func TestOverview_ofABadDeployStartsFromItsCause(t *testing.T) {
	s := ownSite(t).badDeploy()
	a := s.get("/").want(t, 200, "41 of 60 campaigns are blocked", `data-testid="events-behind">122<`, `data-testid="empty-in">never<`,
		"40 campaigns blocked, 120 events waiting", "1 campaign blocked, 2 events waiting", `data-testid="since"`, `data-testid="campaign-c-00"`, "findings need you.")
	a.times(t, 2, `data-testid="cause"`)
	order := []string{`data-testid="health"`, `class="hero"`, `class="statuses"`, "40 campaigns blocked", "1 campaign blocked", `class="history"`, `id="tonight"`}
	for i := 1; i < len(order); i++ {
		must.Hold(t, strings.Index(a.body, order[i-1]) <= strings.Index(a.body, order[i]), "%s comes after %s", order[i-1], order[i])
	}
	a.times(t, 2, `data-testid="campaign-`)
	a.times(t, 1, `class="button primary"`)
	a.lacks(t, `data-testid="requeue"`)
	must.Hold(t, len(a.body) <= 60_000, "the page has %d bytes", len(a.body))
	s.get("/api/v1/failures/groups").want(t, 200, `"campaigns":40`, `"events_waiting":120`, `"next_attempt_at":null`, `"fails_now":true`, `"operation":null`, `"worst":[{"campaign_id":"c-00","head_seq":2,"head_status":"dead"`)
	s.post("/api/v1/operations", fmt.Sprintf(`{"filter":{"fingerprint":%q},"canary":true}`, event.Fingerprint(`seat "7" is <taken>`))).want(t, 202)
	s.fresh("/").want(t, 200, "is retrying these: canary running")
	s.get("/").want(t, 200, "Watch operation 1").lacks(t, `href="/operations/new?fingerprint=seat`)
}

func TestShadow_outcomesAreCauses(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.Mode = campaign.ModeShadow })
	wrong := map[string]string{"a": "seat 7 is taken", "b": "seat 8 is taken", "c": "seat 9 is taken", "d": "too long"}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		s.seed(id, "x", "y")
	}
	s.get("/").want(t, 200).lacks(t, "Shadow mode has rehearsed")
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r := outbox.Rehearsal{CampaignID: id, RehearsedSeq: 2}
		if why := wrong[id]; why != "" {
			r = outbox.Rehearsal{CampaignID: id, RehearsedSeq: 1, FailedSeq: 2, Error: why, Fingerprint: event.Fingerprint(why)}
		}
		must.OK(t, s.kit.RecordRehearsal(t.Context(), r))
	}
	s.store.Changed()
	for _, page := range []string{"/", "/failures"} {
		s.get(page).want(t, 200, "Shadow mode has rehearsed 10 events: 4 would fail, and the events behind those were not tried.",
			"3 campaigns would be blocked, 3 events waiting", "1 campaign would be blocked, 1 event waiting", "seat 7 is taken", "too long", `href="/campaigns/a/events/2"`, "nothing was applied: it would fail until the cause is fixed").
			lacks(t, "Requeue with a canary", "No campaign is blocked or failing", "No failed or dead rows")
	}
	s.get("/failures?fingerprint=too+long").want(t, 200, "1 would fail", "too long").lacks(t, "seat 7")
	s.get("/campaigns/d/events/2").want(t, 200, `<a href="/failures?fingerprint=too+long">The cause</a>`)
	s.get("/api/v1/failures/groups").want(t, 200, `"rehearsed":{"events":10,"failing":4}`, `"rehearsed":3`, `"head_seq":2,"head_status":"pending"`, `"capped":false,"more":false`)
	s.post("/api/v1/failures/groups/note", `{"fingerprint":"too long","note":"known"}`).want(t, 200)
	s.submit("/campaigns/d/pause", "reason=x").want(t, 303) // what is stopped is not rehearsed again
	s.fresh("/failures").want(t, 200, "Shadow mode has rehearsed 8 events: 3 would fail")
	s.get("/failures").lacks(t, "too long")
}

// full fills the databases with eight days of samples: something in every step of every series, of
// more labels than a chart tells apart, and as many markers as are searched for.
func (s *site) full() *site {
	s.seed("c-1", "campaign.created")
	now := s.clock.Truncate(samples.CoarseStep).UnixMicro()
	exec := func(statement string, args ...any) {
		s.kit.Exec(`with recursive
  n(i) as (select cast(0 as bigint) union all select i + 1 from n where i < 11519),
  l(x) as (select cast(1 as bigint) union all select x + 1 from l where x < 60)
`+statement, args...)
	}
	const seen = `(i < 90 or i % 6 = 0)` // charts over more than an hour have steps of 6 minutes and more
	const minute, quarter = int64(time.Minute / time.Microsecond), int64(samples.CoarseStep / time.Microsecond)
	exec(`insert into samples (minute, pending, processing, failed, dead, lag_events, blocked, oldest_enqueued_at, applied_total, failed_total)
select cast($1 as bigint) - i * cast($2 as bigint), 4000 + i * 7919 % 3571, 900 + i * 31 % 97, 2000 + i * 17 % 997, 3000 + i * 7 % 1009, 5000, 7, cast($1 as bigint) - i * cast($2 as bigint) - i * 7919 % 3571 * 1000000,
  90000000 - i * 7000 - i * 104729 % 6997, 9000000 - i * 700 - i * 104729 % 691 from n`, now, minute)
	for _, x := range []struct{ step, length, steps int64 }{{60, minute, 1559}, {900, quarter, 767}} {
		for kind, labels := range map[samples.SeriesKind]int{samples.SeriesFailure: 9, samples.SeriesFollowed: 9, samples.SeriesFailedIn: 9, samples.SeriesBacklog: 9, samples.SeriesBehind: 20} {
			exec(`insert into series_samples (kind, step, at, label, source, value)
select cast($1 as text), cast($2 as bigint), cast($3 as bigint) - i * cast($4 as bigint), case when cast($1 as text) = 'projection' and x = 9 then 'campaigns' else cast($1 as text) || '-of-many-' || x end, '', 90000 / x + i * (7919 + x * 104729) % 997 * 13 from n, l where i <= $5 and x <= $6 and `+seen, string(kind), x.step, now, x.length, x.steps, labels)
		}
		exec(`insert into series_samples (kind, step, at, label, source, value)
select 'applied', cast($1 as bigint), cast($2 as bigint) - i * cast($3 as bigint), '', 'outboxweb-7d9f8b6c5d-x' || x || '-1-0badcafe', 70000 / x + i * (7919 + x * 104729) % 997 * 13 from n, l where i <= $4 and x <= 9 and `+seen, x.step, now, x.length, x.steps)
		exec(`insert into series_samples (kind, step, at, label, source, value)
select 'delays', cast($1 as bigint), cast($2 as bigint) - i * cast($3 as bigint), cast(x as text), 'w', 1 + i * (7919 + x * 104729) % 997 from n, l where i <= $4 and x < 40 and `+seen, x.step, now, x.length, x.steps)
	}
	exec(`insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at)
select 'scenes', 'archive-' || x, 'log:', '{"event_types":["*"]}', 10, 0, 1, 1 from l where x <= 9`)
	exec(`insert into publisher_samples (topic, publisher, minute, delivered, lag_events, oldest_recorded_at, error_count)
select 'scenes', 'archive-' || x, cast($1 as bigint) - i * cast($2 as bigint), 90000000 - i * 700 - i * 104729 % 691, 90000 / x + i * (7919 + x * 104729) % 997 * 13, cast($1 as bigint) - i * cast($2 as bigint), 0 from n, l where x <= 9 and `+seen, now, minute)
	exec(`insert into instances (id, host, pid, version, mode, started_at, last_seen)
select 'outboxweb-7d9f8b6c5d-x' || x || '-1-0badcafe', 'outboxweb-7d9f8b6c5d-x' || x, 1, 'v' || x, 'outbox', cast($1 as bigint) - cast($2 as bigint) * cast($3 as bigint) - x * 1000000, $1 from l where x <= 9`, now, minute, 11519)
	return s
}

// What the audit log does not have is listed before actions, however many followed.
func TestCharts_listChangedProjectionsBeforeActions(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	s.beat("w-1", "v1")
	must.OK(t, s.kit.Sample(t.Context())) // with which the charts begin
	for _, version := range []string{"1111", "2222"} {
		s.clock = s.clock.Add(time.Minute)
		must.OK(t, s.store.Loaded(t.Context(), campaign.InstanceState{ID: "w-1", Host: "h"}, []campaign.Definition{{Projection: "campaigns", Version: version}}))
	}
	s.clock = s.clock.Add(time.Minute) // w-1 is silent
	for range 10 {
		s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`).want(t, 200)
		s.post("/api/v1/campaigns/c-1/resume", `{"reason":"x"}`).want(t, 200)
	}
	a := s.get("/charts").want(t, 200, "projection campaigns changed to 2222 on h", "instance w-1 was last seen at work",
		"12 of 22 markers: changed projections first, then deploys, crashes and actions, the latest of each.", "Pauses, resumes, operations and runs are in the <a ")
	a.times(t, 12, `class="glyph"`)
}

func TestCharts_pagesOfAFullStoreAreSmall(t *testing.T) {
	s := ownSite(t).full()
	for range 7 {
		s.post("/api/v1/campaigns/c-1/pause", `{"reason":"x"}`).want(t, 200)
		s.post("/api/v1/campaigns/c-1/resume", `{"reason":"x"}`).want(t, 200)
	}
	ranges := []string{"range=7d", "from=2026-11-20T05:00:00Z&to=2026-11-21T07:07:00Z", "range=1h", "from=2026-11-20T00:30:00Z"}
	for _, over := range ranges[:size.Of(2, 4, 4)] {
		for _, page := range []string{"/charts?", "/charts?table=true&", "/?", "/instances?", "/publishers?", "/publishers/scenes/archive-1?", "/projections/campaigns?"} {
			a := s.get(page+over).want(t, 200)
			n := len(a.body)
			must.Hold(t, n <= largestPage, "%s has %d bytes", page+over, n)
		}
	}
	a := s.get("/charts?range=7d").want(t, 200, `href="/instances?range=7d`, `href="/publishers/scenes/archive-1?range=7d"`, `href="/projections/projection-of-many-1?range=7d"`, `href="/campaigns/behind-of-many-1?range=7d"`)
	a.times(t, 10, ` class="plot"`)
	s.get("/charts?range=6h").want(t, 200, "Applied, per minute, averaged over 6 min; lighter, the peak minute: now", "Failures by error, failed attempts per minute, averaged over 6 min, peak",
		"Applied by projection, events without replays per minute, averaged over 6 min, peak", "Failures by projection, failed attempts per minute, averaged over 6 min, peak",
		"Applied by instance, events per minute, averaged over 6 min, peak")
	s.get("/charts").want(t, 200, "Failures by error, failed attempts per minute, peak")
	s.get("/instances?range=6h").want(t, 200, "Applied by instance", `href="/?range=6h"`, `href="/campaigns?range=6h"`)
	s.get("/publishers?range=6h").want(t, 200, "Publisher lag", `href="/publishers/scenes/archive-9?range=6h"`)
	s.get("/campaigns?range=6h").want(t, 200, `href="/campaigns/c-1?range=6h"`)
	s.get("/projections/campaigns").want(t, 200, "Applied by projection")
}

// diverged makes the projections of c-1 those of a journal with two more events than this one, and appends one.
func (s *site) diverged() *site {
	for _, id := range []string{"c-1", "c-2", "c-3"} {
		s.seed(id, "noted", "noted", "noted")
	}
	s.work()
	s.kit.ExecProjections(`update projection_watermarks set applied_seq = 5, applied_hash = 'other' where campaign_id = 'c-1'`)
	must.Get(s.srv.maintenance.Reconcile(s.t.Context())).Or(s.t)
	s.seed("c-1", "noted")
	return s
}

func TestDiverged_isShownWithNumbersOfNowAndAsksForTheRightJournal(t *testing.T) {
	s := ownSite(t).diverged()
	s.get("/campaigns/c-1").want(t, 200, "Journal", "4 events", "Projections", "up to event 5 of another journal", "Waiting", "1 event &#32;not in any projection",
		"an event 5 that the journal does not have, and 1 event waits", "The watermark is at 5 of another journal").lacks(t, "5 of 4", "0 events", "ends at 3")
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"high_water_seq":4`, `"applied_seq":3`, `"projections_seq":5`, `"lag_events":1`, `"pending":1`, "an event 5 that the journal does not have")
	s.get("/api/v1/campaigns?state=diverged").want(t, 200, `"high_water_seq":4`, `"applied_seq":3`, `"lag_events":1`, "an event 5 that the journal does not have").lacks(t, "projections_seq")
	s.get("/api/v1/campaigns/c-2").want(t, 200, `"applied_seq":3`, `"state":"current"`).lacks(t, "projections_seq")
	s.get("/api/v1/summary").want(t, 200, `"other_journal":true`, `"lag":{"events":1,`)
	s.get("/readyz").want(t, 200)

	// A rebuild from the wrong journal destroys correct read models.
	for _, at := range []string{"/", "/campaigns", "/campaigns/c-1", "/runs/new?kind=rebuild&campaigns=c-1", "/runs/new?kind=rebuild&all_campaigns=true", "/api/v1/campaigns/c-1", "/api/v1/campaigns"} {
		body := s.get(at).body
		body = body[max(0, strings.Index(body, "<main")):]
		right, rebuild := strings.Index(body, "restore the right"), strings.Index(body, "only if")
		must.Hold(t, right >= 0 && rebuild >= right && strings.Contains(body, " URL"), "%s says at %d to restore the right journal and at %d to rebuild", at, right, rebuild)
	}
	s.get("/campaigns/c-1").want(t, 200, `data-testid="right-journal-first"`)
	s.get("/campaigns/c-2").want(t, 200).lacks(t, `data-testid="right-journal-first"`)
	s.get("/runs/new?kind=rebuild&campaigns=c-2").want(t, 200).lacks(t, "the journal is the right one")
}

// beat writes the heartbeat of an instance with an interval of two seconds.
func (s *site) beat(id, version string) {
	must.OK(s.t, s.store.Heartbeat(context.Background(), campaign.InstanceState{ID: id, Host: "host-" + id, PID: 77, Version: version, Mode: campaign.ModeOutbox,
		StartedAt: s.clock, BeatEvery: 2 * time.Second, Applied: 44200, Failed: 3, Fenced: 1, Rates: campaign.Throughput{AppliedPerSecond: 1234}}))
}

func TestInstances_tellWhoHoldsWhat(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", "b", "c").seed("c/2", "a")
	none := newSite(t).seed("c-1", "a")
	none.get("/instances").want(t, 200, "No worker has started yet.").lacks(t, "<table")
	none.get("/campaigns/c-1").want(t, 200).lacks(t, "Lease", "/instances#")
	s.beat("dead", "v1")
	s.kit.MustClaim(outbox.Worker{ID: "dead"}, 1000) // for half a minute
	s.clock = s.clock.Add(12 * time.Second)
	s.beat("old", "v1")
	s.clock = s.clock.Add(time.Millisecond)
	s.beat("new", "v2")
	why := `silent for 12 s; its 2 campaigns become claimable in 17 s (07:00:30 UTC)`
	got := s.get("/api/v1/instances").want(t, 200, `"next_cursor":null`,
		`{"items":[{"id":"dead","host":"host-dead","pid":77,"version":"v1","mode":"outbox_apply_only","campaigns":["*"],"stopped_at":null,"applied_total":44200`,
		`"started_at":"2026-11-21T07:00:00Z","last_seen":"2026-11-21T07:00:00Z","heartbeat_seconds":2,"clock_ahead_seconds":0,"state":"silent","why":"`+why+`"`,
		`"leases":{"campaigns":2,"withheld":0,"rows":4,"claimable_from":"2026-11-21T07:00:30Z","claimable_by":"2026-11-21T07:00:30Z","held":[`+
			`{"campaign_id":"c-1","epoch":1,"head_seq":1,"rows":3,"expires_at":"2026-11-21T07:00:30Z","withheld":false},{"campaign_id":"c/2"`,
		`"state":"running","why":"running; nothing leased","leases":{"campaigns":0,"withheld":0,"rows":0,"claimable_from":null,"claimable_by":null,"held":[],"publishers":[]}`)
	must.Hold(t, regexp.MustCompile(`"id":"dead".*"id":"new".*"id":"old"`).MatchString(got.body), "who left campaigns behind does not come first: %s", got.body)
	s.get("/api/v1/summary").want(t, 200, `"heartbeat_seconds":2`).lacks(t, `"leases"`, `"why"`)

	a := s.get("/instances").want(t, 200, "Instance dead has been silent for 12 s.", "2 instances are running, 1 silent.",
		"Versions differ, as during a rolling restart: v1 (1), v2 (1).", `id="instance-dead"`, `data-testid="instance-dead"`, "!</span> silent", "✓</span> running",
		"process 77 on host-dead", "version v1, applied by workers", "Silent for 12 s; its 2 campaigns become claimable",
		`<details open><summary>Silent`, `href="/campaigns/c-1"><code>c-1</code>`, "events 1–3, epoch 1", `href="/campaigns/c%2F2"`, "event 1, epoch 1",
		"Running; nothing leased.", "44,200", "1,234/s", `title="Heartbeat every 2 s"`)
	must.Hold(t, strings.Index(a.body, `id="instance-dead"`) <= strings.Index(a.body, `id="instance-new"`), "who left campaigns behind does not come first")
}

func TestInstances_ownersOfLeasesLeadToTheirInstance(t *testing.T) {
	t.Parallel()
	anchor := regexp.MustCompile(`href="/instances#([^"]*)"`)
	for _, id := range append([]string{"host-1a2b"}, oddIDs[:size.Of(2, 4, len(oddIDs))]...) {
		s := newSite(t).seed("c-1", "a")
		s.kit.MustClaim(outbox.Worker{ID: id}, 1000)
		found := anchor.FindStringSubmatch(s.get("/campaigns/c-1").want(t, 200).body)
		must.Need(t, found != nil, "the owner %q is no link", id)
		fragment, err := url.PathUnescape(html.UnescapeString(found[1]))
		must.Hold(t, err == nil && fragment == "instance-"+id, "the owner %q leads to %q, %v", id, found[1], err)
		s.get("/instances").want(t, 200, `id="`+html.EscapeString(fragment)+`"`, "Unknown: it left no record; its campaign becomes claimable", "1 instance is silent.")
		s.get("/api/v1/instances").want(t, 200, `"started_at":null,"last_seen":null,"heartbeat_seconds":0,"clock_ahead_seconds":0,"state":"silent"`)
	}
}
