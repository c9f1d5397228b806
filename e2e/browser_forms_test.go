package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"golang.org/x/net/html"
)

// line is what lies between a browser and its server: it takes time, loses answers on request, and
// keeps what forms sent.
type line struct {
	mu    sync.Mutex
	delay time.Duration
	lose  bool // the server's next answer to a form
	sent  []sentForm
	polls int // answers to live parts
}

// sentForm is a form as the server got it, without its files.
type sentForm struct {
	to     string
	fields url.Values
}

func (l *line) through(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/static/") {
			next.ServeHTTP(w, r)
			return
		}
		lost := l.note(r)
		select {
		case <-time.After(l.set(nil)): // the latency
		case <-r.Context().Done():
		}
		if lost {
			next.ServeHTTP(discarded{http.Header{}}, r)
			http.Error(w, "the server's answer is lost", http.StatusBadGateway)
			return
		}
		next.ServeHTTP(w, r)
		if r.Header.Get("HX-Target") == "live" {
			l.set(func() { l.polls++ })
		}
	})
}

// note keeps what a form sends, and reports whether the answer gets lost.
func (l *line) note(r *http.Request) (lost bool) {
	if r.Method != http.MethodPost || strings.HasPrefix(r.URL.Path, "/api/") {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	fields, _ := url.ParseQuery(string(body))
	if kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		if form, err := multipart.NewReader(bytes.NewReader(body), params["boundary"]).ReadForm(1 << 20); err == nil {
			fields = form.Value
		}
	}
	l.set(func() {
		for _, values := range fields { // of a multipart form
			for i, v := range values {
				values[i] = strings.ReplaceAll(v, "\r\n", "\n")
			}
		}
		l.sent = append(l.sent, sentForm{r.URL.Path, fields})
		lost, l.lose = l.lose, false
	})
	return lost
}

// set changes the line and returns its latency.
func (l *line) set(change func()) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if change != nil {
		change()
	}
	return l.delay
}

func (l *line) forms() []sentForm {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sent)
}

// discarded is an answer that nobody gets.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header         { return d.header }
func (d discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d discarded) WriteHeader(int)             {}

// gesture is a way to send a form, by its button or by a field of it.
type gesture struct {
	name string
	do   func(b *tab, button, field string)
}

var gestures = []gesture{
	{"click", func(b *tab, button, _ string) { b.click(button) }},
	{"click twice", func(b *tab, button, _ string) { b.clickTwice(button) }},
	{"a click, and one where the answer appears", func(b *tab, button, _ string) {
		at := b.placeOf(button)
		value[bool](b, fmt.Sprintf(`(() => {
			document.addEventListener("htmx:afterSwap", e => {
				if (!e.detail.boosted) return
				document.elementFromPoint(%g, %g)?.closest("form[method=post] button")?.click()
				const form = document.querySelector("form[method=post]:has(button)")
				if (form) form.noValidate = true
				form?.requestSubmit()
			})
			return true
		})()`, at.X, at.Y))
		b.do("click", chromedp.MouseClickXY(at.X, at.Y))
	}},
	{"Enter", func(b *tab, _, field string) { b.keyOn(field, "\r") }},
	{"Enter twice", func(b *tab, _, field string) { b.keyOn(field, "\r", "\r") }},
	{"Enter held", func(b *tab, _, field string) {
		b.keyOn(field)
		for i := range 20 {
			repeats := i > 0
			tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, AutoRepeat: &repeats})
		}
		tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13})
	}},
	{"Space, and again", func(b *tab, button, _ string) { b.keyOn(button, " ", " ") }},
}

// keyOn focuses an element and presses keys.
func (b *tab) keyOn(selector string, keys ...string) {
	b.t.Helper()
	b.placeOf(selector)
	value[bool](b, `(document.querySelector(`+js(selector)+`).focus(), true)`)
	var presses []chromedp.Action[chromedp.Void]
	for _, key := range keys {
		presses = append(presses, chromedp.KeyEvent(key))
	}
	b.do("press keys on "+selector, presses...)
}

// operator is a tab that sends forms over a line, and judges what was sent.
type operator struct {
	*tab
	line    *line
	audited int      // records so far
	after   []string // pages of what was acted on
}

// keepShown keeps what a form shows when the first key or button goes down on it.
const keepShown = `(() => {
	const keep = evt => {
		if (!evt.repeat) sessionStorage.pressed = (sessionStorage.pressed ?? "") + " " + evt.timeStamp
		const form = evt.target.closest?.("form[data-judged], form:has([data-judged])")
		if (!form || sessionStorage.shown) return
		sessionStorage.shown = JSON.stringify([...new FormData(form, form.querySelector("button[data-judged]"))].filter(([, v]) => typeof v === "string"))
	}
	document.addEventListener("keydown", keep, true)
	document.addEventListener("mousedown", keep, true)
})()`

// prepareForm fills a form with what it asks for, and marks its button and the field that Enter is
// pressed in. It returns whether the page has the form.
const prepareForm = `(action => {
	sessionStorage.clear()
	const update = Idiomorph.defaults.callbacks.beforeAttributeUpdated
	Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, ...rest) => name !== "data-judged" && update(name, ...rest) // marks outlive a refresh
	const to = e => new URL(e, location.href).pathname === action
	const button = [...document.querySelectorAll("form button:not([type=button])")].find(e =>
		e.hasAttribute("formaction") ? to(e.getAttribute("formaction")) : e.form.method === "post" && to(e.form.getAttribute("action")))
	if (!button) return null
	const form = button.form
	for (let e = form; e; e = e.parentElement) {
		if (e.tagName === "DETAILS") e.open = true
		if (e.tagName === "DIALOG" && !e.open) e.showModal()
	}
	for (const e of form.elements) {
		if (e.required && e.type === "checkbox") e.checked = true
		if (e.name === "reason" || e.name === "note") e.value = "for the test"
		if (e.name === "name" && !e.value) e.value = "for the test"
		if (e.name === "confirm") e.value = e.labels[0].querySelector("strong, code").innerText
	}
	const field = [...form.elements].find(e => e.matches("input:not([type]), input[type=text]") && !button.hasAttribute("formaction")) ?? button
	button.setAttribute("data-judged", "button")
	field.setAttribute("data-judged", field === button ? "button" : "field")
	form.setAttribute("data-judged", "form")
	return {field: field === button ? "button[data-judged]" : "input[data-judged]", keys: new FormData(form, button).getAll("idempotency_key").length}
})`

// prepared opens a page and fills its form; it reports false if the form is not there anymore.
func (o *operator) prepared(page, action string) (field string, ok bool) {
	o.t.Helper()
	o.line.set(func() { o.line.delay = 0 })
	o.open(page)
	form := value[*struct {
		Field string
		Keys  int
	}](o.tab, prepareForm+"("+js(action)+")")
	if form == nil {
		return "", false
	}
	if want := 1; form.Keys != want && !strings.HasPrefix(action, "/views") {
		o.t.Errorf("the form of %s on %s has %d idempotency keys, want %d", action, page, form.Keys, want)
	}
	return form.Field, true
}

// settles waits until the answer to what was sent is there.
func (o *operator) settles(what string, before int) {
	o.t.Helper()
	o.eventually(what+" is answered", func() (bool, string) {
		if sent := o.line.forms(); len(sent) == before {
			return false, "nothing was sent"
		}
		return o.holds(o.loaded() + ` && !document.querySelector("form.htmx-request, .htmx-swapping, .htmx-settling")`)
	})
}

// acts sends a form by a gesture, and judges that it was sent once, as it was shown.
func (o *operator) acts(page, action string, g gesture, latency time.Duration) bool {
	o.t.Helper()
	what := fmt.Sprintf("%s by %s after %s on %s", action, g.name, latency, page)
	field, ok := o.prepared(page, action)
	if !ok {
		return false
	}
	before := len(o.line.forms())
	o.line.set(func() { o.line.delay = latency })
	g.do(o.tab, "button[data-judged]", field)
	o.settles(what, before)
	o.sentOnce(what, before)
	o.after = append(o.after, value[string](o.tab, `location.pathname + location.search`))
	for at := action; at != "/"; at = path.Dir(at) {
		o.after = append(o.after, at)
	}
	return true
}

// sentOnce judges what was sent since before.
func (o *operator) sentOnce(what string, before int) {
	o.t.Helper()
	sent := o.line.forms()[before:]
	const pause = `(([a, b]) => b - a || 0)((sessionStorage.pressed ?? "").trim().split(" ").map(Number))`
	if slept := value[float64](o.tab, pause); slept > 500 && len(sent) == 2 {
		o.t.Logf("%s: this machine has slept for %v ms between the presses", what, slept)
		o.audited++
	} else if len(sent) != 1 {
		o.t.Errorf("%s sent %d forms, want one: %+v", what, len(sent), sent)
	}
	var entries [][2]string
	if err := json.Unmarshal([]byte(value[string](o.tab, `sessionStorage.shown ?? "null"`)), &entries); err != nil {
		o.t.Fatal(err)
	}
	shown := url.Values{}
	for _, e := range entries {
		shown.Add(e[0], e[1])
	}
	if got := sent[0].fields; got.Encode() != shown.Encode() {
		o.t.Errorf("%s sent %v, while the page showed %v", what, got, shown)
	}
	o.audit(what, 1)
}

// audit judges how many records were written since it was last called.
func (o *operator) audit(what string, want int) {
	o.t.Helper()
	now := scalarAudit(o.t, o.s)
	if got := now - o.audited; got != want && !strings.HasPrefix(what, "/views") {
		o.t.Errorf("%s wrote %d audit records, want %d", what, got, want)
	}
	o.audited = now
}

func scalarAudit(t *testing.T, s *server) int {
	t.Helper()
	var records struct {
		Items []struct{ ID int }
	}
	s.get(t, "/api/v1/audit?limit=1", &records)
	if len(records.Items) == 0 {
		return 0
	}
	return records.Items[0].ID
}

// formIn is a form of a page.
type formIn struct{ page, action string }

// named are the parts of paths that name campaigns and others.
var named = regexp.MustCompile(`^(/(?:campaigns|rows|projections|publishers|instances)/)[^/?]+|(/results/)[^/?]+`)

// formsOf are the forms of the first pages and of those that they lead to, by their routes. Of pages of
// one kind that others lead to a few are read.
func formsOf(t *testing.T, s *server, routes []*regexp.Regexp, first []string) map[string][]formIn {
	t.Helper()
	const ofAKind = 3
	found, seen, read := map[string][]formIn{}, map[string]bool{}, map[string]int{}
	queue := slices.Clone(first)
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		kind := queryShape(named.ReplaceAllString(at, "$1$2"))
		if read[kind]++; seen[at] || read[kind] > ofAKind && i >= len(first) {
			continue
		}
		seen[at] = true
		a := do(t, s, http.MethodGet, at, nil)
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") || a.status != http.StatusOK {
			continue
		}
		root, err := html.Parse(bytes.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		base, _ := url.Parse(at)
		for n := range root.Descendants() {
			attr := func(name string) string {
				i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
				if i < 0 {
					return ""
				}
				return n.Attr[i].Val
			}
			to := ""
			switch {
			case n.Data == "form" && attr("method") == "post":
				to = attr("action")
			case n.Data == "button":
				to = attr("formaction")
			case n.Data == "a":
				if u, err := base.Parse(attr("href")); err == nil && u.Host == "" {
					u.Fragment = ""
					queue = append(queue, u.String())
				}
			}
			if to != "" {
				route := routeOf(to, routes)
				found[route] = append(found[route], formIn{at, to})
			}
		}
	}
	return found
}

// routeOf is the route of an action.
func routeOf(action string, routes []*regexp.Regexp) string {
	i := slices.IndexFunc(routes, func(r *regexp.Regexp) bool { return r.MatchString(action) })
	if i < 0 {
		return "unknown: " + pathShape(action)
	}
	return routes[i].String()
}

// formRoutes are the addresses that take a page's form: those of the API's actions that are there below
// the pages, too, and those that the pages have alone.
func formRoutes(t *testing.T, s *server) (routes []*regexp.Regexp) {
	t.Helper()
	var document struct{ Paths map[string]map[string]any }
	s.get(t, "/api/v1/openapi.json", &document)
	paths := []string{"/failures/groups/retry", "/views", "/views/{view}/rename", "/views/{view}/remove"}
	for path := range document.Paths {
		if document.Paths[path]["post"] != nil {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if a := do(t, s, http.MethodPost, placeholder.ReplaceAllString(path, "1"), map[string]any{}); a.status == http.StatusForbidden {
			routes = append(routes, regexp.MustCompile("^"+placeholder.ReplaceAllString(path, "[^/]+")+"$"))
		} else if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s answers %d %s", path, a.status, a.body)
		}
	}
	return routes
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// everyTrouble is a journal with something to do for every form. Its servers have no worker, so that
// nothing changes but by forms.
func everyTrouble(t *testing.T) (d databases, flags, pages []string) {
	t.Helper()
	d = newDatabases(t)
	for _, name := range []string{"shop", "billing"} {
		prepareShop(t, "sqlite", "sqlite:"+filepath.Join(d.dir, name+".db"))
	}
	s, campaign, seq := troubledIn(t, d, "sources:\n  shop: {url: \"sqlite:shop.db\"}\n  billing: {url: \"sqlite:billing.db\"}\n")
	for i := range 3 { // rows that fail, and are retried in an hour
		joins := func(id string) any {
			return map[string]any{"event_type": "participant.joined", "entity_type": "participant", "entity_id": id, "payload": map[string]any{"user_id": "ana", "name": "Ana"}}
		}
		s.post(t, http.StatusCreated, fmt.Sprintf("/api/v1/campaigns/late-%d/events", i), map[string]any{"events": []any{joins("a"), joins("b")}})
	}
	appendTo(t, s, "", "secret", []event{{EventType: "note.taken", Payload: map[string]any{"password": "hunter2-hunter2"}}})
	for i := range 4 {
		change(t, filepath.Join(d.dir, "shop.db"), `insert into outboxweb_intake (campaign_id, event_id, event_type, payload) values ($1, $1, 'order.paid', '[]')`, fmt.Sprint("order-", i))
	}
	change(t, filepath.Join(d.dir, "billing.db"), `update outboxweb_intake_owner set journal = 'another'`)
	eventually(t, patience, "rows are rejected, and a source is another's", func() (bool, string) {
		a, b := do(t, s, http.MethodGet, "/api/v1/intake/shop/rejections", nil), do(t, s, http.MethodGet, "/intake/billing", nil)
		return strings.Count(string(a.body), `"row_key"`) == 4 && strings.Contains(string(b.body), "hand-over-open"), string(a.body)
	})
	pages = slices.Collect(maps.Values(troubledPages(campaign, seq)))
	var failed struct {
		Items []struct {
			CampaignID string `json:"campaign_id"`
			Seq        int64
		}
	}
	eventually(t, patience, "rows have failed", func() (bool, string) {
		s.get(t, "/api/v1/rows?status=failed&limit=3", &failed)
		return len(failed.Items) == 3, fmt.Sprint(failed)
	})
	for _, row := range failed.Items {
		pages = append(pages, fmt.Sprintf("/campaigns/%s/events/%d", row.CampaignID, row.Seq))
	}
	s.stop(t)
	change(t, d.journal(), `update runs set status = 'failed' where id = 2`)
	i := slices.Index(s.cmd.Args, "--config")
	return d, append([]string{"--no-worker"}, s.cmd.Args[i:i+2]...), pages
}

// copied are these databases in a directory of their own.
func (d databases) copied(t *testing.T) databases {
	t.Helper()
	to := newDatabases(t)
	if err := os.CopyFS(to.dir, os.DirFS(d.dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// sit opens a tab for an operator, behind a line.
func sit(t *testing.T, d databases, flags []string) *operator {
	t.Helper()
	l := &line{}
	s := newGate(t, l.through).start(t, d, flags...)
	b := openTab(t, s)
	tell(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: keepShown})
	return &operator{tab: b, line: l, audited: scalarAudit(t, s)}
}

// Every form of the console acts once, on what it showed, however it is sent.
func TestBrowser_everyFormActsOnce(t *testing.T) {
	t.Parallel()
	d, flags, pages := everyTrouble(t)
	s := start(t, d.copied(t), flags...)
	routes := formRoutes(t, s)
	atFirst := formsOf(t, s, routes, pages)
	for _, g := range gestures {
		if testing.Short() && !strings.HasSuffix(g.name, "twice") {
			continue // a full run takes minutes
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			o := sit(t, d.copied(t), flags)
			acted, unmet := map[string]bool{}, slices.Clone(routes)
			forms := atFirst
			for before := -1; len(unmet) > 0 && len(acted) > before; {
				if before >= 0 { // what was done has led to more
					forms = formsOf(t, o.s, routes, o.after)
				}
				before, o.after = len(acted), nil
				for _, route := range slices.Backward(slices.Sorted(maps.Keys(forms))) { // a view is renamed before it is removed
					for _, f := range forms[route] {
						if !acted[route] && o.acts(f.page, f.action, g, 300*time.Millisecond) {
							acted[route] = true
						}
					}
				}
				unmet = slices.DeleteFunc(unmet, func(r *regexp.Regexp) bool { return acted[r.String()] })
			}
			if len(unmet) > 0 {
				t.Errorf("no page has a form for %v", unmet)
			}
			o.actsAtAnyLatency(g)
			o.outlivesALostAnswer(g)
		})
	}
}

// Forms whose answer has the same form at the same place act once at every latency.
func (o *operator) actsAtAnyLatency(g gesture) {
	o.t.Helper()
	const topic = "/publishers/sessions/refused"
	for _, latency := range []time.Duration{0, 100 * time.Millisecond, 2 * time.Second} {
		for _, f := range []formIn{{topic, topic + "/test"}, {topic, topic + "/pause"}, {topic, topic + "/resume"}} {
			if !o.acts(f.page, f.action, g, latency) {
				o.t.Errorf("%s has no form for %s", f.page, f.action)
			}
		}
	}
}

// An answer that is lost is asked for again by sending the form once more, which has then acted once.
func (o *operator) outlivesALostAnswer(g gesture) {
	o.t.Helper()
	const page, action = "/publishers/sessions/refused", "/publishers/sessions/refused/test"
	o.expect("502")
	field, _ := o.prepared(page, action)
	before := len(o.line.forms())
	o.line.set(func() { o.line.delay, o.line.lose = 300*time.Millisecond, true })
	g.do(o.tab, "button[data-judged]", field)
	o.await("the page says that nobody knows", telling("#refusal", "A proxy answered with status 502"))
	o.sentOnce("a form whose answer is lost", before)
	o.keyOn("button[data-judged]", " ")
	o.await("the action is confirmed", telling(marked("flash"), "test event"))
	if sent := o.line.forms()[before:]; len(sent) != 2 || sent[0].fields.Encode() != sent[1].fields.Encode() {
		o.t.Errorf("what was sent: %+v", sent)
	}
	o.audit("a form that was sent again", 0)
}

// A live part that would refresh while a key or button is down on a form leaves it as it is: what was
// shown is what is sent.
func TestBrowser_whatWasShownIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		down, up func(b *tab, at point)
	}{
		{"button", func(b *tab, at point) {
			b.mouse(input.DispatchMouseEventTypeMousePressed, at, chromedp.ButtonType(input.MouseButtonLeft), chromedp.ClickCount(1))
		},
			func(b *tab, at point) {
				b.mouse(input.DispatchMouseEventTypeMouseReleased, at, chromedp.ButtonType(input.MouseButtonLeft), chromedp.ClickCount(1))
			}},
		{"key", func(b *tab, _ point) {
			b.keyOn("button[data-judged]")
			tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: " ", Code: "Space", Text: " ", WindowsVirtualKeyCode: 32})
		}, func(b *tab, _ point) {
			tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: " ", Code: "Space", WindowsVirtualKeyCode: 32})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDatabases(t)
			o := sit(t, d, slices.Concat(quickDeath, writeProjections(t, seatProjections)))
			appendTo(t, o.s, "", "table", seats("ana", "ana", "cem"))
			awaitCounts(t, o.s, "", 1, 0, 1)
			o.prepared("/campaigns/table/events/2", "/rows/table/2/requeue")
			value[bool](o.tab, `(document.querySelector("input[name=reason]").value = "", true)`) // so that the page refreshes
			c.down(o.tab, o.placeOf("button[data-judged]"))
			o.s.post(t, http.StatusOK, "/api/v1/rows/table/2/requeue", map[string]any{"reason": "by a script"})
			awaitCounts(t, o.s, "", 1, 0, 1)
			var polls int
			o.line.set(func() { polls = o.line.polls })
			eventually(t, patience, "the page would have refreshed", func() (ok bool, _ string) {
				o.line.set(func() { ok = o.line.polls > polls+1 })
				return ok, ""
			})
			o.audited = scalarAudit(t, o.s)
			at := value[point](o.tab, `(r => ({x: r.x + r.width / 2, y: r.y + r.height / 2}))(document.querySelector("[data-testid=requeue]").getBoundingClientRect())`)
			c.up(o.tab, at)
			o.settles("the form", 0)
			o.sentOnce("a form that changed under the hand", 0)
			o.await("the form that was shown is refused", telling(marked("refusal"), "has changed since this page was loaded"))
		})
	}
}
