package e2e

import (
	"testing"

	"github.com/chromedp/cdproto/network"
)

// startBehindProxy starts a server behind an authenticating proxy on this machine, on a journal
// with a dead row, and returns the page of it.
func startBehindProxy(t *testing.T) (s *server, row string) {
	t.Helper()
	first, d := startSeats(t, quickDeath...)
	appendTo(t, first, "", "table", seats("ana", "ana", "cem"))
	awaitCounts(t, first, "", 1, 0, 1)
	first.stop(t)
	s = start(t, d, "--no-worker", "--auth", "proxy-header", "--auth-user-header", "Remote-User", "--auth-groups-header", "Remote-Groups", "--auth-groups-format", "repeated",
		"--trusted-proxy", "127.0.0.1/32", "--viewer", "group:watchers", "--operator", "group:ops", "--admin", "group:admins", "--projections", writeProjections(t, seatProjections)[1])
	return s, "/campaigns/table/events/2"
}

// signIn makes the tab's requests those of a user as forwarded by the proxy; without a group the
// user is not signed in.
func (b *tab) signIn(user, group string) {
	b.t.Helper()
	headers := network.Headers{}
	if group != "" {
		headers = network.Headers{"Remote-User": user, "Remote-Groups": group}
	}
	tell(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: headers})
}

// A role that is lost while a form is filled in, or a session, is told in place.
func TestBrowser_aLostRole(t *testing.T) {
	t.Parallel()
	s, row := startBehindProxy(t)
	b := openTab(t, s)
	b.expect("401")
	b.expect("403")
	b.signIn("ana@example.org", "admins")
	b.open(row)
	b.typeInto("#reason", "while I was an admin")
	b.signIn("ana@example.org", "watchers")
	b.click(marked("requeue"))
	b.await("the form says what role it needs, and keeps what was typed", telling("#row-form "+marked("refusal"), "needs the role operator")+
		` && document.activeElement.id === "refusal" && document.querySelector("#reason").value === "while I was an admin"`)
	b.signIn("ana@example.org", "admins")
	b.open(row)
	b.signIn("", "")
	b.await("the page says that the session has ended", telling("[data-stale]", "The data shown is stale.")+" && "+telling("[data-stale]", "Remote-User"))
	b.await("the row is shown still", `!!document.querySelector(`+js(marked("requeue"))+`)`)
}
