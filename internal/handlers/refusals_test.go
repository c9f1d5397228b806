package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/size"
)

func (s *site) allActions() []operator.AuditEntry {
	page := must.Get(s.store.AuditLog(context.Background(), operator.AuditFilter{Limit: 200})).Or(s.t)
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
	"of a key with NUL":     {"", "", []func(*http.Request){header("Idempotency-Key", "k\x00")}},
}

func TestActions_thatAreRefusedBeforeTheStoreIsAskedLeaveOneRecordEach(t *testing.T) {
	s, tried := ownSite(t), map[operator.Action]bool{}
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
	// A second refusal in the same words would be counted with the first.
	s.post("/api/v1/campaigns/c-1/pause", "{}", header("Idempotency-Key", "k\xff")).want(t, 422, "UTF-8")
	for _, action := range operator.AuditedActions() {
		must.Hold(t, tried[action] || slices.Contains(otherActions, action), "no route does %s", action)
	}
}

// otherActions have no routes of their own here.
var otherActions = []operator.Action{operator.ActionReveal, operator.ActionTokenCreate, operator.ActionTokenRevoke, operator.ActionJournalWentBack}

func (s *site) forgetAudit() {
	for more := true; more; {
		more = must.Get(s.srv.maintenance.PruneAuditLog(context.Background(), s.clock.AddDate(1, 0, 0))).Or(s.t)
	}
}

func checkRefused(t *testing.T, what string, of route, got operator.AuditEntry, request string) {
	want := got
	want.Actor, want.Auth, want.Role, want.From, want.RequestID, want.Outcome = "local", operator.AuthLocal, operator.RoleAdmin, "127.0.0.1", request, operator.AuditRefused
	want.Via, want.Action, want.Target, want.CampaignID, want.Seq = "page", of.action, "", "", 0
	for part, is := range map[string]func(){apiPrefix: func() { want.Via = "api" }, "{campaign}": func() { want.CampaignID = "c-1" }, "{seq}": func() { want.Seq = 2 }} {
		if strings.Contains(of.pattern, part) {
			is()
		}
	}
	for param, is := range map[string]operator.Target{"{run}": "run 1", "{operation}": "operation 1", "{token}": "token 1", "{name}": "projection campaigns", "{topic}": "publisher scenes/archive",
		"/publisher-names/": "publishers archive", "{rule}": "alert all", "{receiver}": "receiver chat", "{source}": "source shop"} {
		if strings.Contains(of.pattern, param) {
			want.Target = is
		}
	}
	must.Equal(t, got, want, what, "the record")
	must.Hold(t, got.Refusal != "", "%s: the record does not say why: %+v", what, got)
}

func TestAction_ofWhoLacksTheRoleLeavesARecord(t *testing.T) {
	s := ownSite(t)
	who := operator.Identity{Name: "vera", Auth: operator.AuthJWT, Role: operator.RoleViewer}
	r := httptest.NewRequest("POST", "http://127.0.0.1:8080/api/v1/rows/requeue", nil)
	r = r.WithContext(attempting(context.WithValue(r.Context(), identityKey{}, who), operator.ActionRequeueMany))
	for range 2 { // one request leaves one record, however many refusals it has
		s.srv.fail(httptest.NewRecorder(), r, needs(r, operator.RoleOperator))
	}
	acts := s.allActions()
	must.Hold(t, len(acts) == 1 && acts[0].Actor == "vera" && acts[0].Role == operator.RoleViewer && acts[0].Auth == operator.AuthJWT && acts[0].Via == "api" && strings.Contains(acts[0].Refusal, "operator"), "the records are %+v", acts)
}

func TestAction_leavesNoRecordWhereNothingWasRefused(t *testing.T) {
	var log strings.Builder
	s := ownSite(t, func(c *Config) { c.ReadOnly, c.Logger = true, slog.New(slog.NewTextHandler(&log, nil)) }).seed("c-1", "a")
	s.withPublisher(0).post("/api/v1/campaigns/c-1/pause", "{}").want(t, 403)
	n := len(s.allActions())
	must.Hold(t, n == 0 && strings.Count(log.String(), "action refused") == 1 && strings.Contains(log.String(), "level=INFO"), "a read-only server leaves %d records and logs:\n%s", n, &log)
	s = newSite(t).seed("c-1", "a").withPublisher(0)
	s.post("/api/v1/publishers/scenes/archive/seek", `{"dry_run":true,"position":99}`).want(t, 422)
	s.post("/api/v1/publishers/scenes/archive/seek", `{"dry_run":true,"position":-1}`).want(t, 422)
	s.post("/api/v1/campaigns/c-1/events", "{").want(t, 422)
	s.post("/api/v1/operations/preview", "{").want(t, 422)
	s.get("/campaigns/c-1/pause").want(t, 405)
	s.post("/api/v1/nothing", "{}").want(t, 404)
	must.Equal(t, len(s.allActions()), 0, "questions left records")
}

func TestAuditPage_marksWhatWasRefused(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	s.submit("/campaigns/c-1/resume", "").want(t, 409)
	s.get("/campaigns/c-1?act="+fmt.Sprint(s.allActions()[0].ID)).want(t, 200, "refused", "is not paused").lacks(t, "Resumed campaign c-1")
	s.get("/").want(t, 200).lacks(t, "Resumed campaign c-1")
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
		s := newSite(t, func(c *Config) { c.Embedded = embedded }).seed("c-1", "a")
		s.get("/audit").want(t, 200).lacks(t, setting)
		s.submit("/campaigns/c-1/resume", "").want(t, 409)
		s.forgetAudit()
		s.get("/audit").want(t, 200, "Records from before", "2027-11-21T07:00:00", "removed, as "+setting+" says.")
		s.get("/api/v1/audit").want(t, 200, `"removed_before":"2027-11-21T07:00:00Z"`)
	}
}

func TestPages_ofRunsOperationsAndEventsShowTheActionsOnThem(t *testing.T) {
	s := ownSite(t).seed("c-1", "a")
	run := s.startRun(`{"kind":"verify","campaign_id":"c-1"}`)
	s.post("/api/v1/runs/"+fmt.Sprint(run.ID)+"/resume", `{"reason":"again"}`).want(t, 409)
	s.get("/runs/"+fmt.Sprint(run.ID)).want(t, 200, "Started run", "✕</span> refused", "again", "Show all in the audit log")
	s.post("/api/v1/rows/c-1/1/requeue", `{"reason":"why not"}`).want(t, 409)
	s.get("/campaigns/c-1/events/1").want(t, 200, "✕</span> refused", "why not", `href="/audit?campaign=c-1&amp;seq=1"`)
}

// logging is a site in trouble and what returns, and forgets, the lines of its log since.
func logging(t *testing.T, level slog.Level, change ...func(*Config)) (*site, func() []map[string]any) {
	var log bytes.Buffer
	s := newSite(t, append(change, func(c *Config) {
		c.Logger = slog.New(redact.Builtin().Log(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})))
	})...).trouble()
	log.Reset()
	return s, func() (all []map[string]any) {
		for line := range strings.Lines(log.String()) {
			var one map[string]any
			must.OK(t, json.Unmarshal([]byte(line), &one))
			all = append(all, one)
		}
		log.Reset()
		return all
	}
}

func TestAccessLog_tellsOfARequestWithoutSecretsAndLineBreaks(t *testing.T) {
	t.Parallel()
	s, told := logging(t, slog.LevelInfo)
	a := s.get("/api/v1/campaigns/c-1?min_seq=1")
	lines := told()
	must.Need(t, len(lines) == 1, "%d lines: %v", len(lines), lines)
	for name, want := range map[string]any{"level": "INFO", "method": "GET", "path": "/api/v1/campaigns/c-1", "query": "min_seq=1", "route": "/api/v1/campaigns/{campaign}", "status": 200.0,
		"bytes": float64(len(a.body)), "identity": "local", "role": "admin", "from": "127.0.0.1", "request_id": a.Header.Get("X-Request-Id")} {
		must.Equal(t, lines[0][name], want, name, "is")
	}
	took, _ := lines[0]["duration_ms"].(float64)
	must.Hold(t, took > 0, "it took %v", lines[0]["duration_ms"])

	for _, target := range []string{"/rows?q=password%3Dhunterdeux&access_tok%65n=hunterdeux&api_key=hunterdeux&x=%zz%0aINFO", "/campaigns/" + url.PathEscape("a\nlevel=ERROR\x1b[2J\u202e"),
		"/campaigns/" + url.PathEscape("Bearer hunterdeux") + "/" + url.PathEscape(`{"password":"hunterdeux"}`), "/campaigns/" + strings.Repeat("x", 5000), "/rows?q=" + strings.Repeat("y", 5000)} {
		s.get(target)
	}
	lines = told()
	must.Need(t, len(lines) == 5, "%d lines", len(lines))
	for _, line := range lines {
		for name, value := range line {
			text, _ := value.(string)
			must.Hold(t, !strings.Contains(text, "hunterdeux") && !strings.ContainsAny(text, "\n\r\x1b\u202e") && len(text) <= 1100, "%s is %q", name, text)
		}
	}
}

// The id that a trusted proxy gives a request is beside ours in every log line about it, and where the
// reader is told of ours. Ours is the one of the answer.
func TestRequestID_ofATrustedProxyIsKeptBesideOurs(t *testing.T) {
	t.Parallel()
	trusts := true
	s, told := logging(t, slog.LevelInfo, func(c *Config) { c.Trusts = func(*http.Request) bool { return trusts } })
	s.srv.router.Get("/api/boom", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	long := strings.Repeat("x", 128)
	for _, tt := range []struct {
		what   string
		given  []string
		trusts bool
		want   any
	}{
		{"of a trusted proxy", []string{"7f3a-00 \"x\""}, true, "7f3a-00 \"x\""},
		{"at the limit", []string{long}, true, long},
		{"too long", []string{long + "x"}, true, nil},
		{"not ASCII", []string{"é"}, true, nil},
		{"a control character", []string{"a\tb"}, true, nil},
		{"empty", []string{""}, true, nil},
		{"twice", []string{"a", "b"}, true, nil},
		{"of a stranger", []string{"7f3a-00"}, false, nil},
	} {
		trusts = tt.trusts
		given := func(r *http.Request) { r.Header["X-Request-Id"] = tt.given }
		answers := []answer{s.get("/api/boom", given), s.get("/nope", given)}
		lines := told()
		must.Need(t, len(lines) == 2, "%s: %d lines", tt.what, len(lines))
		for i, line := range lines {
			own := answers[i].Header.Get("X-Request-Id")
			must.Hold(t, line["proxy_request_id"] == tt.want && line["request_id"] == own && len(own) == 36, "%s: the line is %v beside %q, want %q", tt.what, line, own, tt.want)
		}
		text, _ := tt.want.(string)
		must.Equal(t, decodeAs[problem](t, answers[0].want(t, 500)).ProxyRequestID, text, tt.what, "the problem")
		said := strings.Contains(answers[1].body, "the proxy’s <code>"+html.EscapeString(text)+"</code>")
		must.Hold(t, said == (text != "") && strings.Contains(answers[1].body, "the proxy’s") == said, "%s: the page is %s", tt.what, answers[1].body)
	}
}

// Repetitive requests without information, and those that anyone can send without limit, are logged only at debug level.
func TestAccessLog_keepsQuietAboutProbes(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 6} {
		s, told := logging(t, level)
		for _, target := range []string{"/healthz", "/readyz", "/metrics", "/static/none"} {
			s.get(target)
		}
		s.get("/", header("HX-Target", "live"))
		s.get("/", host("evil.example"))
		lines := slices.DeleteFunc(told(), func(line map[string]any) bool { return line["msg"] != "request" })
		must.Hold(t, len(lines) == want, "at %s the log has %v", level, lines)
		s.do(http.MethodPost, "/campaigns/c-2/pause", "", header("Origin", "https://evil.example"))
		lines = slices.DeleteFunc(told(), func(line map[string]any) bool { return line["msg"] != "request" })
		must.Hold(t, len(lines) == 1 && lines[0]["status"] == 403.0, "of a refused act the log has %v", lines)
	}
}
