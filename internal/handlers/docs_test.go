package handlers

import "testing"

// The runbook is served by the server itself, with its commands for the reader's own address, and
// pages link to the relevant section.
func TestOperating_isReadWhereItApplies(t *testing.T) {
	s := ownSite(t).trouble()
	s.get("/docs/operating").want(t, 200, `<h2 id="dead-heads-grow"`, `href="/failures"`, `curl -fsS &#34;http://`, `/api/v1/failures/groups&#34;`,
		`href="/docs/operating#disk-full"`, "with curl", "as a command", "on PostgreSQL").lacks(t, "$URL/")
	for page, guide := range map[string]string{
		"/": "dead-heads-grow", "/campaigns/c-1": "dead-heads-grow", "/failures": "dead-heads-grow", "/about": "before-and-after-an-upgrade",
	} {
		s.get(page).want(t, 200, `href="/docs/operating#`+guide+`"`)
	}
	s.get("/campaigns/c-2").want(t, 200).lacks(t, "/docs/operating#")
	s.get("/rows").want(t, 200, `href="/docs/operating"`)
}

func TestDocs_areListedSearchedAndShown(t *testing.T) {
	s := ownSite(t)
	s.get("/docs").want(t, 200, `href="/docs/start"`, `href="/docs/operating"`, "Getting started", `role="search"`)
	s.get("/docs?q=disk+full").want(t, 200, `href="/docs/operating#disk-full"`).lacks(t, `href="/docs/start"`)
	s.get("/docs?q=nosuchword").want(t, 200, "No section contains all of these words.", `value="nosuchword"`)
	s.get("/docs/publishers").want(t, 200, `<h2 id="destinations"`, `href="https://cloudevents.io"`, "<li>")
	s.get("/docs/start").want(t, 200, `href="/docs/operating"`, `href="/docs/access"`)
	s.get("/docs/nothing").want(t, 404)
	if a := s.get("/operating"); a.StatusCode != 308 && a.Request.URL.Path != "/docs/operating" {
		t.Errorf("the old address answers %d", a.StatusCode)
	}
}
