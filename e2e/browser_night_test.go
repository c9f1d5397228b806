package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// pager takes alert messages.
type pager struct {
	url string

	mu  sync.Mutex
	got []alertMessage
}

type alertMessage struct {
	Kind, Rule, Title, Error, Todo string
	Count                          int64
	Version                        string `json:"projection_version"`
	Console                        string `json:"console_url"`
}

func newPager(t *testing.T) *pager {
	p := &pager{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m alertMessage
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got = append(p.got, m)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// config is a configuration in which the pager gets alerts of a rule at once.
func (p *pager) config(t *testing.T, d databases, rule string) []string {
	return d.config(t, fmt.Sprintf("alerts:\n  receivers: {pager: {url: %q, allow_private: true}}\n  to: [pager]\n  rules:\n    %s: {over: 0, for: 0}\n", p.url, rule))
}

// await returns the first message of a kind about a rule.
func (p *pager) await(t *testing.T, kind, rule string) (found alertMessage) {
	t.Helper()
	eventually(t, patience, "a message "+kind+" about "+rule, func() (bool, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, m := range p.got {
			if m.Kind == kind && m.Rule == rule {
				found = m
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", p.got)
	})
	return found
}

// gate is the address at which readers reach one server after another, as at a proxy.
type gate struct {
	url string
	to  atomic.Pointer[url.URL]
}

// newGate opens a gate; what is between it and the server may be wrapped.
func newGate(t *testing.T, wraps ...func(http.Handler) http.Handler) *gate {
	g := &gate{}
	var way http.Handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(g.to.Load())
		r.Out.Host = r.In.Host
	}}
	for _, wrap := range wraps {
		way = wrap(way)
	}
	server := httptest.NewServer(way)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// start starts a server behind the gate.
func (g *gate) start(t *testing.T, d databases, flags ...string) *server {
	t.Helper()
	s := start(t, d, append([]string{"--public-origin", g.url}, flags...)...)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	g.to.Store(to)
	s.url = g.url
	return s
}

// follow opens a link of a message.
func (b *tab) follow(link string) {
	b.t.Helper()
	path, ours := strings.CutPrefix(link, b.s.url)
	if !ours {
		b.t.Fatalf("the message links to %q, want a page of %s", link, b.s.url)
	}
	b.open(path)
}

// Woken by a message, an operator gets from its link to a running canary on a phone with a few taps,
// without typing.
func TestBrowser_fromTheMessageToTheCanaryOnAPhone(t *testing.T) {
	t.Parallel()
	for _, kind := range tabs() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			d, p, g := newDatabases(t), newPager(t), newGate(t)
			projections := writeProjections(t, seatProjections)
			s := start(t, d, append(quickDeath, projections...)...)
			for i := range 8 {
				appendTo(t, s, "", fmt.Sprintf("table-%02d", i), seats("ana", "ana", "cem"))
			}
			awaitCounts(t, s, "", 8, 0, 8)
			s.stop(t)
			s = g.start(t, d, append(append(p.config(t, d, "blocked_campaigns"), "--poll-interval", "100ms", "--auth", "proxy-header", "--auth-user-header", "Remote-User",
				"--auth-groups-header", "Remote-Groups", "--auth-groups-format", "repeated", "--trusted-proxy", "127.0.0.1/32", "--operator", "group:ops"), projections...)...)
			m := p.await(t, "firing", "blocked_campaigns")
			change(t, d.projections(), "delete from seats where user_id = $1", "ana") // the cause is fixed

			b := kind.open(t, s)
			b.size(narrow)
			b.signIn("ana@example.org", "ops")
			taps := 0
			tap := func(selector string) {
				t.Helper()
				taps++
				b.click(selector)
			}
			taps++
			b.follow(m.Console)
			b.sound("where the message leads")
			tap(marked("requeue-group"))
			b.at("/operations/new")
			b.await("it is about all of them, with a canary", telling("main", "8 dead rows of 8 campaigns")+` && document.querySelector("#canary").checked`)
			b.await("its button is on the first screen", `(r => r.top > 0 && r.bottom <= 740)(document.querySelector(`+js(marked("requeue-confirm"))+`).getBoundingClientRect())`)
			b.sound("the canary before it starts")
			tap(marked("requeue-confirm"))
			b.at("/operations/1")
			b.lookUntil("the canary is applied", `/wave \d|✓ done [1-8]/.test(document.querySelector("#live").innerText)`)
			if taps > 5 {
				t.Errorf("it took %d taps", taps)
			}
			b.sound("an operation on a phone")
			b.lookUntil("all is done", telling(marked("operation-why"), "done"))
			if kind.name == bothTabs[0].name {
				said := value[string](b, `fetch("/api/v1/operations/1").then(a => a.json()).then(o => o.status + " " + o.totals.done)`)
				if said != "done 8" {
					t.Errorf("the API says %q, want done 8", said)
				}
			}
		})
	}
}

// A bad deploy, from the message that it broke campaigns to the one that it is over.
func TestBrowser_badDeployFromMessageToAllClear(t *testing.T) {
	t.Parallel()
	const all, broken = 60, 40
	d, p, g := newDatabases(t), newPager(t), newGate(t)
	guests := func(name string) map[string]string {
		return map[string]string{"guests.sql": `
-- projection: guests
-- tables: guests

-- schema
create table guests (campaign_id text not null, seq bigint not null, name text not null, primary key (campaign_id, seq));

-- on: guest.came
insert into guests (campaign_id, seq, name) values (:campaign_id, :seq, ` + name + `);
`}
	}
	came := func(i int) []event {
		payload := map[string]any{"name": "ana"}
		if i >= broken {
			payload["nick"] = "ana"
		}
		return []event{{EventType: "guest.came", Payload: payload}, {EventType: "guest.came", Payload: payload}}
	}
	flags := append(quickDeath, p.config(t, d, "dead_rows")...)
	s := g.start(t, d, append(flags, writeProjections(t, guests(":payload.name!"))...)...)
	for i := range all {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), came(i))
	}
	s.awaitSettled(t)
	s.stop(t)

	s = g.start(t, d, append(flags, writeProjections(t, guests(":payload.nick!"))...)...)
	for i := range all {
		appendTo(t, s, "", fmt.Sprintf("c-%02d", i), came(i))
	}
	awaitCounts(t, s, "", broken, 0, broken)
	m := p.await(t, "firing", "dead_rows")
	if m.Version == "" || !strings.Contains(m.Error, "nick") {
		t.Errorf("the message is %+v", m)
	}

	b := openTab(t, s)
	b.open("/")
	cause := func(text string) string { return telling(marked("cause"), text) }
	b.lookUntil("one cause, and whom it blocks", saying(marked("failing-causes"), "1")+" && "+cause("40 campaigns blocked, 80 events waiting"))
	b.await("what it is", cause("nick"))
	b.await("since which deploy", cause(", after projection guests changed to "+m.Version[:8])+" && "+cause("loaded now"))
	b.await("a rebuild with that version is not offered", telling(marked("other-version"), "fix it before a rebuild")+` && !document.querySelector('[data-testid="other-version"] .button')`)
	b.await("what to do", cause("See the failing statement")+` && !!document.querySelector(`+js(marked("guide"))+`)`)
	b.await("the deploy is marked in the charts", telling(".markers", "projection guests changed to "+m.Version[:8]))
	b.agrees()
	b.await("what readers see meanwhile", cause("none is lost"))
	b.sound("the overview after a bad deploy")
	for path, said := range map[string]string{
		"/campaigns/c-00":                  telling(marked("judged"), "It can never succeed with this version"),
		"/operations/new":                  telling(marked("judged"), "It can never succeed with this version"),
		"/campaigns/c-00/events/3":         telling(marked("judged"), "It can never succeed with this version") + ` && document.querySelector(".primary").matches('[data-testid="rehearse"]') && !document.querySelector("#row-form .primary")`,
		"/projections/guests":              telling(marked("failing-now"), "fails now") + ` && !document.body.innerText.includes("Rebuild all…")`,
		"/runs/new?kind=rebuild&all=1":     telling(marked("failing-now"), "rebuild and replay fail where it does"),
		"/campaigns/c-00/read-model":       telling(marked("table-guests"), "Live rows") + " && " + telling(marked("not-applied"), "Event 3 is dead"),
		"/campaigns/c-00/read-model?seq=1": telling(marked("unknown-guests"), "Not known"),
	} {
		b.open(path)
		b.await(path+" says that it cannot help", said)
	}

	b.open("/projections/guests")
	b.await("what the deploy changed", telling(marked("last-change"), "1 line added, 1 removed")+" && "+telling(".diff .removed", ":payload.name!")+" && "+telling(".diff .added", ":payload.nick!"))
	b.sound("the projection of a bad deploy")
	b.click(marked("rehearse-back"))
	b.at("/rehearsals/new")
	b.await("the text of the version before can be rehearsed", telling(marked("rehearse-from"), "last loaded")+` && document.querySelector("#text").value.includes(":payload.name!")`)

	b.follow(m.Console)
	b.await("the message leads to the deploy, the statement, and the way forward", telling(".group", ", after projection guests changed to "+m.Version[:8])+" && "+
		`document.querySelector('.group .primary').matches('[data-testid="rehearse"]') && !!(document.querySelector('[data-testid="source"]').compareDocumentPosition(document.querySelector(".group .blocked")) & Node.DOCUMENT_POSITION_FOLLOWING)`)
	b.sound("where the message leads")
	b.click(marked("rehearse"))
	b.at("/rehearsals/new")
	b.await("the way back is offered", telling(marked("rehearse-from"), "Start from the previous version"))
	b.await("the file is there to be edited", `document.querySelector("#text").value.includes(":payload.nick!")`)
	b.sound("the rehearsal of a fix")
	const fixed = "coalesce(:payload.nick, :payload.name!)"
	b.await("the file is changed", `(t => { t.value = t.value.replace(":payload.nick!", `+js(fixed)+`); return true })(document.querySelector("#text"))`)
	b.click(marked("rehearse-start"))
	b.at("/runs/1")
	b.lookUntil("the fix would do", telling(marked("rehearsal-answer"), "40")+` && !!document.querySelector(`+js(marked("rehearsal-not-loaded"))+`)`)
	b.sound("a rehearsal that passed")
	b.click(marked("rehearse-again-guests"))
	b.await("its text can be copied", telling(marked("rehearse-from"), "the text of rehearsal 1")+` && document.querySelector("#text").value.includes(`+js(fixed)+`)`)

	b.do("leave the page, which would miss its server", chromedp.Navigate("about:blank"))
	s.stop(t)
	loaded := writeProjections(t, guests(fixed))
	s = g.start(t, d, append(flags, loaded...)...)
	b.open("/")
	b.await("the overview says that the loaded files passed", telling(".cause .verdict", "every blocked campaign passed rehearsal 1: requeue with a canary")+" && "+telling(marked("last-verified"), "No verify has compared all campaigns lately")+
		` && document.querySelector(".cause "+`+js(marked("requeue-group"))+`).href.includes("rehearsal=1")`)
	b.open("/operations/new")
	b.await("the rehearsal is found from here, too", telling(marked("passed-rehearsal"), "Rehearsal 1 tried each of these rows with the loaded files: they would pass.")+" && "+telling(marked("judged"), "passed rehearsal 1"))
	b.open("/runs/1")
	b.click(marked("rehearsal-canary"))
	b.at("/operations/new")
	b.await("it is about all of them", telling("main", "40 dead rows of 40 campaigns")+` && document.querySelector("#canary").checked`)
	b.click(marked("requeue-confirm"))
	b.at("/operations/1")
	b.lookUntil("the canary and the waves are done", telling(marked("operation-why"), "done")+" && "+telling("#live", "✓ done 40")+" && "+telling(marked("verify-next"), "compare the read models"))
	if o := awaitOperation(t, s, 1); o.Status != "done" || o.Totals.Done != broken || o.Groups[0].Wave < 5 {
		t.Errorf("the API says %+v", o)
	}
	b.open("/")
	b.lookUntil("rows of two versions are not all clear", telling(".health .sentence", "All 60 campaigns are current, but not all rows were built by the loaded projections."))
	b.open("/operations/1")
	b.click(marked("verify-next") + " a")
	b.at("/runs/new")
	b.click(marked("run-start"))
	b.at("/runs/2")
	b.lookUntil("the rows match", telling(marked("run-why"), "The live rows of 60 campaigns match the journal"))
	b.open("/")
	b.lookUntil("all clear", saying(".health .sentence", "All 60 campaigns are current."))
	b.await("the operation is marked, too", telling(".markers", "peration 1"))
	b.agrees()
	b.sound("the overview when it is over")
	if over := p.await(t, "resolved", "dead_rows"); !strings.Contains(over.Title, "no row is dead") {
		t.Errorf("the last message is %+v", over)
	}
	b.do("leave the page, which would miss its server", chromedp.Navigate("about:blank"))
	s.stop(t)
	checkClean(t, d, loaded...)
}
