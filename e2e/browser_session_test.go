package e2e

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
)

// portal is a proxy that signs readers in, as oauth2-proxy does: a cookie is compared at the login's end
// with the state that the login began with, so that another login in between makes it fail.
type portal struct {
	*gate
	name      string
	button    bool   // a page with a button comes before the login
	elsewhere bool   // the login is at another origin
	eager     bool   // the answer to a page already sets the login's cookie; scripts get 401
	login     string // the address of the login page

	mu       sync.Mutex
	session  string // the cookie of the one session; empty if it has ended
	begun    int    // logins
	scripted int    // of these, those that something other than a reader has begun
}

// start starts a server behind the portal, on a journal with a dead row.
func (p *portal) start(t *testing.T) *server {
	d, flags := poisoned(t)
	p.gate = newGate(t, p.guard)
	p.login = p.url + "/oauth2/login"
	if p.elsewhere {
		provider := httptest.NewServer(http.HandlerFunc(p.loginPage))
		t.Cleanup(provider.Close)
		p.login = provider.URL
	}
	return p.gate.start(t, d, append(flags, "--auth", "proxy-header", "--auth-preset", "oauth2-proxy", "--trusted-proxy", "127.0.0.1/32", "--admin", "*")...)
}

func (p *portal) guard(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth2/sign_in", func(w http.ResponseWriter, r *http.Request) {
		showForm(w, "/oauth2/start", "start", url.Values{"rd": {r.FormValue("rd")}})
	})
	mux.HandleFunc("GET /oauth2/start", p.begin)
	mux.HandleFunc("GET /oauth2/login", p.loginPage)
	mux.HandleFunc("GET /oauth2/callback", p.callback)
	mux.HandleFunc("GET /oauth2/sign_out", func(w http.ResponseWriter, r *http.Request) {
		p.end()
		http.Redirect(w, r, r.FormValue("rd"), http.StatusFound)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie("session")
		p.mu.Lock()
		in := err == nil && cookie.Value == p.session
		p.mu.Unlock()
		r.Header.Set("X-Forwarded-Email", "ana@example.org")
		switch {
		case in:
			next.ServeHTTP(w, r)
		case p.eager && r.Header.Get("Accept") == "application/json":
			w.WriteHeader(http.StatusUnauthorized)
		case p.eager:
			r.Form = url.Values{"rd": {r.RequestURI}}
			p.begin(w, r)
		default:
			to := map[bool]string{true: "/oauth2/sign_in", false: "/oauth2/start"}[p.button]
			http.Redirect(w, r, to+"?rd="+url.QueryEscape(r.RequestURI), http.StatusFound)
		}
	})
	return mux
}

func (p *portal) begin(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun++
	if r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		p.scripted++
	}
	state := fmt.Sprint(p.begun)
	http.SetCookie(w, &http.Cookie{Name: "csrf", Value: state, Path: "/", HttpOnly: true})
	http.Redirect(w, r, p.login+"?"+url.Values{"state": {state}, "rd": {r.FormValue("rd")}}.Encode(), http.StatusFound)
}

func (p *portal) loginPage(w http.ResponseWriter, r *http.Request) {
	showForm(w, p.url+"/oauth2/callback", "login", url.Values{"state": {r.FormValue("state")}, "rd": {r.FormValue("rd")}})
}

func (p *portal) callback(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie("csrf"); err != nil || cookie.Value != r.FormValue("state") {
		http.Error(w, "Login failed: invalid CSRF token", http.StatusForbidden)
		return
	}
	p.mu.Lock()
	p.session = "s-" + r.FormValue("state")
	http.SetCookie(w, &http.Cookie{Name: "session", Value: p.session, Path: "/", HttpOnly: true})
	p.mu.Unlock()
	http.Redirect(w, r, r.FormValue("rd"), http.StatusFound)
}

func showForm(w http.ResponseWriter, action, id string, fields url.Values) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><head><title>Sign in</title><link rel="icon" href="data:,"></head><body><form action="%s">`, action)
	for name, values := range fields {
		fmt.Fprintf(w, `<input type="hidden" name="%s" value="%s">`, name, html.EscapeString(values[0]))
	}
	fmt.Fprintf(w, `<button id="%s">Sign in</button></form></body></html>`, id)
}

func (p *portal) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = ""
}

func (p *portal) signIn(b *tab) {
	if p.button {
		b.click("#start")
	}
	b.click("#login")
}

// logins is how many something other than a reader has begun.
func (p *portal) logins() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scripted
}

func (b *tab) another(options ...chromedp.ContextOption) *tab {
	other := newTab(b.t, b.s, b.ctx, options...)
	other.base, other.expected = b.base, slices.Clone(b.expected)
	return other
}

func (b *tab) opens(selector string) *tab {
	profile := chromedp.FromContext(b.ctx).BrowserContextID
	opened := chromedp.WaitNewTarget(b.ctx, func(info *target.Info) bool {
		return info.Type == "page" && info.BrowserContextID == profile
	})
	b.click(selector)
	return b.another(chromedp.WithTargetID(<-opened))
}

func (b *tab) atLogin() {
	b.await("the proxy's page is there", `/^sign in$/i.test(document.title) && typeof htmx === "undefined"`)
}

func (b *tab) signedIn(p *portal, path string) {
	b.navigate(path)
	if in, _ := b.holds(`!!document.querySelector("#main")`); !in {
		p.signIn(b)
	}
	b.back(path)
}

// back waits until the tab is back from the login: at a page whose address begins like this.
func (b *tab) back(path string) {
	b.await("the page is "+path, b.loaded()+` && (location.pathname + location.search).startsWith(`+js(b.base+path)+`) && !!document.querySelector("#main")`)
}

const (
	overInAPoll = `document.querySelector("[data-stale]")?.innerText === "Your session has ended; the data shown is stale. Sign in"`
	asked       = `performance.getEntriesByType("resource").length`
)

func (b *tab) goesOn() {
	const asOf = `document.querySelector('[data-testid="as-of"]').dateTime`
	looked := value[string](b, asOf)
	b.await("the page goes on", `document.querySelector("[data-stale]").hidden && `+asOf+` > `+js(looked))
}

// sessionEndsInAForm has a session end while a reader fills the form of a dead row: what was typed stays,
// and the same press works once the reader has signed in in another tab.
func (b *tab) sessionEndsInAForm(p *portal, row string) {
	b.signedIn(p, row)
	b.typeInto("input[name=reason]", "ana left")
	p.end()
	b.click(marked("requeue"))
	b.await("the form says what is wrong, and keeps what was typed", saying("#row-form #refusal", "Your session has ended. Sign in in another tab, then press again.")+
		` && document.activeElement.id === "refusal" && document.querySelector("input[name=reason]").value === "ana left"`)
	b.sound("a form without a session")
	login := b.opens("#refusal a")
	p.signIn(login)
	login.back(row)
	login.close()
	b.click(marked("requeue"))
	b.await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign poisoned"))
	n := value[int](b, `fetch(`+js(b.base+"/audit?action=requeue")+`).then(a => a.text()).then(text => text.split(">ana left<").length - 1)`)
	must.Hold(b.t, n == 1, "the audit log has the act %d times", n)
	b.goesOn()
}

// sessionEndsInAPoll has a session end while a page refreshes itself: it says so and stops, and goes on
// when the reader returns to it with a session.
func (b *tab) sessionEndsInAPoll(p *portal, path string) {
	b.signedIn(p, path)
	p.end()
	b.await("the page says that the session has ended, and is there still", overInAPoll+` && !!document.querySelector("[data-live] *")`)
	b.sound("a page without a session")
	before := value[int](b, asked)
	b.polledTwice()
	must.Equal(b.t, value[int](b, asked), before, "how often the page asked without a session")
	other := b.another()
	other.signedIn(p, path)
	other.close()
	b.seenAgain()
	b.goesOn()
}

// sessionEndsInTabs has a session end behind several tabs: none of them gets in the way of the login in one of them.
func (b *tab) sessionEndsInTabs(p *portal, paths ...string) {
	left := make([]*tab, len(paths))
	for i, path := range paths {
		left[i] = b.another()
		left[i].signedIn(p, path)
	}
	p.end()
	for _, one := range left {
		one.await("the page says that the session has ended", overInAPoll)
	}
	login := left[0]
	login.click("[data-stale] a")
	login.atLogin()
	for _, one := range left[1:] {
		one.polledTwice()
		one.seenAgain()
		one.await("the page has asked again", asked+` > 0 && `+overInAPoll)
	}
	p.signIn(login)
	login.back(paths[0])
	for _, one := range left[1:] {
		one.seenAgain()
		one.goesOn()
	}
	for _, one := range left {
		one.close()
	}
}

// sessionEndsBefore has a session end before a click, which leads to the proxy's login and from there to
// where the click leads.
func (b *tab) sessionEndsBefore(p *portal, path, selector, leadsTo string) {
	b.signedIn(p, path)
	b.placeOf(selector)
	b.hide() // or a poll may begin a login beside the click's
	b.await("nothing is asked for", `!document.querySelector(".htmx-request")`)
	p.end()
	b.click(selector)
	b.atLogin()
	if leadsTo != "" { // otherwise to a file
		p.signIn(b)
		b.back(leadsTo)
	}
}

func (b *tab) signsOut(p *portal) {
	b.size(narrow)
	b.signedIn(p, "/")
	b.sound("the reader's name on a phone")
	b.click(marked("sign-out"))
	b.await("the proxy's page is there", `document.title !== "" && !document.querySelector("#main")`)
	b.navigate("/")
	b.await("the session is over", `!document.querySelector("#main")`)
	b.size(wide)
}

// A session that ends at the proxy in front takes nothing away that was typed, and gets in nobody's way: where scripts
// are answered with a page of the proxy, where they cannot follow, and with 401. A short run has the first.
func TestBrowser_aSessionThatEnds(t *testing.T) {
	t.Parallel()
	for _, p := range []*portal{
		{name: "a page with a button", button: true},
		{name: "a login at once elsewhere", elsewhere: true},
		{name: "a login at once elsewhere and 401 for scripts", elsewhere: true, eager: true},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if !p.button {
				fullOnly(t, "one proxy is in every run")
			}
			row := "/campaigns/poisoned/events/2"
			b := openTab(t, p.start(t))
			for _, text := range []string{"401", "connect-src", "form-action", "network: XHR", "ERR_ABORTED", "ERR_FAILED", "CORS", "Content Security Policy"} {
				b.expect(text) // what the browser says of a login that it does not follow
			}
			b.sessionEndsInAForm(p, row)
			b.sessionEndsInAPoll(p, "/")
			b.sessionEndsBefore(p, "/rows?status=dead", "form.filter button", "/rows?")
			if p.button {
				b.sessionEndsBefore(p, "/runs/new?kind=verify&all_campaigns=true", marked("run-preview-button"), "/runs/new?kind=verify&all_campaigns=true&")
				b.sessionEndsBefore(p, "/rows", marked("export-csv"), "")
				b.sessionEndsBefore(p, row+"?tab=payload", marked("download"), "")
				b.signsOut(p)
			}
			b.away() // or its poll would begin one
			before := p.logins()
			b.sessionEndsInTabs(p, "/", "/campaigns", row)
			begun := p.logins() - before
			must.Hold(t, begun <= 3 && (!p.eager || begun == 0), "3 tabs have begun %d logins", begun)
			p.watchedInTheBackground(b)
		})
	}
}

// watchedInTheBackground has a session end behind a hidden tab that watches for trouble: it begins no
// login, and stops.
func (p *portal) watchedInTheBackground(b *tab) {
	hidden := b.another()
	hidden.inject(noDesktop)
	hidden.signedIn(p, "/")
	hidden.click("[data-notify]")
	hidden.await("the button says on", saying("[data-notify]", "Notifications: on"))
	hidden.hide()
	hidden.polledTwice()          // what it asked before is answered
	b.navigate("/docs/operating") // which asks for nothing by itself
	p.end()
	before := p.logins()
	hidden.seenAgain()
	hidden.await("the page says that the session has ended", overInAPoll)
	hidden.polledTwice()
	n := value[int](hidden, asked)
	hidden.seenAgain()
	must.Hold(b.t, value[int](hidden, asked) == n && p.logins() == before, "a hidden page goes on asking, and begins logins")
}
