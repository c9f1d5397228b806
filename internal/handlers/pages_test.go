package handlers

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/web/templates"
)

// everyPage are the addresses of a seeded site's pages.
var everyPage = []string{
	"/", "/rows", "/rows?status=dead", "/operations", "/operations/new", "/campaigns/c-1/events/2", "/rows/c-1/2/requeue", "/campaigns/c-1/events/1", "/campaigns",
	"/campaigns?state=blocked&sort=age", "/campaigns/c-1", "/campaigns/c-1?after_seq=2",
	"/failures", "/failures?fingerprint=x", "/?span=day", "/projections", "/alerts", "/instances", "/audit", "/about", "/docs", "/docs?q=canary", "/docs/start", "/docs/operating",
	"/campaigns/c-1/events/2/tree", "/campaigns/c-1/events/2/tree?part=tags",
}

func (s *site) trouble() *site {
	s.t.Helper()
	s.seed("c-1", "a", poison, "b", "c")
	s.seed("c-2", "a")
	s.work()
	return s
}

func TestOverview_showsPlainNumbersAndTheWorstCampaigns(t *testing.T) {
	s := ownSite(t).trouble()
	a := s.get("/").want(t, 200,
		`data-testid="count-pending">2<`, `data-testid="count-processing">0<`, `data-testid="count-failed">0<`, `data-testid="count-dead">1<`,
		`data-testid="oldest-age"`, `data-testid="retryable-age"`, `data-testid="as-of"`, `id="campaign-c-1"`, `data-testid="requeue-group"`,
		"1 of 2 campaigns is blocked by a permanently failed event.", `seat &#34;7&#34; is &lt;taken&gt;`, `href="/campaigns/c-1/events/2"`, `href="/rows?status=dead"`)
	a.lacks(t, `id="campaign-c-2"`, "<taken>")
}

func TestOverview_ofAnEmptyJournalSaysHowToBegin(t *testing.T) {
	t.Parallel()
	newSite(t).get("/").want(t, 200, "The journal is empty", "No worker is running", "First steps", "Append a first event", "curl", "/api/v1/campaigns/c-1/events", `data-testid="count-dead">0<`, `data-testid="oldest-age">none<`)
}

func TestLivePart_isReadAloneAndAnswers304WhenUnchanged(t *testing.T) {
	s := ownSite(t).trouble()
	s.withPublisher(0)
	s.beat("w-1", "v1")
	s.post("/api/v1/operations", `{"filter":{},"canary":true}`).want(t, http.StatusAccepted)
	target := header("HX-Target", templates.LiveTarget)
	for page, shows := range map[string]string{
		"/": "c-1", "/rows": "c-1", "/campaigns/c-1/events/2": "dead", "/campaigns/c-1/events/1": "applied", "/campaigns": "c-2", "/campaigns/c-1": "c-1", "/instances": `id="instance-w-1"`,
		"/operations": "/operations/1", "/operations/1": "c-1", "/operations/1?status=waiting": "waiting", "/publishers": "archive", archivePage: "archive",
	} {
		a := s.get(page, target).want(t, 200, shows).lacks(t, "<html", "data-live")
		if a.Header.Get("Outboxweb-As-Of") == "" || a.Header.Get("Vary") != "HX-Target" {
			t.Errorf("%s: headers %v", page, a.Header)
		}
		again := s.get(page, target, header("If-None-Match", a.Header.Get("ETag"))).want(t, 304)
		if again.body != "" {
			t.Errorf("%s: a 304 with a body", page)
		}
		whole := s.get(page).want(t, 200, `hx-get="`+page+`"`).body
		if !strings.Contains(whole, a.body) {
			t.Errorf("%s: the live part is not a part of the page", page)
		}
	}
}

func TestPages_haveNoInlineCodeAndStayBelowTheBasePath(t *testing.T) {
	s := ownSite(t, func(c *Config) { c.BasePath = "/ops/outbox/" }).trouble()
	address := regexp.MustCompile(`(?:href|action|src|hx-get|hx-post)="([^"]*)"`)
	inline := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:`)
	for _, page := range everyPage {
		a := s.get("/ops/outbox"+page).want(t, 200)
		found := address.FindAllStringSubmatch(a.body, -1)
		if len(found) < 10 {
			t.Errorf("%s: only %d addresses", page, len(found))
		}
		for _, m := range found {
			if !strings.HasPrefix(m[1], "/ops/outbox/") && !strings.HasPrefix(m[1], "#") {
				t.Errorf("%s: %s leaves the base path", page, m[0])
			}
		}
		if got := inline.FindString(a.body); got != "" {
			t.Errorf("%s: inline code %q", page, got)
		}
	}
	to := s.submit("/ops/outbox/campaigns/c-1/pause", "").want(t, http.StatusSeeOther).Header.Get("Location")
	if !strings.HasPrefix(to, "/ops/outbox/campaigns/c-1?act=") {
		t.Errorf("redirected to %q", to)
	}
	s.get("/rows").want(t, 404, "the pages are under /ops/outbox/")
	if got := s.get("/ops/outbox").want(t, http.StatusMovedPermanently).Header.Get("Location"); got != "/ops/outbox/" {
		t.Errorf("redirected to %q", got)
	}
	for _, probe := range []string{"/healthz", "/readyz", "/metrics", "/ops/outbox/healthz", "/ops/outbox/api/v1/summary"} {
		s.get(probe).want(t, 200)
	}
	s.get("/ops/outboxer/").want(t, 404)
}

func TestPages_linkToPagesThatExist(t *testing.T) {
	s := ownSite(t).trouble()
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	href := regexp.MustCompile(`href="([^"]*)"`)
	seen := map[string]bool{}
	queue, most := append([]string{}, everyPage...), 400
	if testing.Short() {
		most = 150
	}
	for len(queue) > 0 {
		target, _, _ := strings.Cut(queue[0], "#")
		queue = queue[1:]
		if seen[target] || target == "" || strings.HasPrefix(target, "https://") { // of others, in the documents
			continue
		}
		seen[target] = true
		a := s.get(target)
		if a.StatusCode != 200 {
			t.Errorf("%s answers %d", target, a.StatusCode)
		}
		if strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") && len(seen) < most {
			for _, m := range href.FindAllStringSubmatch(a.body, -1) {
				queue = append(queue, strings.ReplaceAll(m[1], "&amp;", "&"))
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d addresses were reached", len(seen))
	}
}

// The message about an action tells what became of it: its row waits, or has died again, or another
// action has changed the object.
func TestFlash_saysWhatHasHappenedSince(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", poison)
	s.work()
	to := s.submit("/rows/c-1/1/requeue", "expected_status=dead").want(t, http.StatusSeeOther).Header.Get("Location")
	_, act, _ := strings.Cut(to, "act=")
	poll := func(page, act string) string {
		t.Helper()
		return s.get(page, header("HX-Target", templates.LiveTarget), header("Outboxweb-Act", act)).want(t, 200).Header.Get("Outboxweb-Since")
	}
	s.get(to).want(t, 200, `class="flash busy"`, "It is waiting to be applied.")
	if since := poll("/campaigns/c-1/events/1", act); since != "busy It is waiting to be applied." {
		t.Errorf("a poll says %q at once", since)
	}
	s.clock = s.clock.Add(time.Minute)
	s.work()
	s.get(to).want(t, 200, `class="flash warn"`, "It failed again 1 min later with the same error.")
	if since := poll("/campaigns/c-1/events/1", act); since != "warn It failed again 1 min later with the same error." {
		t.Errorf("a poll says %q", since)
	}

	to = s.submit("/campaigns/c-1/pause", "").want(t, http.StatusSeeOther).Header.Get("Location")
	s.get(to).want(t, 200, `class="flash ok"`)
	s.clock = s.clock.Add(time.Second)
	s.post("/api/v1/campaigns/c-1/resume", `{}`).want(t, 200)
	s.get(to).want(t, 200, `class="flash warn"`, "It has been changed since.")
	for _, act := range []string{"0", "99", "x", "1"} {
		poll("/", act)
	}
}

func TestForms_leadBackToWhereTheyAre(t *testing.T) {
	t.Parallel()
	s := newSite(t).trouble()
	landing := func(a answer) string { return a.want(t, http.StatusSeeOther).Header.Get("Location") }
	to := landing(s.submit("/rows/c-1/2/requeue", "reason="+url.QueryEscape("<i>freed</i>")))
	s.get(to).want(t, 200, "local via page", "reason: &lt;i&gt;freed&lt;/i&gt;", `verified: <a href="/runs/new?campaign=c-1&amp;kind=verify">`).lacks(t, "<i>freed")
	if to := landing(s.get("/rows/requeue?campaign=c-1&limit=3")); to != "/operations/new?campaign=c-1&limit=3" {
		t.Errorf("the bulk requeue leads to %q", to)
	}
	for from, want := range map[string]string{"overview": "/?act=", "campaign": "/campaigns/c-1?act=", "": "/campaigns/c-1/events/2?act="} {
		s.work()
		if to := landing(s.submit("/rows/c-1/2/requeue", "return_to="+from)); !strings.HasPrefix(to, want) {
			t.Errorf("an action on %q leads to %q", from, to)
		}
	}
}
