package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operations"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/runs"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// stepAll steps running operations until they wait for a worker.
func (s *site) stepAll() {
	for must.Get(s.operations.Step(s.kit.Ctx)).Or(s.t) {
	}
}

// blocked makes n campaigns blocked by a poison.pill at event 2 of 4.
func (s *site) blocked(n int) *site {
	for i := range n {
		s.seed(fmt.Sprintf("c-%d", i+1), "a", poison, "b", "c")
	}
	s.work()
	return s
}

// fieldsOf reads the hidden fields of the form on a page, as a browser sends them.
func fieldsOf(a answer) url.Values {
	values := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		values.Add(m[1], html.UnescapeString(m[2]))
	}
	return values
}

func TestOperationPages_ofNamedRows(t *testing.T) {
	s := ownSite(t).seed("a/b", poison, "b").seed("c-2", poison).work()
	target := string(ui.NewLinks("").NewOperation(operations.Selection{Rows: []event.RowKey{{CampaignID: "a/b", Seq: 1}, {CampaignID: "c-2", Seq: 9}}}))
	page := s.get(target).want(t, 200, "2 rows, selected one by one", "1 dead row of 1 campaign becomes pending", "1 named row is left out")
	form := fieldsOf(page)
	rows := form["rows"]
	must.Hold(t, len(rows) == 2 && rows[0] == "a/b/1", "the form sends rows %q", rows)
	s.submit("/operations", form.Encode()).want(t, http.StatusSeeOther)
	s.get("/operations/1").want(t, 200, "selected rows", "behind; 1 not dead, or in another operation")
	s.get("/operations/new?rows=c-2").want(t, 422, "CAMPAIGN/SEQ")
	s.get("/operations/new?rows=/2").want(t, 422, "CAMPAIGN/SEQ")
}

// Without JavaScript the button can be pressed with nothing ticked, which must not mean every dead row.
func TestRowsPage_offersDeadRowsAltogetherOrTicked(t *testing.T) {
	s, calm, readOnly := ownSite(t).blocked(2).seed("a/b %?", poison).work(), newSite(t), newSite(t, func(c *Config) { c.ReadOnly = true }).trouble()
	for _, page := range []string{"/rows", "/rows?status=dead", "/operations"} {
		calm.get(page).want(t, 200).lacks(t, "Requeue all dead")
		s.get(page).want(t, 200, "Requeue all dead")
	}
	s.get("/rows?status=dead&event_type=unknown").want(t, 200, "No rows match.").lacks(t, "Requeue all dead")
	s.get("/rows").want(t, 200, `method="get" action="/operations/new"`, `type="checkbox" name="rows" value="c-1/2"`, `name="rows" value="a/b %?/1"`, "data-all").lacks(t, `value="c-1/3"`)
	s.get("/rows?status=pending").want(t, 200, "row-c-1-3").lacks(t, "/operations/new", "checkbox")
	readOnly.get("/rows").want(t, 200, "row-c-1-2").lacks(t, "/operations/new", "checkbox")
	s.get("/campaigns/c-1/events/2").want(t, 200).lacks(t, "dry-run-open") // nothing can be tried here
	s.get("/rows/c-1/2/dry-run").want(t, 404)
	form := regexp.MustCompile(`(?s)<form class="choosing".*?</form>`).FindString(s.get("/rows?status=dead").want(t, 200).body)
	ticked := "/operations/new?" + fieldsOf(answer{body: form}).Encode()
	s.get(ticked).want(t, 422, "No row is selected")
	s.get(ticked+"&rows=c-1%2F2").want(t, 200, "Requeue 1 row")
}

func TestOperationPages_takeTheFirstOfVeryMany(t *testing.T) {
	s := ownSite(t).blocked(2)
	s.get("/operations/new?limit=1").want(t, 200, "1 dead row of 1 campaign becomes", "Only the first 1 match is included").lacks(t, `href="/campaigns/c-2"`)
	s.get("/operations/new?limit=3").want(t, 200).lacks(t, "Only the first")
	s.kit.Exec(`insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, enqueued_at, updated_at)
with recursive n (i) as (select 100 union all select i + 1 from n where i < 100 + $1)
select 'c-1', i, 'a', 'dead', 1, i, i, i from n`, event.MaxOperation)
	s.post("/api/v1/operations/preview", `{"filter":{}}`).want(t, 422, "more than 20000 dead rows match")
	s.get("/operations/new").want(t, 200, "20,000 dead rows", "Only the first 20,000 matches are included", `name="limit" value="20000"`)
}

func TestOperationPages_sayWhatItDoesAndWhatCameOfIt(t *testing.T) {
	s := ownSite(t).blocked(2)
	s.get("/rows?status=dead").want(t, 200, `href="/operations/new" data-testid="requeue-all"`)
	page := s.get("/operations/new?event_type="+poison).want(t, 200, "2 dead rows of 2 campaigns become pending again", "2 of them are heads of their campaigns",
		"4 rows behind are released", `href="/campaigns/c-1"`, "unknown: too little was applied lately", `name="canary" value="true" checked`,
		"outboxweb requeue --dead --event-type="+poison+" --canary").lacks(t, `name="confirm"`)
	form := fieldsOf(page)
	must.Need(t, form.Get("expected_rows") == "2" && form.Get("expected_released") == "4" && len(form.Get("idempotency_key")) >= 20, "the form sends %v", form)
	other := fieldsOf(s.get("/operations/new")).Get("idempotency_key")
	must.Hold(t, other != form.Get("idempotency_key"), "two pages have the same key")
	form.Set("canary", "true")
	s.submit("/operations", form.Encode()).want(t, http.StatusSeeOther)
	s.get("/operations/new").want(t, 200, "Nothing to requeue")
	s.get("/operations/1").want(t, 200, "Operation 1: requeue of 2 rows", "running", "No worker is running", "canary")
	s.stepAll()
	s.pass()
	s.stepAll()
	s.get("/operations/1?status=failed_again").want(t, 200, "stopped", "✕ failed again 1", `data-testid="result-c-1-2"`, "requeued in canary").lacks(t, `data-testid="result-c-2-2"`)
	s.get("/api/v1/operations/1/rows?status=failed_again").want(t, 200, `"campaign_id":"c-1"`).lacks(t, `"campaign_id":"c-2"`)
	s.get("/operations").want(t, 200, `id="operation-1"`, "not acknowledged")
}

// rehearsalQueued is a rehearsal that was just started.
var rehearsalQueued = replay.Run{ID: 7, Kind: replay.RunRehearse, Status: replay.RunQueued, CampaignIDs: []string{"c-1"}, Projections: []string{"campaigns"},
	Versions: map[string]string{}, Digests: map[string]string{}, Before: map[string]string{}, With: map[string]string{}}

// rehearsing is a site that records what it is asked to rehearse.
func rehearsing(t *testing.T) (*guarded, *[]replay.RehearsalRequest) {
	asked := new([]replay.RehearsalRequest)
	return newGuarded(t, func(c *Config) {
		c.Rehearse = func(_ context.Context, _ operator.Command, o replay.RehearsalRequest) (replay.Run, error) {
			*asked = append(*asked, o)
			return rehearsalQueued, nil
		}
	}), asked
}

func upload(t *testing.T, file string, fields map[string]string) (body string, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range fields {
		must.OK(t, w.WriteField(name, value))
	}
	part, err := w.CreateFormFile("files", "accounts.sql")
	if err == nil {
		_, err = part.Write([]byte(file))
	}
	must.OK(t, errors.Join(err, w.Close()))
	return b.String(), w.FormDataContentType()
}

func TestRehearse_takesUploadsEditedTextsAndFiles(t *testing.T) {
	g, asked := rehearsing(t)
	admin := people[operator.RoleAdmin]
	g.get("/rehearsals/new?projection=campaigns", admin).want(t, 200, "-- projection: campaigns", `enctype="multipart/form-data"`)
	g.get("/rehearsals/new?projection=campaigns&version=abc", admin).want(t, 404, `The text of version abc of projection &#34;campaigns&#34; is not kept`)
	g.get("/rehearsals/new?projection=campaigns&rehearsal=9", admin).want(t, 404)
	g.get("/rehearsals/new?projection=campaigns&version=abc", people[operator.RoleOperator]).want(t, 200)
	g.get("/rehearsals/new?projection=campaigns", people[operator.RoleOperator]).want(t, 200, `data-testid="withheld"`).lacks(t, "-- projection: campaigns")
	body, kind := upload(t, "-- uploaded\n", map[string]string{"projection": "campaigns", "text": "-- projection: campaigns\r\n-- edited\r\n", "behind": "30"})
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusSeeOther)
	must.Equal(t, fmt.Sprint(*asked), "[{[{accounts.sql -- uploaded\n} {campaigns.sql -- projection: campaigns\n-- edited\n}]  [] false 30}]", "asked for")
	body, kind = upload(t, "-- uploaded\n", nil)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), people[operator.RoleOperator]).want(t, http.StatusForbidden)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", "https://evil.example"), admin).want(t, http.StatusForbidden)
	g.do(http.MethodPost, "/campaigns/c-1/pause", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusUnsupportedMediaType)
	body, kind = upload(t, strings.Repeat("-", maxRehearsalBody), nil)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusRequestEntityTooLarge)

	g.post("/api/v1/rehearsals", `{"files":[{"name":"a.sql","text":"-- a"}],"campaign_ids":["c-1"]}`, admin).want(t, http.StatusAccepted, `"kind":"rehearse"`)
	g.post("/api/v1/rehearsals", `{"files":[{"name":"a.sql"}]}`, admin).want(t, http.StatusUnprocessableEntity)
	g.post("/api/v1/runs", `{"kind":"rehearse","all_campaigns":true}`, admin).want(t, http.StatusUnprocessableEntity, "use replay")
	g.get("/api/v1/rehearsals/99", admin).want(t, http.StatusNotFound)
	g.post("/api/v1/operations", `{"filter":{},"rehearsal":99}`, admin).want(t, http.StatusNotFound)
	must.Equal(t, len(*asked), 2, "rehearsals were started")
}

// The form opens the file that failed, also if its name has digits, which a fingerprint hides, or if
// the error begins with what happened to the attempt.
func TestAtFault_findsTheProjectionOfAnError(t *testing.T) {
	t.Parallel()
	loaded := []campaign.ProjectionInfo{{Name: "orders"}, {Name: "rooms-2"}}
	for message, want := range map[string]string{
		"": "orders",
		"projection rooms-2 (rooms.sql:3) on room.sold: boom":                                              "rooms-2",
		event.CutOff + "10s and was cut off: projection rooms-2 (rooms.sql:3) on room.sold: context ended": "rooms-2",
		"projection gone (gone.sql:3) on room.sold: boom":                                                  "orders",
	} {
		must.Equal(t, atFault(event.Fingerprint(message), loaded), want, message)
	}
}

func TestNewOperationPage_saysWhatARehearsalTried(t *testing.T) {
	s := ownSite(t).blocked(3)
	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	s.reportRun(s.claimRun(), runs.Progress{Results: []replay.RunResult{
		{CampaignID: "c-1", Outcome: replay.OutcomeReplayed, Rehearsed: &replay.Rehearsed{Head: 2}},
		{CampaignID: "c-2", Outcome: replay.OutcomeFailed, Rehearsed: &replay.Rehearsed{Head: 2}}}})
	s.get("/operations/new?event_type="+poison+"&rehearsal=1").want(t, 200, `data-testid="rests-on"`, "tried 1 of these 2 rows with the loaded files: it would pass. It did not try the other 1: rehearse again.", "1 more row that failed in it, or an event behind, is left out.", `name="rehearsal" value="1"`)
	s.get("/operations/new?rehearsal=1").want(t, 200, "1 row that would pass in rehearsal 1", "tried this row with the loaded files: it would pass.", `name="rows" value="c-1/2"`).lacks(t, `value="c-2/2"`)
	s.get("/operations/new?rehearsal=9").want(t, 404, "found no blocked campaign that would pass")
	s.post("/api/v1/operations/preview", `{"filter":{},"rehearsal":1}`).want(t, 200, `"rows":2`, `"rehearsed":1`, `"rehearsed_failing":1`)
	s.get("/operations/new?campaign=c-2&rehearsal=1").want(t, 200, "every dead row that matches failed in it")
}

func TestPages_leadFromARehearsalToTheReplayOfWhatIsQuarantined(t *testing.T) {
	s := withRoster(t)
	s.beat("w", "test")
	s.quarantine()
	s.ran(`{"kind":"verify","all_campaigns":true}`, replay.RunCompleted, "", replay.RunResult{CampaignID: "c-1", Outcome: replay.OutcomeReplayed, Rehearsed: &replay.Rehearsed{Head: 2, Quarantined: "campaigns"}})
	for _, change := range []string{`update runs set kind = 'rehearse'`, `
insert into run_rehearsals (run_id, fingerprint, behind, blocked, more, versions, other_schema, files)
values (1, '', 100, '{"c-1":{"seq":2,"projection":"campaigns"}}', 0, '{"campaigns":"v1"}', '[]', '[]')`} {
		s.kit.Exec(change)
	}
	const says, replay = "1 quarantined campaign passed rehearsal 1 with the loaded files: replay the projection; a requeue does not reach it.", `href="/runs/new?all_campaigns=true&amp;kind=replay&amp;projections=campaigns"`
	s.get("/projections/campaigns").want(t, 200, says, `data-testid="quarantine-passed"`, replay)
	s.fresh("/").want(t, 200, says)
	s.get("/").want(t, 200, replay, "Replay what is quarantined…")
	s.get("/runs/1").want(t, 200, replay, "A replay gives quarantined projections the events that they missed; a requeue does not reach them.")
}

// skipC1 is the body that skips the poison of a site in trouble.
const skipC1 = `{"reason":"it names nobody","confirm":"skip c-1 2","expected":{"status":"dead","attempt_count":2}}`

func TestSkip_isToldWhereverStateIsShown(t *testing.T) {
	s := ownSite(t).seed("c-1", "a", poison).work()
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skip this event…", "never applied to any projection", "<code>skip c-1 2</code>", "--confirm=&#39;skip c-1 2&#39;")
	s.post("/api/v1/rows/c-1/2/skip", skipC1).want(t, 200)
	s.get("/campaigns/c-1/events/2").want(t, 200, "s-skipped", "the next free worker skips it")
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"skipped":{"id":1`, `"reason":"it names nobody"`, `"applied_at":null`)
	s.get("/api/v1/campaigns/c-1/events/1").want(t, 200).lacks(t, "skipped")
	s.pass()
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skipped: no projection applied it; all other events up to 2 are applied.", "By local", "it names nobody", "can still be undone")
	s.get("/campaigns/c-1").want(t, 200, `id="skipped"`, `data-testid="skip-2"`, "skipped; nothing later is applied yet")
	s.get("/campaigns").want(t, 200, `href="/campaigns/c-1#skipped"`)
	s.get("/").want(t, 200, `data-testid="count-skips">1<`)
	s.get("/export/campaigns").want(t, 200, ",blocked_behind,gap,skips,lease_owner,", ",0,0,1,")
	s.get("/api/v1/campaigns/c-1/skips").want(t, 200, `"applied_at":"`).lacks(t, `"error":""`).times(t, 1, `"applied_at":`)
	s.seed("c-1", "a").work()
	s.get("/campaigns/c-1").want(t, 200, "skipped, and later events are applied").lacks(t, `data-testid="unskip"`)
}
