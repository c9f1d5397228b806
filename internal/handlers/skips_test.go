package handlers

import (
	"net/http"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// skipC1 is the body that skips the poison of a site in trouble.
const skipC1 = `{"reason":"it names nobody","confirm":"skip c-1 2","expected":{"status":"dead","attempt_count":2}}`

func TestSkip_ofACampaignWithTheLongestID(t *testing.T) {
	s := ownSite(t)
	id := strings.Repeat("c", outbox.MaxIDLength)
	s.seed(id, poison)
	s.work()
	s.submit("/rows/"+id+"/1/skip", "reason=gone&confirm=skip+"+id+"+1").want(t, http.StatusSeeOther)
}

func TestSkip_isToldWhereverStateIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.seed("c-1", "a", poison)
	s.work()
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skip this event…", "never applied to any projection", "<code>skip c-1 2</code>", "--confirm &#39;skip c-1 2&#39;")
	s.post("/api/v1/rows/c-1/2/skip", skipC1).want(t, 200)
	s.get("/campaigns/c-1/events/2").want(t, 200, "s-skipped", "the next free worker skips it")
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"skipped":{"id":1`, `"reason":"it names nobody"`, `"applied_at":null`)
	s.get("/api/v1/campaigns/c-1/events/1").want(t, 200).lacks(t, "skipped")
	s.pass()
	s.get("/campaigns/c-1/events/2").want(t, 200, "Skipped: no projection applied it; all other events up to 2 are applied.", "By local", "it names nobody", "can still be undone")
	s.get("/campaigns/c-1").want(t, 200, `id="skipped"`, `data-testid="skip-2"`, "skipped; nothing later is applied yet")
	s.get("/campaigns").want(t, 200, `href="/campaigns/c-1#skipped"`)
	s.get("/").want(t, 200, `data-testid="count-skips">1<`)
	s.get("/api/v1/summary").want(t, 200, `"skips":1`)
	s.get("/export/campaigns").want(t, 200, ",blocked_behind,gap,skips,lease_owner,", ",0,0,1,")
	page := decodeAs[outbox.Page[outbox.Skip]](t, s.get("/api/v1/campaigns/c-1/skips").want(t, 200))
	if len(page.Items) != 1 || page.Items[0].AppliedAt == nil || page.Items[0].Error == "" {
		t.Errorf("the ledger is %+v", page.Items)
	}
	s.get("/api/v1/campaigns/nobody/skips").want(t, 404)
	s.seed("c-1", "a")
	s.work()
	s.get("/campaigns/c-1").want(t, 200, "skipped, and later events are applied").lacks(t, `data-testid="unskip"`)
}
