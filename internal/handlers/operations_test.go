package handlers

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/web/templates"
)

// stepAll steps running operations until they wait for a worker.
func (s *site) stepAll() {
	s.t.Helper()
	ctx := context.Background()
	for moved := true; moved; {
		moved = false
		ids := must.Get(s.operations.Running(ctx)).Or(s.t)
		for _, id := range ids {
			changed := must.Get(s.operations.StepOne(ctx, id)).Or(s.t)
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

func TestOperationAPI_saysWhatIsWrong(t *testing.T) {
	s := ownSite(t).blocked(1)
	s.refuses([]refusedAsk{
		{"POST", "/operations", `{}`, 422, "say which rows"},
		{"POST", "/operations", `{"rows":[{"campaign_id":"c-1","seq":2}],"filter":{}}`, 422, "not both"},
		{"POST", "/operations", `{"rows":[{"campaign_id":"c-1"}]}`, 422, "row 1 needs a campaign_id and a seq"},
		{"POST", "/operations", `{"filter":{"status":"dead"}}`, 422, "unknown field"},
		{"POST", "/operations", `{"kind":"rebuild","filter":{}}`, 422, `is unknown; use requeue`},
		{"POST", "/operations/preview", `{"filter":{"campaign_id":"c-99"}}`, 404, `there is no campaign \"c-99\"`},
		{"GET", "/operations/0", ``, 422, "whole number from 1"},
		{"GET", "/operations?status=ended", ``, 422, "use running, stopped, cancelled or done"},
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

func TestOperationPages_sayWhatItDoesAndWhatCameOfIt(t *testing.T) {
	t.Parallel()
	s := newSite(t).blocked(2)
	s.get("/rows?status=dead").want(t, 200, `href="/operations/new" data-testid="requeue-all"`)
	page := s.get("/operations/new?event_type="+poison).want(t, 200, "2 dead rows of 2 campaigns become pending again", "2 of them are heads of their campaigns",
		"4 rows behind are released", `href="/campaigns/c-1"`, "unknown: too little was applied lately", `name="canary" value="yes" checked`,
		"outboxweb requeue --dead --canary --event-type="+poison).lacks(t, `name="confirm"`)
	form := fieldsOf(page)
	if form.Get("expected_rows") != "2" || form.Get("expected_released") != "4" || len(form.Get("idempotency_key")) < 20 {
		t.Fatalf("the form sends %v", form)
	}
	if other := fieldsOf(s.get("/operations/new")).Get("idempotency_key"); other == form.Get("idempotency_key") {
		t.Error("two pages have the same key")
	}
	form.Set("canary", "yes")
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
