package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/alerts"
	"github.com/outboxweb/outboxweb/internal/apitest"
	"github.com/outboxweb/outboxweb/internal/auth"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/engine"
	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/handlers"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

// A scenario is one action on a journal: what it changes, and what refuses it. It is tried by a page's
// form, the JSON API and the command line, each on databases of its own. All three make the same store
// call, whose own rules (one record, done once by a key, nothing without its record) are tested with the
// packages.
type scenario struct {
	name    string
	given   func(*scene)
	act     act
	page    string   // offers the action, unless it was done
	then    []string // the facts that it changes, see scene.facts
	later   []string // the facts that a worker then changes
	says    string   // on the page that follows the form
	prints  string   // by the command
	again   string   // how the same action is refused once it is done; empty where it may be repeated
	refused []refusal
}

// act is an action as all surfaces have it. Its address is in the table of actions.
type act struct {
	action          operator.Action
	on              string // the values in its path, in order
	reason, confirm string
	seen            map[string]any // what the page or the script was shown, if it says so
	form            string         // further fields of the form
	body            string         // further fields of the JSON body
	args            string         // of the command, if these are not the values in the path
	only            string         // surfaces that have it; empty for all
}

func (a act) at(on string) act            { a.on = on; return a }
func (a act) because(reason string) act   { a.reason = reason; return a }
func (a act) confirmed(phrase string) act { a.confirm = phrase; return a }
func (a act) by(surfaces string) act      { a.only = surfaces; return a }
func (a act) has(by surface) bool         { return a.only == "" || strings.Contains(a.only, by.name) }

// seeing is the action of a page or a script that was shown a state. Commands show none.
func (a act) seeing(name string, value any) act {
	a.seen, a.only = map[string]any{name: value}, "form json"
	return a
}

// with is the action with other fields, and other arguments of the command.
func (a act) with(form, body, args string) act {
	a.form, a.body, a.args = form, body, args
	return a
}

// refusal is an action that must change nothing.
type refusal struct {
	act    act
	status int // over HTTP
	says   string
}

// The statuses of refusals.
const (
	missing  = http.StatusNotFound
	conflict = http.StatusConflict
	invalid  = http.StatusUnprocessableEntity
)

// scene is a desk with what else acts on its journal.
type scene struct {
	*desk
	house *theatre
	*engine.Engine
	// behind are connections that bypass the program.
	behind struct{ journal, projections *sql.DB }
	http   http.Handler
	closed http.Handler      // of a read-only server
	known  map[string]string // the facts as changes left them
}

func (h *theatre) scene(t *testing.T) *scene {
	s := &scene{desk: &desk{t: t, set: h.set, pair: h.new(t)}, house: h}
	s.behind.journal, s.behind.projections = dbtest.Open(t, s.pair.Journal), dbtest.Open(t, s.pair.Projections)
	s.flags = []string{"--journal-db", s.pair.Journal, "--projections-db", s.pair.Projections, "--projections", h.dir, "--config", string(h.outside.Config)}
	s.serve()
	return s
}

// serve opens the databases, and has a server on them.
func (s *scene) serve() {
	h, t := s.house, s.t
	s.open(event.Retry{Base: time.Hour})
	s.Engine = s.st
	process := engine.New(engine.Config{Engine: s.Engine, Set: h.set, Logger: slog.New(slog.DiscardHandler), Metrics: engine.NewMetrics(s.Engine, "test", ""), NoWorker: true, NoIntake: true, NoPublish: true,
		Subscriptions: must.Get(h.outside.subscriptions()).Or(t), Alerts: s.Alerts(must.Get(section(&h.outside.Common, alertsKey, alerts.Parse)).Or(t), "test", nil)})
	gate := must.Get(auth.New(auth.Config{Kind: auth.KindHost, Who: func(r *http.Request) (operator.Identity, error) {
		return operator.Identity{Name: "ana", Role: operator.Role(r.Header.Get("Role"))}, nil
	}})).Or(t)
	s.http = process.Handler(handlers.Config{Auth: gate})
	s.closed = process.Handler(handlers.Config{Auth: gate, ReadOnly: true})
}

// has appends events of these types to a campaign, and lets the worker apply what it can.
func (s *scene) has(campaign string, types ...string) {
	var events []event.Event
	for _, kind := range types {
		events = append(events, event.Event{CampaignID: campaign, EventType: kind, Payload: json.RawMessage(`{"password":"` + secret + `"}`)})
	}
	must.Get(s.Append(s.t.Context(), store.Append{Events: events})).Or(s.t)
	s.work()
}

// sql changes the journal behind the program's back.
func (s *scene) sql(statements ...string) { s.run(s.behind.journal, statements) }

func (s *scene) run(db *sql.DB, statements []string) {
	for _, statement := range statements {
		must.Get(db.Exec(statement)).Or(s.t)
	}
	s.Changed()
}

func (s *scene) does(a act) {
	said := s.json(a, "", operator.RoleAdmin)
	must.Need(s.t, said.status < 300, "%s is answered with %d %s", a.action, said.status, said.text)
}

// facts are what actions change, by name: rows of the outbox, campaigns, skips and so on.
func (s *scene) facts() map[string]string {
	facts := map[string]string{}
	for query, db := range map[string]*sql.DB{journalFacts: s.behind.journal, projectionFacts: s.behind.projections} {
		for _, text := range storetest.Texts(s.t, db, query) {
			name, is, _ := strings.Cut(text, ": ")
			facts[name] = strings.TrimSuffix(is, ": ")
		}
	}
	return facts
}

const (
	journalFacts = `
select 'campaign ' || campaign_id || ': ' || 'applied ' || applied_seq || case when paused_at is null then '' else ', paused: ' || paused_reason end from campaigns
union all select 'row ' || campaign_id || ' ' || seq || ': ' || status || ' after ' || attempt_count
  || case when next_attempt_at > updated_at then ', waits' else '' end from projection_apply_outbox
union all select 'skip of ' || campaign_id || ' ' || seq || ': ' || reason || case when undone_at is null then '' else ', undone: ' || undone_reason end from skips
union all select 'note on ' || fingerprint || ': ' || note from group_notes
union all select 'operation ' || id || ': ' || status || ', ' || chosen || ' chosen, ' || waiting || ' waiting, ' || left_alone || ' left'
  || case when acknowledged_at is null then '' else ', acknowledged' end from operations
union all select 'publisher ' || topic || '/' || publisher || ': ' || status || ' at ' || position || ' after ' || error_count || ' errors'
  || case when last_error = '' then '' else ', ' || last_error end || case when stopped = 0 then '' else ', stopped' end || case when retry_at is null then '' else ', retries' end
  || case when lease_owner = '' then ', free in ' else ', held in ' end || lease_epoch || ': ' || paused_reason from publisher_progress
union all select 'run ' || id || ': ' || kind || ' ' || status from runs
union all select 'row ' || row_key || ' of source ' || source || ': ' || status || ': ' || change_reason from intake_rejections
union all select 'rule ' || case when rule = '' then 'all' else rule end || ': muted: ' || reason from alert_mutes
union all select 'finding ' || kind || ' ' || subject || ': taken: ' || note from finding_owners
union all select 'token ' || id || ': ' || case when revoked_at is null then 'valid' else 'revoked' end from tokens
union all select 'source ' || source || ': ' || case when owner <> '' and handed_over < owned_since then 'of another journal' else 'of this journal' end from intake_sources`
	projectionFacts = `
select 'projection ' || projection || ': ' || case when paused_at is null then 'live' else 'paused: ' || reason end from projection_versions
union all select 'projection ' || projection || ' in ' || campaign_id || ': ' || state || ' at ' || applied_seq || ': ' || reason from projection_cursors`
)

// changes calls do and returns the facts that it changed, sorted.
func (s *scene) changes(do func()) []string {
	if s.known == nil {
		s.known = s.facts()
	}
	before, all := s.known, []string{}
	do()
	s.known = s.facts()
	for name, is := range s.known {
		if was, existed := before[name]; !existed || was != is {
			all = append(all, name+": "+is)
		}
	}
	for name := range before {
		if _, exists := s.known[name]; !exists {
			all = append(all, name+": none")
		}
	}
	slices.Sort(all)
	return all
}

// records are what audit records say, oldest first.
func (s *scene) records() []string {
	return storetest.Texts(s.t, s.behind.journal, `select action || ' ' || outcome || ' by ' || actor || ' via ' || via || ' in ' || request_id || ': ' || reason from audit_log order by id`)
}

// answer is what a surface says to an action. The status is that of HTTP, or the exit code.
type answer struct {
	status                        int
	text, request, location, also string
}

// surface is a way to act.
type surface struct {
	name string
	do   func(s *scene, a act, key string, role operator.Role) answer
	by   string // the actor and the way in its records
}

var surfaces = []surface{{"form", (*scene).form, "ana via page"}, {"json", (*scene).json, "ana via api"}, {"command", (*scene).cli, osUser() + " via cli"}}

func (a act) path() string {
	path := a.action.Info().Path
	for value := range strings.FieldsSeq(a.on) {
		before, rest, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(rest, "}")
		path = before + url.PathEscape(value) + after
	}
	return path
}

// form sends the action as a page without scripts does.
func (s *scene) form(a act, key string, role operator.Role) answer {
	values := must.Get(url.ParseQuery(a.form)).Or(s.t)
	for name, value := range a.seen {
		values.Set("expected_"+name, fmt.Sprint(value))
	}
	for name, value := range map[string]string{"reason": a.reason, "confirm": a.confirm, "idempotency_key": key} {
		if value != "" {
			values.Set(name, value)
		}
	}
	said := s.send(s.http, http.MethodPost, a.path(), values.Encode(), role, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Sec-Fetch-Site": {"same-origin"}})
	if said.status == http.StatusSeeOther {
		page := s.send(s.http, http.MethodGet, said.location, "", role, http.Header{})
		must.Hold(s.t, page.status == http.StatusOK, "the form leads to %s, which is answered with %d", said.location, page.status)
		said.also = page.text
	}
	return said
}

// json sends the action as a script does.
func (s *scene) json(a act, key string, role operator.Role) answer {
	header := http.Header{"Content-Type": {"application/json"}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	said := s.send(s.http, http.MethodPost, "/api/v1"+a.path(), a.json(s.t), role, header)
	must.Hold(s.t, said.location == "" || s.send(s.http, http.MethodGet, said.location, "", role, http.Header{}).status == http.StatusOK, "it leads to %s, which is not there", said.location)
	return said
}

func (a act) json(t *testing.T) string {
	body := map[string]any{}
	if a.body != "" {
		must.OK(t, json.Unmarshal([]byte(a.body), &body))
	}
	for name, value := range map[string]string{"reason": a.reason, "confirm": a.confirm} {
		if value != "" {
			body[name] = value
		}
	}
	if len(a.seen) > 0 {
		body["expected"] = a.seen
	}
	return string(must.Get(json.Marshal(body)).Or(t))
}

var document = sync.OnceValues(func() (*apitest.Document, error) {
	text, err := os.ReadFile(filepath.Join(root, "internal", "handlers", "openapi.json"))
	if err != nil {
		return nil, err
	}
	return apitest.Parse(text, "/api/v1")
})

// send sends a request. No answer may show a secret; those of the API are as its document says, and pages show
// commands that the program takes.
func (s *scene) send(to http.Handler, method, target, body string, role operator.Role, header http.Header) answer {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, strings.NewReader(body))
	r.RemoteAddr, r.Header = "127.0.0.1:5555", header
	header.Set("Role", string(role))
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	text := must.Get(io.ReadAll(w.Result().Body)).Or(s.t)
	must.Hold(s.t, !strings.Contains(string(text), secret), "%s %s shows a secret: %s", method, target, text)
	if strings.HasPrefix(target, "/api/") {
		r.Body = io.NopCloser(strings.NewReader(body))
		operation, err := must.Get(document()).Or(s.t).Check(r, w.Code, w.Header(), text)
		must.Hold(s.t, err == nil && operation != "", "%s %s is not as documented: %q, %v", method, target, operation, err)
	} else {
		readsCommands(s.t, target, string(text))
	}
	return answer{status: w.Code, text: string(text), request: w.Header().Get("X-Request-Id"), location: w.Header().Get("Location")}
}

// cli runs the command of the action, which has neither keys nor roles.
func (s *scene) cli(a act, _ string, _ operator.Role) answer {
	words := strings.Fields(a.action.Command())
	switch {
	case a.args != "":
		words = append(words, strings.Fields(a.args)...)
	case strings.Contains(a.action.Info().Path, "{topic}"):
		words = append(words, strings.ReplaceAll(a.on, " ", "/"))
	default:
		words = append(words, strings.Fields(a.on)...)
	}
	for flag, value := range map[string]string{"--reason": a.reason, "--confirm": a.confirm} {
		if value != "" {
			words = append(words, flag, value)
		}
	}
	out, errs, code := here(s.t.Context(), append(words, s.flags...)...)
	return answer{status: code, text: errs, also: out}
}

func (c scenario) play(t *testing.T, h *theatre, by []surface) {
	for _, by := range by {
		t.Run(by.name, func(t *testing.T) {
			t.Parallel()
			s := h.scene(t)
			c.given(s)
			for _, r := range c.refused {
				s.wantRefused(by, r)
			}
			if c.then != nil {
				s.wantDone(by, c)
			}
			if c.again != "" {
				s.wantRefused(by, refusal{c.act, conflict, c.again})
			}
			if later := s.changes(s.work); c.later != nil {
				wantFacts(t, "later", c.later, later)
			}
		})
	}
}

func wantFacts(t *testing.T, when string, want, got []string) {
	must.Same(t, got, slices.Sorted(slices.Values(want)), when, "it changes")
}

// wantDone performs the action, for which a lesser role and a read-only server are refused, and repeats
// it under its key.
func (s *scene) wantDone(by surface, c scenario) {
	web := by.name != "command"
	if web {
		s.wantNotAllowed(by, c.act)
	}
	s.wantOffer(c, true)
	before := len(s.records())
	var said answer
	wantFacts(s.t, "at once", c.then, s.changes(func() { said = by.do(s, c.act, "k-1", c.act.action.Role()) }))
	must.Need(s.t, said.status < 400 && (web || said.status == exitDone), "it is answered with %d %s", said.status, said.text)
	want := map[string]string{"form": c.says, "command": c.prints}[by.name]
	must.Hold(s.t, strings.Contains(strings.Join(strings.Fields(said.also), " "), want), "it does not say %q: %s", want, said.also)
	if web {
		wantFacts(s.t, "repeated", nil, s.changes(func() {
			again := by.do(s, c.act, "k-1", c.act.action.Role())
			must.Hold(s.t, again.status == said.status && again.location == said.location, "under its key it is answered with %d %s", again.status, again.location)
		}))
	}
	s.wantRecords(before, fmt.Sprintf("%s done by %s in %s: %s", c.act.action, by.by, said.request, c.act.reason))
	s.wantOffer(c, c.again == "")
}

var postForm = regexp.MustCompile(`<form [^>]*method="post"[^>]*>`)

// wantOffer looks for the form of the action on its page, with its phrase and a key.
func (s *scene) wantOffer(c scenario, want bool) {
	if c.page == "" {
		return
	}
	s.Changed()
	said := s.send(s.http, http.MethodGet, c.page, "", operator.RoleAdmin, http.Header{})
	forms := postForm.FindAllString(said.text, -1)
	offers := slices.ContainsFunc(forms, func(form string) bool { return strings.Contains(form, ` action="`+c.act.path()+`"`) })
	told := strings.Contains(said.text, `name="idempotency_key"`) && strings.Contains(said.text, c.act.confirm)
	must.Hold(s.t, !offers || told, "%s does not have a key, or does not tell the phrase %q", c.page, c.act.confirm)
	must.Hold(s.t, said.status == http.StatusOK && offers == want, "%s, answered with %d, offers the action: %t, want %t: %s", c.page, said.status, offers, want, forms)
}

func (s *scene) wantRecords(before int, want ...string) {
	must.Same(s.t, s.records()[before:], want, "the audit records")
}

// wantNotAllowed tries the action with the role below the one that it needs, and on a read-only server,
// which records nothing.
func (s *scene) wantNotAllowed(by surface, a act) {
	lesser := operator.Roles[slices.Index(operator.Roles, a.action.Role())-1]
	s.wantRefusedAs(by, lesser, refusal{a, http.StatusForbidden, "role"})
	open, before := s.http, len(s.records())
	s.http = s.closed
	said := by.do(s, a, "", operator.RoleAdmin)
	must.Hold(s.t, said.status == http.StatusForbidden && strings.Contains(said.text, "read-only"), "a read-only server answers with %d %s", said.status, said.text)
	s.http = open
	s.wantRecords(before)
}

func (s *scene) wantRefused(by surface, r refusal) {
	if r.act.has(by) {
		s.wantRefusedAs(by, r.act.action.Role(), r)
	}
}

// wantRefusedAs fails the test unless the action is refused, changes nothing and leaves one record; a
// command that is used wrongly leaves none.
func (s *scene) wantRefusedAs(by surface, role operator.Role, r refusal) {
	before := len(s.records())
	var said answer
	wantFacts(s.t, "refused", nil, s.changes(func() { said = by.do(s, r.act, "", role) }))
	what := fmt.Sprintf("%s %s %q %q %v %s", r.act.action, r.act.on, r.act.reason, r.act.confirm, r.act.seen, r.act.form+r.act.args)
	if by.name == "command" {
		must.Hold(s.t, said.status != exitDone && said.also == "", "%s: it ends with %d %s", what, said.status, said.also)
	} else {
		must.Equal(s.t, said.status, r.status, what, "is answered with")
	}
	must.Hold(s.t, strings.Contains(strings.ToLower(said.text), strings.ToLower(r.says)), "%s: the refusal does not say %q: %s", what, r.says, said.text)
	if by.name == "command" && len(s.records()) == before {
		return
	}
	want := fmt.Sprintf("%s refused by %s in %s: ", r.act.action, by.by, said.request)
	if all := s.records(); len(all) > before && (all[before] != want || r.status != http.StatusForbidden && r.status != invalid) {
		want += r.act.reason // unless it was refused before its body was read
	}
	s.wantRecords(before, want)
}

// TestActs plays the scenarios by every surface, or in the short form by one surface after the other.
func TestActs(t *testing.T) {
	t.Parallel()
	playAll(t, newTheatre(t, "sqlite"), !testing.Short())
}

func playAll(t *testing.T, h *theatre, byAll bool) {
	for i, c := range scenarios {
		by := slices.DeleteFunc(slices.Clone(surfaces), func(by surface) bool { return !c.act.has(by) })
		if !byAll {
			by = by[i%len(by):][:1]
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.play(t, h, by)
		})
	}
}

func TestActs_areAllOfTheTable(t *testing.T) {
	t.Parallel()
	played := map[operator.Action]bool{}
	for _, c := range scenarios {
		played[c.act.action] = true
	}
	for _, action := range operator.AuditedActions() {
		must.Hold(t, played[action] != (playedElsewhere[action] != ""), "%s needs a scenario, or else a reason to have none", action)
	}
}

// TestPostgresActs plays the scenarios on PostgreSQL, each by one surface after the other.
func TestPostgresActs(t *testing.T) {
	t.Parallel()
	size.Full(t, "they are acted on SQLite")
	playAll(t, newTheatre(t, "postgres").copies(t), size.Soak())
}
