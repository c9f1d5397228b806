package handlers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// skipC1 is the body that skips the poison of a site in trouble.
const skipC1 = `{"reason":"it names nobody","confirm":"skip c-1 2","expected":{"status":"dead","attempt_count":2}}`

func TestSkip_throughTheAPI(t *testing.T) {
	s := ownSite(t).trouble()
	s.post("/api/v1/rows/c-1/2/skip", `{"confirm":"skip c-1 2"}`).want(t, 422, `"reason"`)
	s.post("/api/v1/rows/c-1/2/skip", `{"reason":"it names nobody"}`).want(t, 422, `"confirm":"skip c-1 2"`)
	s.post("/api/v1/rows/c-1/2/skip", `{"reason":"`+strings.Repeat("x", 501)+`"}`).want(t, 422, `"reason":"reason is 501 bytes long`)
	s.post("/api/v1/rows/c-1/2/skip", `{"reason":"x","confirm":"skip c-1 2","expected":{"attempt_count":9}}`).want(t, 409, "2 failed attempts, not 9")
	s.post("/api/v1/rows/c-1/3/skip", `{"reason":"x","confirm":"skip c-1 3"}`).want(t, 409, "waits behind event 2")
	if row := decodeAs[outbox.Row](t, s.post("/api/v1/rows/c-1/2/skip", skipC1).want(t, 200)); row.Status != outbox.Pending || !row.IsHead {
		t.Errorf("the row is %+v", row)
	}
	s.get("/api/v1/campaigns/c-1").want(t, 200, `"skips":1`)
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"skipped":{"id":1`, `"reason":"it names nobody"`, `"applied_at":null`)
	s.get("/api/v1/campaigns/c-1/events/3").want(t, 200).lacks(t, "skipped")
	s.pass()
	page := decodeAs[outbox.Page[outbox.Skip]](t, s.get("/api/v1/campaigns/c-1/skips").want(t, 200))
	if len(page.Items) != 1 || page.Items[0].AppliedAt == nil || page.Items[0].Error == "" {
		t.Errorf("the ledger is %+v", page.Items)
	}
	s.get("/api/v1/summary").want(t, 200, `"skips":1`)
	s.post("/api/v1/campaigns/c-1/events/2/unskip", `{"reason":"no"}`).want(t, 409, "events 3 to 4", "were applied after event 2")
	s.post("/api/v1/campaigns/c-1/events/3/unskip", `{}`).want(t, 409, "is not skipped")
	s.get("/api/v1/campaigns/nobody/skips").want(t, 404)
	s.get("/export/campaigns").want(t, 200, ",blocked_behind,gap,skips,lease_owner,", ",0,0,1,")
	s.get("/api/v1/audit?action=skip").want(t, 200, `"action":"skip"`, "it names nobody")
}

func TestSkip_throughFormsWithoutJavaScript(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", poison)
	s.work()
	s.get("/campaigns/c-1/events/1").want(t, 200).lacks(t, `data-testid="skip"`)
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skip this event…", "never applied to any projection", "<code>skip c-1 2</code>", "--confirm &#39;skip c-1 2&#39;")
	s.submit("/rows/c-1/2/skip", "reason=x&confirm=yes").want(t, 422, "skip c-1 2", `href="/campaigns/c-1/events/2"`)
	s.lands(s.submit("/rows/c-1/2/skip", "expected_status=dead&expected_attempt_count=2&reason=gone&confirm=skip+c-1+2")).want(t, 200, "Skipped event 2 of campaign c-1", "s-skipped", "the next free worker skips it").lacks(t, `data-testid="skip"`)
	s.pass()
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skipped: no projection applied it; all other events up to 2 are applied.", "By local", "gone")
	s.get("/campaigns/c-1/events/2").want(t, 200, "s-skipped", "can still be undone")
	s.get("/campaigns/c-1").want(t, 200, `id="skipped"`, `data-testid="skip-2"`, `data-testid="unskip"`, "skipped; nothing later is applied yet")
	s.get("/campaigns").want(t, 200, `href="/campaigns/c-1#skipped"`)
	s.get("/").want(t, 200, `data-testid="count-skips">1<`)
	s.lands(s.submit("/campaigns/c-1/events/2/unskip", "return_to=campaign")).want(t, 200, "Un-skipped event 2", "undone").lacks(t, `data-testid="unskip"`, "s-skipped")
}

func TestSkip_ofACampaignWithTheLongestID(t *testing.T) {
	s := ownSite(t)
	id := strings.Repeat("c", outbox.MaxIDLength)
	s.seed(id, poison)
	s.work()
	s.submit("/rows/"+id+"/1/skip", "reason=gone&confirm=skip+"+id+"+1").want(t, http.StatusSeeOther)
}

func TestSkip_isNotOfferedWhereItIsRefused(t *testing.T) {
	s := ownSite(t).trouble()
	s.post("/api/v1/rows/c-1/2/skip", skipC1).want(t, 200)
	s.pass()
	s.get("/campaigns/c-1").want(t, 200, "skipped, and later events are applied").lacks(t, `data-testid="unskip"`)
	s.submit("/campaigns/c-1/events/2/unskip", "").want(t, 409, "can no longer be applied")
}
