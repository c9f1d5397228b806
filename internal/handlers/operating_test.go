package handlers

import "testing"

// The runbook is on the server itself, with its commands for the reader's own
// address, and pages lead to the section that applies.
func TestOperating_isReadWhereItApplies(t *testing.T) {
	t.Parallel()
	s := newSite(t).trouble()
	s.get("/operating").want(t, 200, `<h2 id="dead-heads-grow"`, `href="/failures"`, `curl -fsS &#34;http://`, `/api/v1/failures/groups&#34;`,
		`href="/operating#disk-full"`, "with curl", "as a command", "on PostgreSQL").lacks(t, "$URL/")
	for page, guide := range map[string]string{
		"/": "dead-heads-grow", "/campaigns/c-1": "dead-heads-grow", "/failures": "dead-heads-grow", "/about": "before-and-after-an-upgrade",
	} {
		s.get(page).want(t, 200, `href="/operating#`+guide+`"`)
	}
	s.get("/campaigns/c-2").want(t, 200).lacks(t, "/operating#")
	s.get("/rows").want(t, 200, `href="/operating"`)
}
