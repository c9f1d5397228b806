package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
)

// chromium is the one browser of all tests; each tab has its own profile.
var chromium struct {
	start sync.Once
	dir   string // everything it writes
	ctx   context.Context
	stop  func()
	err   error
}

// startChromium returns the context of the browser, which it starts on first use.
func startChromium(t *testing.T) context.Context {
	// The shell draws pages with the same engine for half the CPU: it has no windows, menus and profiles around them.
	path := installed(t, "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
	chromium.start.Do(func() {
		chromium.dir, chromium.err = os.MkdirTemp("", "outboxweb-chromium-")
		if chromium.err != nil {
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.DisableGPU, chromedp.UserDataDir(filepath.Join(chromium.dir, "profile")),
			chromedp.Env("TMPDIR="+chromium.dir), // where it leaves sockets behind
			chromedp.Flag("blink-settings", "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"), // a mouse
			chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true),
			chromedp.Flag("ignore-certificate-errors", true)) // those of proxies in tests are thrown away
		if os.Geteuid() == 0 {
			options = append(options, chromedp.NoSandbox)
		}
		allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		ctx, stopBrowser := chromedp.NewContext(allocator)
		chromium.ctx, chromium.stop = ctx, func() { stopBrowser(); stopAllocator() }
		// The context of the first call is the life of the browser, so it has no deadline.
		chromium.err = chromedp.Do(ctx)
	})
	must.Need(t, chromium.err == nil, "start %s: %v", path, chromium.err)
	return chromium.ctx
}

func stopChromium() {
	if chromium.stop != nil {
		chromium.stop()
	}
	if chromium.dir != "" {
		os.RemoveAll(chromium.dir)
	}
}

// tab is one page of the browser, as an operator of the server has it open. Every complaint of the
// browser fails the test, unless it was expected.
type tab struct {
	t       *testing.T
	s       *server
	base    string // the base path of the pages, without a slash at its end
	scripts bool
	ctx     context.Context
	close   context.CancelFunc

	mu       sync.Mutex
	trouble  []string
	expected []string
}

// openTab opens an empty page in a profile of its own. It is closed at the end of the test.
func openTab(t *testing.T, s *server) *tab {
	return newTab(t, s, startChromium(t), chromedp.WithNewBrowserContext())
}

// newTab is openTab below the context of the browser, or of a tab whose profile it shares.
func newTab(t *testing.T, s *server, parent context.Context, options ...chromedp.ContextOption) *tab {
	ctx, closeTab := chromedp.NewContext(parent, options...)
	b := &tab{t: t, s: s, scripts: true, ctx: ctx, close: closeTab}
	must.OK(t, chromedp.Do(ctx))
	t.Cleanup(func() {
		b.verifyCalm()
		closeTab()
	})
	must.OK(t, chromedp.Listen(ctx, b.note))
	tell(b, audits.Enable, cdp.Empty{})
	// A tab that another one takes the focus from loses what is pointed at.
	tell(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	// The page itself reports what its policy forbade, beside the browser. Its timers are five times as
	// fast as a reader's, so that no test waits for a page to poll.
	b.inject(`document.addEventListener("securitypolicyviolation", e =>
		console.error("violation of", e.violatedDirective, "by", e.blockedURI || e.sample));
		for (const name of ["setTimeout", "setInterval"]) {
			const real = window[name];
			window[name] = (f, ms = 0, ...args) => real(f, ms / 5, ...args);
		}`)
	b.size(wide)
	return b
}

// inject has a script run in each page that the tab opens from now on, before the page's own.
func (b *tab) inject(script string) {
	tell(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
}

func tell[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	ctx, cancel := context.WithTimeout(b.ctx, must.Patience)
	defer cancel()
	return must.Get(chromedp.Call(ctx, command, params)).Or(b.t)
}

func (b *tab) note(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		var words []string
		for _, arg := range ev.Args {
			words = append(words, string(arg.Value)+arg.Description)
		}
		b.complain("console: %s: %s", ev.Type, strings.Join(words, " "))
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if ev.ExceptionDetails.Exception != nil {
			text += " " + ev.ExceptionDetails.Exception.Description
		}
		b.complain("exception: %s", text)
	case *log.EventEntryAdded:
		b.complain("log: %s: %s: %s %s", ev.Entry.Level, ev.Entry.Source, ev.Entry.Text, ev.Entry.URL)
	case *audits.EventIssueAdded:
		details, err := json.Marshal(ev.Issue)
		b.complain("issue: %s %v", details, err)
	case *network.EventLoadingFailed:
		if !ev.Canceled { // a page that was left cancels what it still asked for
			b.complain("network: %s %s", ev.Type, ev.ErrorText)
		}
	case *network.EventResponseReceived:
		if ev.Response.Status >= 400 {
			b.complain("response: %d %s", ev.Response.Status, ev.Response.URL)
		}
	}
}

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = append(b.trouble, fmt.Sprintf(format, args...))
}

func (b *tab) expect(texts ...string) *tab {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, texts...)
	return b
}

func (b *tab) verifyCalm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.trouble {
		wanted := false
		for _, part := range b.expected {
			wanted = wanted || strings.Contains(text, part)
		}
		must.Hold(b.t, wanted, "the browser complains: %s", text)
	}
}

func js(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(text)
}

// read evaluates an expression in the page. It fails during navigation.
func read[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, must.Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// value is read for a page that is not navigating.
func value[T any](b *tab, expression string) T {
	v, err := read[T](b, expression)
	must.Need(b.t, err == nil, "evaluate %s: %v", expression, err)
	return v
}

// open goes to a path below the base path, as by typing it, and waits until it is loaded.
func (b *tab) open(path string) *tab {
	b.navigate(path)
	run := value[bool](b, `typeof htmx === "object"`)
	must.Need(b.t, run == b.scripts, "the page's scripts run: %t, want %t", run, b.scripts)
	return b
}

// navigate is open for pages that may not be the server's.
func (b *tab) navigate(path string) {
	b.do("open "+path, chromedp.Navigate(b.s.url+b.base+path))
	b.await("the page is loaded", b.loaded())
}

// loaded is the condition that the page is there and its scripts, which wait for its first paint, have run.
func (b *tab) loaded() string {
	const complete = `document.readyState === "complete"`
	if !b.scripts {
		return complete
	}
	return complete + ` && (!document.querySelector("script[data-scripts]") || document.documentElement.hasAttribute("data-scripts"))`
}

func (b *tab) await(what, condition string) *tab {
	b.eventually(what, func() (bool, string) { return b.holds(condition) })
	return b
}

// eventually waits until done reports true. A failure shows the page, which is too expensive to read at each attempt.
func (b *tab) eventually(what string, done func() (bool, string)) {
	last, ok := attain(done)
	if ok {
		return
	}
	page, err := read[string](b, `location.href + "\n" + document.body.innerText`)
	if err != nil {
		page = err.Error()
	}
	must.Need(b.t, false, "not within %s: %s; at last: %s; the page:\n%s", must.Patience, what, last, tail(page, 1500))
}

func (b *tab) holds(condition string) (ok bool, problem string) {
	ok, err := read[bool](b, condition)
	if err != nil {
		return false, err.Error()
	}
	return ok, ""
}

func (b *tab) at(path string) *tab {
	b.await("the page is "+path, b.loaded()+` && location.pathname === `+js(b.base+path))
	return b
}

// lookUntil waits until the page shows something: by refreshing itself where scripts run, otherwise by reloading.
func (b *tab) lookUntil(what, condition string) {
	b.eventually(what, func() (bool, string) {
		ok, last := b.holds(condition)
		if !ok && !b.scripts {
			b.clickAway(".looked a")
		}
		return ok, last
	})
}

// clickAway clicks a link to a page, and waits for that page unless a script swaps it in: a second
// click before it has arrived would cancel it.
func (b *tab) clickAway(selector string) {
	if b.scripts {
		b.click(selector)
		return
	}
	const loaded = `performance.timeOrigin`
	before := value[float64](b, loaded)
	b.click(selector).await("the page is read again", loaded+` !== `+js(before)+` && `+b.loaded())
}

// saying is the condition that an element says exactly this.
func saying(selector, text string) string {
	return `document.querySelector(` + js(selector) + `)?.innerText.trim() === ` + js(text)
}

// telling is the condition that an element says this among other things.
func telling(selector, text string) string {
	return `(document.querySelector(` + js(selector) + `)?.innerText ?? "").includes(` + js(text) + `)`
}

// marked selects an element by its data-testid, or a row of a list by its id.
func marked(id string) string {
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`
	return `:is([data-testid=` + quoted + `], tr[id=` + quoted + `])`
}

func count(selector string, n int) string {
	return `document.querySelectorAll(` + js(selector) + `).length === ` + js(n)
}

func has(list string, want []string) string {
	return `JSON.stringify(` + list + `) === ` + js(js(want))
}

// point is a place in the window, in CSS pixels.
type point struct{ X, Y float64 }

func (b *tab) click(selector string, options ...chromedp.MouseOption) *tab {
	at := b.placeOf(selector)
	b.do("click "+selector, chromedp.MouseClickXY(at.X, at.Y, options...))
	return b
}

// placeOf is where the first matching element can be clicked, once it is visible and not moving.
func (b *tab) placeOf(selector string) point {
	const still = 3 // looks in a row
	var at *point
	seen := 0
	b.eventually("there is something to click at "+selector, func() (bool, string) {
		p, err := read[*point](b, `(() => {
			const e = document.querySelector(`+js(selector)+`)
			if (!e || !(`+b.loaded()+`) || document.querySelector(".htmx-swapping, .htmx-settling, [data-sent]")) return null
			e.scrollIntoView({block: "center", behavior: "instant"})
			const r = e.getClientRects()[0]
			if (!r) return null
			const x = r.x + r.width / 2, y = r.y + r.height / 2
			return e.contains(document.elementFromPoint(x, y)) ? {x, y} : null
		})()`)
		if err != nil || p == nil {
			seen, at = 0, nil
			return false, fmt.Sprint(err)
		}
		if at == nil || *at != *p {
			seen, at = 0, p
		}
		seen++
		return seen >= still, "it moves"
	})
	return *at
}

func (b *tab) typeInto(selector, text string) *tab {
	b.click(selector).do("type into "+selector, chromedp.KeyEvent(text))
	b.await("the field has what was typed", `document.querySelector(`+js(selector)+`).value === `+js(text))
	return b
}

func (b *tab) press(keys string) *tab {
	for _, key := range keys {
		b.do("press "+string(key), chromedp.KeyEvent(string(key)))
	}
	return b
}

// keyOn focuses an element and presses keys in haste.
func (b *tab) keyOn(selector string, keys ...string) {
	b.placeOf(selector)
	b.run(`document.querySelector(` + js(selector) + `).focus()`)
	var presses []chromedp.Action[chromedp.Void]
	for _, key := range keys {
		presses = append(presses, chromedp.KeyEvent(key))
	}
	b.do("press keys on "+selector, presses...)
}

// enterDown presses Enter, or keeps it down, and does not let go.
func (b *tab) enterDown(repeats bool) {
	tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", WindowsVirtualKeyCode: 13, AutoRepeat: &repeats})
}

func (b *tab) enterUp() {
	tell(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13})
}

func (b *tab) mouse(typ input.DispatchMouseEventType, at point) {
	b.do("move the mouse", chromedp.MouseEvent(typ, at.X, at.Y, chromedp.ButtonType(input.MouseButtonLeft), chromedp.ClickCount(1)))
}

func (b *tab) run(statements string) {
	value[bool](b, `(async () => { `+statements+`; return true })()`)
}

// refreshed has the live part read again and swapped in, whether or not it has changed.
func (b *tab) refreshed() {
	b.run(`const live = document.querySelector("[data-live]"), swapped = new Promise(done => document.addEventListener("htmx:afterSwap", done, {once: true}))
		live.removeAttribute("data-etag")
		htmx.trigger(live, "look")
		await swapped`)
}

// polledTwice waits until the live part has come to poll, or to decide against it, twice.
func (b *tab) polledTwice() {
	b.run(`let n = 0
		await new Promise(done => document.addEventListener("htmx:beforeRequest", e => { if (e.target.closest("[data-live]") && ++n === 2) setTimeout(done, 0) }))`)
}

func (b *tab) hide() {
	b.run(`Object.defineProperty(document, "hidden", {configurable: true, get: () => true})`)
}

func (b *tab) seenAgain() *tab {
	b.run(`document.dispatchEvent(new Event("visibilitychange"))`)
	return b
}

// away leaves the console, whose page would miss its server.
func (b *tab) away() { b.do("leave the page", chromedp.Navigate("about:blank")) }

func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	ctx, cancel := context.WithTimeout(b.ctx, must.Patience)
	defer cancel()
	err := chromedp.Do(ctx, actions...)
	must.Need(b.t, err == nil, "%s: %v", what, err)
}

type viewport struct{ width, height int64 }

var (
	broad  = viewport{1920, 1080}
	wide   = viewport{1280, 900}
	narrow = viewport{360, 740}
)

func (b *tab) size(v viewport) *tab {
	b.do("resize the window", chromedp.EmulateViewport(v.width, v.height))
	return b
}

func (b *tab) theme(name string) {
	tell(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}
