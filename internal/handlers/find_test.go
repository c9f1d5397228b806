package handlers

import (
	"testing"

	"github.com/outboxweb/outboxweb/internal/operator"
)

// What a reader types finds things by their names, and the actions on them that the reader may do.
func TestFind_namesThingsAndActionsOnThem(t *testing.T) {
	g := newGuarded(t)
	g.trouble().withPublisher(0)
	by, viewer := people[operator.RoleOperator], people[operator.RoleViewer]
	g.get("/api/v1/find?q=c-1", by).want(t, 200, `"kind":"campaign","certain":true,"title":"c-1"`, `"url":"/campaigns/c-1"`)
	g.get("/api/v1/find?q=pause+c-1", by).want(t, 200, `"kind":"action","certain":false,"title":"Pause campaign c-1…"`, `"url":"/campaigns/c-1#pause-form"`)
	g.get("/search?q=pause+c-1", by).want(t, 200, "Pause campaign c-1…")
	g.get("/api/v1/find?q=verify", by).want(t, 200, "Verify all campaigns…", `/runs/new?`)
	g.get("/api/v1/find?q=archive", viewer).want(t, 200, `"kind":"publisher"`, `"title":"scenes/archive"`)
	g.get("/api/v1/find?q=pause+c-1", viewer).want(t, 200, `"found":[]`)
}

// The file of a hand-over needs nothing else, and hides what pages hide.
func TestHandOver_isAPageAndAFile(t *testing.T) {
	s := ownSite(t).trouble()
	s.post("/api/v1/campaigns/c-2/pause", `{"reason":"tonight"}`).want(t, 200)
	for _, page := range []string{"/handover", "/handover?file=true"} {
		s.fresh(page).want(t, 200, "1 of 2 campaigns is blocked by a permanently failed event.", `seat &#34;7&#34; is &lt;taken&gt;`, "Campaign c-2: Paused by local ", " ago until ", "Paused campaign c-2.", "tonight", "Nobody would be told")
	}
	s.get("/handover?file=true").lacks(t, "<script", "<link", "src=").header(t, "Content-Disposition", `attachment; filename="handover-20261121T071000Z.html"`)
	s.get("/handover?file=maybe").want(t, 422)
}
