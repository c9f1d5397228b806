package handlers

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxweb/outboxweb/internal/dbtest"
	"github.com/outboxweb/outboxweb/internal/must"
	"github.com/outboxweb/outboxweb/internal/outbox"
)

// link is where the element with a test id leads; empty when there is none.
func (a answer) link(id string) string {
	m := regexp.MustCompile(`href="([^"]*)" data-testid="` + id + `"`).FindStringSubmatch(a.body)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// marks are the test ids on a page that begin with the prefix.
func (a answer) marks(prefix string) (ids []string) {
	for _, m := range regexp.MustCompile(`id="(`+prefix+`[^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		ids = append(ids, m[1])
	}
	return slices.Compact(ids)
}

func TestLists_leadOnAndBackToWhatWasShown(t *testing.T) {
	s := ownSite(t)
	for i := range 7 {
		s.seed(fmt.Sprint("c-", i), "a")
		must.Get(dbtest.Open(t, s.sub.Journal).Exec(`
insert into publisher_progress (topic, publisher, destination, selects, max_errors, position, created_at, updated_at, status)
values ('a', $1, 'log:', '{"event_types":["*"]}', 10, 0, 1, 1, $2)`, fmt.Sprint("p-", i), []string{"active", "failed"}[i%2])).Or(t)
		s.submit(fmt.Sprintf("/campaigns/c-%d/pause", i), "reason=look").want(t, http.StatusSeeOther)
	}
	for list, mark := range map[string]string{
		"/rows?limit=3": "row-c-", "/rows?limit=3&reverse=true": "row-c-", "/rows?limit=3&event_type=a": "row-c-", "/campaigns?limit=3&sort=lag": "campaign-c-",
		"/campaigns?limit=3&state=paused&reverse=true": "campaign-c-",
		"/publishers?limit=3":                          "publisher-a/",
	} {
		first := s.get(list).want(t, 200, "3 of 7 shown")
		second := s.get(first.link("next-page")).want(t, 200, "3 of 7 shown", `rel="prev"`, `rel="next"`)
		third := s.get(second.link("next-page")).want(t, 200, "1 of 7 shown", "the end")
		must.Hold(t, first.link("prev-page") == "" && first.link("first-page") == "" && third.link("next-page") == "", "%s: its ends lead further", list)
		if first.link("next-page") == "" || len(first.marks(mark)) != 3 {
			t.Fatalf("%s: the first page has %v", list, first.marks(mark))
		}
		if back := s.get(third.link("prev-page")); fmt.Sprint(back.marks(mark)) != fmt.Sprint(second.marks(mark)) {
			t.Errorf("%s: back from the third page is %v, want %v", list, back.marks(mark), second.marks(mark))
		} else if start := s.get(back.link("prev-page")); fmt.Sprint(start.marks(mark)) != fmt.Sprint(first.marks(mark)) || start.link("prev-page") != "" {
			t.Errorf("%s: back again is %v, want %v", list, start.marks(mark), first.marks(mark))
		}
		must.Equal(t, fmt.Sprint(s.get(third.link("first-page")).marks(mark)), fmt.Sprint(first.marks(mark)), list, "the first page")
	}
	page := decodeAs[outbox.Page[outbox.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause").want(t, 200))
	next := decodeAs[outbox.Page[outbox.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause&cursor="+*page.NextCursor).want(t, 200, `"total":7,"total_capped":false`))
	back := decodeAs[outbox.Page[outbox.AuditEntry]](t, s.get("/api/v1/audit?limit=3&action=pause&cursor="+*next.PrevCursor).want(t, 200, `"prev_cursor":null`))
	if len(page.Items) != 3 || fmt.Sprint(ids(back)) != fmt.Sprint(ids(page)) || next.Items[0].ID >= page.Items[2].ID {
		t.Errorf("acts are %v, then %v, then again %v", ids(page), ids(next), ids(back))
	}
}

func ids(page outbox.Page[outbox.AuditEntry]) (all []int64) {
	for _, a := range page.Items {
		all = append(all, a.ID)
	}
	return all
}

func TestLists_sortByHeadsThatHaveAnIndex(t *testing.T) {
	s := ownSite(t).trouble()
	s.seed("c-0", poison)
	s.work()
	for page, texts := range map[string][]string{
		"/rows":                               {`<a href="/rows?sort=seq">Row`, `<th scope="col">Status</th>`},
		"/rows?sort=seq":                      {`aria-sort="ascending"><a href="/rows?reverse=true&amp;sort=seq">Row`, `name="sort" value="seq"`},
		"/rows?reverse=true&sort=seq&q=c":     {`aria-sort="descending"><a href="/rows?q=c&amp;sort=seq">Row`, `name="reverse" value="true"`},
		"/rows?status=dead":                   {`aria-sort="ascending"><a href="/rows?reverse=true&amp;status=dead">Status, next attempt`, `<th scope="col">Row</th>`},
		"/rows?status=dead&campaign=c-1":      {`aria-sort="ascending"><a href="/rows?campaign=c-1&amp;reverse=true&amp;status=dead">Row`},
		"/campaigns":                          {`<a href="/campaigns?sort=id">Campaign`, `<a href="/campaigns?sort=lag">Behind`, `<a href="/campaigns?sort=age">For`, `<th scope="col">State</th>`},
		"/campaigns?sort=id":                  {`aria-sort="ascending"><a href="/campaigns?reverse=true&amp;sort=id">Campaign`},
		"/campaigns?sort=lag&state=blocked":   {`class="n ctl" aria-sort="descending"><a href="/campaigns?reverse=true&amp;sort=lag&amp;state=blocked">Behind`, `<a href="/campaigns?sort=id&amp;state=blocked">Campaign`},
		"/campaigns?sort=age&reverse=true":    {`aria-sort="ascending"><a href="/campaigns?sort=age">For`, `name="reverse" value="true"`},
		"/audit?action=pause&reverse=true":    {`No actions match`},
		"/export/rows?format=csv&reverse=tru": {},
	} {
		if strings.HasSuffix(page, "tru") {
			s.get(page).want(t, 422, "true or false")
			continue
		}
		s.get(page).want(t, 200, texts...)
	}
	first := s.get("/rows?status=dead").marks("row-")
	last := s.get("/rows?status=dead&reverse=true").marks("row-")
	must.Hold(t, len(first) == 2 && first[0] == last[1] && first[1] == last[0], "dead rows are %v, in reverse %v", first, last)
	s.submit("/campaigns/c-2/pause", "reason=look").want(t, http.StatusSeeOther)
	s.get("/audit").want(t, 200, `aria-sort="descending"><a href="/audit?reverse=true">When`)
	s.get("/campaigns/c-2").want(t, 200, `<th scope="col">When</th>`)
}

func TestRows_offerDeadOnesToBeChosen(t *testing.T) {
	s := ownSite(t).trouble()
	s.seed("a/b %?", poison)
	s.work()
	s.get("/rows").want(t, 200, `method="get" action="/operations/new"`, `type="checkbox" name="rows" value="c-1/2"`, `name="rows" value="a/b %?/1"`, "data-all").
		lacks(t, `value="c-1/3"`)
	s.get("/rows?status=pending").want(t, 200, "row-c-1-3").lacks(t, "/operations/new", "checkbox")
	readOnly := newSite(t, func(c *Config) { c.ReadOnly = true }).trouble()
	readOnly.get("/rows").want(t, 200, "row-c-1-2").lacks(t, "/operations/new", "checkbox")
}

func TestRows_revisionsTellWhatHasChanged(t *testing.T) {
	s := ownSite(t).trouble()
	revision := func(seq int) string {
		m := regexp.MustCompile(fmt.Sprintf(`id="row-c-1-%d" data-rev="([^"]+)"`, seq)).FindStringSubmatch(s.get("/rows").body)
		must.Need(t, m != nil, "row %d has no revision", seq)
		return m[1]
	}
	dead, waiting := revision(2), revision(3)
	must.Equal(t, dead, revision(2), "a row that has not changed has another revision")
	s.clock = s.clock.Add(time.Second)
	s.post("/api/v1/rows/c-1/2/requeue", "{}").want(t, 200)
	must.Hold(t, dead != revision(2) && waiting == revision(3), "of the two, the requeued row must have another revision")
}

func TestAudit_filtersByTime(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a")
	days := []string{"2026-11-20", "2026-11-21", "2026-11-22"}
	for i, day := range days {
		at := must.Get(time.Parse(time.DateOnly, day)).Or(t)
		s.clock = at.Add(23*time.Hour + 30*time.Minute)
		s.submit("/campaigns/c-1/"+[]string{"pause", "resume", "pause"}[i], "reason=day-"+day).want(t, http.StatusSeeOther)
	}
	for query, want := range map[string][]int{
		"since=2026-11-21": {1, 2}, "until=2026-11-21": {0, 1}, "since=2026-11-21&until=2026-11-21": {1}, "since=2026-11-21T23:30:00Z": {1, 2},
		"until=2026-11-21T23:30:00Z": {0}, "since=2026-11-21T23:30:00-01:00": {2}, "since=2026-11-23": {}, "campaign=c-1&since=2026-11-22": {2},
	} {
		a := s.get("/audit?"+strings.ReplaceAll(query, "+", "%2B")).want(t, 200)
		for i, day := range days {
			must.Equal(t, strings.Contains(a.body, "day-"+day), strings.Contains(fmt.Sprint(want), fmt.Sprint(i)), query, "act of", day, "shown")
		}
	}
	s.get("/audit?since=2026-11-21&until=2026-11-21").want(t, 200, `name="since" value="2026-11-21"`, `name="until" value="2026-11-21"`, "since=2026-11-21&amp;until=2026-11-21")
	for _, wrong := range []string{"since=soon", "until=2026-13-01", "since=0001-01-01", "until=9999-12-31", "since=2026-11-21T07"} {
		s.get("/api/v1/audit?"+wrong).want(t, 422, strings.SplitN(wrong, "=", 2)[0])
	}
}

func TestEvents_leadBack(t *testing.T) {
	s := ownSite(t)
	s.seed("c-1", "a", "b", "c", "d", "e")
	s.get("/api/v1/campaigns/c-1/events?limit=2").want(t, 200, `"next_cursor":"2","prev_cursor":null,"total":5`)
	s.get("/api/v1/campaigns/c-1/events?limit=2&cursor=2").want(t, 200, `"next_cursor":"4","prev_cursor":"0"`)
	s.get("/api/v1/campaigns/c-1/events?limit=2&after_seq=4&cursor=0").want(t, 200, `"seq":1`).lacks(t, `"seq":5`)
}
