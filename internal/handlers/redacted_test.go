package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/campaign"
	"github.com/outboxweb/outboxweb/internal/database"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/projection"
	"github.com/outboxweb/outboxweb/internal/redact"
	"github.com/outboxweb/outboxweb/internal/replay"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/subscription"
)

// leak is part of every secret of these tests, and of nothing else.
const leak = "Leak7"

// secretForms are secrets of some forms, composed here so that no scanner reports this file; package redact knows all forms.
var secretForms = []string{"-----BEGIN " + "PRIVATE KEY-----\nMII" + leak + "\n-----END " + "PRIVATE KEY-----", "Bearer " + leak, "postgres://ana:" + leak + "@db/x", "password=" + leak}

// secretText is a text with secrets, and its place.
func secretText(place string) string {
	return "at " + place + " " + strings.Join(secretForms, " then ") + " done"
}

// secretJSON is a document with a secret under a key, those of secretForms, and one in a text that is JSON itself.
func secretJSON(place string) string {
	text, err := json.Marshal(map[string]any{"place": place, "password": map[string]string{"is": leak}, "apiKey": leak, "notes": secretForms, "inner": `{"token":"` + leak + `"}`})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// leaky is a site whose store has secrets in every place that holds texts.
func leaky(t *testing.T, config redact.Config, change ...func(*Config)) (*site, *bytes.Buffer) {
	hide := must.Get(redact.New(config)).Or(t)
	var log bytes.Buffer
	diff := []replay.ProjectionResult{{Projection: "campaigns", Verdict: campaign.VerdictDrift, Error: secretText("projection error"), ErrorSeq: 1, Comparison: &projection.Comparison{Changed: 1, ReplayedWith: campaign.ReplayedWith{RowsBuilt: campaign.RowsBuilt{BuiltVersions: []campaign.LoadedVersion{}}},
		Samples: []projection.RowChange{{Table: "t", Kind: projection.RowChanged, Key: []projection.Field{{Name: "api_key", Value: json.RawMessage(`"` + leak + `"`)}},
			Fields: []projection.FieldChange{{Name: "note", Live: must.Get(json.Marshal(secretText("live"))).Or(t), Expected: must.Get(json.Marshal(secretJSON("fold"))).Or(t)}, {Name: "password", Live: json.RawMessage(`"` + leak + `"`)}}}}}}}
	change = append([]func(*Config){func(c *Config) {
		c.Redact = hide
		c.Logger = slog.New(hide.Log(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		c.Settings = []database.Setting{{Name: "journal-db", Value: secretText("setting")}}
		c.DryRun = func(context.Context, replay.Trial) (replay.RunResult, error) {
			return replay.RunResult{CampaignID: "c-1", Outcome: replay.OutcomeFailed, Seq: 2, Projections: diff, Error: secretText("dry run"), Rehearsed: &replay.Rehearsed{Head: 2, FailedSeq: 2, EventType: poison}}, nil
		}
		c.Explain = func(context.Context, projection.Hider, string, int64) (projection.EventExplanation, error) {
			return projection.EventExplanation{CampaignID: "c-1", Seq: 2, EventType: poison, Failures: []projection.ExplainedFailure{{Projection: "campaigns", Error: secretText("explanation"),
				Statement: &projection.FailedStatement{Lines: []projection.SourceLine{}, Values: []projection.BoundValue{{Name: ":payload", Value: must.Get(json.Marshal(secretJSON("bound"))).Or(t), Columns: []string{"note"}, Computed: []string{}}}},
				Existing:  &projection.ExistingRow{Fields: []projection.Field{{Name: "api_key", Value: json.RawMessage(`"` + leak + `"`)}, {Name: "note", Value: must.Get(json.Marshal(secretJSON("existing"))).Or(t)}}}}}}, nil
		}
		c.TestPublisher = func(context.Context, operator.SubscriptionName) (subscription.TestDelivery, error) {
			return subscription.TestDelivery{SubscriptionName: operator.SubscriptionName{Topic: "scenes", Publisher: "archive"}, Error: secretText("test delivery")}, nil
		}
	}}, change...)
	s := newSite(t, change...)
	ctx := context.Background()
	var events []event.Event
	for _, eventType := range []string{"a", poison, "b", "c"} {
		events = append(events, event.Event{CampaignID: "c-1", EventType: eventType, SessionID: "Bearer " + leak,
			Payload: json.RawMessage(secretJSON("payload")), Metadata: json.RawMessage(secretJSON("metadata")), Tags: json.RawMessage(`{"token":"` + leak + `","x":"password=` + leak + `"}`)})
	}
	must.Get(s.store.Append(ctx, store.Append{Events: events})).Or(t)
	s.seed("c-2", poison, "a").seed("c-3", "a").work().startRun(`{"kind":"verify","campaign_id":"c-1","reason":"x"}`)
	s.post("/api/v1/operations", `{"rows":[{"campaign_id":"c-1","seq":2}],"reason":"x"}`).want(t, 202)
	s.withPublisher(0).publisherFails(2, "event")
	s.post("/api/v1/rows/c-2/1/skip", `{"reason":"x","confirm":"skip c-2 1"}`).want(t, 200)
	s.post("/api/v1/campaigns/c-3/pause", `{"reason":"x"}`).want(t, 200)
	s.post("/api/v1/failures/groups/note", string(must.Get(json.Marshal(campaign.NoteRequest{Fingerprint: event.Fingerprint(`seat "7" is <taken>`), Note: secretText("note")})).Or(t))).want(t, 200)
	fillWithSecrets(t, s, string(must.Get(json.Marshal(diff)).Or(t)))
	return s, &log
}

func fillWithSecrets(t *testing.T, s *site, diff string) {
	for _, column := range []string{
		"projection_apply_outbox.last_error", "attempts.error", "campaigns.paused_reason", "group_notes.note", "skips.error", "skips.reason", "skips.undone_reason",
		"operations.reason", "operations.stop_reason", "operation_groups.example", "operation_groups.reason", "operation_rows.detail",
		"runs.reason", "runs.error", "publisher_progress.last_error", "publisher_progress.paused_reason",
	} {
		table, name, _ := strings.Cut(column, ".")
		s.kit.Exec(fmt.Sprintf("update %s set %s = $1", table, name), secretText(column))
		must.Need(t, s.kit.Number("select count(*) from "+table) > 0, "nothing has a %s", column)
	}
	for query, args := range map[string][]any{
		`update campaigns set diverged = $1 where campaign_id = 'c-2'`:                                                                                             {secretText("diverged")},
		`insert into run_log (run_id, at, campaign_id, text) values (1, 1, 'c-1', $1)`:                                                                             {secretText("run log")},
		`insert into run_results (run_id, campaign_id, outcome, seq, events, full_digest, projections, error, at) values (1, 'c-1', 'drift', 1, 1, '', $1, $2, 1)`: {diff, secretText("result")},
		`insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, outcome, refusal)
values (1, 'ana', 'page', '', 'requeue', 'c-1', 2, $1, $1, $2, '', '', '{}', 'refused', $2)`: {secretJSON("act"), secretText("act")},
		`insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, target)
values (1, 'ana', 'page', '', 'publisher_pause', '', 0, '{"topic":"scenes","publisher":"archive"}', $1, $2, '', '', '{}', 'publisher scenes/archive')`: {secretJSON("act"), secretText("act")},
		`insert into audit_log (at, actor, via, origin, action, campaign_id, seq, before, after, reason, request_id, idempotency_key, result, target)
values (1, 'ana', 'page', '', 'projection_pause', '', 0, '{}', $1, $2, '', '', '{}', 'projection campaigns')`: {secretJSON("act"), secretText("act")},
	} {
		s.kit.Exec(query, args...)
	}
	s.kit.ExecProjections(`insert into failures (campaign_id, projection, seq, event_type, fingerprint, message, attempts, first_at, last_at) values ('c-1', 'campaigns', 2, 'a', 'f', $1, 1, 1, 1)`, secretText("failure"))
}

func (a answer) leaks(t *testing.T, what string) {
	text := a.body
	for name, values := range a.Header {
		text += "\n" + name + ": " + strings.Join(values, ", ")
	}
	i := strings.Index(text, leak)
	must.Hold(t, i < 0, "%s: a secret gets out: …%s…", what, text[max(0, i-120):min(len(text), max(0, i)+30)])
}

func addresses(route string) []string {
	target := plain.Replace(route)
	all := []string{target}
	switch {
	case strings.Contains(route, "/export/"):
		all = append(all, target+"?format=json")
	case strings.HasSuffix(route, "/tree"):
		all = append(all, target+"?part=metadata", target+"?part=tags", target+"?at=/password", target+"?at=/notes")
	case route == "/", strings.HasSuffix(route, "/runs/{run}"), strings.HasSuffix(route, "/audit"):
		for id := 1; id <= 8; id++ {
			all = append(all, fmt.Sprintf("%s?act=%d", target, id))
		}
	case strings.HasSuffix(route, "/runs/new"):
		all = append(all, target+"?kind=verify&campaign_ids=c-1")
	case strings.HasSuffix(route, "/operations/new"):
		all = append(all, target+"?campaign=c-1")
	case strings.HasSuffix(route, "/rows"):
		all = append(all, target+"?q=Leak", target+"?campaign=c-1")
	case strings.HasSuffix(route, "/failures"):
		all = append(all, target+"?status=all&fingerprint=f")
	case strings.HasSuffix(route, "/campaigns/{campaign}"), strings.HasSuffix(route, "/rows/{campaign}/{seq}"), strings.HasSuffix(route, "/skips"):
		all = append(all, strings.ReplaceAll(target, "c-1", "c-3"), strings.ReplaceAll(strings.ReplaceAll(target, "c-1", "c-2"), "/2", "/1"))
	}
	return all
}

func TestRedaction_noSecretGetsOutAnywhere(t *testing.T) {
	for name, config := range map[string]redact.Config{"shown": {}, "hidden": {HidePayloads: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, log := leaky(t, config)
			asked := 0
			walk := func(method string, ask func(route string)) {
				must.OK(t, chi.Walk(s.srv.router, func(is, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
					if is == method {
						asked++
						ask(route)
					}
					return nil
				}))
			}
			walk(http.MethodGet, func(route string) {
				for _, target := range addresses(route) {
					s.get(target).leaks(t, "GET "+target)
					s.get(target, header("HX-Request", "true"), header("HX-Target", "live")).leaks(t, "GET "+target+" by htmx")
				}
			})
			walk(http.MethodPost, func(route string) {
				if strings.HasSuffix(route, "/reveal") {
					return
				}
				target := plain.Replace(route)
				if strings.HasPrefix(route, apiPrefix) {
					s.post(target, `{"reason":"r"}`).leaks(t, "POST "+target)
					return
				}
				s.submit(target, "reason=r").leaks(t, "POST "+target)
			})
			must.Hold(t, asked >= 90, "only %d addresses were asked", asked)
			s.srv.Logger.Error("request failed", "err", errors.New(secretText("log")))
			must.Hold(t, !strings.Contains(log.String(), leak) && strings.Contains(log.String(), redact.Mark), "the log has a secret, or none of it was hidden: %s", log)
		})
	}
}

func TestRedaction_saysWhatIsHiddenAndSearchDoesNot(t *testing.T) {
	t.Parallel()
	s, _ := leaky(t, redact.Config{})
	e := decodeAs[event.Event](t, s.get("/api/v1/campaigns/c-1/events/2").want(t, 200))
	for _, place := range []string{"session_id", "payload.password", "payload.apiKey", "payload.notes[0]", "payload.inner", "metadata.password", "tags.token"} {
		must.Hold(t, slices.Contains(e.Redacted, place), "%s is not among the places %q", place, e.Redacted)
	}
	must.Hold(t, strings.Contains(string(e.Payload), `"password":"[redacted]"`), "the payload is %s", e.Payload)
	s.get("/campaigns/c-1/events/2").want(t, 200, "[redacted]", `data-testid="reveal"`)
	s.get("/campaigns/c-1/events/2?tab=payload").want(t, 200, "hidden: looks like a secret", "payload.apiKey", "as stored, except redacted values", `data-testid="reveal"`)
	s.get("/api/v1/campaigns/c-2/events/2").want(t, 200, `"redacted":[]`)
	s.get("/api/v1/campaigns/c-1/events/2/payload").want(t, 200, `"apiKey":"[redacted]"`)
	back := must.Get(json.Marshal(e)).Or(t)
	s.post("/api/v1/campaigns/c-1/events", string(back)).want(t, 422, "contains redacted values")

	// Neither cursors nor counts reveal whether rows contain a hidden text.
	first := decodeAs[event.Page[campaign.Row]](t, s.get("/api/v1/rows?limit=1&q=outbox.last_error").want(t, 200, `"total":5`))
	for _, reading := range []string{"", "&status=failed", "&campaign=c-1", "&reverse=true", "&status=dead", "&cursor=" + *first.NextCursor} {
		nothing := s.get("/api/v1/rows?limit=1&q=Leak8"+reading).want(t, 200, `"items":[]`)
		s.get("/api/v1/rows?limit=1&q="+leak+reading).want(t, 200, nothing.body)
	}
	s.get("/api/v1/rows?q="+leak).want(t, 200, `"items":[]`, `"total":0`)
	s.get("/export/rows?q="+leak).want(t, 200).lacks(t, "c-1")
}

// A projection may have a name that is otherwise a secret's key.
func TestRedaction_keepsDigestsOfProjections(t *testing.T) {
	t.Parallel()
	run := redact.Shown(redact.Builtin(), replay.Run{Versions: map[string]string{"access_tokens": "3"}, Digests: map[string]string{"access_tokens": "sha256:a"},
		Before: map[string]string{"access_tokens": "sha256:b"}, Error: "password=" + leak})
	must.Hold(t, run.Versions["access_tokens"] == "3" && run.Digests["access_tokens"] == "sha256:a" && run.Before["access_tokens"] == "sha256:b" && !strings.Contains(run.Error, leak), "shown is %+v", run)
}

func TestRedaction_hidesPayloadsAltogether(t *testing.T) {
	t.Parallel()
	s, _ := leaky(t, redact.Config{HidePayloads: true})
	s.get("/api/v1/campaigns/c-1/events/2").want(t, 200, `"payload":null`, `"metadata":null`, `"tags":null`, `"payload","metadata","tags"`)
	s.get("/campaigns/c-1/events/2").want(t, 200, "--hide-payloads", `data-testid="reveal"`).lacks(t, `data-testid="download"`, `data-testid="tree-payload"`)
	s.get("/campaigns/c-1/events/2/tree").want(t, 403, "--hide-payloads")
	s.get("/api/v1/campaigns/c-1/events/2/payload").want(t, 403, "urn:outboxweb:hidden")
	s.get("/rows/c-1/2/dry-run").want(t, 200, "hidden on this server").lacks(t, "at live", "at fold", "looks like a secret")
}

func TestReveal_showsAnAdminWhatIsStoredAndLeavesARecord(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]redact.Config{"shown": {}, "hidden": {HidePayloads: true}} {
		s, _ := leaky(t, config)
		const page, api = "/campaigns/c-1/events/2/reveal", "/api/v1/campaigns/c-1/events/2/reveal"
		s.submit(page, "reason=").want(t, 422, "Revealing an event requires a reason").leaks(t, name)
		s.submit(page, "reason=the+call+of+eve").want(t, 200, leak, "at attempts.error", "Nothing is redacted here")
		a := s.post(api, `{"reason":"the call of eve"}`, header("Idempotency-Key", "k")).want(t, 200, `"redacted":[]`, leak)
		must.Equal(t, a.Header.Get("Cache-Control"), "no-store", "Cache-Control")
		s.post(api, `{"reason":"the call of eve"}`, header("Idempotency-Key", "k")).want(t, 200, leak)
		acts, err := s.store.AuditLog(context.Background(), operator.AuditFilter{Action: operator.ActionReveal, Outcome: operator.AuditDone})
		must.Hold(t, err == nil && len(acts.Items) == 3 && !strings.Contains(string(must.Get(json.Marshal(acts.Items)).Or(t)), leak), "%s: the records are %+v (%v)", name, acts.Items, err)
		s.get("/audit?action=reveal").want(t, 200, "Revealed redacted values of event 2 of campaign c-1.")
	}
}

func TestRedaction_hidesInTheSentencesOfErrorsAndBeforeSentencesAreMade(t *testing.T) {
	s := ownSite(t, func(c *Config) {
		c.InlineApply = func(context.Context, string) error { return event.Conflict("stopped: password=%s", leak) }
	}).seed("c-1", "a")
	for _, target := range []string{"/rows/c-1/password=" + leak, "/api/v1/rows/c-1/password=" + leak, "/export/rows?format=password%3D" + leak} {
		s.get(target).want(t, 422, "password=[redacted]").leaks(t, target)
	}
	s.post("/api/v1/campaigns/c-1/events", `{"event_type":"a","payload":{}}`).want(t, 201, "password=[redacted]").leaks(t, "append")
	// Inside a sentence a document is not recognized as one, and secrets in its escapes cannot be found.
	s.post("/api/v1/campaigns/c-1/pause", string(must.Get(json.Marshal(operator.ReasonRequest{Reason: `{"pass\u0077ord":"` + leak + `"}`})).Or(t))).want(t, 200, "redacted").leaks(t, "pause")
	for _, target := range []string{"/campaigns/c-1", "/campaigns", "/", "/audit", "/api/v1/campaigns/c-1", "/api/v1/campaigns", "/export/campaigns", "/export/campaigns?format=json"} {
		s.get(target).want(t, 200, "[redacted]").leaks(t, target)
	}
}

// doors are the files that may write answers, and how they hide secrets.
var doors = map[string]string{
	"doors.go":         "redact.Shown(s.Redact, v)",
	"problem.go":       "redact.Shown(s.Redact, p)",
	"export.go":        "redact.Shown(by, items)",
	"documents.go":     "s.Redact.JSON(",
	"page_overview.go": "redact.Shown(s.Redact, view)",
	"openapi.go":       "bytes.Replace(openapi", // the same for every reader
}

// Answers from the store contain secrets: an answer written anywhere else might too.
func TestRedaction_nothingLeavesButThroughADoor(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`\.Render\(|json\.(Marshal|NewEncoder)|\.Write\(|\.WriteString\(|Fprint|ServeContent\(|Handler\(templ|pageFunc\(func`)
	files, found := must.Get(filepath.Glob("*.go")).Or(t), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text := string(must.Get(os.ReadFile(name)).Or(t))
		if hides, door := doors[name]; door {
			found++
			must.Hold(t, strings.Contains(text, hides) && writes.MatchString(text), "%s is no door: it does not write, or does not hide secrets with %s", name, hides)
			continue
		}
		for i, line := range strings.Split(text, "\n") {
			must.Hold(t, !writes.MatchString(line) || strings.Contains(line, "h.Write(") || strings.Contains(line, `"ok\n"`), "%s:%d writes an answer past the doors: %s", name, i+1, line)
		}
	}
	must.Equal(t, found, len(doors), "the doors that are there")
}
