package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
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
			next.ServeHTTP(httptest.NewRecorder(), r)
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
	l.set(func() {
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

func (l *line) forms() (sent []sentForm) {
	l.set(func() { sent = slices.Clone(l.sent) })
	return sent
}

type gesture struct {
	name string
	do   func(b *tab, button, field string)
}

var gestures = []gesture{
	{"click", func(b *tab, button, _ string) { b.click(button) }},
	{"click twice", func(b *tab, button, _ string) {
		at := b.placeOf(button)
		b.do("click twice", chromedp.MouseClickXY(at.X, at.Y), chromedp.MouseClickXY(at.X, at.Y, chromedp.ClickCount(2)))
	}},
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
			b.enterDown(i > 0)
		}
		b.enterUp()
	}},
	{"Space, and again", func(b *tab, button, _ string) { b.keyOn(button, " ", " ") }},
}

// operator is a tab that sends forms over a line, and judges what was sent.
type operator struct {
	*tab
	line    *line
	audited int // records so far
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
// pressed in, which it returns.
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
		if (e.name === "confirm") e.value = e.labels[0].querySelector("strong, code").innerText
	}
	const field = [...form.elements].find(e => e.matches("input:not([type]), input[type=text]") && !button.hasAttribute("formaction")) ?? button
	button.setAttribute("data-judged", "button")
	field.setAttribute("data-judged", field === button ? "button" : "field")
	form.setAttribute("data-judged", "form")
	return field === button ? "button[data-judged]" : "input[data-judged]"
})`

func (o *operator) prepared(page, action string) (field string) {
	o.line.set(func() { o.line.delay = 0 })
	o.open(page)
	found := value[*string](o.tab, prepareForm+"("+js(action)+")")
	must.Need(o.t, found != nil, "%s has no form for %s", page, action)
	return *found
}

func (o *operator) settles(what string, before int) {
	o.eventually(what+" is answered", func() (bool, string) {
		if sent := o.line.forms(); len(sent) == before {
			return false, "nothing was sent"
		}
		return o.holds(o.loaded() + ` && !document.querySelector("form.htmx-request, .htmx-swapping, .htmx-settling")`)
	})
}

// acts sends a form by a gesture, and judges that it was sent once, as it was shown.
func (o *operator) acts(page, action string, g gesture, latency time.Duration) {
	what := fmt.Sprintf("%s by %s after %s on %s", action, g.name, latency, page)
	field := o.prepared(page, action)
	before := len(o.line.forms())
	o.line.set(func() { o.line.delay = latency })
	g.do(o.tab, "button[data-judged]", field)
	o.settles(what, before)
	o.sentOnce(what, before)
}

func (o *operator) sentOnce(what string, before int) {
	sent := o.line.forms()[before:]
	const pause = `(([a, b]) => b - a || 0)((sessionStorage.pressed ?? "").trim().split(" ").map(Number))`
	if slept := value[float64](o.tab, pause); slept > 80 && len(sent) == 2 {
		o.t.Logf("note: %s: this machine has slept for %v ms between the presses", what, slept)
		o.audited++
	} else if len(sent) != 1 {
		o.t.Errorf("%s sent %d forms, want one: %+v", what, len(sent), sent)
	}
	var entries [][2]string
	must.OK(o.t, json.Unmarshal([]byte(value[string](o.tab, `sessionStorage.shown ?? "null"`)), &entries))
	shown := url.Values{}
	for _, e := range entries {
		shown.Add(e[0], e[1])
	}
	got := sent[0].fields
	must.Hold(o.t, got.Encode() == shown.Encode(), "%s sent %v, while the page showed %v", what, got, shown)
	o.audit(what, 1)
}

// audit judges how many records were written since it was last called.
func (o *operator) audit(what string, want int) {
	now := scalarAudit(o.t, o.s)
	got := now - o.audited
	must.Hold(o.t, got == want, "%s wrote %d audit records, want %d", what, got, want)
	o.audited = now
}

func scalarAudit(t *testing.T, s *server) int {
	for _, last := range s.items(t, "/api/v1/audit?limit=1") {
		return int(last.ID.(float64))
	}
	return 0
}

// sit opens a tab for an operator, behind a line, on a journal with a dead row and a publisher whose partner is down.
func sit(t *testing.T) *operator {
	d, l := newDatabases(t), &line{}
	flags := slices.Concat(quickDeath, partnerConfig(t, d, newPartner(t, always(http.StatusServiceUnavailable))), writeProjections(t, seatProjections))
	s := newGate(t, l.through).start(t, d, flags...)
	appendTo(t, s, "", "table", seats("ana", "ana", "cem"))
	awaitCounts(t, s, "", 1, 0, 1)
	b := openTab(t, s)
	b.inject(keepShown)
	return &operator{tab: b, line: l, audited: scalarAudit(t, s)}
}

// A form acts once, on what it showed, however it is sent and however long the answer takes, also where the
// answer has the same form at the same place. That each form of each page has a key is judged by inspect. A soak
// has every gesture at every latency, a short run every fourth gesture.
func TestBrowser_aFormActsOnce(t *testing.T) {
	t.Parallel()
	const publisher, campaign = "/publishers/sales/partner", "/campaigns/table"
	o := sit(t)
	latencies := []time.Duration{100 * time.Millisecond, 0, time.Second}[:size.Of(2, 2, 3)]
	for i, g := range gestures {
		if i%size.Of(4, 1, 1) != 0 {
			continue
		}
		for j := range size.Of(1, 1, len(latencies)) {
			page := []string{publisher, campaign}[(i/4+j)%2]
			o.acts(page, page+"/pause", g, latencies[(i+j)%len(latencies)])
			o.acts(page, page+"/resume", g, latencies[(i+j+1)%len(latencies)])
		}
	}
	o.outlivesALostAnswer(publisher, publisher+"/test")
	o.sendsWhatWasShown()
}

// An answer that is lost is asked for again by sending the form once more, which has then acted once.
func (o *operator) outlivesALostAnswer(page, action string) {
	o.expect("502")
	o.prepared(page, action)
	before := len(o.line.forms())
	o.line.set(func() { o.line.lose = true })
	o.click("button[data-judged]")
	o.await("the page says that nobody knows", telling("#refusal", "A proxy answered with status 502"))
	o.sentOnce("a form whose answer is lost", before)
	o.keyOn("button[data-judged]", " ")
	o.await("the action is confirmed", telling(marked("flash"), "test event"))
	sent := o.line.forms()[before:]
	must.Hold(o.t, len(sent) == 2 && sent[0].fields.Encode() == sent[1].fields.Encode(), "what was sent: %+v", sent)
	o.audit("a form that was sent again", 0)
}

// sendsWhatWasShown has a live part come to refresh while a key or button is down on a form, which leaves it as it is:
// what was shown is what is sent.
func (o *operator) sendsWhatWasShown() {
	t := o.t
	key := func(typ input.DispatchKeyEventType) {
		tell(o.tab, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: typ, Key: " ", Code: "Space", Text: " ", WindowsVirtualKeyCode: 32})
	}
	for name, hand := range map[string]struct{ down, up func(at point) }{
		"button": {func(at point) { o.mouse(chromedp.MousePressed, at) }, func(at point) { o.mouse(chromedp.MouseReleased, at) }},
		"key": {func(point) {
			o.keyOn("button[data-judged]")
			key(input.DispatchKeyEventTypeKeyDown)
		}, func(point) { key(input.DispatchKeyEventTypeKeyUp) }},
	} {
		o.prepared("/campaigns/table/events/2", "/rows/table/2/requeue")
		o.run(`document.querySelector("input[name=reason]").value = ""`) // so that the page refreshes
		hand.down(o.placeOf("button[data-judged]"))
		o.s.post(t, http.StatusOK, "/api/v1/rows/table/2/requeue", map[string]any{"reason": "by a script"})
		awaitCounts(t, o.s, "", 1, 0, 1)
		var polls int
		o.line.set(func() { polls = o.line.polls })
		awaitEqual(t, "the page would have refreshed", true, func() (ok bool) {
			o.line.set(func() { ok = o.line.polls > polls+1 })
			return ok
		})
		o.audited = scalarAudit(t, o.s)
		before := len(o.line.forms())
		hand.up(value[point](o.tab, `(r => ({x: r.x + r.width / 2, y: r.y + r.height / 2}))(document.querySelector("[data-testid=requeue]").getBoundingClientRect())`))
		o.settles("the form by the "+name, before)
		o.sentOnce("a form that changed under the "+name, before)
		o.await("the form that was shown is refused", telling(marked("refusal"), "has changed since this page was loaded"))
	}
}
