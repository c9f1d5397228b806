package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/must"
)

// troubled starts a server on the sample journal with everything that pages show: dead and failed heads, rows behind
// them, a paused campaign, a large event, and actions. The row it returns is dead, the head of its campaign.
func troubled(t *testing.T) (s *server, campaign string, seq int64) {
	d := newDatabases(t)
	s = start(t, d, append(troubledPublishers(t, d), "--sample", "--max-attempts", "2", "--retry-base", "1h", "--retry-max", "1h")...)
	line := `{"campaign_id":"large","event_type":"note.added","payload":{"items":[0` + strings.Repeat(`,{"n":9007199254740993,"text":"an item with some text"}`, 40_000) + `],"last":true}}`
	r := command(t, d, strings.NewReader(line), "append", "-")
	must.Hold(t, r.code == 1 && strings.Contains(r.stderr, "line 1"), "without --max-payload: %d, %s", r.code, r.stderr)
	mustCommand(t, d, strings.NewReader(line), "append", "--max-payload", "33554432", "-")
	awaitStandstill(t, s)
	awaitPublishers(t, s)
	failed := s.items(t, "/api/v1/rows?status=failed")
	for _, row := range failed[1:] {
		s.post(t, http.StatusOK, fmt.Sprintf("/api/v1/rows/%s/%d/retry", row.CampaignID, row.Seq), map[string]any{"reason": "the seat was freed"})
	}
	awaitStandstill(t, s)
	last := failed[len(failed)-1]
	s.post(t, http.StatusAccepted, "/api/v1/operations", map[string]any{"rows": []any{map[string]any{"campaign_id": last.CampaignID, "seq": last.Seq}}, "canary": true, "reason": "the seat was freed"})
	awaitOperation(t, s, 1)
	awaitStandstill(t, s)
	current := s.items(t, "/api/v1/campaigns?state=current&limit=1")[0].CampaignID
	s.post(t, http.StatusOK, "/api/v1/campaigns/"+current+"/pause", map[string]any{"reason": "waiting for the new seat map"})
	s.post(t, http.StatusConflict, "/api/v1/campaigns/"+current+"/pause", map[string]any{"reason": "once more"})
	for _, role := range []string{"viewer", "admin"} {
		mustCommand(t, d, nil, "token", "create", "--role", role, "--note", "scrapes the metrics of the box office")
	}
	s.post(t, http.StatusOK, "/api/v1/tokens/1/revoke", map[string]any{"reason": "it was in a ticket"})
	drift(t, s, d)
	change(t, d.journal(), `insert into series_samples (kind, step, at, label, source, value) values ('behind', 60, $1, $2, '', 3)`,
		time.Now().Add(-10*time.Minute).Truncate(time.Minute).UnixMicro(), failed[1].CampaignID)
	return s, failed[1].CampaignID, failed[1].Seq
}

// drift makes rows of the sample's read models differ in each way, has a run find it, and another one fix a campaign.
func drift(t *testing.T, s *server, d databases) {
	change(t, d.projections(), `update characters set name = '<script>alert("x")</script> שלום '`)
	change(t, d.projections(), `update campaigns set theme_prompt = $1`, fmt.Sprintf("%04000d", 7))
	change(t, d.projections(), `delete from participants where id in (select min(id) from participants group by campaign_id)`)
	change(t, d.projections(), `insert into sessions (campaign_id, id, name, status, started_at, updated_at) select campaign_id, 'ghost', 'nobody', 'ACTIVE', 1, 1 from campaigns`)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "verify", "all_campaigns": true, "reason": "the names look odd"})
	r := awaitEnd(t, s, 1)
	must.Need(t, r.Verdict == "drift", "the run is %+v", r)
	s.post(t, http.StatusAccepted, "/api/v1/runs", map[string]any{"kind": "rebuild", "campaign_id": s.items(t, "/api/v1/campaigns?state=drifted&limit=1")[0].CampaignID})
	awaitEnd(t, s, 2)
}

// awaitStandstill waits until no campaign can change: it is current, or blocked, or its head is
// retried in many minutes.
func awaitStandstill(t *testing.T, s *server) {
	eventually(t, "nothing moves", func() (bool, string) {
		if sum := s.summary(t, ""); sum.Campaigns.Lagging == 0 || sum.Campaigns.Leased > 0 {
			return false, fmt.Sprintf("%+v", sum)
		}
		for _, c := range s.items(t, "/api/v1/campaigns?limit=200") {
			if c.Why != "Everything is applied" && !strings.Contains(c.Why, " has been dead ") && !strings.HasSuffix(c.Why, " min") {
				return false, c.Why
			}
		}
		return true, ""
	})
}

func troubledPages(campaign string, seq int64) map[string]string {
	c, event := "/campaigns/"+campaign, fmt.Sprintf("/campaigns/%s/events/%d", campaign, seq)
	row := fmt.Sprintf("/rows/%s/%d", campaign, seq)
	pages := maps.Clone(publisherPages)
	maps.Copy(pages, map[string]string{
		"overview": "/", "overview-day": "/?span=day", "charts": "/charts", "charts-table": "/charts?range=24h&table=true", "rows": "/rows", "rows-dead": "/rows?status=dead",
		"event": event, "event-payload": event + "?tab=payload", "event-neighbours": event + "?tab=neighbours", "event-details": event + "?tab=details",
		"event-behind": fmt.Sprintf("%s/events/%d", c, seq+1), "event-applied": c + "/events/1", "tree": event + "/tree",
		"operations": "/operations", "operation": "/operations/1", "operation-new": "/operations/new", "requeue-row": row + "/requeue", "dry-run": row + "/dry-run",
		"campaigns": "/campaigns", "campaigns-blocked": "/campaigns?state=blocked&sort=lag", "campaign": c, "read-model": fmt.Sprintf("%s/read-model?seq=%d", c, seq-1),
		"failures": "/failures", "failures-all": "/failures?status=all", "projections": "/projections", "projection": "/projections/campaigns", "projection-aside": "/projections/campaigns?state=quarantined",
		"runs": "/runs", "run": "/runs/1", "run-result": "/runs/1/results/" + campaign, "run-rebuild": "/runs/2", "run-new": "/runs/new", "run-asks": "/runs/new?kind=rebuild&all_campaigns=true", "rehearse": "/rehearsals/new",
		"events": "/events", "events-found": "/events?q=session&since=-2h", "search": "/search?q=" + campaign[:4], "search-none": "/search?q=nothing+like+it", "search-events": "/search?q=s+today",
		"instances": "/instances", "alerts": "/alerts", "audit": "/audit", "audit-refused": "/audit?outcome=refused", "tokens": "/tokens", "about": "/about", "operating": "/docs/operating", "not-found": "/campaigns/nobody", "invalid": "/rows?status=lost",
	})
	return pages
}

// emptyPages are the pages that have a text for an empty state.
var emptyPages = map[string]string{
	"overview": "/", "charts": "/charts", "charts-table": "/charts?range=24h&table=true", "rows": "/rows", "rows-dead": "/rows?status=dead", "operations": "/operations", "operation-new": "/operations/new", "campaigns": "/campaigns", "runs": "/runs", "run-new": "/runs/new?kind=verify&all_campaigns=true",
	"campaigns-blocked": "/campaigns?state=blocked", "events": "/events", "search-none": "/search?q=nothing+like+it", "failures": "/failures", "projections": "/projections", "projection": "/projections/seats", "instances": "/instances", "alerts": "/alerts", "audit": "/audit", "tokens": "/tokens", "publishers": "/publishers",
}
