package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
	"github.com/outboxweb/outboxweb/internal/size"
)

func (s *site) allActions() []outbox.AuditEntry {
	s.t.Helper()
	page := must.Get(s.store.AuditLog(context.Background(), outbox.AuditFilter{Limit: 200})).Or(s.t)
	return page.Items
}

// badRequests are invalid before any store method is called.
var badRequests = map[string]struct {
	form, json string
	change     []func(*http.Request)
}{
	"of another media type": {"", "", []func(*http.Request){header("Content-Type", "text/plain")}},
	"malformed":             {"%zz", "{", nil},
	"too large":             {"reason=" + strings.Repeat("x", 5<<20), `{"reason":"` + strings.Repeat("x", 5<<20) + `"}`, nil},
	"of too long a key":     {"", "", []func(*http.Request){header("Idempotency-Key", strings.Repeat("k", 201))}},
}

func TestActions_thatAreRefusedBeforeTheStoreIsAskedLeaveOneRecordEach(t *testing.T) {
	s := ownSite(t)
	tried := map[outbox.Action]bool{}
	step, n := size.Of(3, 1, 1), 0
	for _, route := range s.srv.routes {
		if !route.action.Audited() {
			continue
		}
		tried[route.action] = true
		api := strings.HasPrefix(route.pattern, apiPrefix)
		for name, bad := range badRequests {
			if n++; n%step != 0 {
				continue
			}
			before := len(s.allActions())
			target := plain.Replace(route.pattern)
			var a answer
			if api {
				a = s.post(target, bad.json, bad.change...)
			} else {
				a = s.submit(target, bad.form, bad.change...)
			}
			must.Need(t, a.StatusCode >= 400 && a.StatusCode < 500, "%s %s: %d %.200s", target, name, a.StatusCode, a.body)
			acts := s.allActions()
			must.Need(t, len(acts) == min(before+1, 200), "%s %s: %d records, there were %d", target, name, len(acts), before)
			checkRefused(t, target+" "+name, route, acts[0], a.Header.Get("X-Request-Id"))
		}
		s.forgetAudit()
	}
	for _, action := range outbox.AuditedActions() {
		must.Hold(t, tried[action] || slices.Contains(otherActions, action), "no route does %s", action)
	}
}

// otherActions have no routes of their own here.
var otherActions = []outbox.Action{outbox.ActionReveal, outbox.ActionTokenCreate, outbox.ActionTokenRevoke, outbox.ActionJournalWentBack}

func (s *site) forgetAudit() {
	s.t.Helper()
	for more := true; more; {
		more = must.Get(s.srv.maintenance.PruneAuditLog(context.Background(), s.clock.AddDate(1, 0, 0))).Or(s.t)
	}
}

func checkRefused(t *testing.T, what string, of route, got outbox.AuditEntry, request string) {
	t.Helper()
	via, target := "page", outbox.Target("")
	if strings.HasPrefix(of.pattern, apiPrefix) {
		via = "api"
	}
	for param, is := range map[string]outbox.Target{"{run}": "run 1", "{operation}": "operation 1", "{token}": "token 1", "{name}": "projection campaigns", "{publisher}": "publisher scenes/archive", "{rule}": "alert all", "{receiver}": "receiver chat", "{source}": "source shop"} {
		if strings.Contains(of.pattern, param) {
			target = is
		}
	}
	if strings.Contains(of.pattern, "/publisher-names/") {
		target = "publishers archive"
	}
	campaign, seq := "", int64(0)
	if strings.Contains(of.pattern, "{campaign}") {
		campaign = "c-1"
	}
	if strings.Contains(of.pattern, "{seq}") {
		seq = 2
	}
	if got.Actor != "local" || got.Auth != outbox.AuthLocal || got.Role != outbox.RoleAdmin || got.Via != via || got.From != "127.0.0.1" || got.RequestID != request ||
		got.Action != of.action || got.Target != target || got.CampaignID != campaign || got.Seq != seq || got.Outcome != outbox.AuditRefused || got.Refusal == "" {
		t.Errorf("%s: the record is %+v", what, got)
	}
}

func TestAction_ofWhoLacksTheRoleLeavesARecord(t *testing.T) {
	s := ownSite(t)
	who := outbox.Identity{Name: "vera", Auth: outbox.AuthJWT, Role: outbox.RoleViewer}
	r := httptest.NewRequest("POST", "http://127.0.0.1:8080/api/v1/rows/requeue", nil)
	r = r.WithContext(attempting(context.WithValue(r.Context(), identityKey{}, who), outbox.ActionRequeueMany))
	for range 2 { // one request leaves one record, however many refusals it has
		s.srv.fail(httptest.NewRecorder(), r, needs(r, outbox.RoleOperator))
	}
	acts := s.allActions()
	if len(acts) != 1 || acts[0].Actor != "vera" || acts[0].Role != outbox.RoleViewer || acts[0].Auth != outbox.AuthJWT || acts[0].Via != "api" || !strings.Contains(acts[0].Refusal, "operator") {
		t.Errorf("the records are %+v", acts)
	}
}

func TestAction_leavesNoRecordWhereNothingWasRefused(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := newSite(t, func(c *Config) { c.ReadOnly, c.Logger = true, slog.New(slog.NewTextHandler(&log, nil)) })
	s.seed("c-1", "a")
	s.withPublisher(0)
	s.post("/api/v1/campaigns/c-1/pause", "{}").want(t, 403)
	if n := len(s.allActions()); n != 0 || strings.Count(log.String(), "action refused") != 1 || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("a read-only server leaves %d records and logs:\n%s", n, log.String())
	}
	s = newSite(t)
	s.seed("c-1", "a")
	s.withPublisher(0)
	s.post("/api/v1/publishers/scenes/archive/seek", `{"dry_run":true,"position":99}`).want(t, 422)
	s.post("/api/v1/publishers/scenes/archive/seek", `{"dry_run":true,"position":-1}`).want(t, 422)
	s.post("/api/v1/campaigns/c-1/events", "{").want(t, 422)
	s.post("/api/v1/operations/preview", "{").want(t, 422)
	s.get("/campaigns/c-1/pause").want(t, 405)
	s.post("/api/v1/nothing", "{}").want(t, 404)
	must.Equal(t, len(s.allActions()), 0, "questions left records")
}

func TestFlash_isOfWhatWasDone(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.submit("/campaigns/c-1/resume", "").want(t, 409)
	id := s.allActions()[0].ID
	s.get("/campaigns/c-1?act="+fmt.Sprint(id)).want(t, 200, "refused", "is not paused").lacks(t, "Resumed campaign c-1")
	s.get("/").want(t, 200).lacks(t, "Resumed campaign c-1")
}

func TestAuditPage_marksWhatWasRefused(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	s.submit("/campaigns/c-1/resume", "").want(t, 409)
	s.submit("/runs/7/cancel", "").want(t, 404)
	s.submit("/campaigns/c-1/pause", "reason=why").want(t, 303)
	s.get("/audit").want(t, 200, "✕</span> refused", "✓</span> done", "There is no run 7.", `<a href="/runs/7">run 7</a>`, `<option value="resume">resume a campaign</option>`)
	s.get("/audit?outcome=refused&action=resume").want(t, 200, `<option value="refused" selected>`, "is not paused").lacks(t, "Paused campaign", "There is no run 7.")
	s.get("/audit?target=run+7").want(t, 200, `value="run 7"`, "There is no run 7.").lacks(t, "Paused campaign")
	s.get("/audit?auth=token").want(t, 200, "No actions match")
	s.get("/audit?role=admin&outcome=done").want(t, 200, "Paused campaign").lacks(t, "There is no run 7.")
	s.get("/audit?outcome=maybe").want(t, 422, "use done or refused")
	s.get("/api/v1/audit?outcome=refused&target=run+7").want(t, 200, `"total":1`, `"removed_before":null`)
	s.get("/export/audit?outcome=refused").want(t, 200, ",refused,", "there is no run 7").lacks(t, ",done,")
	s.get("/api/v1/export/audit?role=viewer&format=json").want(t, 200, "[\n]")
}

func TestAuditPage_saysSinceWhenItGoesBack(t *testing.T) {
	t.Parallel()
	for setting, embedded := range map[string]bool{"--keep-audit": false, "Config.KeepAudit": true} {
		s := newSite(t, func(c *Config) { c.Embedded = embedded })
		s.seed("c-1", "a")
		s.get("/audit").want(t, 200).lacks(t, setting)
		s.submit("/campaigns/c-1/resume", "").want(t, 409)
		s.forgetAudit()
		s.get("/audit").want(t, 200, "Records from before", "2027-11-21T07:00:00", "removed, as "+setting+" says.")
		s.get("/api/v1/audit").want(t, 200, `"removed_before":"2027-11-21T07:00:00Z"`)
	}
}

func TestPages_ofRunsOperationsAndEventsShowTheActionsOnThem(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	run := s.startRun(`{"kind":"verify","campaign_id":"c-1"}`)
	s.post("/api/v1/runs/"+fmt.Sprint(run.ID)+"/resume", `{"reason":"again"}`).want(t, 409)
	s.get("/runs/"+fmt.Sprint(run.ID)).want(t, 200, "Started run", "✕</span> refused", "again", "Show all in the audit log")
	s.post("/api/v1/rows/c-1/1/requeue", `{"reason":"why not"}`).want(t, 409)
	s.get("/campaigns/c-1/events/1").want(t, 200, "✕</span> refused", "why not", `href="/audit?campaign=c-1&amp;seq=1"`)
}
