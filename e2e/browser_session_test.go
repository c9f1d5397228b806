package e2e

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/size"
)

// portal is a proxy that signs readers in.
type portal struct {
	*gate
	name      string
	button    bool   // a page with a button comes before the login
	elsewhere bool   // the login is at another origin
	eager     bool   // scripts get 401
	login     string // the address of the login page

	in       atomic.Bool
	scripted atomic.Int64 // the logins that something other than a reader has begun
}

// start starts a server behind the portal, on a journal with a dead row.
func (p *portal) start(t *testing.T) *server {
	d, flags := poisoned(t)
	p.gate = newGate(t, p.guard)
	p.login = "/oauth2/login"
	if p.elsewhere {
		provider := httptest.NewServer(http.HandlerFunc(p.loginPage))
		t.Cleanup(provider.Close)
		p.login = provider.URL
	}
	return p.gate.start(t, d, append(flags, "--auth", "proxy-header", "--auth-preset", "oauth2-proxy", "--trusted-proxy", "127.0.0.1/32", "--admin", "*")...)
}

func (p *portal) guard(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth2/sign_in", func(w http.ResponseWriter, r *http.Request) { showForm(w, "/oauth2/start", "start", r.FormValue("rd")) })
	mux.HandleFunc("GET /oauth2/start", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			p.scripted.Add(1)
		}
		http.Redirect(w, r, p.login+"?"+url.Values{"rd": {r.FormValue("rd")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("GET /oauth2/login", p.loginPage)
	for path, in := range map[string]bool{"GET /oauth2/callback": true, "GET /oauth2/sign_out": false} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			p.in.Store(in)
			http.Redirect(w, r, r.FormValue("rd"), http.StatusFound)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Forwarded-Email", "ana@example.org")
		switch {
		case p.in.Load():
			next.ServeHTTP(w, r)
		case p.eager && r.Header.Get("Accept") == "application/json":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			to := map[bool]string{true: "/oauth2/sign_in", false: "/oauth2/start"}[p.button]
			http.Redirect(w, r, to+"?rd="+url.QueryEscape(r.RequestURI), http.StatusFound)
		}
	})
	return mux
}

func (p *portal) loginPage(w http.ResponseWriter, r *http.Request) {
	showForm(w, p.url+"/oauth2/callback", "login", r.FormValue("rd"))
}

func showForm(w http.ResponseWriter, action, id, rd string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><head><title>Sign in</title><link rel="icon" href="data:,"></head><body><form action="%s"><input type="hidden" name="rd" value="%s"><button id="%s">Sign in</button></form></body></html>`,
		action, html.EscapeString(rd), id)
}

func (p *portal) end() { p.in.Store(false) }

func (p *portal) signIn(b *tab) {
	if p.button {
		b.click("#start")
	}
	b.click("#login")
}

func (b *tab) another(options ...chromedp.ContextOption) *tab {
	other := newTab(b.t, b.s, b.ctx, options...)
	other.base, other.expected = b.base, slices.Clone(b.expected)
	return other
}

func (b *tab) opens(selector string) *tab {
	profile := chromedp.FromContext(b.ctx).BrowserContextID
	opened := chromedp.WaitNewTarget(b.ctx, func(info *target.Info) bool { return info.Type == "page" && info.BrowserContextID == profile })
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
	b.click(marked("requeue")).await("the act is confirmed", telling(marked("flash"), "Requeued event 2 of campaign poisoned"))
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
	b.seenAgain().goesOn()
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
	login.click("[data-stale] a").atLogin()
	for _, one := range left[1:] {
		one.polledTwice()
		one.seenAgain().await("the page has asked again", asked+` > 0 && `+overInAPoll)
	}
	p.signIn(login)
	login.back(paths[0])
	for _, one := range left[1:] {
		one.seenAgain().goesOn()
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
	b.click(selector).atLogin()
	if leadsTo != "" { // otherwise to a file
		p.signIn(b)
		b.back(leadsTo)
	}
}

func (b *tab) signsOut(p *portal) {
	b.size(narrow).signedIn(p, "/")
	b.sound("the reader's name on a phone")
	b.click(marked("sign-out")).await("the proxy's page is there", `document.title !== "" && !document.querySelector("#main")`)
	b.navigate("/")
	b.await("the session is over", `!document.querySelector("#main")`)
	b.size(wide)
}

// A session that ends at the proxy in front takes nothing away that was typed, and gets in nobody's way: where scripts
// are answered with a page of the proxy, where they cannot follow, and with 401.
func TestBrowser_aSessionThatEnds(t *testing.T) {
	t.Parallel()
	size.Full(t, "a browser behind proxies with a login takes long")
	for _, p := range []*portal{
		{name: "a page with a button", button: true},
		{name: "a login at once elsewhere", elsewhere: true},
		{name: "a login at once elsewhere and 401 for scripts", elsewhere: true, eager: true},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			row, b := "/campaigns/poisoned/events/2", openTab(t, p.start(t))
			// What the browser says of a login that it does not follow.
			b.expect("401", "connect-src", "form-action", "network: XHR", "ERR_ABORTED", "ERR_FAILED", "CORS", "Content Security Policy")
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
			before := p.scripted.Load()
			b.sessionEndsInTabs(p, "/", "/campaigns", row)
			begun := p.scripted.Load() - before
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
	hidden.click("[data-notify]").await("the button says on", saying("[data-notify]", "Notifications: on"))
	hidden.hide()
	hidden.polledTwice()          // what it asked before is answered
	b.navigate("/docs/operating") // which asks for nothing by itself
	p.end()
	before := p.scripted.Load()
	hidden.seenAgain().await("the page says that the session has ended", overInAPoll)
	hidden.polledTwice()
	n := value[int](hidden, asked)
	hidden.seenAgain()
	must.Hold(b.t, value[int](hidden, asked) == n && p.scripted.Load() == before, "a hidden page goes on asking, and begins logins")
}
