package handlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// rehearsalQueued is a rehearsal that was just started.
var rehearsalQueued = outbox.Run{ID: 7, Kind: outbox.RunRehearse, Status: outbox.RunQueued, CampaignIDs: []string{"c-1"}, Projections: []string{"campaigns"},
	Versions: map[string]string{}, Digests: map[string]string{}, Before: map[string]string{}}

// rehearsing is a site that records what it is asked to rehearse.
func rehearsing(t *testing.T) (*guarded, *[]outbox.RehearsalRequest) {
	asked := new([]outbox.RehearsalRequest)
	return newGuarded(t, func(c *Config) {
		c.Rehearse = func(_ context.Context, _ outbox.Command, o outbox.RehearsalRequest) (outbox.Run, error) {
			*asked = append(*asked, o)
			return rehearsalQueued, nil
		}
	}), asked
}

// upload makes a multipart form of fields and one file.
func upload(t *testing.T, file string, fields map[string]string) (body string, contentType string) {
	t.Helper()
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

func TestRehearse_takesUploadsAndEditedTexts(t *testing.T) {
	t.Parallel()
	g, asked := rehearsing(t)
	admin := people[outbox.RoleAdmin]
	g.get("/rehearsals/new?projection=campaigns", admin).want(t, 200, "-- projection: campaigns", `enctype="multipart/form-data"`)
	g.get("/rehearsals/new?projection=campaigns&version=abc", admin).want(t, 404, `The text of version abc of projection &#34;campaigns&#34; is not kept`)
	g.get("/rehearsals/new?projection=campaigns&rehearsal=9", admin).want(t, 404)
	g.get("/rehearsals/new?projection=campaigns&version=abc", people[outbox.RoleOperator]).want(t, 200)
	g.get("/rehearsals/new?projection=campaigns", people[outbox.RoleOperator]).want(t, 200, `data-testid="withheld"`).lacks(t, "-- projection: campaigns")
	body, kind := upload(t, "-- uploaded\n", map[string]string{"projection": "campaigns", "text": "-- projection: campaigns\r\n-- edited\r\n", "behind": "30"})
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusSeeOther)
	if got := fmt.Sprint(*asked); got != "[{[{accounts.sql -- uploaded\n} {campaigns.sql -- projection: campaigns\n-- edited\n}]  [] 30}]" {
		t.Errorf("asked for %q", got)
	}
	body, kind = upload(t, "-- uploaded\n", nil)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), people[outbox.RoleOperator]).want(t, http.StatusForbidden)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", "https://evil.example"), admin).want(t, http.StatusForbidden)
	g.do(http.MethodPost, "/campaigns/c-1/pause", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusUnsupportedMediaType)
	body, kind = upload(t, strings.Repeat("-", maxRehearsalBody), nil)
	g.do(http.MethodPost, "/rehearsals", body, header("Content-Type", kind), header("Origin", publicOrigin), admin).want(t, http.StatusRequestEntityTooLarge)
	if len(*asked) != 1 {
		t.Errorf("%d rehearsals were started", len(*asked))
	}
}

func TestRehearseAPI_takesFiles(t *testing.T) {
	t.Parallel()
	g, asked := rehearsing(t)
	json := header("Content-Type", "application/json")
	g.do(http.MethodPost, "/api/v1/rehearsals", `{"files":[{"name":"a.sql","text":"-- a"}],"campaign_ids":["c-1"]}`, json, people[outbox.RoleAdmin]).want(t, http.StatusAccepted, `"kind":"rehearse"`)
	g.do(http.MethodPost, "/api/v1/rehearsals", `{"files":[{"name":"a.sql"}]}`, json, people[outbox.RoleAdmin]).want(t, http.StatusUnprocessableEntity)
	g.do(http.MethodPost, "/api/v1/runs", `{"kind":"rehearse","all_campaigns":true}`, json, people[outbox.RoleAdmin]).want(t, http.StatusUnprocessableEntity, "use replay")
	g.get("/api/v1/rehearsals/99", people[outbox.RoleAdmin]).want(t, http.StatusNotFound)
	g.do(http.MethodPost, "/api/v1/operations", `{"filter":{},"rehearsal":99}`, json, people[outbox.RoleAdmin]).want(t, http.StatusNotFound)
	if len(*asked) != 1 {
		t.Errorf("%d rehearsals were started", len(*asked))
	}
}

// The form opens the file that failed, also if its name has digits, which a fingerprint hides, or if
// the error begins with what happened to the attempt.
func TestAtFault_findsTheProjectionOfAnError(t *testing.T) {
	t.Parallel()
	loaded := []outbox.ProjectionInfo{{Name: "orders"}, {Name: "rooms-2"}}
	for message, want := range map[string]string{
		"": "orders",
		"projection rooms-2 (rooms.sql:3) on room.sold: boom":                                               "rooms-2",
		outbox.CutOff + "10s and was cut off: projection rooms-2 (rooms.sql:3) on room.sold: context ended": "rooms-2",
		"projection gone (gone.sql:3) on room.sold: boom":                                                   "orders",
	} {
		if got := atFault(outbox.Fingerprint(message), loaded); got != want {
			t.Errorf("%q: %s, want %s", message, got, want)
		}
	}
}

// A requeue that rests on a rehearsal says how many of its rows that tried; without a selection it takes
// those rows.
func TestNewOperationPage_saysWhatARehearsalTried(t *testing.T) {
	s := ownSite(t).blocked(3)
	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	s.reportRun(s.claimRun(), runs.Progress{Results: []outbox.RunResult{
		{CampaignID: "c-1", Outcome: outbox.OutcomePasses, Rehearsed: &outbox.Rehearsed{Head: 2}},
		{CampaignID: "c-2", Outcome: outbox.OutcomeFailsSame, Rehearsed: &outbox.Rehearsed{Head: 2}}}})
	s.get("/operations/new?event_type="+poison+"&rehearsal=1").want(t, 200, `data-testid="rests-on"`, "tried 1 of these 2 rows with the loaded files: it would pass. It did not try the other 1: rehearse again.", "1 more row that failed in it, or an event behind, is left out.", `name="rehearsal" value="1"`)
	s.get("/operations/new?rehearsal=1").want(t, 200, "1 row that would pass in rehearsal 1", "tried this row with the loaded files: it would pass.", `name="rows" value="c-1/2"`).lacks(t, `value="c-2/2"`)
	s.get("/operations/new?rehearsal=9").want(t, 404, "found no blocked campaign that would pass")
	s.post("/api/v1/operations/preview", `{"filter":{},"rehearsal":1}`).want(t, 200, `"rows":2`, `"rehearsed":1`, `"rehearsed_failing":1`)
	s.get("/operations/new?campaign=c-2&rehearsal=1").want(t, 200, "every dead row that matches failed in it")
}

// What passed a rehearsal of the files that are loaded is replayed where the projection is quarantined.
func TestPages_leadFromARehearsalToTheReplayOfWhatIsQuarantined(t *testing.T) {
	t.Parallel()
	s := withRoster(t)
	s.beat("w", "test")
	s.quarantine()
	s.startRun(`{"kind":"verify","all_campaigns":true}`)
	l := s.claimRun()
	s.reportRun(l, runs.Progress{Results: []outbox.RunResult{{CampaignID: "c-1", Outcome: outbox.OutcomePasses, Rehearsed: &outbox.Rehearsed{Head: 2, Quarantined: "campaigns"}}}})
	s.finishRun(l, outbox.RunCompleted, "")
	for _, change := range []string{`update runs set kind = 'rehearse'`, `
insert into run_rehearsals (run_id, fingerprint, behind, blocked, more, versions, other_schema, files)
values (1, '', 100, '{"c-1":{"seq":2,"projection":"campaigns"}}', 0, '{"campaigns":"v1"}', '[]', '[]')`} {
		s.change(change)
	}
	const says, replay = "1 quarantined campaign passed rehearsal 1 with the loaded files: replay the projection; a requeue does not reach it.", `href="/runs/new?all=1&amp;kind=replay&amp;projection=campaigns"`
	s.get("/projections/campaigns").want(t, 200, says, `data-testid="quarantine-passed"`, replay)
	s.fresh("/").want(t, 200, "Projection campaigns: "+says)
	s.get("/").want(t, 200, replay, "Replay what is quarantined…")
	s.get("/runs/1").want(t, 200, replay, "A replay gives quarantined projections the events that they missed; a requeue does not reach them.")
}
