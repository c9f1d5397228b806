package outboxweb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb"
	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m, "^TestEngine_(applies|moves|leaves)")) }

// orders is a read model of orders, one row a campaign.
func orders() outboxweb.Projection {
	return outboxweb.Projection{Name: "orders", Version: "1", Tables: []string{"orders"},
		Schema: `create table orders (campaign_id text primary key, item text not null, state text not null, changes bigint not null)`,
		On: map[string]outboxweb.Apply{
			"order.placed": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
				var p struct{ Item string }
				if err := json.Unmarshal(ev.Payload, &p); err != nil {
					return err
				}
				if p.Item == "" {
					return errors.New("the order has no item")
				}
				return tx.Exec(ctx, `insert into orders (campaign_id, item, state, changes) values ($1, $2, 'placed', 0)`, ev.CampaignID, p.Item)
			},
			"order.*": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
				rows, err := tx.Query(ctx, `select changes from orders where campaign_id = $1`, ev.CampaignID)
				if err != nil || !rows.Next() {
					return err
				}
				var changes int
				if err := rows.Scan(&changes); err != nil {
					return err
				}
				return tx.Exec(ctx, `update orders set changes = $2, state = $3 where campaign_id = $1`, ev.CampaignID, changes+1, strings.TrimPrefix(ev.EventType, "order."))
			},
		}}
}

func open(t *testing.T, change ...func(*outboxweb.Config)) *outboxweb.Engine {
	t.Helper()
	p := dbtest.New(t)
	c := outboxweb.Config{JournalDB: p.Journal, ProjectionsDB: p.Projections, BasePath: "/admin/outbox", MaxAttempts: 1}
	for _, f := range change {
		f(&c)
	}
	e := must.Get(outboxweb.Open(t.Context(), c)).Or(t)
	t.Cleanup(func() { e.Close() })
	return e
}

func run(t *testing.T, e *outboxweb.Engine) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		err := <-ended
		must.Hold(t, err == nil, "run: %v", err)
	})
}

func placed(campaign, item string) outboxweb.Event {
	return outboxweb.Event{CampaignID: campaign, EventID: campaign + "-placed", EventType: "order.placed", Payload: json.RawMessage(`{"item":"` + item + `"}`), Tags: map[string]string{"item": item}}
}

func TestEngine_appliesWhatIsAppended(t *testing.T) {
	t.Parallel()
	e := open(t)
	must.OK(t, e.Project(orders()))
	run(t, e)
	got, err := e.Append(t.Context(), placed("o-1", "tea"), outboxweb.Event{CampaignID: "o-1", EventType: "order.paid", Payload: json.RawMessage(`{}`)})
	must.Need(t, err == nil && len(got) == 2 && got[1].Seq == 2 && got[1].Position > got[0].Position, "appended %+v, %v", got, err)
	must.OK(t, e.WaitApplied(wait(t), "o-1", 2))
	again, err := e.Append(t.Context(), placed("o-1", "tea"))
	must.Hold(t, err == nil && again[0].Existed && again[0].Seq == 1, "the same event again: %+v, %v", again, err)
	_, err = e.Append(t.Context(), placed("o-1", "coffee"))
	is(t, err, outboxweb.ErrConflict, "another event with its id")
	is(t, e.Project(orders()), outboxweb.ErrSetup, "a projection after Run")
	is(t, e.WaitApplied(wait(t), "o-2", 1), outboxweb.ErrNotFound, "an unknown campaign")
}

func is(t *testing.T, got, want error, of string) {
	t.Helper()
	must.Hold(t, errors.Is(got, want), "%s: %v, want %v", of, got, want)
}

// Nothing is written for a caller that has gone.
func TestAppend_refusesACancelledContextAndTagsThatAreNoText(t *testing.T) {
	t.Parallel()
	e := open(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Append(gone, placed("o-1", "tea"))
	is(t, err, context.Canceled, "append")
	_, err = e.AppendIf(gone, 0, nil, placed("o-1", "tea"))
	is(t, err, context.Canceled, "append on a condition")
	is(t, e.WaitApplied(wait(t), "o-1", 1), outboxweb.ErrNotFound, "the campaign")
	// A tag that JSON would change is refused.
	for _, tags := range []map[string]string{{"sku": "tea\xff"}, {"sku\xff": "tea"}} {
		ev := placed("o-1", "tea")
		ev.Tags = tags
		_, err := e.Append(t.Context(), ev)
		must.Hold(t, errors.Is(err, outboxweb.ErrInvalid) && strings.Contains(err.Error(), "event 1 of 1: tags is not valid UTF-8"), "tags %q: %v, want ErrInvalid", tags, err)
	}
}

func wait(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), must.Patience)
	t.Cleanup(cancel)
	return ctx
}

// browser is a client of the console as the operator that the header X-User names.
type browser struct {
	t   *testing.T
	url string
}

func serve(t *testing.T, e *outboxweb.Engine) browser {
	mux := http.NewServeMux()
	mux.Handle("/admin/outbox/", e.Handler(byUser))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the shop") })
	return serveHandler(t, mux)
}

func serveHandler(t *testing.T, h http.Handler) browser {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return browser{t, s.URL}
}

// as identifies everyone as ana with a role.
func as(role outboxweb.Role) func(*http.Request) (outboxweb.Operator, error) {
	return func(*http.Request) (outboxweb.Operator, error) {
		return outboxweb.Operator{Name: "ana", Role: role}, nil
	}
}

// says is what a handler answers to a GET of a path, once it has a part.
func says(t *testing.T, h http.Handler, path, part string) (body string) {
	t.Helper()
	must.Eventually(t, path+" has "+part, func() bool {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/admin/outbox"+path, nil))
		body = w.Body.String()
		return strings.Contains(body, part)
	})
	return body
}

func byUser(r *http.Request) (outboxweb.Operator, error) {
	role, known := map[string]outboxweb.Role{"vera": outboxweb.RoleViewer, "otto": outboxweb.RoleOperator, "ada": outboxweb.RoleAdmin, "nemo": "", "rex": "superuser"}[r.Header.Get("X-User")]
	if !known {
		return outboxweb.Operator{}, errors.New("no session")
	}
	return outboxweb.Operator{Name: r.Header.Get("X-User"), Role: role}, nil
}

func (b browser) ask(method, path, user string, header map[string]string, body string) (int, string, http.Header) {
	b.t.Helper()
	r := must.Get(http.NewRequest(method, b.url+path, strings.NewReader(body))).Or(b.t)
	r.Header.Set("X-User", user)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w := must.Get(client.Do(r)).Or(b.t)
	defer w.Body.Close()
	text := must.Get(io.ReadAll(w.Body)).Or(b.t)
	return w.StatusCode, string(text), w.Header
}

func TestHandler_keepsItsRulesInsideAHost(t *testing.T) {
	t.Parallel()
	e := open(t, func(c *outboxweb.Config) { c.FrameAncestors = []string{"'self'", "HTTPS://Portal.example:443/"} })
	must.OK(t, e.Project(orders()))
	b := serve(t, e)
	run(t, e)
	must.Get(e.Append(t.Context(), placed("o-1", ""))).Or(t) // it is dead at once
	must.Eventually(t, "the event is dead", func() bool {
		_, text, _ := b.ask("GET", "/admin/outbox/api/v1/campaigns/o-1", "vera", nil, "")
		return strings.Contains(text, `"dead":1`)
	})
	form := url.Values{"reason": {"fixed"}}.Encode()
	fromPage := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": b.url, "Sec-Fetch-Site": "same-origin"}
	fromElsewhere := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
	requeue := "/admin/outbox/rows/o-1/1/requeue"
	for _, tt := range []struct {
		what, method, path, user string
		header                   map[string]string
		body                     string
		want                     int
	}{
		{"the host's own page", "GET", "/", "", nil, "", 200},
		{"without a login", "GET", "/admin/outbox/", "", nil, "", 401},
		{"with a login without a role", "GET", "/admin/outbox/", "nemo", nil, "", 403},
		{"with an unknown role", "GET", "/admin/outbox/", "rex", nil, "", 403},
		{"metrics without a login", "GET", "/admin/outbox/metrics", "", nil, "", 401},
		{"the overview", "GET", "/admin/outbox/", "vera", nil, "", 200},
		{"the event", "GET", "/admin/outbox/campaigns/o-1/events/1", "vera", nil, "", 200},
		{"an action of a viewer", "POST", requeue, "vera", fromPage, form, 403},
		{"an action from another site", "POST", requeue, "otto", fromElsewhere, form, 403},
		{"an action of an operator", "POST", requeue, "otto", fromPage, form, 303},
	} {
		code, _, header := b.ask(tt.method, tt.path, tt.user, tt.header, tt.body)
		must.Equal(t, code, tt.want, tt.what)
		policy := header.Get("Content-Security-Policy")
		framed := strings.HasPrefix(policy, "default-src 'none'") && strings.HasSuffix(policy, "; frame-ancestors 'self' https://portal.example") && header.Get("X-Frame-Options") == ""
		must.Hold(t, framed || !strings.HasPrefix(tt.path, "/admin/"), "%s: the policy is %q, X-Frame-Options %q", tt.what, policy, header.Get("X-Frame-Options"))
	}
	_, text, _ := b.ask("GET", "/admin/outbox/api/v1/audit", "vera", nil, "")
	must.Hold(t, strings.Contains(text, `"actor":"otto"`) && strings.Contains(text, `"host"`), "the audit log does not name otto, identified by the host: %s", text)
	_, page, _ := b.ask("GET", "/admin/outbox/", "vera", nil, "")
	must.Hold(t, !strings.Contains(page, `href="/campaigns`) && strings.Contains(page, `href="/admin/outbox/campaigns`), "links of the page are not below the base path")
}

// A fix is rehearsed with changed files: a projection in Go has none.
func TestHandler_rehearsesFilesOnly(t *testing.T) {
	t.Parallel()
	failing := func(t *testing.T, dirs ...string) browser {
		e := open(t, func(c *outboxweb.Config) { c.Projections = dirs })
		must.OK(t, e.Project(orders()))
		b := serve(t, e)
		run(t, e)
		must.Get(e.Append(t.Context(), placed("o-1", ""), outboxweb.Event{CampaignID: "o-2", EventType: "note.added", Payload: json.RawMessage(`{}`)})).Or(t)
		must.Eventually(t, "the events are dead", func() bool {
			_, text, _ := b.ask("GET", "/admin/outbox/", "vera", nil, "")
			return strings.Contains(text, "projection orders (") && (dirs == nil || strings.Contains(text, "projection notes ("))
		})
		return b
	}
	dir := t.TempDir()
	notes := `-- projection: notes
-- tables: notes
-- schema
create table notes (campaign_id text primary key, text text not null);
-- on: note.added
insert into notes (campaign_id, text) values (:campaign_id, :payload.text);
`
	must.OK(t, os.WriteFile(dir+"/notes.sql", []byte(notes), 0o600))
	groups := func(b browser) (inGo, inFile string) {
		_, text, _ := b.ask("GET", "/admin/outbox/api/v1/failures/groups", "vera", nil, "")
		var v struct {
			Groups []struct{ Fingerprint string } `json:"items"`
		}
		must.OK(t, json.Unmarshal([]byte(text), &v))
		for _, g := range v.Groups {
			if strings.Contains(g.Fingerprint, "projection orders (") {
				inGo = url.QueryEscape(g.Fingerprint)
			} else {
				inFile = url.QueryEscape(g.Fingerprint)
			}
		}
		return inGo, inFile
	}
	code, both := failing(t), failing(t, dir)
	inGo, _ := groups(code)
	_, inFile := groups(both)
	const offer = ">Rehearse a fix…</a>"
	for _, tt := range []struct {
		in   browser
		path string
		want bool
	}{
		{code, "", false}, {code, "failures", false}, {code, "campaigns/o-1", false}, {code, "campaigns/o-1/events/1", false},
		{code, "operations/new?fingerprint=" + inGo, false}, {code, "runs", false}, {code, "runs/new?kind=verify&all_campaigns=true", false},
		{both, "failures?fingerprint=" + inGo, false}, {both, "failures?fingerprint=" + inFile, true}, {both, "runs", true}, {both, "", true},
	} {
		status, page, _ := tt.in.ask("GET", "/admin/outbox/"+tt.path, "ada", nil, "")
		must.Hold(t, status == 200 && strings.Contains(page, offer) == tt.want, "/%s: %d, a rehearsal is offered: %t, want %t", tt.path, status, !tt.want, tt.want)
		if _, page, _ = tt.in.ask("GET", "/admin/outbox/"+tt.path, "otto", nil, ""); !tt.want && strings.Contains(page, "Rehearse a fix") {
			t.Errorf("/%s says who may rehearse", tt.path)
		}
	}
	_, page, _ := both.ask("GET", "/admin/outbox/rehearsals/new?fingerprint="+inGo, "ada", nil, "")
	must.Hold(t, strings.Contains(page, "-- projection: notes"), "the page of a new rehearsal offers no file: %s", page)
}

// An embedded engine tells of trouble too, and its pages name settings as its program has them.
func TestHandler_tellsOfTrouble(t *testing.T) {
	t.Parallel()
	silent := serve(t, open(t))
	for _, path := range []string{"intake", "publishers", "alerts"} {
		_, page, _ := silent.ask("GET", "/admin/outbox/"+path, "vera", nil, "")
		must.Hold(t, !strings.Contains(page, "--config"), "the page %s names a flag: %s", path, page)
		says := strings.Contains(page, "Config.Alerts") && strings.Contains(page, "Authorization: Bearer $OUTBOXWEB_TOKEN")
		must.Hold(t, says || path != "alerts", "the page of alerts does not say how to use them: %s", page)
	}

	told := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		told <- string(text)
	}))
	t.Cleanup(receiver.Close)
	b := serve(t, open(t, func(c *outboxweb.Config) {
		c.Alerts, c.PublicURL = "receivers: {ops: {allow_private: true, url: '"+receiver.URL+"'}}\nto: [ops]", "https://shop.example"
	}))
	code, text, _ := b.ask("POST", "/admin/outbox/api/v1/alerts/receivers/ops/test", "otto", map[string]string{"Content-Type": "application/json"}, `{"reason":"try"}`)
	must.Need(t, code == 200, "the test message: %d %s", code, text)
	select {
	case text = <-told:
	case <-wait(t).Done():
		t.Fatal("the receiver was not told")
	}
	must.Hold(t, strings.Contains(text, `"console_url":"https://shop.example/admin/outbox/alerts"`), "the message is %s", text)
}

// What a function does to its event stays its own.
func TestProject_givesEachFunctionItsOwnEvent(t *testing.T) {
	t.Parallel()
	var readModels string
	e := open(t, func(c *outboxweb.Config) { readModels = c.ProjectionsDB })
	keeping := func(name string) outboxweb.Projection {
		return outboxweb.Projection{Name: name, Version: "1", Tables: []string{name}, Schema: `create table ` + name + ` (campaign_id text primary key, payload text not null)`,
			On: map[string]outboxweb.Apply{"*": func(ctx context.Context, tx outboxweb.Tx, ev outboxweb.Event) error {
				err := tx.Exec(ctx, `insert into `+name+` (campaign_id, payload) values ($1, $2)`, ev.CampaignID, string(ev.Payload))
				copy(ev.Payload, `{"item":"poison"}`)
				return err
			}}}
	}
	delivered := make(chan string, 2)
	for _, name := range []string{"first", "second"} {
		must.OK(t, e.Project(keeping(name)))
		must.OK(t, e.Publish(outboxweb.Topic{Name: name, EventTypes: []string{"*"}}, "p", outboxweb.PublisherFunc(func(_ context.Context, events []outboxweb.Event) error {
			delivered <- string(events[0].Payload)
			copy(events[0].Payload, `{"item":"poison"}`)
			return nil
		})))
	}
	run(t, e)
	must.Get(e.Append(t.Context(), placed("o-1", "camomile"))).Or(t)
	must.OK(t, e.WaitApplied(wait(t), "o-1", 1))
	want := `{"item":"camomile"}`
	for range 2 {
		must.Equal(t, <-delivered, want, "delivered")
	}
	var first, second string
	err := dbtest.Open(t, readModels).QueryRow(`select a.payload, b.payload from first a, second b`).Scan(&first, &second)
	must.Hold(t, err == nil && first == want && second == want, "the rows have %s and %s (%v), want %s", first, second, err, want)
}

func TestProject_saysWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := open(t)
	for want, change := range map[string]func(*outboxweb.Projection){
		"cannot name a projection":  func(p *outboxweb.Projection) { p.Name = "Orders!" },
		"Version":                   func(p *outboxweb.Projection) { p.Version = "" },
		"Tables is empty":           func(p *outboxweb.Projection) { p.Tables = nil },
		"On is empty":               func(p *outboxweb.Projection) { p.On = nil },
		"is nil":                    func(p *outboxweb.Projection) { p.On = map[string]outboxweb.Apply{"a": nil} },
		"has no column campaign_id": func(p *outboxweb.Projection) { p.Schema = `create table orders (id text primary key)` },
		"line 2 of Schema: table \"other\" is created but not listed in Tables": func(p *outboxweb.Projection) {
			p.Schema += ";\ncreate table other (campaign_id text primary key)"
		},
		"numbered by the database": func(p *outboxweb.Projection) {
			p.Schema = `create table orders (campaign_id text primary key, n bigserial)`
		},
	} {
		p := orders()
		change(&p)
		err := e.Project(p)
		must.Hold(t, errors.Is(err, outboxweb.ErrSetup) && strings.Contains(err.Error(), want), "error %v, want ErrSetup with %q", err, want)
	}
}

// postman is a type that delivers: the console names it, where a function says nothing.
type postman func(context.Context, []outboxweb.Event) error

func (p postman) Publish(ctx context.Context, events []outboxweb.Event) error { return p(ctx, events) }

// Of a batch of four the third event fails: the two before it are delivered and do not come again. The page names it.
func TestEngine_findsTheEventThatAPublisherFailsAt(t *testing.T) {
	t.Parallel()
	e := open(t)
	must.OK(t, e.Publish(outboxweb.Topic{Name: "orders", EventTypes: []string{"*"}}, "mail", postman(func(_ context.Context, events []outboxweb.Event) error {
		for i, ev := range events {
			if ev.CampaignID == "o-3" {
				return fmt.Errorf("send: %w", &outboxweb.EventError{Delivered: i, Err: errors.New("550 no such mailbox")})
			}
		}
		return nil
	})))
	for _, campaign := range []string{"o-1", "o-2", "o-3", "o-4"} {
		must.Get(e.Append(t.Context(), placed(campaign, "tea"))).Or(t)
	}
	run(t, e)
	body := says(t, e.Handler(as(outboxweb.RoleOperator)), "/api/v1/publishers/orders/mail", "550 no such mailbox")
	for _, want := range []string{`"error_kind":"event"`, `"delivered":2`, `"campaign_id":"o-3"`, `"destination":"go:outboxweb_test.postman"`} {
		must.Hold(t, strings.Contains(body, want), "there is no %s in %s", want, body)
	}
}

func TestEngine_publishesInOrder(t *testing.T) {
	t.Parallel()
	e := open(t)
	var mu sync.Mutex
	var got []int64
	failures := 2
	err := e.Publish(outboxweb.Topic{Name: "orders", EventTypes: []string{"order.*"}, ExactTags: map[string]string{"item": "tea"}, PollInterval: 10 * time.Millisecond}, "mail",
		outboxweb.PublisherFunc(func(_ context.Context, events []outboxweb.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if failures > 0 {
				failures--
				panic("the mail server is a teapot")
			}
			for _, ev := range events {
				must.Equal(t, ev.Tags["item"], "tea", "the item of an event that was selected")
				got = append(got, ev.Position)
			}
			return nil
		}))
	must.OK(t, err)
	var want []int64
	for _, campaign := range []string{"o-1", "o-2", "o-3"} {
		placedAt := must.Get(e.Append(t.Context(), placed(campaign, "tea"), placed(campaign+"-other", "coffee"))).Or(t)
		want = append(want, placedAt[0].Position)
	}
	is(t, e.Publish(outboxweb.Topic{Name: "orders"}, "mail", outboxweb.PublisherFunc(nil)), outboxweb.ErrSetup, "a second publisher of the name")
	run(t, e)
	must.Eventually(t, "all are delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(want)
	})
	mu.Lock()
	defer mu.Unlock()
	must.Same(t, got, want, "delivered positions")
	says(t, e.Handler(as(outboxweb.RoleViewer)), "/api/v1/publishers/orders/mail", `"destination":"go:"`)
}
