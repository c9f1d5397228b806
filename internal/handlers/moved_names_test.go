package handlers

import (
	"html"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/outbox"
)

// Names of users, groups and tokens are text like any other, isolated from its sentence, on the pages that
// show them and in refusals.
func TestPages_showNamesOfUsersAsText(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.seed("c", "a")
	g.work()
	for _, name := range []string{`"><img src=x onerror=hostile(30)>`, "שלום עולם"} {
		g.addToken(name, outbox.RoleViewer, time.Hour)
		operator := byProxy(name, "ops", name)
		g.post("/api/v1/campaigns/c/pause", `{"reason":"look"}`, operator).want(t, http.StatusOK)
		g.post("/api/v1/campaigns/c/resume", `{"reason":"done"}`, operator).want(t, http.StatusOK)
		g.post("/api/v1/rows/c/1/skip", `{"reason":"no","confirm":"skip c 1"}`, operator).want(t, http.StatusForbidden)
		for path, by := range map[string]func(*http.Request){
			"/campaigns/c": operator, "/audit": operator, "/audit?outcome=refused": operator, "/about": operator, "/tokens": byProxy("ada"), "/": byProxy(name, name),
		} {
			a := g.get(path, by)
			if !strings.Contains(a.body, html.EscapeString(name)) || strings.Contains(a.body, "<img src=x") {
				t.Errorf("%s does not show %q as text: %s", path, name, a.body)
			}
			if path != "/" && !strings.Contains(a.body, "<bdi>"+html.EscapeString(name)+"</bdi>") {
				t.Errorf("%s does not isolate %q", path, name)
			}
		}
	}
}
