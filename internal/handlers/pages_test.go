package handlers

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/outboxweb/outboxweb/internal/event"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/operator"
	"github.com/outboxweb/outboxweb/internal/size"
	"github.com/outboxweb/outboxweb/internal/store"
	"github.com/outboxweb/outboxweb/web/templates/ui"
)

// everyPage are the addresses of a seeded site's pages.
var everyPage = []string{
	"/", "/rows", "/rows?status=dead", "/operations", "/operations/new", "/campaigns/c-1/events/2", "/rows/c-1/2/requeue", "/campaigns/c-1/events/1", "/campaigns",
	"/campaigns?state=blocked&sort=age", "/campaigns/c-1", "/campaigns/c-1?after_seq=2",
	"/failures", "/failures?fingerprint=x", "/?span=day", "/charts", "/handover", "/projections", "/alerts", "/instances", "/audit", "/about", "/docs", "/docs?q=canary", "/docs/start", "/docs/operating",
	"/campaigns/c-1/events/2/tree", "/campaigns/c-1/events/2/tree?part=tags",
}

func (s *site) trouble() *site {
	s.seed("c-1", "a", poison, "b", "c").seed("c-2", "a").work()
	return s
}

func TestOverview_showsHowToBeginThenNumbersAndTheWorstCampaigns(t *testing.T) {
	s := ownSite(t)
	s.get("/").want(t, 200, "The journal is empty", "No worker is running", "First steps", "Append a first event", "curl", "/api/v1/campaigns/c-1/events").lacks(t, "count-dead", "oldest-age")
	a := s.trouble().fresh("/").want(t, 200,
		`data-testid="count-pending">2<`, `data-testid="count-dead">1<`,
		`data-testid="oldest-age"`, `data-testid="as-of"`, `data-testid="campaign-c-1"`, `data-testid="requeue-group"`,
		"1 of 2 campaigns is blocked by a permanently failed event.", `seat &#34;7&#34; is &lt;taken&gt;`, `href="/campaigns/c-1/events/2"`, `href="/rows?status=dead"`)
	a.lacks(t, `data-testid="campaign-c-2"`, "<taken>", "count-processing", "count-failed", "retryable-age")
}

func TestLivePart_isReadAloneAndAnswers304WhenUnchanged(t *testing.T) {
	s := ownSite(t).trouble().withPublisher(0)
	s.beat("w-1", "v1")
	s.post("/api/v1/operations", `{"filter":{},"canary":true}`).want(t, http.StatusAccepted)
	target := header("HX-Target", ui.LiveTarget)
	for page, shows := range map[string]string{
		"/": "c-1", "/rows": "c-1", "/campaigns/c-1/events/2": "dead", "/campaigns/c-1/events/1": "applied", "/campaigns": "c-2", "/campaigns/c-1": "c-1", "/instances": `id="instance-w-1"`,
		"/operations": "/operations/1", "/operations/1": "c-1", "/operations/1?status=waiting": "waiting", "/publishers": "archive", archivePage: "archive",
	} {
		a := s.get(page, target).want(t, 200, shows).lacks(t, "<html", "data-live")
		must.Hold(t, a.Header.Get("Outboxweb-As-Of") != "" && a.Header.Get("Vary") == "HX-Target", "%s: headers %v", page, a.Header)
		again := s.get(page, target, header("If-None-Match", a.Header.Get("ETag"))).want(t, 304)
		must.Equal(t, again.body, "", page, "a 304 with a body")
		whole := s.get(page).want(t, 200, `hx-get="`+page+`"`).body
		must.Hold(t, strings.Contains(whole, a.body), "%s: the live part is not a part of the page", page)
	}
}

func TestPages_haveNoInlineCodeAndStayBelowTheBasePath(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.BasePath = "/ops/outbox/" }).trouble()
	address := regexp.MustCompile(`(?:href|action|src|hx-get|hx-post)="([^"]*)"`)
	inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:`)
	for _, page := range everyPage {
		a := s.get("/ops/outbox"+page).want(t, 200)
		found := address.FindAllStringSubmatch(a.body, -1)
		must.Hold(t, len(found) >= 10, "%s: only %d addresses", page, len(found))
		for _, m := range found {
			must.Hold(t, strings.HasPrefix(m[1], "/ops/outbox/") || strings.HasPrefix(m[1], "#"), "%s: %s leaves the base path", page, m[0])
		}
		must.Equal(t, inline.FindString(a.body), "", page, "inline code")
	}
	s.submit("/ops/outbox/campaigns/c-1/pause", "").want(t, http.StatusSeeOther).leads(t, "/ops/outbox/campaigns/c-1?act=")
	s.get("/rows").want(t, 404, "the pages are under /ops/outbox/")
	s.get("/ops/outbox").want(t, http.StatusMovedPermanently).header(t, "Location", "/ops/outbox/")
	for _, probe := range []string{"/healthz", "/readyz", "/metrics", "/ops/outbox/healthz", "/ops/outbox/api/v1/summary"} {
		s.get(probe).want(t, 200)
	}
	s.get("/ops/outboxer/").want(t, 404)
}

func TestPages_linkToPagesThatExist(t *testing.T) {
	s := ownSite(t).trouble()
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	href, seen := regexp.MustCompile(`href="([^"]*)"`), map[string]bool{}
	queue, most := append([]string{}, everyPage...), size.Of(150, 400, 400)
	for len(queue) > 0 {
		target, _, _ := strings.Cut(queue[0], "#")
		queue = queue[1:]
		if seen[target] || target == "" || strings.HasPrefix(target, "https://") { // of others, in the documents
			continue
		}
		seen[target] = true
		a := s.get(target)
		must.Equal(t, a.StatusCode, 200, target, "answers")
		if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && len(seen) < most {
			for _, m := range href.FindAllStringSubmatch(a.body, -1) {
				queue = append(queue, strings.ReplaceAll(m[1], "&amp;", "&"))
			}
		}
	}
	must.Hold(t, len(seen) >= 40, "only %d addresses were reached", len(seen))
}

// The message about an action tells what became of it: its row waits, or has died again, or another action has changed the object.
func TestFlash_saysWhatHasHappenedSince(t *testing.T) {
	s := ownSite(t).seed("c-1", poison).work()
	to := s.submit("/rows/c-1/1/requeue", "expected_status=dead").want(t, http.StatusSeeOther).Header.Get("Location")
	_, act, _ := strings.Cut(to, "act=")
	poll := func(page, act string) string {
		return s.get(page, header("HX-Target", ui.LiveTarget), header("Outboxweb-Act", act)).want(t, 200).Header.Get("Outboxweb-Since")
	}
	s.get(to).want(t, 200, `class="flash busy"`, "It is waiting to be applied.")
	must.Equal(t, poll("/campaigns/c-1/events/1", act), "busy It is waiting to be applied.", "what a poll says at once")
	s.clock = s.clock.Add(time.Minute)
	s.work().get(to).want(t, 200, `class="flash warn"`, "It failed again 1 min later with the same error.")
	must.Equal(t, poll("/campaigns/c-1/events/1", act), "warn It failed again 1 min later with the same error.", "a poll says")

	to = s.submit("/campaigns/c-1/pause", "").want(t, http.StatusSeeOther).Header.Get("Location")
	s.clock = s.clock.Add(time.Second)
	s.post("/api/v1/campaigns/c-1/resume", `{}`).want(t, 200)
	s.get(to).want(t, 200, `class="flash warn"`, "It has been changed since.")
	for _, act := range []string{"0", "99", "x", "1"} {
		poll("/", act)
	}
}

func TestForms_leadBackToWhereTheyAre(t *testing.T) {
	s := ownSite(t).trouble()
	landing := func(a answer) string { return a.want(t, http.StatusSeeOther).Header.Get("Location") }
	to := landing(s.submit("/rows/c-1/2/requeue", "reason="+url.QueryEscape("<i>freed</i>")))
	s.get(to).want(t, 200, "local via page", "reason: <bdi>&lt;i&gt;freed&lt;/i&gt;", `verified: <a href="/runs/new?campaign_ids=c-1&amp;kind=verify">`).lacks(t, "<i>freed")
	must.Equal(t, landing(s.get("/rows/requeue?campaign=c-1&limit=3")), "/operations/new?campaign=c-1&limit=3", "the bulk requeue leads to")
	for from, want := range map[string]string{"overview": "/?act=", "campaign": "/campaigns/c-1?act=", "": "/campaigns/c-1/events/2?act="} {
		s.work().submit("/rows/c-1/2/requeue", "return_to="+from).want(t, http.StatusSeeOther).leads(t, want)
	}
}

func TestNavigation_namesPagesAsTheirTitles(t *testing.T) {
	s := ownSite(t)
	entry := regexp.MustCompile(`<a href="([^"]+)"[^>]*>([^<]+)</a>`)
	heading, title := regexp.MustCompile(`<h1[^>]*>([^<]+)</h1>`), regexp.MustCompile(`<title>([^<]+)</title>`)
	menu := regexp.MustCompile(`(?s)<nav id="menu".*?</nav>`).FindString(s.get("/").body)
	seen := map[string]string{} // the last name of a page: that below its section
	for _, m := range entry.FindAllStringSubmatch(menu, -1) {
		seen[m[1]] = m[2]
	}
	must.Need(t, len(seen) >= 15, "the menu has %v", seen)
	for to, name := range seen {
		body := s.get(to).want(t, 200).body
		h, d := heading.FindStringSubmatch(body), title.FindStringSubmatch(body)
		must.Hold(t, h != nil && d != nil && h[1] == name && strings.HasSuffix(" · "+d[1], " · "+name+" · outboxweb"), "%s is %q in the navigation, and has the heading %q and the title %q", to, name, h, d)
	}
}

var (
	htmlID   = regexp.MustCompile(`\sid="([^"]*)"`)
	htmlRefs = regexp.MustCompile(`\s(?:for|aria-labelledby|aria-describedby|aria-controls)="([^"]*)"`)
	control  = regexp.MustCompile(`<(?:input|select|textarea)\b[^>]*>`)
	ownLabel = regexp.MustCompile(`type="hidden"|aria-label(?:ledby)?=`)
	labelled = regexp.MustCompile(`(?s)<label\b[^>]*>.*?</label>`)
)

// tellsApart fails the test if two elements of a page share an id, if a label or description
// references a missing element, or if a control has no label.
func (s *site) tellsApart(page string) {
	html, ids := s.get(page).want(s.t, http.StatusOK).body, map[string]int{}
	for _, m := range htmlID.FindAllStringSubmatch(html, -1) {
		if ids[m[1]]++; ids[m[1]] == 2 {
			s.t.Errorf("%s: the id %q is there twice", page, m[1])
		}
	}
	for _, m := range htmlRefs.FindAllStringSubmatch(html, -1) {
		must.Hold(s.t, ids[m[1]] != 0, "%s: %s refers to nothing", page, m[0])
	}
	for _, m := range control.FindAllString(labelled.ReplaceAllString(html, ""), -1) {
		id := htmlID.FindStringSubmatch(m)
		must.Hold(s.t, ownLabel.MatchString(m) || id != nil && strings.Contains(html, ` for="`+id[1]+`"`), "%s: %s has no label", page, m)
	}
}

func TestPages_tellTheirElementsApart(t *testing.T) {
	t.Parallel()
	pages := append([]string{"/campaigns/c-3", "/campaigns/c-3/events/1", "/campaigns/c-4", "/operations/1", "/operations/2", "/operations?status=running", "/failures", "/rows?status=failed"}, everyPage...)
	for _, reasonFrom := range []int64{0, 1} {
		if size.Little() && reasonFrom == 0 {
			continue
		}
		s := newSite(t, func(c *Config) { c.ReasonFrom = reasonFrom }).blocked(2).trouble()
		for _, page := range everyPage {
			s.tellsApart(page)
		}
		s.seed("c-3", poison, "a")
		s.pass() // fails once
		s.seed("c-4", poison, poison, "a").work().seed("c-3", "b")
		for _, seq := range []string{"1", "2"} {
			s.submit("/rows/c-4/"+seq+"/skip", "reason=r&confirm=skip+c-4+"+seq).want(t, http.StatusSeeOther)
			s.work()
		}
		s.post("/api/v1/operations", `{"canary":true,"filter":{"limit":1},"reason":"r"}`).want(t, 202)
		s.post("/api/v1/operations", `{"filter":{},"reason":"r"}`).want(t, 202)
		s.post("/api/v1/operations/2/cancel", `{"reason":"r"}`).want(t, 200)
		for _, page := range pages {
			s.tellsApart(page)
		}
	}
}

// A name with direction-changing characters, from before they were refused, is shown with escapes,
// on whole pages and in the parts that refresh; its form still sends the name unchanged.
func TestPages_showNamesThatTurnOrHide(t *testing.T) {
	const name = "\u202egnp.exe\u200b"
	s := ownSite(t).seed("before", "a", poison, "b").seed("שלום", "a").work()
	for _, table := range []string{"events", "projection_apply_outbox", "campaigns", "attempts"} {
		s.kit.Tamper("update " + table + " set campaign_id = '" + name + "' where campaign_id = 'before'")
	}
	s.submit("/campaigns/"+url.PathEscape("שלום")+"/pause", "reason="+url.QueryEscape(name)).want(t, 303)
	for _, page := range []string{"/", "/rows", "/campaigns", "/campaigns/" + url.PathEscape(name), "/campaigns/" + url.PathEscape(name) + "/events/2"} {
		for _, a := range []answer{s.get(page), s.get(page, header("HX-Target", ui.LiveTarget))} {
			a.want(t, 200, `\u202egnp.exe\u200b`)
			for _, sent := range []string{`data-testid="`, `value="`, `id="`, `data-key="`} {
				a.body = strings.ReplaceAll(a.body, sent+"campaign-"+name, "")
				a.body = strings.ReplaceAll(a.body, sent+"row-"+name, "")
				a.body = strings.ReplaceAll(a.body, sent+name, "")
			}
			i := strings.Index(a.body, "\u202e")
			must.Hold(t, i < 0, "%s turns at …%+q…", page, a.body[max(0, i-80):min(len(a.body), i+20)])
		}
	}
	s.get("/audit").want(t, 200, "Paused campaign <bdi>שלום</bdi>.", `\u202egnp.exe\u200b`)
	s.get("/operations/new?campaign="+url.QueryEscape(name)).want(t, 200, `value="`+name+`"`)
}

func TestPages_showNamesOfUsersAsText(t *testing.T) {
	g := newGuarded(t)
	g.seed("c", "a").work()
	for _, name := range []string{`"><img src=x onerror=hostile(30)>`, "שלום עולם"} {
		g.addToken(name, operator.RoleViewer, time.Hour)
		operator := byProxy(name, "ops", name)
		g.post("/api/v1/campaigns/c/pause", `{"reason":"look"}`, operator).want(t, http.StatusOK)
		g.post("/api/v1/campaigns/c/resume", `{"reason":"done"}`, operator).want(t, http.StatusOK)
		g.post("/api/v1/rows/c/1/skip", `{"reason":"no","confirm":"skip c 1"}`, operator).want(t, http.StatusForbidden)
		for path, by := range map[string]func(*http.Request){
			"/campaigns/c": operator, "/audit": operator, "/audit?outcome=refused": operator, "/about": operator, "/tokens": byProxy("ada"), "/": byProxy(name, name),
		} {
			a := g.get(path, by)
			must.Hold(t, strings.Contains(a.body, html.EscapeString(name)) && !strings.Contains(a.body, "<img src=x"), "%s does not show %q as text: %s", path, name, a.body)
			must.Hold(t, path == "/" || strings.Contains(a.body, "<bdi>"+html.EscapeString(name)+"</bdi>"), "%s does not isolate %q", path, name)
		}
	}
}

// largestPage is the limit of a page's HTML without payloads, in bytes.
const largestPage = 60 << 10

// payloads are the parts of events, of requests and of states that pages show as they are.
var payloads = regexp.MustCompile(`(?s)<pre.*?</pre>|<code class="small">.*?</code>`)

func longID(kind, n int) string { return fmt.Sprintf("7d9f3c52-0e4b-4a6d-%04d-%012d", kind, n) }

// manyRows fills every list of the journal with more than a page of rows with long ids.
func (s *site) manyRows() {
	payload := []byte(`{"note":"` + strings.Repeat("long ", 100) + `"}`)
	for n := range 55 {
		e := func(eventType string) event.Event {
			return event.Event{CampaignID: longID(0, n), EventType: eventType, EventID: longID(1, 10*n+len(eventType)), ActorType: "user", ActorID: longID(2, n),
				EntityType: "subscription", EntityID: longID(3, n), RequestID: longID(4, n), CausationID: longID(5, n), Payload: payload}
		}
		events := []event.Event{e(poison), e(fmt.Sprint("subscription.renewed.", n%10)), e(fmt.Sprint("subscription.payment.received.", n%10))}
		must.Get(s.store.Append(s.t.Context(), store.Append{Events: events})).Or(s.t)
	}
	s.work()
	reason := strings.Repeat("why ", 10)
	for n := range 55 {
		campaign := longID(0, n)
		s.post("/api/v1/runs", fmt.Sprintf(`{"kind":"verify","campaign_ids":[%q],"reason":%q}`, campaign, reason)).want(s.t, http.StatusAccepted)
		s.post("/api/v1/operations", fmt.Sprintf(`{"filter":{"campaign_id":%q},"reason":%q}`, campaign, reason)).want(s.t, http.StatusAccepted)
	}
}

// Every page that needs no object is one of the registry, so that a new one is tested too.
func TestPages_areSmallWithAFullPageOfLongIDs(t *testing.T) {
	s := ownSite(t)
	s.manyRows()
	lists := 0
	must.OK(t, chi.Walk(s.srv.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodGet || strings.ContainsAny(route, "{*") || strings.HasPrefix(route, apiPrefix) || strings.HasPrefix(route, "/docs") {
			return nil
		}
		a := s.get(route)
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			return nil
		}
		html := payloads.ReplaceAllString(a.body, "")
		rows := strings.Count(html, "<tr")
		if rows > 50 {
			lists++
		}
		t.Logf("note: %s: %d bytes, %d rows", route, len(html), rows)
		must.Hold(t, len(html) <= largestPage, "%s has %d bytes of HTML in %d rows; the limit is %d", route, len(html), rows, largestPage)
		return nil
	}))
	must.Hold(t, lists >= 6, "%d lists have a full page, want events, rows, campaigns, runs, operations and audit", lists)
}

func TestDocs_areListedSearchedAndReadWhereTheyApply(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/docs").want(t, 200, `href="/docs/start"`, `href="/docs/operating"`, "Getting started", `role="search"`)
	s.get("/docs?q=disk+full").want(t, 200, `href="/docs/operating#disk-full"`).lacks(t, `href="/docs/start"`)
	s.get("/docs?q=nosuchword").want(t, 200, "No section contains all of these words.", `value="nosuchword"`)
	s.get("/docs/publishers").want(t, 200, `<h2 id="destinations"`, `href="https://cloudevents.io"`, "<li>")
	s.get("/docs/start").want(t, 200, `href="/docs/operating"`, `href="/docs/access"`)
	s.get("/docs/nothing").want(t, 404)
	s.get("/operating").want(t, 308).leads(t, "/docs/operating")
	s.get("/docs/operating").want(t, 200, `<h2 id="dead-heads-grow"`, `href="/failures"`, `curl -fsS &#34;http://`, `/api/v1/failures/groups&#34;`,
		`href="/docs/operating#disk-full"`, "with curl", "as a command", "on PostgreSQL").lacks(t, "$URL/")
	for page, guide := range map[string]string{"/": "#dead-heads-grow", "/campaigns/c-1": "#dead-heads-grow", "/failures": "#dead-heads-grow", "/about": "#before-and-after-an-upgrade", "/rows": ""} {
		s.get(page).want(t, 200, `href="/docs/operating`+guide+`"`)
	}
	s.get("/campaigns/c-2").want(t, 200).lacks(t, "/docs/operating#")
}
