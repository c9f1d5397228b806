package handlers

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// stepAll steps running operations until they wait for a worker.
func (s *site) stepAll() {
	s.t.Helper()
	ctx := context.Background()
	for moved := true; moved; {
		moved = false
		ids, err := s.operations.Running(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, id := range ids {
			changed, err := s.operations.StepOne(ctx, id)
			if err != nil {
				s.t.Fatal(err)
			}
			moved = moved || changed
		}
	}
}

// blocked makes n campaigns blocked by a poison.pill at event 2 of 4.
func (s *site) blocked(n int) *site {
	s.t.Helper()
	for i := range n {
		s.seed(fmt.Sprintf("c-%d", i+1), "a", poison, "b", "c")
	}
	s.work()
	return s
}

func TestOperationAPI_fromPreviewToAcknowledged(t *testing.T) {
	s := ownSite(t).blocked(3)
	p := decodeAs[outbox.OperationPreview](t, s.post("/api/v1/operations/preview", `{"filter":{}}`).want(t, 200, `"estimated_seconds":null`, `"confirm":""`))
	if p.Rows != 3 || p.Released != 6 || p.Campaigns.Total != 3 || len(p.Groups) != 1 {
		t.Errorf("preview is %+v", p)
	}
	s.post("/api/v1/operations", `{"filter":{},"expected_rows":2}`).want(t, 409, "3 dead rows are selected now, not 2")
	a := s.post("/api/v1/operations", `{"kind":"requeue","filter":{"fingerprint":""},"canary":true,"expected_rows":3,"expected_released":6,"reason":"mended"}`).want(t, 202, `"status":"running"`, `"chosen":3`)
	op := decodeAs[outbox.Operation](t, a)
	target := fmt.Sprintf("/api/v1/operations/%d", op.ID)
	if to := a.Header.Get("Location"); to != target {
		t.Errorf("it is followed at %q, want %q", to, target)
	}
	s.post(target+"/acknowledge", "{}").want(t, 409, "still running")
	s.stepAll()
	s.get(target).want(t, 200, `"requeued":1`, `"waiting":2`, `"watched":[{"campaign_id":"c-1"`)
	s.pass()
	s.stepAll()
	s.get(target).want(t, 200, `"status":"stopped"`, "failed again with the same error", `"failed_again":1`, `"left":2`, `"new_failures":[]`)
	s.get(target+"/rows?status=failed_again").want(t, 200, `"campaign_id":"c-1"`, `"failed_fingerprint":"seat`).lacks(t, `"campaign_id":"c-2"`)
	s.get("/api/v1/operations?acknowledged=false&status=stopped").want(t, 200, fmt.Sprintf(`"id":%d`, op.ID))
	s.post(target+"/cancel", `{"expected":{"status":"running"}}`).want(t, 409, "it is stopped, not running")
	s.post(target+"/acknowledge", `{"reason":"not mended","expected":{"status":"stopped"}}`).want(t, 200, `"acknowledged_by":"local"`)
	s.get("/api/v1/operations?acknowledged=false").want(t, 200, `"items":[]`)
	s.get("/api/v1/audit?action=operation_acknowledge").want(t, 200, `"reason":"not mended"`)
	s.get("/api/v1/audit?action=operation_start").want(t, 200, `"reason":"mended"`)
}

func TestOperationAPI_saysWhatIsWrong(t *testing.T) {
	s := ownSite(t).blocked(1)
	s.refuses([]refusedAsk{
		{"POST", "/operations", `{}`, 422, "say which rows"},
		{"POST", "/operations", ``, 422, "say which rows"},
		{"POST", "/operations", `{"rows":[{"campaign_id":"c-1","seq":2}],"filter":{}}`, 422, "not both"},
		{"POST", "/operations", `{"rows":[{"campaign_id":"c-1"}]}`, 422, "row 1 needs a campaign_id and a seq"},
		{"POST", "/operations", `{"filter":{"limit":0}}`, 422, "must be 1 or more"},
		{"POST", "/operations", `{"filter":{"status":"dead"}}`, 422, "unknown field"},
		{"POST", "/operations", `{"kind":"rebuild","filter":{}}`, 422, `is unknown; use requeue`},
		{"POST", "/operations", `{"rows":[{"campaign_id":"c-1","seq":1}]}`, 409, "nothing to requeue"},
		{"POST", "/operations/preview", `{"filter":{"campaign_id":"c-99"}}`, 404, `there is no campaign \"c-99\"`},
		{"GET", "/operations/0", ``, 422, "whole number from 1"},
		{"GET", "/operations/7", ``, 404, "there is no operation 7"},
		{"GET", "/operations/7/rows", ``, 404, "there is no operation 7"},
		{"GET", "/operations?status=ended", ``, 422, "use running, stopped, cancelled or done"},
		{"POST", "/operations/7/cancel", `{}`, 404, "there is no operation 7"},
	})
}

func TestOperationAPI_previewsOnAReadOnlyServer(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.ReadOnly = true }).blocked(1)
	s.post("/api/v1/operations/preview", `{"filter":{}}`).want(t, 200, `"rows":1`)
	s.post("/api/v1/operations", `{"filter":{}}`).want(t, 403, "read-only")
	s.get("/operations/new").want(t, 200, "1 dead row of 1 campaign becomes pending again").lacks(t, `method="post"`)
}

// fieldsOf reads the hidden fields of the form on a page, as a browser sends
// them.
func fieldsOf(a answer) url.Values {
	values := url.Values{}
	for _, m := range regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		values.Add(m[1], html.UnescapeString(m[2]))
	}
	return values
}

func TestRequeueAll_isOfferedWhileARowIsDead(t *testing.T) {
	t.Parallel()
	calm, blocked := newSite(t), newSite(t).blocked(1)
	for _, page := range []string{"/rows", "/rows?status=dead", "/operations"} {
		calm.get(page).want(t, 200).lacks(t, "Requeue all dead")
		blocked.get(page).want(t, 200, "Requeue all dead")
	}
	blocked.get("/rows?status=dead&event_type=unknown").want(t, 200, "No rows match.").lacks(t, "Requeue all dead")
}

func TestOperationPages_startOnceAndLeadToTheOperation(t *testing.T) {
	s := ownSite(t).blocked(2)
	s.get("/rows?status=dead").want(t, 200, `href="/operations/new" data-testid="requeue-all"`)
	page := s.get("/operations/new?event_type="+poison).want(t, 200, "2 dead rows of 2 campaigns become pending again", "2 of them are heads of their campaigns",
		"4 rows behind are released", `href="/campaigns/c-1"`, "unknown: too little was applied lately", `name="canary" value="yes" checked`,
		"outboxweb requeue --dead --canary --event-type="+poison).lacks(t, `name="confirm"`)
	form := fieldsOf(page)
	form.Set("canary", "yes")
	form.Set("reason", "mended")
	if form.Get("expected_rows") != "2" || form.Get("expected_released") != "4" || len(form.Get("idempotency_key")) < 20 {
		t.Fatalf("the form sends %v", form)
	}
	var to string
	for range 2 {
		to = s.submit("/operations", form.Encode()).want(t, http.StatusSeeOther).Header.Get("Location")
	}
	if !strings.HasPrefix(to, "/operations/1") {
		t.Errorf("the second submission leads to %q", to)
	}
	s.get("/api/v1/operations").want(t, 200, `"id":1`).lacks(t, `"id":2`)
	if other := fieldsOf(s.get("/operations/new")).Get("idempotency_key"); other == form.Get("idempotency_key") {
		t.Error("two pages have the same key")
	}
	s.get("/operations/new").want(t, 200, "Nothing to requeue")
	s.get("/operations/1").want(t, 200, "Operation 1: requeue of 2 rows", "running", "No worker is running", `data-testid="operation-cancel"`, "canary")
	s.stepAll()
	s.pass()
	s.stepAll()
	s.get("/operations/1?status=failed_again").want(t, 200, "stopped", "✕ failed again 1", `data-testid="result-c-1-2"`, "requeued in canary", `data-testid="operation-acknowledge"`).lacks(t, `data-testid="result-c-2-2"`)
	s.get("/operations").want(t, 200, `id="operation-1"`, "not acknowledged")
	s.submit("/operations/1/cancel", "expected_status=running").want(t, 409, "it is stopped, not running")
	s.lands(s.submit("/operations/1/acknowledge", "expected_status=stopped&reason=seen")).want(t, 200, "Acknowledged operation 1.", "by local").lacks(t, `data-testid="operation-acknowledge"`)
}

func TestOperationPages_ofNamedRows(t *testing.T) {
	s := ownSite(t)
	s.seed("a/b", poison, "b")
	s.seed("c-2", poison)
	s.work()
	target := string(templates.NewLinks("").NewOperation(outbox.Selection{Rows: []outbox.RowKey{{CampaignID: "a/b", Seq: 1}, {CampaignID: "c-2", Seq: 9}}}))
	page := s.get(target).want(t, 200, "2 rows, selected one by one", "1 dead row of 1 campaign becomes pending", "1 named row is left out")
	form := fieldsOf(page)
	if rows := form["rows"]; len(rows) != 2 || rows[0] != "a/b/1" {
		t.Errorf("the form sends rows %q", rows)
	}
	s.submit("/operations", form.Encode()).want(t, http.StatusSeeOther)
	s.get("/operations/1").want(t, 200, "selected rows", "behind; 1 not dead, or in another operation")
	s.get("/operations/new?rows=c-2").want(t, 422, "CAMPAIGN/SEQ")
	s.get("/operations/new?rows=/2").want(t, 422, "CAMPAIGN/SEQ")
}

// Without JavaScript the button can be pressed with nothing ticked, which must not mean every dead
// row.
func TestOperationPages_ofNoRowTickedAskForOne(t *testing.T) {
	s := ownSite(t).blocked(2)
	form := regexp.MustCompile(`(?s)<form class="choosing".*?</form>`).FindString(s.get("/rows?status=dead").want(t, 200).body)
	hidden := regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`).FindStringSubmatch(form)
	if hidden == nil {
		t.Fatal("the form of the list says nothing but what is ticked")
	}
	s.get("/operations/new?"+hidden[1]+"="+hidden[2]).want(t, 422, "No row is selected")
	s.get("/operations/new?"+hidden[1]+"="+hidden[2]+"&rows=c-1%2F2").want(t, 200, "Requeue 1 row")
}

func TestOperationPages_wantThePhraseWhereItIsLarge(t *testing.T) {
	s := ownSite(t)
	types := make([]string, 500)
	for i := range types {
		types[i] = "a"
	}
	s.seed("c-1", poison)
	s.work()
	for range 3 {
		s.seed("c-1", types...)
	}
	page := s.get("/operations/new").want(t, 200, "1,500 rows behind are released", `pattern="requeue 1 rows"`, "--confirm=")
	const phrase = `"confirm":"requeue 1 rows"`
	s.post("/api/v1/operations", `{"filter":{}}`).want(t, 422, phrase)
	s.post("/api/v1/rows/requeue", `{}`).want(t, 422, phrase)
	form := fieldsOf(page)
	s.submit("/operations", form.Encode()).want(t, 422, "to confirm it, type: requeue 1 rows")
	form.Set("confirm", "requeue 1 rows")
	s.submit("/operations", form.Encode()).want(t, http.StatusSeeOther)
}

func TestRequeue_wantsThePhraseWhereItReleasesMany(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", poison)
	s.work()
	for range 3 {
		s.seed("c-1", slices.Repeat([]string{"a"}, 400)...)
	}
	const row, phrase = "/rows/c-1/1/requeue", "release 1200 rows"
	s.get(row).want(t, 200, "type <strong>"+phrase+"</strong>", "--confirm &#39;"+phrase+"&#39;", "&#34;confirm&#34;:&#34;"+phrase+"&#34;")
	s.submit(row, "").want(t, 422, "to confirm it, type: "+phrase)
	s.post("/api/v1"+row, `{"reason":"fixed"}`).want(t, 422, `"confirm":"`+phrase+`"`, "releases 1,200 rows", `"errors":{"confirm":`)
	s.post("/api/v1"+row, `{"reason":"fixed","confirm":"yes"}`).want(t, 422, `"confirm":"`+phrase+`"`)
	s.post("/api/v1/rows/c-1/1/retry", `{"confirm":"yes"}`).want(t, 422, `unknown field \"confirm\"`)
	s.post("/api/v1"+row, `{"reason":"fixed","confirm":"`+phrase+`"}`).want(t, 200, `"status":"pending"`)
}

func TestOperationPages_takeTheFirstOfVeryMany(t *testing.T) {
	s := ownSite(t).blocked(2)
	s.get("/operations/new?limit=1").want(t, 200, "1 dead row of 1 campaign becomes", "Only the first 1 match is included").lacks(t, `href="/campaigns/c-2"`)
	s.get("/operations/new?limit=3").want(t, 200).lacks(t, "Only the first")
	s.change(`insert into projection_apply_outbox (campaign_id, seq, event_type, status, attempt_count, next_attempt_at, enqueued_at, updated_at)
with recursive n (i) as (select 100 union all select i + 1 from n where i < 100 + $1)
select 'c-1', i, 'a', 'dead', 1, i, i, i from n`, outbox.MaxOperation)
	s.post("/api/v1/operations/preview", `{"filter":{}}`).want(t, 422, "more than 20000 dead rows match")
	s.get("/operations/new").want(t, 200, "20,000 dead rows", "Only the first 20,000 matches are included", `name="limit" value="20000"`)
}
