package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/runs"
)

// claimRun claims the queued run, as a worker does.
func (s *site) claimRun() runs.Lease {
	s.t.Helper()
	l, ok, err := s.runs.Claim(context.Background(), testWorker, map[string]string{"campaigns": "v1"}, time.Minute)
	if err != nil || !ok {
		s.t.Fatalf("claim a run: %v, %v", ok, err)
	}
	return l
}

func (s *site) finishRun(l runs.Lease, status outbox.RunStatus, why string) {
	s.t.Helper()
	must.Get(s.runs.Finish(context.Background(), l, status, why)).Or(s.t)
}

// drifted is a result in which one row differs.
func drifted(campaign string) outbox.RunResult {
	return outbox.RunResult{CampaignID: campaign, Outcome: outbox.OutcomeDrift, Seq: 2, Events: 2, Full: "sha256:full", Projections: []outbox.ProjectionResult{
		{Projection: "campaigns", Verdict: outbox.VerdictDrift, Digest: "sha256:fold", Before: "sha256:live", Seq: 2, Comparison: &outbox.Comparison{Changed: 1, FirstSeq: 2, ReplayedWith: outbox.ReplayedWith{RowsBuilt: outbox.RowsBuilt{BuiltVersions: []outbox.LoadedVersion{}}},
			Samples: []outbox.RowChange{{Table: "campaigns", Kind: outbox.RowChanged, Key: []outbox.Field{{Name: "id", Value: []byte(`"x"`)}},
				Fields: []outbox.FieldChange{{Name: "name", Live: []byte(`"Ash"`), Expected: []byte(`{"a":[1]}`)}, {Name: "seats", Live: nil, Expected: []byte("3")}}}}}}}}
}

func TestRunAPI_fromStartToItsResults(t *testing.T) {
	s := ownSite(t)
	s.seed("c/1", "a", "b")
	s.seed("c-2", "a")
	s.work()
	a := s.post("/api/v1/runs", `{"kind":"verify","all_campaigns":true,"projections":["campaigns"],"rate":500,"reason":"looks odd"}`).
		want(t, 202, `"status":"queued"`, `"campaign_ids":[]`, `"all_campaigns":true`, `"versions":{"campaigns":"v1"}`, `"rate":500`, `"lease":null`, `"seconds_left":null`)
	run := decodeAs[outbox.Run](t, a)
	target := fmt.Sprintf("/api/v1/runs/%d", run.ID)
	if to := a.Header.Get("Location"); to != target {
		t.Errorf("it is followed at %q, want %q", to, target)
	}
	s.post("/api/v1/runs", `{"kind":"rebuild","campaign_id":"c-2"}`).want(t, 409, fmt.Sprintf("blocked by run %d: a verify of projection campaigns in all campaigns", run.ID))
	l := s.claimRun()
	failed := outbox.RunResult{CampaignID: "c-2", Outcome: outbox.OutcomeFailed, Error: "boom <b>", Events: 1}
	must.Get(s.runs.Report(context.Background(), l, runs.Progress{Results: []outbox.RunResult{drifted("c/1"), failed}, EventsDone: 2, EventsPerSecond: 4, Lease: time.Minute,
		Lines: []outbox.RunLine{{CampaignID: "c/1", Text: "first"}, {Text: "second"}}})).Or(t)
	s.get(target).want(t, 200, `"status":"running"`, `"events":{"done":2,"total":3}`, `"campaigns":{"done":2,"total":2}`, `"seconds_left":0.25`, `"owner":"test-1"`)
	s.get(target+"/results").want(t, 200, `"campaign_id":"c/1"`, `"changed":1`, `"samples":null`, `"campaign_id":"c-2"`)
	s.get(target+"/results?outcome=failed").want(t, 200, `"campaign_id":"c-2"`).lacks(t, "c/1")
	s.get(target+"/results/c%2F1").want(t, 200, `"fields":[{"name":"name","live":"Ash","expected":{"a":[1]}},{"name":"seats","live":null,"expected":3}]`)
	s.get(target+"/log?limit=1").want(t, 200, `"text":"second"`).lacks(t, "first")
	s.get("/api/v1/campaigns/c%2F1/verifications").want(t, 200, `"verdict":"drift"`, `"changed":1`, fmt.Sprintf(`"run_id":%d`, run.ID))
	s.post(target+"/cancel", `{"reason":"enough"}`).want(t, 200, `"status":"cancelling"`, `"cancelled_by":"local"`)
	s.finishRun(l, outbox.RunFailed, "it broke")
	s.get("/api/v1/runs?status=failed&kind=verify&campaign=c-2").want(t, 200, `"error":"it broke"`, `"verdict":"drift"`)
	s.get("/api/v1/runs?kind=rebuild").want(t, 200, `"items":[]`)
	s.post(target+"/cancel", `{}`).want(t, 409, "is already failed")
	s.post(target+"/resume", `{"reason":"mended"}`).want(t, 200, `"status":"queued"`, `"failed":0`)
	s.get("/api/v1/audit?action=run_start").want(t, 200, `"reason":"looks odd"`)
	s.get("/api/v1/audit?action=run_cancel").want(t, 200, `"reason":"enough"`)
	s.get("/api/v1/audit?action=run_resume").want(t, 200, `"reason":"mended"`)
}

func TestRunAPI_ofOneCampaignHasItsDigests(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b")
	key := header("Idempotency-Key", "k-1")
	first := s.post("/api/v1/runs", `{"kind":"rebuild","campaign_ids":["c-1"]}`, key).want(t, 202, `"campaign_id":"c-1"`)
	if again := s.post("/api/v1/runs", `{"kind":"rebuild","campaign_id":"c-1"}`, key).want(t, 202); again.body != first.body {
		t.Errorf("a repeated order is answered %s, want %s", again.body, first.body)
	}
	l := s.claimRun()
	must.Get(s.runs.Report(context.Background(), l, runs.Progress{Results: []outbox.RunResult{drifted("c-1")}, Lease: time.Minute})).Or(t)
	s.finishRun(l, outbox.RunCompleted, "")
	s.get(fmt.Sprintf("/api/v1/runs/%d", l.Run.ID)).want(t, 200, `"digests":{"campaigns":"sha256:fold","full":"sha256:full"}`, fmt.Sprintf(`"digests_before":{"campaigns":"sha256:live","full":%q}`, outbox.FullDigestOf([]string{"sha256:live"})), `"seq":2`, `"verdict":"drift"`)
	s.get("/api/v1/campaigns/c-1/verifications").want(t, 200, `"verdict":"match"`)
}

func TestRunAPI_saysWhatIsWrong(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.refuses([]refusedAsk{
		{"POST", "/runs", ``, 422, "kind is required"},
		{"POST", "/runs", `{"kind":"verify","campaign_id":"c-1","campaign_ids":["c-1"]}`, 422, "not both"},
		{"POST", "/runs", `{"kind":"verify","campaign_id":"c-1","all_campaigns":true}`, 422, "name campaigns or choose all, not both"},
		{"POST", "/runs", `{"kind":"verify","campaign_ids":[""]}`, 422, "is required"},
		{"POST", "/runs", `{"kind":"verify","campaign_id":"c-1","until_seq":2}`, 422, "has 1 event"},
		{"POST", "/runs", `{"kind":"verify","campaign_id":"c-1","rate":-1}`, 422, "must be 0 or more"},
		{"POST", "/runs", `{"kind":"verify","campaign_id":"c-1","projections":["roster"]}`, 422, "use one of: campaigns"},
		{"POST", "/runs", `{"kind":"verify","campaign":"c-1"}`, 422, "unknown field"},
		{"GET", "/runs/0", ``, 422, "whole number from 1"},
		{"GET", "/runs/7/results?outcome=good", ``, 422, "use match, drift, replayed, failed, not_compared"},
		{"GET", "/runs?status=ended", ``, 422, "use queued"},
		{"GET", "/runs?cursor=x", ``, 422, "not valid for this list"},
	})
}

func TestRunAPI_takesAsManyCampaignsAsARunNames(t *testing.T) {
	s := ownSite(t)
	var ids []string
	for i := range outbox.MaxRunCampaigns {
		ids = append(ids, `"`+strings.Repeat("x", 190)+fmt.Sprint(i)+`"`)
	}
	s.post("/api/v1/runs", `{"kind":"verify","campaign_ids":[`+strings.Join(ids, ",")+`]}`).want(t, 404, "there is no campaign")
}
